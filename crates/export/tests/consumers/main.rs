//! Files opened in programs that are too heavy for every test run.
//!
//! ```sh
//! cargo xtask consumers
//! ```

#![allow(clippy::unwrap_used, missing_docs)]

mod duckdb;
mod firefox;
mod otlp;
mod pprof;
#[path = "../it/program.rs"]
mod program;
mod speedscope;
#[allow(dead_code)] // The other test binary uses all of it.
#[path = "../it/stream.rs"]
mod stream;
#[path = "../it/sums.rs"]
mod sums;

use std::path::Path;

use ptrail_export::{Format, create};

use crate::stream::Stream;

/// Writes a stream; the format is the name's.
fn write(stream: &Stream, path: &Path) {
    let format = Format::from_path(path).unwrap();
    stream.play(create(format, path).unwrap().as_mut());
}
