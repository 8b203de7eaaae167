//! The whole product, run as its users run it.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod attach;
mod captures;
mod clock;
mod corpus;
mod endings;
mod everyday;
mod faults;
mod foreign;
mod info;
mod jit;
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
mod threads;
mod viewer;
mod window;
