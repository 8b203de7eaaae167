//! The receiving end of the span stream.

use ptrail_pt::Loss;

use crate::{Function, Opened, Point, Rate, Recording, Span, Track, TrackId};

/// Why a sink could not take what it was given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// Writing failed; no file was left under the final name.
    #[error("cannot write {path}: {source}")]
    Io {
        /// The output's path.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The calls came in an order that the crate's front page rules out, so what is written would
    /// be wrong; no file was left under the final name.
    #[error("cannot write {path}: {what}")]
    Misuse {
        /// The output's path.
        path: std::path::PathBuf,
        /// What was wrong with the call.
        what: String,
    },
}

/// Takes the span stream; see the crate's front page for the order of calls.
pub trait SpanSink {
    /// Called once, first.
    ///
    /// # Errors
    /// As for every method: the output cannot be written.
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        let _ = recording;
        Ok(())
    }

    /// A track that later calls refer to.
    #[allow(clippy::missing_errors_doc)]
    fn track(&mut self, track: &Track) -> Result<(), SinkError>;

    /// A function that later calls refer to.
    #[allow(clippy::missing_errors_doc)]
    fn function(&mut self, function: &Function) -> Result<(), SinkError>;

    /// A function was entered.
    #[allow(clippy::missing_errors_doc)]
    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        let _ = opened;
        Ok(())
    }

    /// A function was left.
    #[allow(clippy::missing_errors_doc)]
    fn span(&mut self, span: &Span) -> Result<(), SinkError>;

    /// Something happened at one moment.
    #[allow(clippy::missing_errors_doc)]
    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        let _ = point;
        Ok(())
    }

    /// A part of this track's trace is missing or uncertain.
    #[allow(clippy::missing_errors_doc)]
    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        let _ = (track, loss);
        Ok(())
    }

    /// So many instructions ran in a stretch of time.
    #[allow(clippy::missing_errors_doc)]
    fn rate(&mut self, rate: &Rate) -> Result<(), SinkError> {
        let _ = rate;
        Ok(())
    }

    /// Called once, last: everything is closed, write what is left.
    #[allow(clippy::missing_errors_doc)]
    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Several sinks fed in one pass.
#[derive(Default)]
pub struct Fanout<'a> {
    sinks: Vec<&'a mut dyn SpanSink>,
}

impl<'a> Fanout<'a> {
    /// No sink yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One more sink.
    pub fn push(&mut self, sink: &'a mut dyn SpanSink) {
        self.sinks.push(sink);
    }

    fn each(
        &mut self,
        mut call: impl FnMut(&mut dyn SpanSink) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        self.sinks.iter_mut().try_for_each(|sink| call(*sink))
    }
}

impl SpanSink for Fanout<'_> {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        self.each(|sink| sink.begin(recording))
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        self.each(|sink| sink.track(track))
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        self.each(|sink| sink.function(function))
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        self.each(|sink| sink.open(opened))
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        self.each(|sink| sink.span(span))
    }

    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        self.each(|sink| sink.point(point))
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        self.each(|sink| sink.loss(track, loss))
    }

    fn rate(&mut self, rate: &Rate) -> Result<(), SinkError> {
        self.each(|sink| sink.rate(rate))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.each(|sink| sink.finish())
    }
}
