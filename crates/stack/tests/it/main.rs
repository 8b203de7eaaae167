//! Tests of the stack builder: events by hand over made-up functions, spans by hand.

#![allow(clippy::unwrap_used)]

mod calls;
mod cold_parts;
mod contract;
mod deep;
mod gaps;
mod kernel;
mod magic_trace;
mod parts;
mod properties;
mod script;
mod signals;
mod switches;
mod times;
mod unwinding;
