//! The hits of triggers, put among a track's events in the order of time.

use std::collections::VecDeque;

use ptrail_perfdata::{Capture, Extra, SnapshotNote};
use ptrail_pt::{Loss, PerfTime, Picos};
use ptrail_trace::{
    Function, Opened, Point, PointKind, Rate, Recording, SinkError, Span, SpanSink, Track, TrackId,
};

/// The hits of one thread.
pub(crate) fn hits(capture: &Capture, base: PerfTime, tid: u32) -> VecDeque<(Picos, String)> {
    let Some(extra) = &capture.extra else {
        return VecDeque::new();
    };
    let mut hits: Vec<_> = extra
        .snapshots
        .iter()
        .filter(|snapshot| snapshot.tid == tid)
        .map(|snapshot| {
            let at = snapshot.time.saturating_sub(base.0).saturating_mul(1000);
            (Picos(at), text(extra, snapshot))
        })
        .collect();
    hits.sort_by_key(|(at, _)| *at);
    hits.into()
}

fn text(extra: &Extra, snapshot: &SnapshotNote) -> String {
    let name = usize::try_from(snapshot.trigger)
        .ok()
        .and_then(|number| extra.triggers.get(number))
        .map_or("?", |trigger| &trigger.trigger);
    let mut text = format!("trigger: {name}");
    if let Some(took) = snapshot.took {
        text += &format!(", took {took} ns");
    }
    if let Some(arguments) = snapshot.arguments {
        let arguments = arguments.map(|argument| format!("{argument:#x}"));
        text += &format!(", arguments {}", arguments.join(" "));
    }
    text
}

/// Passes everything on, and the hits of one track at their times.
pub(crate) struct WithHits<'a> {
    sink: &'a mut dyn SpanSink,
    track: TrackId,
    hits: VecDeque<(Picos, String)>,
}

impl<'a> WithHits<'a> {
    pub(crate) fn new(
        sink: &'a mut dyn SpanSink,
        track: TrackId,
        hits: VecDeque<(Picos, String)>,
    ) -> Self {
        Self { sink, track, hits }
    }

    /// The hits that are left: the track has no more events.
    pub(crate) fn rest(mut self) -> Result<(), SinkError> {
        self.up_to(Picos(u64::MAX))
    }

    fn up_to(&mut self, time: Picos) -> Result<(), SinkError> {
        while let Some((at, _)) = self.hits.front()
            && *at <= time
            && let Some((at, text)) = self.hits.pop_front()
        {
            self.sink.point(&Point {
                track: self.track,
                at,
                kind: PointKind::Trigger,
                text,
            })?;
        }
        Ok(())
    }
}

impl SpanSink for WithHits<'_> {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        self.sink.begin(recording)
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        self.sink.track(track)
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        self.sink.function(function)
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        self.up_to(opened.begin)?;
        self.sink.open(opened)
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        self.up_to(span.end)?;
        self.sink.span(span)
    }

    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        self.up_to(point.at)?;
        self.sink.point(point)
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        self.sink.loss(track, loss)
    }

    fn rate(&mut self, rate: &Rate) -> Result<(), SinkError> {
        self.sink.rate(rate)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.sink.finish()
    }
}
