//! What a decode came to.

use ptrail_pt::{Ledger, Picos};

use crate::SlowCall;

/// What a decode came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Command line of the recorded program; empty if unknown.
    pub command: Vec<String>,
    /// Threads decoded.
    pub threads: u64,
    /// Time of the first event.
    pub begin: Picos,
    /// Time of the last event.
    pub end: Picos,
    /// Instructions executed.
    pub instructions: u64,
    /// Function calls seen (gaps such as system calls not counted).
    pub calls: u64,
    /// Most frames open at once in one thread.
    pub deepest: usize,
    /// The slowest calls, slowest first.
    pub slowest: Vec<SlowCall>,
    /// What was lost.
    pub ledger: Ledger,
    /// Trace bytes there were.
    pub trace_bytes: u64,
    /// Of these, trace bytes that were not decoded.
    pub lost_bytes: u64,
    /// Times that would have gone backwards and were clamped.
    pub clamps: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, thread: &ptrail_stack::Summary) {
        self.begin = if self.threads == 0 {
            thread.begin
        } else {
            self.begin.min(thread.begin)
        };
        self.end = self.end.max(thread.end);
        self.threads += 1;
        self.instructions += thread.instructions;
        self.deepest = self.deepest.max(thread.deepest);
    }
}
