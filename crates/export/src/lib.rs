//! Timelines for other people's viewers: one [`SpanSink`](ptrail_trace::SpanSink) a file format.
//!
//! | format | written by | opened with |
//! | --- | --- | --- |
//! | `.pftrace` | [`perfetto::PerfettoWriter`] | ui.perfetto.dev, `trace_processor` |
//! | `.json` | [`chrome::ChromeWriter`] | Perfetto, `chrome://tracing`, Tracy's importer |
//! | `.jsonl` | [`jsonl::JsonLinesWriter`] | scripts |
//! | `.speedscope.json` | [`speedscope::SpeedscopeWriter`] | speedscope.app |
//! | `.profile.json`, `.profile.json.gz` | [`firefox::FirefoxWriter`] | profiler.firefox.com |
//! | `.fxt`, `.fxt.gz`, `.fxt.zst` | [`fxt::FxtWriter`] | magic-trace.org's viewer, Perfetto |
//! | `.ctf` (a folder) | [`ctf::CtfWriter`] | `babeltrace2`, Trace Compass |
//! | `.spall` | [`spall::SpallWriter`] | Spall |
//! | `.parquet` | [`parquet::ParquetWriter`] | DuckDB, pandas, Spark, ClickHouse |
//! | `.otlp`, `.otlp.json`, `.zipkin.json` | [`otel::OtelWriter`] | OpenTelemetry's backends, Zipkin |
//! | `.folded`, `.instructions.folded` | [`profile::ProfileWriter`] | flame graph tools |
//! | `.callgrind`, `callgrind.out.*` | [`profile::ProfileWriter`] | KCachegrind, `callgrind_annotate` |
//! | `.pprof`, `.pb.gz` | [`profile::ProfileWriter`] | `go tool pprof`, Parca, Pyroscope |
//!
//! 1. Pick a [`Format`], by name or by the output's extension.
//! 2. [`create`] opens the output.
//! 3. Feed it the span stream; [`finish`](ptrail_trace::SpanSink::finish) puts the file in place.
//!
//! Three things hold for every writer:
//!
//! * *Nothing half-written.* Bytes go to a temporary file beside the destination, which takes the
//!   final name only in `finish`. After an error or a drop, the destination is as it was before.
//!   A destination that is no plain file (a pipe, `/dev/null`) gets a copy in `finish` instead.
//! * *Order.* Picoseconds become nanoseconds by rounding down, so spans share begins and ends;
//!   viewers then go by the order in the file. Each track's events stand in the file in the order
//!   of execution, and the begin of a caller that was found late stands where its part of the
//!   track begins, outside callers found before it.
//! * *Flat memory.* What is kept is the table of functions, a little for each track, and the
//!   begins of late callers (one stack's depth for each part between losses). Profiles keep an
//!   entry for each call path that occurred instead, and so does the Firefox Profiler's format.
//!
//! ```
//! use ptrail_export::{Format, create};
//! use ptrail_pt::{Ip, Picos};
//! use ptrail_trace::{Function, FunctionId, Opened, Recording, Source, Span, SpanFlags, SpanSink, Track, TrackId, TrackKind};
//!
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("out.json");
//! let format = Format::from_path(&path).expect("a known extension");
//!
//! let mut sink = create(format, &path)?;
//! let command = vec!["demo".to_owned()];
//! sink.begin(&Recording { base: Default::default(), wall_clock: None, source: Source::Hardware, command })?;
//! let (track, function) = (TrackId(0), FunctionId(0));
//! let kind = TrackKind::Thread { pid: 7, tid: 7 };
//! sink.track(&Track { id: track, kind, name: "demo".into(), process: "demo".into() })?;
//! let address = Ip(0x401000);
//! sink.function(&Function { id: function, name: "main".into(), mangled: None, module: "demo".into(), address, source: None })?;
//! let (begin, call_site, flags) = (Picos(1_000), None, SpanFlags::empty());
//! sink.open(&Opened { track, function, begin, call_site, flags })?;
//! let (end, depth, instructions, self_instructions) = (Picos(9_999), 0, 12, 12);
//! sink.span(&Span { track, function, begin, end, depth, call_site, instructions, self_instructions, flags })?;
//! sink.finish()?;
//!
//! let text = std::fs::read_to_string(&path)?;
//! assert!(text.contains(r#""ph":"B","pid":7,"tid":7,"ts":0.001,"name":"main""#));
//! assert!(text.contains(r#""ph":"E","pid":7,"tid":7,"ts":0.009,"name":"main""#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod callgrind;
mod calls;
pub mod chrome;
pub mod ctf;
pub mod firefox;
mod folded;
mod format;
pub mod fxt;
mod json;
pub mod jsonl;
pub mod otel;
mod output;
pub mod parquet;
mod parts;
pub mod perfetto;
mod pprof;
pub mod profile;
pub mod spall;
pub mod speedscope;
mod spool;
mod text;

pub use format::{Format, Settings, UnknownFormat, create, create_with};
pub use output::Packing;
