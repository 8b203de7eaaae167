//! The formats, as users name them.

use std::{fmt, path::Path, str::FromStr};

use ptrail_trace::{SinkError, SpanSink};

use crate::{
    chrome::ChromeWriter,
    ctf::CtfWriter,
    firefox::FirefoxWriter,
    fxt::FxtWriter,
    jsonl::JsonLinesWriter,
    otel::{OtelKind, OtelWriter, TraceParent},
    output::Packing,
    parquet::ParquetWriter,
    perfetto::PerfettoWriter,
    profile::{ProfileKind, ProfileWriter},
    spall::SpallWriter,
    speedscope::SpeedscopeWriter,
};

/// A file format for timelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Perfetto's protobuf trace.
    Perfetto,
    /// Chrome's trace event JSON.
    Chrome,
    /// JSON, one object a line.
    JsonLines,
    /// speedscope's JSON.
    Speedscope,
    /// The Firefox Profiler's processed profile.
    Firefox(Packing),
    /// Fuchsia's trace format.
    Fxt(Packing),
    /// Common Trace Format 1.8, a folder.
    Ctf,
    /// Spall's binary format.
    Spall,
    /// Apache Parquet, a row a span.
    Parquet,
    /// OpenTelemetry's OTLP, protobuf.
    Otlp,
    /// OpenTelemetry's OTLP, JSON.
    OtlpJson,
    /// Zipkin v2 JSON.
    Zipkin,
    /// Folded stacks, nanoseconds.
    FoldedTime,
    /// Folded stacks, instructions.
    FoldedInstructions,
    /// Callgrind's output.
    Callgrind,
    /// pprof's profile.
    Pprof,
}

