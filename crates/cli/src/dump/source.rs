//! Where packets come from: a `perf.data`, an LLDB trace bundle or a file of nothing but packets.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use ptrail_perfdata::{AuxStream, Capture, Owner, Record};
use ptrail_pipeline::Session;
use ptrail_pt::{Clock, CpuId, Lexer, Packet, PerfTime, PtConfig, TimeConv, TraceOffset, Tsc};
use serde_json::{Value, json};

use super::bundle;
use crate::args::DumpArgs;

/// The packets of one thread or CPU.
pub(super) struct Stream<'a> {
    pub(super) owner: Option<Owner>,
    pub(super) name: String,
    pub(super) bytes: Cow<'a, [u8]>,
}

impl Stream<'_> {
    /// Its packets from the first PSB on, and how many bytes are before: they may begin in the
    /// middle of a packet. Without any PSB it is all taken for packets.
    pub(super) fn lexer(&self, cpu: Option<CpuId>) -> (u64, Lexer<'_>) {
        let mut lexer = Lexer::new(&self.bytes, TraceOffset(0)).for_cpu(cpu);
        (lexer.seek_psb().unwrap_or(0), lexer)
    }

    /// For people.
    pub(super) fn title(&self) -> String {
        let name = &self.name;
        match self.owner {
            Some(Owner::Thread {
                pid: Some(pid),
                tid,
            }) => format!("{name} pid {pid} tid {tid}"),
            Some(Owner::Thread { pid: None, tid }) => format!("{name} tid {tid}"),
            Some(Owner::Cpu(cpu)) => format!("{name} cpu {cpu}"),
            None => name.clone(),
        }
    }

    /// Whose stream it is, as JSON fields.
    pub(super) fn owner_json(&self) -> Vec<(String, Value)> {
        match self.owner {
            Some(Owner::Thread { pid, tid }) => {
                vec![("pid".into(), json!(pid)), ("tid".into(), tid.into())]
            }
            Some(Owner::Cpu(cpu)) => vec![("cpu".into(), cpu.into())],
            None => Vec::new(),
        }
    }
}

/// Streams, and what their packets must be read with.
pub(super) struct Source {
    capture: Option<Capture>,
    /// Streams that are in no capture.
    loose: Vec<Stream<'static>>,
    config: PtConfig,
    conversion: Option<TimeConv>,
}

impl Source {
    /// Opens what the arguments name.
    pub(super) fn open(args: &DumpArgs) -> Result<Self> {
        let mut source = match (&args.raw, &args.input) {
            (Some(raw), _) => Self::raw(raw)?,
            (None, Some(input)) => match bundle::description(input) {
                Some(description) => bundle::open(&description)?,
                None => Self::perf_data(input)?,
            },
            (None, None) => bail!("no input; give a capture, or --raw FILE"),
        };
        source.config.cpu = args.cpu.or(source.config.cpu);
        Ok(source)
    }

    fn perf_data(input: &Path) -> Result<Self> {
        let capture = Capture::open(input)?;
        let (config, conversion) = (capture.pt_config, capture.clock);
        Ok(Self {
            capture: Some(capture),
            loose: Vec::new(),
            config,
            conversion,
        })
    }

    fn raw(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("{}: can't be read", path.display()))?;
        let stream = Stream {
            owner: None,
            name: path.display().to_string(),
            bytes: bytes.into(),
        };
        Ok(Self::loose(vec![stream], PtConfig::default(), None))
    }

    pub(super) fn loose(
        loose: Vec<Stream<'static>>,
        config: PtConfig,
        conversion: Option<TimeConv>,
    ) -> Self {
        Self {
            capture: None,
            loose,
            config,
            conversion,
        }
    }

    pub(super) fn streams(&self) -> Vec<Stream<'_>> {
        let borrowed = self.loose.iter().map(|stream| Stream {
            owner: stream.owner,
            name: stream.name.clone(),
            bytes: Cow::Borrowed(&stream.bytes[..]),
        });
        let assembled = self.capture.iter().flat_map(|capture| {
            capture
                .streams
                .iter()
                .map(|stream| assemble(capture, stream))
        });
        borrowed.chain(assembled).collect()
    }

    pub(super) fn cpu(&self) -> Option<CpuId> {
        self.config.cpu
    }

    /// Whether TSC ticks can be converted to perf time.
    pub(super) fn has_conversion(&self) -> bool {
        self.conversion.is_some()
    }

    /// Perf time at which the picoseconds are zero: that of the other dumps, or else that of the
    /// earliest TSC packet that is the first of its stream.
    pub(super) fn base(&self) -> PerfTime {
        let session = self.capture.as_ref().map(Session::new);
        if let Some(Ok(session)) = session {
            return session.base();
        }
        let streams = self.streams();
        let first = streams
            .iter()
            .filter_map(|stream| first_tsc(stream.lexer(self.cpu()).1));
        let to_perf = |tsc: Tsc| self.conversion.map_or(PerfTime(tsc.0), |c| c.to_perf(tsc));
        first.map(to_perf).min().unwrap_or_default()
    }

    /// A clock for one stream.
    pub(super) fn clock(&self, base: PerfTime) -> Clock {
        Clock::new(&self.config, self.conversion, base)
    }
}

/// Puts a stream's pieces together; a single piece is not copied.
fn assemble<'a>(capture: &'a Capture, stream: &AuxStream) -> Stream<'a> {
    let bytes = match stream.pieces.as_slice() {
        [piece] => Cow::Borrowed(capture.bytes(piece)),
        pieces => pieces
            .iter()
            .flat_map(|piece| capture.bytes(piece))
            .copied()
            .collect(),
    };
    Stream {
        owner: Some(stream.owner),
        name: name(capture, stream.owner),
        bytes,
    }
}

/// The last name of the thread.
fn name(capture: &Capture, owner: Owner) -> String {
    let Owner::Thread { tid, .. } = owner else {
        return "trace of".into();
    };
    let names = capture.sideband.iter().rev();
    let mut names = names.filter_map(|entry| match &entry.record {
        Record::Comm { name, .. } if entry.tid == Some(tid) => Some(name.clone()),
        _ => None,
    });
    names.next().unwrap_or_else(|| format!("thread {tid}"))
}

fn first_tsc(mut lexer: Lexer<'_>) -> Option<Tsc> {
    lexer.find_map(|item| match item.ok()?.packet {
        Packet::Tsc(tsc) => Some(Tsc(tsc)),
        _ => None,
    })
}
