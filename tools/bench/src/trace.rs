//! What is decoded.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use ptrail_flow::{Context, Segment, cut};
use ptrail_image::{Timeline, TimelineBuilder};
use ptrail_perfdata::Capture;
use ptrail_pipeline::{Session, Stream};
use ptrail_pt::{CpuId, PerfTime, PtConfig, TimeConv, TraceOffset, Vendor};

/// The process of a folder of pages.
const PID: u32 = 1;

/// A trace with its code.
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Pages(Box<Pages>),
    /// Lives as long as the program.
    PerfData(Box<Session<'static>>),
}

/// A trace of one process with the memory pages it ran on.
pub(crate) struct Pages {
    pub(crate) bytes: Vec<u8>,
    pub(crate) pages: Vec<(u64, Vec<u8>)>,
    timeline: Timeline,
    config: PtConfig,
}

impl Trace {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let kind = if path.is_dir() {
            Kind::Pages(Box::new(Pages::open(path)?))
        } else {
            let capture: &'static Capture = Box::leak(Box::new(Capture::open(path)?));
            Kind::PerfData(Box::new(Session::new(capture)?))
        };
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            path: path.to_owned(),
            kind,
        })
    }

    /// How many bytes of packets there are.
    pub(crate) fn len(&self) -> u64 {
        match &self.kind {
            Kind::Pages(pages) => pages.bytes.len() as u64,
            Kind::PerfData(session) => session.streams().iter().map(Stream::len).sum(),
        }
    }

    /// With what each stream is decoded.
    pub(crate) fn contexts(&self) -> Vec<Context<'_>> {
        match &self.kind {
            Kind::Pages(pages) => vec![Context {
                timeline: &pages.timeline,
                pid: PID,
                config: &pages.config,
                conversion: None::<TimeConv>,
                base: PerfTime(0),
            }],
            Kind::PerfData(session) => {
                let streams = session.streams().iter();
                streams.map(|stream| session.context(stream)).collect()
            }
        }
    }

    /// All segments, each with the number of its stream.
    pub(crate) fn segments(&self) -> Vec<(usize, Segment<'_>)> {
        match &self.kind {
            Kind::Pages(pages) => {
                let segments = cut(&pages.bytes, TraceOffset(0)).segments;
                segments.into_iter().map(|segment| (0, segment)).collect()
            }
            Kind::PerfData(session) => {
                let streams = session.streams().iter().enumerate();
                let parts =
                    streams.flat_map(|(n, stream)| stream.parts.iter().map(move |p| (n, p)));
                parts
                    .flat_map(|(n, part)| part.segments().0.into_iter().map(move |s| (n, s)))
                    .collect()
            }
        }
    }
}

impl Pages {
    fn open(folder: &Path) -> Result<Self> {
        let read = |name: &str| fs::read(folder.join(name)).with_context(|| name.to_owned());
        let (bytes, addresses, dump) =
            (read("trace.pt")?, read("pages.addr")?, read("pages.dump")?);
        ensure!(
            addresses.len() / 8 * 4096 == dump.len(),
            "pages and addresses differ"
        );
        let mut builder = TimelineBuilder::new();
        let mut pages = Vec::new();
        for (address, page) in addresses.as_chunks().0.iter().zip(dump.chunks_exact(4096)) {
            let address = u64::from_le_bytes(*address);
            // Such an address marks a page that could not be read.
            if address & 0xfff == 0 {
                builder.code(PID, PerfTime(0), address, "page", page.to_vec());
                pages.push((address, page.to_vec()));
            }
        }
        let config = PtConfig {
            cpu: Some(CpuId {
                vendor: Vendor::Intel,
                family: 6,
                model: 94,
                stepping: 3,
            }),
            ..PtConfig::default()
        };
        Ok(Self {
            bytes,
            pages,
            timeline: builder.build(),
            config,
        })
    }
}
