//! The span model: what the decoder tells viewers and statistics.
//!
//! A recording becomes a stream of calls to a [`SpanSink`], in this order per track:
//!
//! 1. [`SpanSink::track`] names a track before anything happens on it,
//!    [`SpanSink::function`] names a function before its first span.
//! 2. [`SpanSink::open`] and [`SpanSink::span`] say, in the order of execution, that a function was
//!    entered and that it was left. Between one track's calls, times never go backwards, and the
//!    span that closes is always the innermost open one.
//! 3. A caller that was entered before the recording (or before a loss) shows itself only when it
//!    is returned to. It has no `open`: its [`SpanSink::span`] carries [`SpanFlags::LATE`], and it
//!    encloses everything on its track since its `begin`, callers found later lying outside
//!    callers found earlier.
//! 4. [`SpanSink::rate`] says from time to time how many instructions ran since it was said last; its
//!    stretches of time follow each other.
//! 5. [`SpanSink::finish`] comes once, last, when all spans are closed.
//!
//! Sinks that only count or add up need `span` alone; formats whose viewers care about the order of
//! events with equal times use both.

#![forbid(unsafe_code)]

mod filter;
mod model;
mod sink;

pub use filter::{Filter, LeftOut, Pattern, Selection};
pub use model::{
    Function, FunctionId, Opened, Point, PointKind, Rate, Recording, Source, SourceLine, Span,
    SpanFlags, Track, TrackId, TrackKind,
};
pub use sink::{Fanout, SinkError, SpanSink};
