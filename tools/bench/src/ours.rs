//! This decoder, with each kind of sink.

use std::time::{Duration, Instant};

use anyhow::Result;
use ptrail_flow::{Decoder, Detail, Edge, OffCause, Passed, Segment, Sink, Step};
use ptrail_pt::{Ip, Loss, Time};

use crate::trace::Trace;
use crate::{Row, passes, timed};

/// Most events that are kept; then the memory is used again.
const KEPT: usize = 1 << 16;

pub(crate) fn calls(trace: &Trace, warm: Duration) -> Result<Option<Row>> {
    row::<Calls>(trace, warm).map(Some)
}

pub(crate) fn branches(trace: &Trace, warm: Duration) -> Result<Option<Row>> {
    row::<Branches>(trace, warm).map(Some)
}

pub(crate) fn instructions(trace: &Trace, warm: Duration) -> Result<Option<Row>> {
    row::<Instructions>(trace, warm).map(Some)
}

pub(crate) fn two_cores(trace: &Trace, warm: Duration) -> Result<Option<Row>> {
    Ok(Some(parallel(trace, warm, 2)))
}

trait Counts: Sink + Default {
    fn branches(&self) -> Option<u64> {
        None
    }
}

fn decoders<S: Counts>(trace: &Trace) -> Vec<Decoder<'_, S>> {
    let contexts = trace.contexts().into_iter();
    contexts
        .map(|context| Decoder::new(context, S::default()))
        .collect()
}

fn pass<'t, S: Counts>(
    decoders: &mut [Decoder<'_, S>],
    segments: impl Iterator<Item = &'t (usize, Segment<'t>)>,
) -> u64 {
    segments
        .map(|(stream, segment)| decoders[*stream].segment(segment).instructions)
        .sum()
}

fn row<S: Counts>(trace: &Trace, warm: Duration) -> Result<Row> {
    let segments: Vec<_> = trace.segments();
    let mut cold = f64::INFINITY;
    let mut instructions = 0;
    let mut branches = None;
    for _ in passes(warm) {
        let (mut decoders, seconds) = timed(|| {
            let mut decoders = decoders::<S>(trace);
            instructions = pass(&mut decoders, segments.iter());
            decoders
        })?;
        cold = cold.min(seconds);
        let counts = decoders.iter_mut().map(|decoder| decoder.sink().branches());
        branches = counts.sum();
    }
    let mut decoders = decoders::<S>(trace);
    let mut best = f64::INFINITY;
    for _ in passes(warm) {
        let (_, seconds) = timed(|| pass(&mut decoders, segments.iter()))?;
        best = best.min(seconds);
    }
    Ok(Row {
        cold,
        warm: Some(best),
        instructions: Some(instructions),
        branches,
    })
}

/// Every second segment on another core.
fn parallel(trace: &Trace, warm: Duration, cores: usize) -> Row {
    let segments: Vec<_> = trace.segments();
    let mut cold = f64::INFINITY;
    let mut instructions = 0;
    for _ in passes(warm) {
        let start = Instant::now();
        instructions = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..cores)
                .map(|first| {
                    let segments = segments.iter().skip(first).step_by(cores);
                    scope.spawn(move || pass(&mut decoders::<Calls>(trace), segments))
                })
                .collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or(0))
                .sum()
        });
        cold = cold.min(start.elapsed().as_secs_f64());
    }
    Row {
        cold,
        warm: None,
        instructions: Some(instructions),
        branches: None,
    }
}

/// Writes the events of the default detail down.
#[derive(Default)]
struct Calls {
    steps: Vec<Step>,
    anchors: Vec<(u64, Time)>,
}

impl Sink for Calls {
    fn edge(&mut self, _edge: &Edge, _instructions: u64) {}

    #[inline]
    fn edges(&mut self, passed: Passed<'_>) {
        if self.steps.len() > KEPT {
            self.steps.clear();
        }
        passed.append_to(&mut self.steps);
    }

    fn begin(&mut self, _ip: Ip, _instructions: u64) {}
    fn on(&mut self, _ip: Ip, _instructions: u64) {}
    fn off(&mut self, _ip: Ip, _next: Ip, _cause: OffCause, _instructions: u64) {}

    fn anchor(&mut self, instructions: u64, time: Time) {
        if self.anchors.len() > KEPT {
            self.anchors.clear();
        }
        self.anchors.push((instructions, time));
    }

    fn loss(&mut self, _loss: Loss, _broken: bool, _instructions: u64) {}
}

impl Counts for Calls {}

/// Counts branches.
#[derive(Default)]
struct Branches(u64);

impl Sink for Branches {
    const DETAIL: Detail = Detail::Branches;

    fn edge(&mut self, _edge: &Edge, _instructions: u64) {
        self.0 += 1;
    }

    fn edges(&mut self, passed: Passed<'_>) {
        self.0 += passed.steps.len() as u64;
    }

    fn begin(&mut self, _ip: Ip, _instructions: u64) {}
    fn on(&mut self, _ip: Ip, _instructions: u64) {}
    fn off(&mut self, _ip: Ip, _next: Ip, _cause: OffCause, _instructions: u64) {}
    fn anchor(&mut self, _instructions: u64, _time: Time) {}
    fn loss(&mut self, _loss: Loss, _broken: bool, _instructions: u64) {}
}

impl Counts for Branches {
    fn branches(&self) -> Option<u64> {
        Some(self.0)
    }
}

/// Adds up the addresses of all instructions.
#[derive(Default)]
struct Instructions(u64);

impl Sink for Instructions {
    const DETAIL: Detail = Detail::Instructions;

    fn instructions(&mut self, ips: &[Ip]) {
        self.0 = ips.iter().fold(self.0, |sum, ip| sum.wrapping_add(ip.0));
    }

    fn edge(&mut self, _edge: &Edge, _instructions: u64) {}
    fn begin(&mut self, _ip: Ip, _instructions: u64) {}
    fn on(&mut self, _ip: Ip, _instructions: u64) {}
    fn off(&mut self, _ip: Ip, _next: Ip, _cause: OffCause, _instructions: u64) {}
    fn anchor(&mut self, _instructions: u64, _time: Time) {}
    fn loss(&mut self, _loss: Loss, _broken: bool, _instructions: u64) {}
}

impl Counts for Instructions {}
