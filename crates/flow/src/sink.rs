//! What a decoder of control flow reports, and to whom.

use std::collections::HashMap;
use std::num::NonZeroU32;

use ptrail_pt::{Ip, Loss, Time};
use rustc_hash::FxBuildHasher;

/// What kind of branch an [`Edge`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// Conditional branch, taken.
    Conditional,
    /// Direct near jump.
    Jump,
    /// Indirect near jump.
    JumpIndirect,
    /// Near call.
    Call,
    /// Near return.
    Return,
    /// Far transfer whose target is traced too (a system call with kernel tracing).
    Far,
    /// Far return whose target is traced too (IRET, SYSRET).
    FarReturn,
    /// Interrupt, exception or other asynchronous event: `from` did not execute.
    Async,
    /// Transaction aborted: `from` did not execute.
    TsxAbort,
}

/// Control went from one address to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Number of an [`Edge`] in the table of one decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EdgeId(NonZeroU32);

impl EdgeId {
    /// Place in [`Passed::table`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// An edge that was passed, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which edge.
    pub edge: EdgeId,
    /// Instructions executed since the start of the run, the branch itself included.
    pub instructions: u32,
}

/// Edges that were passed one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Passed<'e> {
    /// Where `steps` begin, and perhaps more.
    pool: &'e [Step],
    /// The edges, in order.
    pub steps: &'e [Step],
    /// Instructions executed before the run, since the start of the segment.
    pub before: u64,
    /// All edges that the decoder met so far, by [`EdgeId`]. It only grows.
    pub table: &'e [Edge],
}

impl<'e> Passed<'e> {
    /// The first `count` edges of a pool; all, if it has fewer.
    #[inline]
    #[must_use]
    pub fn new(pool: &'e [Step], count: usize, before: u64, table: &'e [Edge]) -> Self {
        Self {
            pool,
            steps: &pool[..count.min(pool.len())],
            before,
            table,
        }
    }

    /// The edges, each with the number of instructions since the start of the segment.
    pub fn edges(self) -> impl Iterator<Item = (&'e Edge, u64)> {
        self.steps.iter().map(move |step| {
            let edge = &self.table[step.edge.index()];
            (edge, self.before + u64::from(step.instructions))
        })
    }

    /// Appends the steps to a list: the same as `extend_from_slice`, faster where they are few.
    #[inline]
    pub fn append_to(self, list: &mut Vec<Step>) {
        const FEW: usize = 4;
        match self.pool.first_chunk::<FEW>() {
            // So many at once, and those taken back that are too many.
            Some(chunk) if self.steps.len() <= FEW => {
                let len = list.len() + self.steps.len();
                list.extend_from_slice(chunk);
                list.truncate(len);
            }
            _ => list.extend_from_slice(self.steps),
        }
    }
}

/// The edges a decoder met, each once.
#[derive(Default)]
pub(crate) struct Edges {
    table: Vec<Edge>,
    ids: HashMap<Edge, EdgeId, FxBuildHasher>,
}

impl Edges {
    pub(crate) fn id(&mut self, edge: Edge) -> EdgeId {
        *self.ids.entry(edge).or_insert_with(|| {
            self.table.push(edge);
            let number = u32::try_from(self.table.len())
                .ok()
                .and_then(NonZeroU32::new);
            EdgeId(number.expect("fewer than 2^32 edges fit in memory"))
        })
    }

    #[inline]
    pub(crate) fn table(&self) -> &[Edge] {
        &self.table
    }
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

/// How much of the path a sink wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// What can change the function or the stack: calls, returns, jumps and conditional branches
    /// from one function to another, far transfers and events.
    Calls,
    /// All branches that were taken.
    Branches,
    /// All branches that were taken, and all instructions.
    Instructions,
}

/// Takes the events of a decoded segment, in the order of execution.
///
/// Instructions are counted from the start of the segment. An *anchor* ties such a count to a
/// time; events between two anchors happened between their times.
pub trait Sink {
    /// How much is wanted; a constant, so that what is not wanted costs nothing.
    const DETAIL: Detail = Detail::Calls;

    /// Instructions executed, one after the other. Only with [`Detail::Instructions`].
    fn instructions(&mut self, ips: &[Ip]) {
        let _ = ips;
    }

    /// Control went elsewhere; `instructions` counts the branch itself if it executed.
    fn edge(&mut self, edge: &Edge, instructions: u64);

    /// The same for several edges in a row.
    #[inline]
    fn edges(&mut self, passed: Passed<'_>) {
        for (edge, instructions) in passed.edges() {
            self.edge(edge, instructions);
        }
    }

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

impl<S: Sink> Sink for &mut S {
    const DETAIL: Detail = S::DETAIL;

    fn instructions(&mut self, ips: &[Ip]) {
        (**self).instructions(ips);
    }

    fn edge(&mut self, edge: &Edge, instructions: u64) {
        (**self).edge(edge, instructions);
    }

    #[inline]
    fn edges(&mut self, passed: Passed<'_>) {
        (**self).edges(passed);
    }

    fn begin(&mut self, ip: Ip, instructions: u64) {
        (**self).begin(ip, instructions);
    }

    fn on(&mut self, ip: Ip, instructions: u64) {
        (**self).on(ip, instructions);
    }

    fn off(&mut self, ip: Ip, next: Ip, cause: OffCause, instructions: u64) {
        (**self).off(ip, next, cause, instructions);
    }

    fn anchor(&mut self, instructions: u64, time: Time) {
        (**self).anchor(instructions, time);
    }

    fn loss(&mut self, loss: Loss, broken: bool, instructions: u64) {
        (**self).loss(loss, broken, instructions);
    }
}
