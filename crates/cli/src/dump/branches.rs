//! Every branch that was taken: time, kind, from, to.

use std::io::{self, Write};

use ptrail_flow::{Detail, Edge, EdgeKind, OffCause, Sink};
use ptrail_pt::{Ip, Loss, Picos, Time};
use serde_json::json;

use super::{Lines, nanoseconds};

pub(super) struct BranchLines<'a, W> {
    pub(super) out: &'a mut W,
    pub(super) json: bool,
    pub(super) tid: u32,
    pub(super) at: Picos,
    pub(super) failed: Option<io::Error>,
}

impl<W: Write> BranchLines<'_, W> {
    fn line(&mut self, kind: &str, from: Option<Ip>, to: Option<Ip>) {
        if self.failed.is_some() {
            return;
        }
        let hex = |ip: Option<Ip>| ip.map(|ip| format!("{ip:#x}"));
        let written = if self.json {
            let (from, to) = (hex(from), hex(to));
            let object =
                json!({"tid": self.tid, "at_ps": self.at.0, "kind": kind, "from": from, "to": to});
            writeln!(self.out, "{object}")
        } else {
            let or_dash = |ip| hex(ip).unwrap_or_else(|| "-".into());
            let (from, to) = (or_dash(from), or_dash(to));
            writeln!(
                self.out,
                "{:>16}  {kind:<11}  {from:>18} -> {to}",
                nanoseconds(self.at)
            )
        };
        self.failed = written.err();
    }
}

impl<W: Write> Sink for BranchLines<'_, W> {
    const DETAIL: Detail = Detail::Branches;

    fn edge(&mut self, edge: &Edge, _instructions: u64) {
        let kind = match edge.kind {
            EdgeKind::Conditional => "conditional",
            EdgeKind::Jump | EdgeKind::JumpIndirect => "jump",
            EdgeKind::Call => "call",
            EdgeKind::Return => "return",
            EdgeKind::Far => "far",
            EdgeKind::FarReturn => "far-return",
            EdgeKind::Async => "async",
            EdgeKind::TsxAbort => "tsx-abort",
        };
        self.line(kind, Some(edge.from), Some(edge.to));
    }

    fn begin(&mut self, _ip: Ip, _instructions: u64) {}

    fn on(&mut self, ip: Ip, _instructions: u64) {
        self.line("on", None, Some(ip));
    }

    fn off(&mut self, ip: Ip, _next: Ip, cause: OffCause, _instructions: u64) {
        let kind = match cause {
            OffCause::Syscall => "off-syscall",
            OffCause::FarTransfer => "off-far",
            OffCause::Async => "off-async",
            OffCause::Filter => "off-filter",
        };
        self.line(kind, Some(ip), None);
    }

    fn anchor(&mut self, _instructions: u64, time: Time) {
        self.at = time.at;
    }

    fn loss(&mut self, loss: Loss, _broken: bool, _instructions: u64) {
        self.line(&format!("loss:{}", loss.cause.name()), loss.ip, None);
    }
}

impl<W: Write> Lines for BranchLines<'_, W> {
    fn take_error(&mut self) -> Option<io::Error> {
        self.failed.take()
    }
}
