//! Figures for the summary, taken from the span stream on its way to the outputs.

use std::collections::HashMap;

use ptrail_pt::{Ledger, Loss, Picos};
use ptrail_trace::{Function, FunctionId, SinkError, Span, SpanFlags, SpanSink, Track, TrackId};
use rustc_hash::FxBuildHasher;

/// How many of the slowest calls are kept.
const KEPT: usize = 5;
/// A call of which one callee took more than this share (in 1/100) only passes on that callee's
/// slowness and is not listed itself.
const WRAPPER_SHARE: u64 = 90;

/// A slow call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCall {
    /// Readable name.
    pub function: String,
    /// Image it is from; empty if none.
    pub module: String,
    /// When it was entered.
    pub begin: Picos,
    /// How long it took.
    pub duration: Picos,
    /// Instructions executed in it and what it called.
    pub instructions: u64,
}

/// Counts calls, keeps the slowest, and collects the losses.
#[derive(Default)]
pub struct Statistics {
    names: HashMap<FunctionId, (String, String)>,
    /// The longest callee so far of the open frame at each depth, per track.
    callees: HashMap<(TrackId, i32), u64, FxBuildHasher>,
    slowest: Vec<Span>,
    calls: u64,
    ledger: Ledger,
}

impl Statistics {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls seen; gaps are none.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The losses, handed over.
    pub fn take_ledger(&mut self) -> Ledger {
        std::mem::take(&mut self.ledger)
    }

    /// The slowest calls, slowest first; those that only waited for one slow callee are left out.
    #[must_use]
    pub fn slowest(&self) -> Vec<SlowCall> {
        self.slowest
            .iter()
            .map(|span| {
                let (function, module) =
                    self.names.get(&span.function).cloned().unwrap_or_default();
                SlowCall {
                    function,
                    module,
                    begin: span.begin,
                    duration: duration(span),
                    instructions: span.instructions,
                }
            })
            .collect()
    }

    fn consider(&mut self, span: &Span) {
        let place = self
            .slowest
            .partition_point(|other| duration(other) >= duration(span));
        if place < KEPT {
            self.slowest.insert(place, *span);
            self.slowest.truncate(KEPT);
        }
    }
}

fn duration(span: &Span) -> Picos {
    Picos(span.end.0 - span.begin.0)
}

impl SpanSink for Statistics {
    fn track(&mut self, _track: &Track) -> Result<(), SinkError> {
        Ok(())
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        self.names.insert(
            function.id,
            (function.name.clone(), function.module.clone()),
        );
        Ok(())
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        let longest_callee = self.callees.remove(&(span.track, span.depth)).unwrap_or(0);
        let took = duration(span).0;
        let to_caller = self
            .callees
            .entry((span.track, span.depth - 1))
            .or_default();
        *to_caller = (*to_caller).max(took);
        if span.flags.contains(SpanFlags::GAP) {
            return Ok(());
        }
        self.calls += 1;
        if longest_callee.saturating_mul(100) <= took.saturating_mul(WRAPPER_SHARE) {
            self.consider(span);
        }
        Ok(())
    }

    fn loss(&mut self, _track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        self.ledger.add(loss.clone());
        Ok(())
    }
}
