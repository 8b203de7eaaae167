//! A million frames.

use ptrail_flow::Sink as _;
use ptrail_flow::{Edge, EdgeKind};
use ptrail_pt::{Ip, PerfTime, Picos, Time};
use ptrail_stack::{Builder, Names};
use ptrail_trace::{Function, SinkError, Span, SpanSink, Track, TrackId};

use crate::script::{F, MAIN, PID, functions};

/// Keeps sums only, so that nothing but the builder needs memory.
#[derive(Default)]
struct Sums {
    spans: u64,
    own: u64,
    deepest: i32,
    outermost: u64,
}

impl SpanSink for Sums {
    fn track(&mut self, _: &Track) -> Result<(), SinkError> {
        Ok(())
    }

    fn function(&mut self, _: &Function) -> Result<(), SinkError> {
        Ok(())
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        self.spans += 1;
        self.own += span.self_instructions;
        self.deepest = self.deepest.max(span.depth);
        if span.depth == 0 {
            self.outermost = span.instructions;
        }
        Ok(())
    }
}

#[test]
fn a_million_frames_open_at_once() {
    const DEPTH: u64 = 1_000_000;
    let timeline = functions();
    let mut sums = Sums::default();
    let mut names = Names::new(&timeline);
    let mut builder = Builder::new(&mut names, PID, PerfTime(0), vec![], TrackId(0), &mut sums);
    let mut count = 0;
    let mut step = |builder: &mut Builder<'_, '_>, kind, from: u64, to: u64| {
        count += 1;
        let next = Ip(from + 5);
        let (from, to) = (Ip(from), Ip(to));
        builder.edge(
            &Edge {
                kind,
                from,
                to,
                next,
            },
            count,
        );
        if count % 1000 == 0 {
            let error = Picos(0);
            builder.anchor(
                count,
                Time {
                    at: Picos(count),
                    error,
                },
            );
        }
    };
    builder.begin(Ip(MAIN), 0);
    step(&mut builder, EdgeKind::Call, MAIN + 0x20, F);
    for _ in 1..DEPTH {
        step(&mut builder, EdgeKind::Call, F + 0x20, F);
    }
    for _ in 1..DEPTH {
        step(&mut builder, EdgeKind::Return, F + 0x90, F + 0x25);
    }
    step(&mut builder, EdgeKind::Return, F + 0x90, MAIN + 0x25);
    builder.end_segment(count).unwrap();
    let summary = builder.finish().unwrap();
    assert_eq!(summary.deepest as u64, DEPTH + 1);
    assert_eq!(sums.spans, DEPTH + 1);
    assert_eq!(sums.deepest as u64, DEPTH);
    assert_eq!((sums.own, sums.outermost), (2 * DEPTH, 2 * DEPTH));
}
