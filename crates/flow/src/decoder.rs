//! A decoder: the engine, and what it learned about the code.

use std::collections::HashMap;

use ptrail_image::{Timeline, VersionId};
use ptrail_pt::{ExecMode, PerfTime, PtConfig, TimeConv};

use crate::engine::Engine;
use crate::graph::Graph;
use crate::sink::Edges;
use crate::{Segment, Sink};

/// What segments are decoded with.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The code.
    pub timeline: &'a Timeline,
    /// The process whose code it is.
    pub pid: u32,
    /// The trace unit's settings.
    pub config: &'a PtConfig,
    /// From TSC to perf clock.
    pub conversion: Option<TimeConv>,
    /// Perf-clock time at which [`Picos`](ptrail_pt::Picos) are zero.
    pub base: PerfTime,
}

/// How a segment ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Instructions decoded.
    pub instructions: u64,
    /// Trace bytes lost.
    pub lost_bytes: u64,
    /// Times that would have gone backwards and were clamped.
    pub clamps: u64,
}

/// Decodes segments, in any order. What it reports for one does not depend on those before.
pub struct Decoder<'a, S> {
    pub(crate) context: Context<'a>,
    pub(crate) sink: S,
    pub(crate) edges: Edges,
    pub(crate) graphs: Graphs<'a>,
}

/// The code as far as it is known, by mappings and code width.
pub(crate) type Graphs<'a> = HashMap<(VersionId, ExecMode), Graph<'a>>;

impl<'a, S: Sink> Decoder<'a, S> {
    /// A decoder that reports to `sink` and knows no code yet.
    pub fn new(context: Context<'a>, sink: S) -> Self {
        Self {
            context,
            sink,
            edges: Edges::default(),
            graphs: HashMap::new(),
        }
    }

    /// Decodes one segment.
    pub fn segment(&mut self, segment: &Segment<'_>) -> SegmentEnd {
        Engine::new(self).run(segment)
    }

    /// The sink.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// The sink, at the end.
    pub fn into_sink(self) -> S {
        self.sink
    }
}
