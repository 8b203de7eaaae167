//! What a decoder of control flow reports, and to whom.

use ptrail_pt::{Ip, Loss, Time};

/// What kind of branch an [`Edge`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// Conditional branch, taken.
    Conditional,
    /// Direct or indirect near jump.
    Jump,
    /// Near call.
    Call,
    /// Near return.
    Return,
    /// Far transfer whose target is traced too (a system call with kernel tracing, IRET).
    Far,
    /// Interrupt, exception or other asynchronous event: `from` did not execute.
    Async,
    /// Transaction aborted: `from` did not execute.
    TsxAbort,
}

/// Control went from one address to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// What kind of branch.
    pub kind: EdgeKind,
    /// Address of the branch, or of the interrupted instruction.
    pub from: Ip,
    /// Where it went.
    pub to: Ip,
    /// Address behind the branch: where a call returns to. Equal to `from` for asynchronous events.
    pub next: Ip,
}

/// Why tracing was switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OffCause {
    /// By a system call instruction.
    Syscall,
    /// By another far transfer (INT n, IRET, SYSRET).
    FarTransfer,
    /// By an interrupt, exception or signal: the instruction at this address did not execute.
    Async,
    /// By a near branch out of the traced range (address filter).
    Filter,
}

/// Takes the events of a decoded segment, in the order of execution.
///
/// Instructions are counted from the start of the segment. An *anchor* ties such a count to a
/// time; events between two anchors happened between their times.
pub trait Sink {
    /// Whether [`instruction`](Self::instruction) is wanted; a constant, so that it costs nothing
    /// where it is not.
    const INSTRUCTIONS: bool = false;

    /// An instruction executed.
    fn instruction(&mut self, ip: Ip) {
        let _ = ip;
    }

    /// Control went elsewhere; `instructions` counts the branch itself if it executed.
    fn edge(&mut self, edge: &Edge, instructions: u64);

    /// The path is known from `ip` on: a segment starts there, or a loss ends. Where the segment
    /// before ended with tracing on, it goes on here without a break.
    fn begin(&mut self, ip: Ip, instructions: u64);

    /// Tracing was switched on at `ip`.
    fn on(&mut self, ip: Ip, instructions: u64);

    /// Tracing was switched off by (or, for asynchronous causes, before) the instruction at `ip`;
    /// `next` is the address behind it (for asynchronous causes, `ip`).
    fn off(&mut self, ip: Ip, next: Ip, cause: OffCause, instructions: u64);

    /// After `instructions` instructions, it was `time`.
    fn anchor(&mut self, instructions: u64, time: Time);

    /// Something is missing here. If `broken`, the path before and the path after don't connect.
    fn loss(&mut self, loss: Loss, broken: bool, instructions: u64);
}