impl Format {
    /// All formats, in the order of help texts.
    pub const ALL: &'static [Self] = &[
        Self::Perfetto,
        Self::Chrome,
        Self::JsonLines,
        Self::Speedscope,
        Self::Firefox(Packing::Plain),
        Self::Firefox(Packing::Gzip),
        Self::Fxt(Packing::Plain),
        Self::Fxt(Packing::Gzip),
        Self::Fxt(Packing::Zstd),
        Self::Ctf,
        Self::Spall,
        Self::Parquet,
        Self::Otlp,
        Self::OtlpJson,
        Self::Zipkin,
        Self::FoldedTime,
        Self::FoldedInstructions,
        Self::Callgrind,
        Self::Pprof,
    ];

    /// The format's name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Perfetto => "perfetto",
            Self::Chrome => "chrome",
            Self::JsonLines => "jsonl",
            Self::Speedscope => "speedscope",
            Self::Firefox(Packing::Gzip) => "firefox.gz",
            Self::Firefox(_) => "firefox",
            Self::Fxt(Packing::Plain) => "fxt",
            Self::Fxt(Packing::Gzip) => "fxt.gz",
            Self::Fxt(Packing::Zstd) => "fxt.zst",
            Self::Ctf => "ctf",
            Self::Spall => "spall",
            Self::Parquet => "parquet",
            Self::Otlp => "otlp",
            Self::OtlpJson => "otlp-json",
            Self::Zipkin => "zipkin",
            Self::FoldedTime => "folded",
            Self::FoldedInstructions => "folded-instructions",
            Self::Callgrind => "callgrind",
            Self::Pprof => "pprof",
        }
    }

    /// The file name extensions that mean this format, without the dot, the usual one first.
    #[must_use]
    pub const fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Perfetto => &["pftrace", "perfetto-trace"],
            Self::Chrome => &["json"],
            Self::JsonLines => &["jsonl", "ndjson"],
            Self::Speedscope => &["speedscope.json"],
            Self::Firefox(Packing::Gzip) => &["profile.json.gz"],
            Self::Firefox(_) => &["profile.json"],
            Self::Fxt(Packing::Plain) => &["fxt"],
            Self::Fxt(Packing::Gzip) => &["fxt.gz"],
            Self::Fxt(Packing::Zstd) => &["fxt.zst"],
            Self::Ctf => &["ctf"],
            Self::Spall => &["spall"],
            Self::Parquet => &["parquet"],
            Self::Otlp => &["otlp"],
            Self::OtlpJson => &["otlp.json"],
            Self::Zipkin => &["zipkin.json"],
            Self::FoldedTime => &["folded"],
            Self::FoldedInstructions => &["instructions.folded"],
            Self::Callgrind => &["callgrind"],
            Self::Pprof => &["pprof", "pb.gz"],
        }
    }

    /// What it is for, in one line for people.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Perfetto => "Perfetto protobuf, for ui.perfetto.dev and trace_processor",
            Self::Chrome => {
                "Chrome trace event JSON, for Perfetto, chrome://tracing and Tracy's importer"
            }
            Self::JsonLines => "JSON lines with everything that is known, for scripts",
            Self::Speedscope => "speedscope JSON, for speedscope.app",
            Self::Firefox(_) => "Firefox Profiler's profile, for profiler.firefox.com",
            Self::Fxt(_) => "Fuchsia trace, for magic-trace.org's viewer and Perfetto",
            Self::Ctf => "Common Trace Format 1.8, a folder, for babeltrace2 and Trace Compass",
            Self::Spall => "Spall's binary format, for Spall",
            Self::Parquet => "Parquet, a row a span, for DuckDB, pandas, Spark and ClickHouse",
            Self::Otlp => "OTLP protobuf, for OpenTelemetry's backends",
            Self::OtlpJson => "OTLP JSON, for OpenTelemetry's backends",
            Self::Zipkin => "Zipkin v2 JSON, for Zipkin and what takes its format",
            Self::FoldedTime => "folded stacks by nanoseconds, for flame graphs",
            Self::FoldedInstructions => "folded stacks by instructions, for flame graphs",
            Self::Callgrind => "callgrind profile, for KCachegrind and callgrind_annotate",
            Self::Pprof => "pprof profile, for `go tool pprof`, Parca and Pyroscope",
        }
    }

    /// The format that a file of this name has; `None` if its extension is none of ours. Of two
    /// extensions that fit, the longer one counts. `callgrind.out` and `callgrind.out.*`, the names
    /// that callgrind itself gives, mean its format if no extension says otherwise.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let fits = |extension: &&str| {
            name.strip_suffix(*extension)
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|stem| !stem.is_empty())
        };
        let longest = |format: &Self| {
            let extensions = format.extensions().iter().copied();
            extensions.filter(fits).map(str::len).max()
        };
        let fitting = Self::ALL
            .iter()
            .filter_map(|format| Some((longest(format)?, *format)));
        let by_extension = fitting.max_by_key(|(length, _)| *length);
        let rest = name.strip_prefix("callgrind.out");
        let as_callgrind_does = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        by_extension
            .map(|(_, format)| format)
            .or_else(|| as_callgrind_does.then_some(Self::Callgrind))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No format has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown format {:?}; known are ", self.0)?;
        for (index, format) in Format::ALL.iter().enumerate() {
            write!(f, "{}{format}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownFormat {}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL
            .iter()
            .copied()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// Opens an output; the file appears under `path` when the sink is finished.
///
/// # Errors
/// No temporary file can be made in the folder of `path`, or `path` is a folder.
pub fn create(format: Format, path: &Path) -> Result<Box<dyn SpanSink>, SinkError> {
    create_with(format, path, &Settings::default())
}

/// What some formats can be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The span in which the recording happened, for OTLP and Zipkin.
    pub trace_parent: Option<TraceParent>,
}

/// The same, with settings.
///
/// # Errors
/// As for [`create`].
pub fn create_with(
    format: Format,
    path: &Path,
    settings: &Settings,
) -> Result<Box<dyn SpanSink>, SinkError> {
    let otel = |kind| OtelWriter::create(kind, path, settings.trace_parent).map(Box::new);
    Ok(match format {
        Format::Perfetto => Box::new(PerfettoWriter::create(path)?),
        Format::Chrome => Box::new(ChromeWriter::create(path)?),
        Format::JsonLines => Box::new(JsonLinesWriter::create(path)?),
        Format::Speedscope => Box::new(SpeedscopeWriter::create(path)?),
        Format::Firefox(packing) => Box::new(FirefoxWriter::create(path, packing)?),
        Format::Fxt(packing) => Box::new(FxtWriter::create(path, packing)?),
        Format::Ctf => Box::new(CtfWriter::create(path)?),
        Format::Spall => Box::new(SpallWriter::create(path)?),
        Format::Parquet => Box::new(ParquetWriter::create(path)?),
        Format::Otlp => otel(OtelKind::Protobuf)?,
        Format::OtlpJson => otel(OtelKind::Json)?,
        Format::Zipkin => otel(OtelKind::Zipkin)?,
        Format::FoldedTime => Box::new(ProfileWriter::create(ProfileKind::FoldedTime, path)?),
        Format::FoldedInstructions => Box::new(ProfileWriter::create(
            ProfileKind::FoldedInstructions,
            path,
        )?),
        Format::Callgrind => Box::new(ProfileWriter::create(ProfileKind::Callgrind, path)?),
        Format::Pprof => Box::new(ProfileWriter::create(ProfileKind::Pprof, path)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_extensions_lead_back_to_their_format() {
        for &format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
            for extension in format.extensions() {
                let path = format!("some.dir/trace.{}", extension.to_uppercase());
                assert_eq!(Format::from_path(Path::new(&path)), Some(format));
            }
        }
        assert_eq!(Format::from_path(Path::new("pftrace")), None);
        assert_eq!(Format::from_path(Path::new("a.txt")), None);
        assert_eq!(Format::from_path(Path::new(".json")), None);
        for (name, format) in [
            ("a.b.json", Some(Format::Chrome)),
            ("speedscope.json", Some(Format::Chrome)),
            ("a.speedscope.json", Some(Format::Speedscope)),
            ("instructions.folded", Some(Format::FoldedTime)),
            ("callgrind.out", Some(Format::Callgrind)),
            ("some.dir/callgrind.out.123", Some(Format::Callgrind)),
            ("callgrind.out.json", Some(Format::Chrome)),
            ("callgrind.output", None),
        ] {
            assert_eq!(Format::from_path(Path::new(name)), format, "{name}");
        }
        let error = "fxtt".parse::<Format>().unwrap_err().to_string();
        assert!(
            error.starts_with(r#"unknown format "fxtt"; known are perfetto, chrome, jsonl"#),
            "{error}"
        );
    }
}
