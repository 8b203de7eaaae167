//! Spans for OpenTelemetry's backends and for Zipkin: each with an id and its parent's.
//!
//! ```text
//! [the span given with `--trace-parent`]
//! └ demo --fast                     the recording
//!   ├ thread demo 7                 a thread; one for each part between losses
//!   │ └ main
//!   │   └ parse
//!   └ lost: overflow                no time of its own where the loss has none
//! ```
//!
//! Attributes are those of the semantic conventions (`code.function.name`, `code.file.path`,
//! `code.line.number`, `thread.id`, `thread.name`) and our own, which begin with `ptrail.`. Times are
//! of the wall clock; if the capture does not know it, they are those of the perf clock.
//!
//! *Ids* are drawn from the recording's begin and command, so the same capture gives the same file;
//! the trace's too, unless a parent gives it.
//!
//! *Parents.* Spans are written when they end, so before their parents. A span that nothing encloses
//! yet gets a parent all the same: the id that the next late caller of its part will have, or the
//! thread's span if none comes.

mod json;
mod protobuf;
mod tree;
mod zipkin;

use std::{fmt, path::Path, str::FromStr};

use ptrail_pt::Loss;
use ptrail_trace::{Function, Opened, Point, Recording, SinkError, Span, SpanSink, Track, TrackId};

use crate::output::Output;
use json::Json;
use protobuf::Protobuf;
use tree::{Node, Tree};
use zipkin::Zipkin;

/// A format for spans with parents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtelKind {
    /// OTLP, protobuf.
    Protobuf,
    /// OTLP, JSON with hexadecimal ids.
    Json,
    /// Zipkin v2 JSON.
    Zipkin,
}

/// The span that a recording happened in, as W3C's `traceparent` header writes it:
/// `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; not 0.
    pub trace: u128,
    /// The span; not 0.
    pub span: u64,
}

/// The text is no `traceparent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTraceParent(String);

impl fmt::Display for BadTraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no traceparent, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            self.0
        )
    }
}

impl std::error::Error for BadTraceParent {}

impl FromStr for TraceParent {
    type Err = BadTraceParent;

    fn from_str(text: &str) -> Result<Self, BadTraceParent> {
        let hex = |part: &str, digits: usize| {
            let fits = part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit());
            fits.then(|| u128::from_str_radix(part, 16).ok()).flatten()
        };
        let parts: Vec<_> = text.split('-').collect();
        let read = || {
            // A later version may have more parts.
            let (&[version, trace, span, flags], rest) = parts.split_first_chunk::<4>()?;
            let version = hex(version, 2)?;
            hex(flags, 2)?;
            (version != 0xff && (version != 0 || rest.is_empty())).then_some(())?;
            let (trace, span) = (hex(trace, 32)?, hex(span, 16)? as u64);
            (trace != 0 && span != 0).then_some(Self { trace, span })
        };
        read().ok_or_else(|| BadTraceParent(text.to_owned()))
    }
}

/// Writes spans with parents.
pub struct OtelWriter {
    output: Output,
    tree: Tree,
    encoder: Box<dyn Encoder>,
}

/// One of the formats.
trait Encoder {
    /// What stands before all spans.
    fn begin(&mut self, about: &About, output: &mut Output) -> Result<(), SinkError>;
    fn span(&mut self, node: &Node<'_>, output: &mut Output) -> Result<(), SinkError>;
    /// What stands behind them.
    fn end(&mut self, output: &mut Output) -> Result<(), SinkError>;
}

/// What is the same for all spans.
#[derive(Clone, Debug)]
struct About {
    trace: u128,
    /// The program's name.
    service: String,
    /// What the recording is.
    source: &'static str,
}

impl OtelWriter {
    /// Opens an output; the file appears under `path` in [`SpanSink::finish`]. The spans belong to
    /// `parent`.
    ///
    /// # Errors
    /// No temporary file can be made in the folder of `path`, or `path` is a folder.
    pub fn create(
        kind: OtelKind,
        path: &Path,
        parent: Option<TraceParent>,
    ) -> Result<Self, SinkError> {
        Ok(Self {
            output: Output::create(path)?,
            tree: Tree::new(parent),
            encoder: match kind {
                OtelKind::Protobuf => Box::new(Protobuf::default()),
                OtelKind::Json => Box::new(Json::default()),
                OtelKind::Zipkin => Box::new(Zipkin::default()),
            },
        })
    }
}

impl SpanSink for OtelWriter {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        let about = self.tree.begin(recording);
        self.encoder.begin(&about, &mut self.output)
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        self.tree.track(track, &mut self.output)
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        self.tree.function(function);
        Ok(())
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        let Self {
            output,
            tree,
            encoder,
        } = self;
        tree.open(opened, output, encoder.as_mut())
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        let Self {
            output,
            tree,
            encoder,
        } = self;
        tree.span(span, output, encoder.as_mut())
    }

    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        let Self {
            output,
            tree,
            encoder,
        } = self;
        tree.point(point, output, encoder.as_mut())
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        let Self {
            output,
            tree,
            encoder,
        } = self;
        tree.loss(track, loss, output, encoder.as_mut())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        let Self {
            output,
            tree,
            encoder,
        } = self;
        tree.finish(output, encoder.as_mut())?;
        encoder.end(output)?;
        output.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_parent_is_read_as_the_header_is() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent: TraceParent = good.parse().unwrap();
        assert_eq!(parent.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(parent.span, 0x00f0_67aa_0ba9_02b7);
        let later = good.replace("00-4b", "01-4b") + "-more";
        assert_eq!(later.parse(), Ok(parent));
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert!(bad.parse::<TraceParent>().is_err(), "{bad}");
        }
    }
}
