//! Packets as the capture has them: by thread or CPU, not yet by who ran.

use std::borrow::Cow;

use ptrail_perfdata::{AuxStream, Capture, Owner};
use ptrail_pt::{CpuId, Lexer, TraceOffset};
use serde_json::{Value, json};

/// The packets of one thread or CPU.
pub(super) struct Stream<'a> {
    owner: Owner,
    pub(super) name: String,
    pub(super) bytes: Cow<'a, [u8]>,
}

/// All streams of a capture.
pub(super) fn streams(capture: &Capture) -> Vec<Stream<'_>> {
    let stream = |stream: &AuxStream| Stream {
        owner: stream.owner,
        name: name(capture, stream.owner),
        bytes: capture.stream_bytes(stream),
    };
    capture.streams.iter().map(stream).collect()
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
            Owner::Thread {
                pid: Some(pid),
                tid,
            } => format!("{name} pid {pid} tid {tid}"),
            Owner::Thread { pid: None, tid } => format!("{name} tid {tid}"),
            Owner::Cpu(cpu) => format!("{name} cpu {cpu}"),
            Owner::Unknown => name.clone(),
        }
    }

    /// Whose stream it is, as JSON fields.
    pub(super) fn owner_json(&self) -> Vec<(String, Value)> {
        match self.owner {
            Owner::Thread { pid, tid } => {
                vec![("pid".into(), json!(pid)), ("tid".into(), tid.into())]
            }
            Owner::Cpu(cpu) => vec![("cpu".into(), cpu.into())],
            Owner::Unknown => Vec::new(),
        }
    }
}

/// The last name of the thread.
fn name(capture: &Capture, owner: Owner) -> String {
    match owner {
        Owner::Thread { tid, .. } => capture
            .thread_name(tid)
            .map_or_else(|| format!("thread {tid}"), str::to_owned),
        Owner::Cpu(_) => "trace of".into(),
        Owner::Unknown => "raw packets".into(),
    }
}
