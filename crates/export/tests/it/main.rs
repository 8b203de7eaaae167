//! Files are written from made-up span streams and opened in Perfetto's own trace processor; what
//! it saw is compared with the streams, slice by slice.
//!
//! The trace processor comes from `tools/consumers/setup.sh`.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod callgrind;
mod chrome;
mod ctf;
mod filter;
mod firefox;
mod folded;
mod fxt;
mod jsonl;
mod otel;
mod parquet;
mod perfetto;
mod pprof;
mod program;
mod protobuf;
mod spall;
mod speedscope;
mod stream;
mod sums;
mod viewer;
