//! From a capture's sideband to the code of its processes over time.

use std::ops::Range;

use ptrail_image::{ImageError, KERNEL, Mapping, Search, Timeline, TimelineBuilder};
use ptrail_perfdata::{Capture, Record};
use ptrail_pt::PerfTime;

/// What the user knows about the code that the capture does not.
#[derive(Clone, Debug)]
pub struct CodeOptions {
    /// Code that lies in every process.
    pub given: Vec<GivenCode>,
    /// Where the files are.
    pub search: Search,
}

impl Default for CodeOptions {
    fn default() -> Self {
        Self {
            given: Vec::new(),
            search: Search::of_this_machine(),
        }
    }
}

/// Code that lies in every process, whatever else the capture says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenCode {
    /// The file.
    pub path: String,
    /// Which bytes of it; all of it if `None` (an ELF file then as the system loads it).
    pub part: Option<Range<u64>>,
    /// Where they lie.
    pub address: u64,
}

/// Builds the address spaces of a capture.
///
/// # Errors
/// Code that the user gave can't be read.
pub fn timeline(capture: &Capture, options: &CodeOptions) -> Result<Timeline, ImageError> {
    let mut builder = TimelineBuilder::new();
    builder.search(options.search.clone());
    for GivenCode {
        path,
        part,
        address,
    } in &options.given
    {
        builder.everywhere(path, part.clone(), *address)?;
    }
    for entry in &capture.sideband {
        let time = PerfTime(entry.time.unwrap_or(0));
        let pid = entry.pid.unwrap_or(KERNEL);
        match &entry.record {
            Record::Mmap2 {
                address,
                len,
                file_offset,
                executable: true,
                path,
                build_id,
            } => {
                builder.map(
                    pid,
                    time,
                    Mapping {
                        address: *address,
                        len: *len,
                        file_offset: *file_offset,
                        path: path.clone(),
                        build_id: build_id.clone(),
                    },
                );
            }
            Record::Module {
                address,
                path,
                build_id,
            } => builder.module(pid, time, *address, path, build_id.clone()),
            Record::Comm { exec: true, .. } => builder.exec(pid, time),
            Record::Fork { parent_pid, .. } if *parent_pid != pid => {
                builder.fork(pid, *parent_pid, time)
            }
            _ => {}
        }
    }
    for blob in capture.extra.iter().flat_map(|extra| &extra.code) {
        builder.code(
            blob.pid,
            PerfTime(blob.time),
            blob.address,
            &blob.name,
            blob.bytes.clone(),
        );
    }
    Ok(builder.build())
}
