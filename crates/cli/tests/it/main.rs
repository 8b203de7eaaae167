//! The whole product, run as its users run it.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod attach;
mod captures;
mod check;
mod clock;
mod corpus;
mod endings;
mod everyday;
mod faults;
mod foreign;
mod goroutines;
mod info;
mod jit;
mod matrix;
mod open;
mod options;
mod outputs;
mod packets;
mod parallel;
mod perf;
mod recorded;
mod reference;
mod refusals;
mod spans;
mod stack_truth;
mod threads;
mod triggers;
mod viewer;
mod window;
