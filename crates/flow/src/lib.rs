//! From packets and code bytes to branch events with times.
//!
//! The trace says only what the code does not: whether a conditional branch was taken (a TNT bit),
//! where an indirect one went (TIP). Everything else is read from the program's code, instruction
//! by instruction, so that the two together give the whole path.
//!
//! 1. [`cut`] divides a stream into [`Segment`]s, one for each PSB. A segment needs nothing from its
//!    neighbours but the address at which the next one starts.
//! 2. [`decode_segment`] walks one segment and reports to a [`Sink`]: calls, returns, jumps, system
//!    calls, asynchronous events, tracing switched on and off, losses, and on request every
//!    instruction.
//!
//! Trace data that does not fit is never an error: it is a [`Loss`](ptrail_pt::Loss) in the sink's
//! stream, and decoding goes on at the next full address or PSB.

#![forbid(unsafe_code)]

mod engine;
mod instruction;
mod return_stack;
mod segment;
mod sink;

pub use engine::{Context, SegmentEnd, decode_segment};
pub use instruction::{Class, FarKind, Instruction, bitness};
pub use segment::{Cut, Segment, SegmentStart, cut};
pub use sink::{Edge, EdgeKind, OffCause, Sink};
