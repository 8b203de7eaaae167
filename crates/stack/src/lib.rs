//! From branch events to function spans.
//!
//! A [`Builder`] keeps the call stack of one thread as frames, each with the return address that
//! its call left behind. A return is matched by that address, not by a name, so recursion,
//! exceptions and longjmp come out right: a return to a deeper frame's address ends all frames
//! above it. Where a frame's call was not seen, its span says so (`inferred`).
//!
//! Times come from the decoder as anchors (after so many instructions it was that late); events
//! between two anchors are spread by instruction count, so their order and nesting survive.

#![forbid(unsafe_code)]

mod builder;
mod frames;
mod index;
mod names;
mod suspended;

pub use builder::{Builder, Summary};
pub use names::Names;
