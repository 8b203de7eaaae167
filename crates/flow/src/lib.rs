//! From packets and code bytes to branch events with times.
//!
//! The trace says only what the code does not: whether a conditional branch was taken (a TNT bit),
//! where an indirect one went (TIP). Everything else is read from the program's code, so that the
//! two together give the whole path.
//!
//! 1. [`cut`] divides a stream into [`Segment`]s, one for each PSB. A segment needs nothing from its
//!    neighbours but the address at which the next one starts.
//! 2. [`Decoder::segment`] walks one segment and reports to a [`Sink`]: calls, returns, jumps, system
//!    calls, asynchronous events, tracing switched on and off, losses, and on request every
//!    branch and every instruction. A decoder remembers the code it has seen, so the same one
//!    should decode many segments; several may work side by side.
//!
//! Trace data that does not fit is never an error: it is a [`Loss`](ptrail_pt::Loss) in the sink's
//! stream, and decoding goes on at the next full address or PSB.
//!
//! `docs/decoder.md` tells how it got fast.

#![forbid(unsafe_code)]

mod decoder;
mod engine;
mod graph;
mod instruction;
mod return_stack;
mod segment;
mod sink;

pub use decoder::{Context, Decoder, SegmentEnd};
pub use instruction::{Class, FarKind, Instruction, bitness};
pub use segment::{Cut, Segment, SegmentStart, cut};
pub use sink::{Detail, Edge, EdgeId, EdgeKind, OffCause, Passed, Sink, Step};
