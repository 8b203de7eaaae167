//! The crate against truth: libipt's and perf's packets, real traces, and properties that hold for
//! any input.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod clock;
mod libipt;
mod perf_vectors;
mod properties;
mod ptdump;
mod quipper;
mod real_counts;
mod testdata;
