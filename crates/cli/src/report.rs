//! The summary of a decode, for people and as JSON.

use indicatif::HumanCount;
use ptrail_export::Format;
use ptrail_perfdata::{Extra, SourceNote};
use ptrail_pt::Picos;
use ptrail_trace::LeftOut;
use serde_json::json;
use std::fmt::Write;

use crate::outputs::Target;
use crate::write::Written;

/// A summary and what it is about.
pub(crate) struct Report<'a> {
    pub(crate) written: &'a Written,
    pub(crate) extra: Option<&'a Extra>,
    pub(crate) targets: &'a [Target],
}

impl Report<'_> {
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let summary = &self.written.summary;
        let _ = match self.extra {
            Some(extra) => writeln!(text, "recorded  {}; {}", self.source(), extra.end),
            None => writeln!(text, "recorded  {}", self.source()),
        };
        let _ = writeln!(
            text,
            "ran       {}, {} instructions, {} calls, deepest stack {}, {}",
            duration(Picos(summary.end.0 - summary.begin.0)),
            HumanCount(summary.instructions),
            HumanCount(summary.calls),
            summary.deepest,
            plural(summary.threads, "thread"),
        );
        for (number, call) in summary.slowest.iter().enumerate() {
            let _ = writeln!(
                text,
                "{}  {:>9}  {}{} at {}, {} instructions",
                if number == 0 { "slowest " } else { "        " },
                duration(call.duration),
                call.function,
                in_module(&call.module),
                duration(Picos(call.begin.0 - summary.begin.0)),
                HumanCount(call.instructions),
            );
        }
        self.triggers(&mut text);
        self.losses(&mut text);
        for note in self.extra.iter().flat_map(|extra| &extra.notes) {
            let _ = writeln!(text, "note      {note}");
        }
        if let Some(left_out) = self.written.left_out {
            let _ = writeln!(text, "left out  {}", self::left_out(left_out));
        }
        for note in &self.written.notes {
            let _ = writeln!(text, "note      {note}");
        }
        for target in self.targets {
            let _ = writeln!(text, "written   {}", target.path.display());
        }
        if let Some(next) = self.targets.first().map(next_step) {
            let _ = writeln!(text, "next      {next}");
        }
        text
    }

    fn triggers(&self, text: &mut String) {
        for (number, trigger) in self.extra.iter().flat_map(|e| &e.triggers).enumerate() {
            let taken = self.extra.iter().flat_map(|extra| &extra.snapshots);
            let taken = taken.filter(|snapshot| snapshot.trigger == number as u64);
            let calls = trigger.calls.map_or_else(String::new, |calls| {
                format!(" in {}", plural(calls, "call"))
            });
            let _ = writeln!(
                text,
                "trigger   {}: {}{calls}, {} taken",
                trigger.trigger,
                plural(trigger.hits, "hit"),
                plural(taken.count() as u64, "snapshot"),
            );
        }
    }

    fn losses(&self, text: &mut String) {
        let ledger = &self.written.summary.ledger;
        if ledger.is_empty() {
            let _ = writeln!(
                text,
                "losses    none: all {} bytes of trace decoded",
                HumanCount(self.written.summary.trace_bytes)
            );
        }
        for (cause, count, bytes, time) in ledger.by_cause() {
            let first = ledger.losses().iter().find(|loss| loss.cause == cause);
            let _ = writeln!(
                text,
                "losses    {}: {}, {} bytes of trace, {}; first: {}",
                cause.name(),
                plural(count, "time"),
                HumanCount(bytes),
                duration(Picos(time)),
                first.map_or("", |loss| loss.reason.as_str()),
            );
        }
        if self.written.summary.clamps > 0 {
            let times = plural(self.written.summary.clamps, "time");
            let _ = writeln!(
                text,
                "clock     would have gone backwards {times}; held instead"
            );
        }
    }

    fn source(&self) -> String {
        match self.extra.map(|extra| &extra.source) {
            Some(SourceNote::Software { engine, clock }) => {
                format!("by the software recorder (engine {engine}); {clock}")
            }
            Some(SourceNote::Hardware) => "by the CPU's trace unit".into(),
            None => "by perf".into(),
        }
    }

    pub(crate) fn json(&self) -> String {
        let summary = &self.written.summary;
        let slowest: Vec<_> = summary
            .slowest
            .iter()
            .map(|call| {
                json!({
                    "function": call.function,
                    "module": call.module,
                    "begin_ps": call.begin.0,
                    "duration_ps": call.duration.0,
                    "instructions": call.instructions,
                })
            })
            .collect();
        let losses: Vec<_> = summary
            .ledger
            .losses()
            .iter()
            .map(|loss| {
                json!({
                    "cause": loss.cause.name(),
                    "bytes": loss.bytes,
                    "offset": loss.offset.0,
                    "begin_ps": loss.begin.0,
                    "end_ps": loss.end.0,
                    "ip": loss.ip.map(|ip| format!("{ip:#x}")),
                    "reason": loss.reason,
                })
            })
            .collect();
        let source = match self.extra.map(|extra| &extra.source) {
            Some(SourceNote::Software { .. }) => "software",
            Some(SourceNote::Hardware) => "hardware",
            None => "perf",
        };
        let object = json!({
            "source": source,
            "clock": match self.extra.map(|extra| &extra.source) {
                Some(SourceNote::Software { clock, .. }) => Some(clock),
                _ => None,
            },
            "command": summary.command,
            "end": self.extra.map(|extra| &extra.end),
            "notes": self.extra.map(|extra| &extra.notes),
            "triggers": self.extra.map(|extra| &extra.triggers),
            "snapshots": self.extra.map(|extra| &extra.snapshots),
            "threads": summary.threads,
            "begin_ps": summary.begin.0,
            "duration_ps": summary.end.0 - summary.begin.0,
            "instructions": summary.instructions,
            "calls": summary.calls,
            "deepest": summary.deepest,
            "slowest": slowest,
            "losses": losses,
            "trace_bytes": summary.trace_bytes,
            "lost_bytes": summary.lost_bytes,
            "clamps": summary.clamps,
            "left_out": self.written.left_out.map(|left_out| json!({
                "threads": left_out.threads,
                "spans": left_out.spans,
                "of_spans": left_out.of_spans,
                "points": left_out.points,
                "losses": left_out.losses,
            })),
            "output_notes": self.written.notes,
            "outputs": self.targets.iter().map(|target| &target.path).collect::<Vec<_>>(),
        });
        format!("{object}\n")
    }
}

