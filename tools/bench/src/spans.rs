//! This decoder with the call stacks behind it: the spans, which nobody takes.

use std::time::Duration;

use anyhow::Result;
use ptrail_flow::{Context, Decoder};
use ptrail_stack::{Builder, Names};
use ptrail_trace::{Function, SinkError, Span, SpanSink, Track, TrackId};

use crate::trace::Trace;
use crate::{Row, passes, timed};

pub(crate) fn spans(trace: &Trace, warm: Duration) -> Result<Option<Row>> {
    let mut cold = f64::INFINITY;
    let mut instructions = 0;
    for _ in passes(warm) {
        let (result, seconds) = timed(|| pass(trace))?;
        instructions = result?;
        cold = cold.min(seconds);
    }
    Ok(Some(Row {
        cold,
        // The stack is another one after each pass.
        warm: None,
        instructions: Some(instructions),
        branches: None,
    }))
}

fn pass(trace: &Trace) -> Result<u64> {
    let contexts = trace.contexts();
    let parts = contexts
        .iter()
        .map(|context| (context, Names::new(context.timeline), Nobody));
    let mut parts: Vec<_> = parts.collect();
    let decoders = parts.iter_mut().map(|(context, names, nobody)| {
        let Context { pid, base, .. } = **context;
        let builder = Builder::new(names, pid, base, Vec::new(), TrackId(0), nobody);
        Decoder::new(**context, builder)
    });
    let mut decoders: Vec<_> = decoders.collect();
    let mut sum = 0;
    for (stream, segment) in trace.segments() {
        let instructions = decoders[stream].segment(&segment).instructions;
        decoders[stream].sink().end_segment(instructions)?;
        sum += instructions;
    }
    Ok(sum)
}

/// Takes spans and forgets them.
struct Nobody;

impl SpanSink for Nobody {
    fn track(&mut self, _: &Track) -> Result<(), SinkError> {
        Ok(())
    }

    fn function(&mut self, _: &Function) -> Result<(), SinkError> {
        Ok(())
    }

    fn span(&mut self, _: &Span) -> Result<(), SinkError> {
        Ok(())
    }
}
