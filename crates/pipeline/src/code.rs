//! From a capture's sideband to the code of its processes over time.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use ptrail_image::{ImageError, KERNEL, Mapping, Search, Timeline, TimelineBuilder};
use ptrail_perfdata::{Capture, Record, Sideband, read_jitdump};
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
    if let Some(kernel) = &capture.kernel {
        let symbols = std::fs::read(&kernel.kallsyms).unwrap_or_default();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        builder.kernel(&text(&kernel.kcore), &text(&kernel.kallsyms), &symbols)?;
    }
    for entry in &capture.sideband {
        // The copy has the kernel and its modules as they were.
        if entry.pid.is_none() && capture.kernel.is_some() {
            continue;
        }
        if jit(capture, entry, &options.search, &mut builder) {
            continue;
        }
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
    perf_maps(capture, &options.search, &mut builder);
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

/// Takes the code from a jitdump file, which a JIT compiler maps so that its mapping tells of it.
/// `false` if the record is no such mapping, or the file is not to be had.
fn jit(
    capture: &Capture,
    entry: &Sideband,
    search: &Search,
    builder: &mut TimelineBuilder,
) -> bool {
    let Record::Mmap2 { path, .. } = &entry.record else {
        return false;
    };
    let path = Path::new(path);
    let name = path.file_name().and_then(|name| name.to_str());
    if !name.is_some_and(|name| name.starts_with("jit-") && name.ends_with(".dump")) {
        return false;
    }
    let found = search.find(path);
    let Some(code) = found.and_then(|path| read_jitdump(&path, capture.clock).ok()) else {
        return false;
    };
    for blob in code {
        // The compiler knows its process by the number that its container gives it.
        let pid = entry.pid.unwrap_or(blob.pid);
        let time = PerfTime(blob.time);
        builder.code(pid, time, blob.address, &blob.name, blob.bytes);
    }
    true
}

/// Takes the perf maps of all processes. Those of this machine only if it is the recorded one: another
/// machine's processes have the same numbers.
fn perf_maps(capture: &Capture, search: &Search, builder: &mut TimelineBuilder) {
    let elsewhere = search.sysroot.is_some() || !search.moved.is_empty();
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if !elsewhere && here.trim_end() != capture.machine.hostname {
        return;
    }
    let pids: BTreeSet<u32> = capture
        .sideband
        .iter()
        .filter_map(|entry| entry.pid)
        .collect();
    for pid in pids {
        let path = format!("/tmp/perf-{pid}.map");
        let found = search.find(Path::new(&path));
        if let Some(text) = found.and_then(|path| std::fs::read(path).ok()) {
            builder.perf_map(pid, &path, &text);
        }
    }
}
