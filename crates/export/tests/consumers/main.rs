//! Files opened in programs that are too heavy for every test run.
//!
//! ```sh
//! apt-get install chromium golang-go
//! npm install --prefix target/consumers playwright-core speedscope@1.25.0 \
//!     @firefox-devtools/profiler-cli@0.10.0 # needs Node.js 24
//! python3 -m pip install duckdb==2.0.1 opentelemetry-proto==1.45.2
//! cargo test -p ptrail-export --test consumers
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
