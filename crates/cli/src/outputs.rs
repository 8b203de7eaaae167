//! What is written where, and what of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use ptrail_export::otel::TraceParent;
use ptrail_export::{Format, Settings};
use ptrail_pt::Picos;
use ptrail_trace::{Pattern, Selection};

/// Outputs on the command line.
#[derive(Args)]
pub(crate) struct OutputArgs {
    /// Write the timeline to FILE; the extension decides the format: .pftrace (Perfetto), .json (Chrome
    /// trace events), .speedscope.json, .profile.json (Firefox Profiler), .fxt, .ctf, .spall, .parquet,
    /// .otlp, .zipkin.json, .jsonl (JSON lines), or a profile: .folded and .instructions.folded (flame
    /// graphs), .callgrind, .pprof. May be given several times [default: a Perfetto file in this folder,
    /// named after the input]
    #[arg(short, long = "output", value_name = "FILE")]
    pub(crate) outputs: Vec<PathBuf>,

    /// Write this format, whatever the output is called. Without -o, to a file in this folder, once
    /// for each time it is given; with -o, as often as -o, in the same order
    #[arg(long = "format", value_name = "FORMAT", value_parser = format)]
    pub(crate) formats: Vec<Format>,

    /// Timelines larger than SIZE (bytes, or with K, M, G) are written again without their shortest
    /// calls, so that they fit; the summary says which
    #[arg(long, value_name = "SIZE", value_parser = crate::args::size)]
    pub(crate) max_size: Option<usize>,

    /// In OTLP and Zipkin outputs: the span in which the recording happened, as the `traceparent`
    /// header has it (00-TRACE-SPAN-FLAGS)
    #[arg(long, value_name = "TRACEPARENT")]
    pub(crate) trace_parent: Option<TraceParent>,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

/// What to keep of a timeline, on the command line.
#[derive(Args)]
pub(crate) struct SelectionArgs {
    /// Only from TIME on, counted from the beginning as `ptrail dump --spans` does: 1.5ms, 20us,
    /// 100ns, 2s. Calls that reach over are cut
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "What to keep")]
    from: Option<Picos>,

    /// Only up to TIME
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "What to keep")]
    to: Option<Picos>,

    /// Only this thread, by number or name; * stands for anything. May be given several times
    #[arg(long, value_name = "THREAD", help_heading = "What to keep")]
    thread: Vec<String>,

    /// Only calls of this function, readable or mangled name, and all within them; * stands for
    /// anything. May be given several times
    #[arg(long, value_name = "NAME", help_heading = "What to keep")]
    function: Vec<String>,

    /// Only calls that take at least TIME
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "What to keep")]
    min_duration: Option<Picos>,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) format: Format,
    pub(crate) path: PathBuf,
}

impl OutputArgs {
    /// The files to write, so that a wrong name is said before any work is done. `name` is what
    /// files are called after that have no name.
    pub(crate) fn targets(&self, name: &std::ffi::OsStr) -> Result<Vec<Target>> {
        let Self {
            outputs, formats, ..
        } = self;
        let named = |format: Format| {
            let mut file = OsString::from(name);
            file.push(".");
            file.push(format.extensions()[0]);
            Target {
                format,
                path: file.into(),
            }
        };
        match (outputs.len(), formats.len()) {
            (0, 0) => Ok(vec![named(Format::Perfetto)]),
            (0, _) => Ok(formats.iter().copied().map(named).collect()),
            (_, 0) => outputs.iter().map(|path| by_name(path)).collect(),
            (files, given) if files == given => {
                let pairs = formats.iter().zip(outputs);
                Ok(pairs
                    .map(|(&format, path)| Target {
                        format,
                        path: path.clone(),
                    })
                    .collect())
            }
            (files, given) => bail!(
                "-o is given {files} times and --format {given} times; give --format once for each -o, or not at all"
            ),
        }
    }
}

impl OutputArgs {
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            trace_parent: self.trace_parent,
        }
    }
}

impl SelectionArgs {
    pub(crate) fn selection(&self) -> Result<Selection> {
        let patterns = |texts: &[String]| texts.iter().map(Pattern::new).collect();
        let from = self.from.unwrap_or_default();
        if self.to.is_some_and(|to| to <= from) {
            bail!("--to is not behind --from, so nothing would be left");
        }
        Ok(Selection {
            from,
            to: self.to,
            threads: patterns(&self.thread),
            functions: patterns(&self.function),
            min_duration: self.min_duration.unwrap_or_default(),
        })
    }
}

fn by_name(path: &Path) -> Result<Target> {
    match Format::from_path(path) {
        Some(format) => Ok(Target {
            format,
            path: path.to_owned(),
        }),
        None => bail!(
            "{}: the name does not say which format to write; end it in one of {}, or give --format",
            path.display(),
            known_extensions()
        ),
    }
}

fn known_extensions() -> String {
    let all = Format::ALL.iter().flat_map(|format| format.extensions());
    all.map(|extension| format!(".{extension}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn format(text: &str) -> Result<Format, String> {
    text.parse()
        .map_err(|error: ptrail_export::UnknownFormat| error.to_string())
}

/// A time with its unit.
fn time(text: &str) -> Result<Picos, String> {
    let units = [
        ("ns", 1e3),
        ("us", 1e6),
        ("µs", 1e6),
        ("ms", 1e9),
        ("ps", 1.0),
        ("s", 1e12),
    ];
    let parsed = units.iter().find_map(|(unit, picos)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        let time = (number * picos).round();
        // Up to 106 days.
        (0.0..2f64.powi(63)).contains(&time).then_some(time as u64)
    });
    parsed
        .map(Picos)
        .ok_or_else(|| format!("{text:?} is no time, such as 100ns, 20us, 1.5ms or 2s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, picos) in [
            ("100ns", Some(100_000)),
            ("1.5ms", Some(1_500_000_000)),
            ("20 us", Some(20_000_000)),
            ("0s", Some(0)),
            ("7ps", Some(7)),
            ("3µs", Some(3_000_000)),
            ("2s", Some(2_000_000_000_000)),
            ("5", None),
            ("-1s", None),
            ("1e300s", None),
            ("NaNs", None),
            ("ms", None),
        ] {
            assert_eq!(time(text).ok(), picos.map(Picos), "{text}");
        }
    }
}
