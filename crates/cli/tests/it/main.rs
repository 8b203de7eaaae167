//! The whole product, run as its users run it.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod corpus;
mod perf;
mod recorded;
mod spans;
mod viewer;