fn in_module(module: &str) -> String {
    if module.is_empty() {
        String::new()
    } else {
        format!(" ({module})")
    }
}

pub(crate) fn plural(count: u64, what: &str) -> String {
    format!(
        "{} {what}{}",
        HumanCount(count),
        if count == 1 { "" } else { "s" }
    )
}

/// A time in the unit that suits it, three digits or a little more.
pub(crate) fn duration(time: Picos) -> String {
    let ps = time.0 as f64;
    let (value, unit) = match time.0 {
        0..1_000_000 => (ps / 1e3, "ns"),
        1_000_000..1_000_000_000 => (ps / 1e6, "µs"),
        1_000_000_000..1_000_000_000_000 => (ps / 1e9, "ms"),
        _ => (ps / 1e12, "s"),
    };
    let decimals = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.decimals$} {unit}")
}

/// What the user did not want to see, in the outputs; the figures above are those of everything.
fn left_out(left_out: LeftOut) -> String {
    let LeftOut {
        threads,
        spans,
        of_spans,
        points,
        losses,
    } = left_out;
    let mut text = format!("{} of {}", HumanCount(spans), plural(of_spans, "span"));
    for (count, what) in [(threads, "thread"), (points, "event")] {
        if count > 0 {
            text += &format!(", {}", plural(count, what));
        }
    }
    if losses > 0 {
        let es = if losses == 1 { "" } else { "es" };
        text += &format!(", {} loss{es}", HumanCount(losses));
    }
    text + ", as asked for"
}

/// Where to go with an output, in the program that its format is for.
fn next_step(target: &Target) -> String {
    let name = target.path.display();
    match target.format {
        Format::Speedscope => format!("open {name} at https://www.speedscope.app"),
        Format::FoldedTime | Format::FoldedInstructions => {
            format!("flamegraph.pl {name} > flame.svg")
        }
        Format::Callgrind => format!("callgrind_annotate {name}, or open it in KCachegrind"),
        Format::Pprof => format!("go tool pprof -http=: {name}"),
        Format::Ctf => format!("babeltrace2 {name}, or open it in Trace Compass"),
        Format::Fxt(ptrail_export::Packing::Zstd) => {
            format!("open {name} at https://magic-trace.org (it stays on this machine)")
        }
        Format::Firefox(_) => {
            format!("open {name} at https://profiler.firefox.com (it stays on this machine)")
        }
        Format::Spall => format!("open {name} in Spall"),
        Format::Parquet => format!("duckdb -c \"from '{name}' limit 10\""),
        Format::Otlp => format!(
            "curl -H 'Content-Type: application/x-protobuf' --data-binary @{name} http://localhost:4318/v1/traces"
        ),
        Format::OtlpJson => format!(
            "curl -H 'Content-Type: application/json' --data-binary @{name} http://localhost:4318/v1/traces"
        ),
        Format::Zipkin => format!(
            "curl -H 'Content-Type: application/json' --data-binary @{name} http://localhost:9411/api/v2/spans"
        ),
        Format::JsonLines => format!("jq . {name} | less"),
        _ => format!("open {name} at https://ui.perfetto.dev (it stays on this machine)"),
    }
}
