//! From a capture to spans: the one room that knows every stage.
//!
//! 1. [`Session::new`] takes a capture and builds what its decoding needs: the code of the processes
//!    over time, the base of its clock, its streams put together from their pieces.
//! 2. [`Session::run`] decodes all streams into a [`SpanSink`](ptrail_trace::SpanSink) and returns a
//!    [`Summary`]: what was recorded, the slowest calls, and the loss ledger.
//! 3. [`Session::walk`] decodes one stream into any [`flow::Sink`](ptrail_flow::Sink), for those who
//!    want branches or instructions.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod chunks;
mod code;
mod parallel;
mod schedule;
mod session;
mod shares;
mod statistics;
mod streams;
mod summary;
mod time;
mod triggers;

pub use ptrail_image::Search;

pub use code::{CodeOptions, GivenCode, timeline};
pub use session::{Error, Progress, Session};
pub use statistics::{SlowCall, Statistics};
pub use streams::{Part, Stream};
pub use summary::Summary;
pub use time::base_time;
