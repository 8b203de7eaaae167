//! `ptrail info`: what a capture holds, and what it would take to decode it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::{Context, Result};
use indicatif::{HumanBytes, HumanCount};
use ptrail_image::{Image, ImageError, Timeline};
use ptrail_perfdata::{AuxStream, Capture, Gap, Owner, Record, SourceNote};
use ptrail_pipeline::{base_time, timeline};
use ptrail_pt::Picos;
use serde_json::{Value, json};

use crate::args::InfoArgs;
use crate::report::{duration, plural};

pub(crate) fn info(args: &InfoArgs) -> Result<()> {
    let input = args.input.open()?;
    let timeline = timeline(&input.capture, &input.code)?;
    let info = Info {
        capture: &input.capture,
        timeline: &timeline,
        processes: processes(&input.capture),
    };
    let text = match args.json {
        true => format!("{}\n", info.json()),
        false => info.text(),
    };
    io::stdout()
        .write_all(text.as_bytes())
        .context("standard output")
}

struct Info<'a> {
    capture: &'a Capture,
    timeline: &'a Timeline,
    processes: BTreeMap<u32, BTreeMap<u32, Thread>>,
}

/// What is known of a thread.
#[derive(Default)]
struct Thread {
    /// All its names, in order.
    names: Vec<String>,
    /// Times that it went on a CPU or left one, as recorded.
    switches: u64,
    /// Trace bytes in a buffer of its own.
    trace: u64,
}

fn processes(capture: &Capture) -> BTreeMap<u32, BTreeMap<u32, Thread>> {
    let mut processes: BTreeMap<u32, BTreeMap<u32, Thread>> = BTreeMap::new();
    for entry in &capture.sideband {
        let (Some(pid), Some(tid)) = (entry.pid, entry.tid) else {
            continue;
        };
        let thread = processes.entry(pid).or_default().entry(tid).or_default();
        match &entry.record {
            Record::Comm { name, .. } if thread.names.last() != Some(name) => {
                thread.names.push(name.clone());
            }
            Record::Switch { .. } => thread.switches += 1,
            _ => {}
        }
    }
    for stream in &capture.streams {
        if let Owner::Thread { pid, tid } = stream.owner {
            let process = processes.entry(pid.unwrap_or(tid)).or_default();
            process.entry(tid).or_default().trace += bytes(stream);
        }
    }
    processes
}

fn bytes(stream: &AuxStream) -> u64 {
    let pieces = stream.pieces.iter();
    pieces
        .map(|piece| piece.range.end - piece.range.start)
        .sum()
}

fn owner(stream: &AuxStream) -> String {
    match stream.owner {
        Owner::Thread { tid, .. } => format!("thread {tid}"),
        Owner::Cpu(cpu) => format!("CPU {cpu}"),
        Owner::Unknown => "raw packets".to_owned(),
    }
}

impl Info<'_> {
    /// All code, without mappings that a captured copy stands for.
    fn images(&self) -> impl Iterator<Item = &Image> {
        let captured = |path: &str| {
            let mut images = self.timeline.images();
            images.any(|image| image.is_captured() && image.path() == path)
        };
        self.timeline
            .images()
            .filter(move |image| image.is_captured() || !captured(image.path()))
    }

    /// First and last time of a record, perf-clock nanoseconds.
    fn times(&self) -> Option<(u64, u64)> {
        let times = self.capture.sideband.iter().filter_map(|entry| entry.time);
        let times = times.filter(|&time| time > 0);
        Some((times.clone().min()?, times.max()?))
    }

    /// What the capture itself says is missing.
    fn losses(&self) -> Vec<String> {
        const TRUNCATED: u64 = 1;
        const COLLISION: u64 = 8;
        let records = || self.capture.sideband.iter().map(|entry| &entry.record);
        let lost = records().filter_map(|record| match record {
            Record::Lost(count) => Some(*count),
            _ => None,
        });
        let aux = |flag| {
            let marked =
                |record: &&Record| matches!(record, Record::Aux { flags, .. } if flags & flag != 0);
            records().filter(marked).count() as u64
        };
        let gaps = self
            .capture
            .streams
            .iter()
            .flat_map(|stream| &stream.pieces);
        let overwritten =
            gaps.filter(|piece| matches!(piece.gap, Some(Gap::Overwritten | Gap::Bytes(_))));
        let counted = [
            (lost.sum(), "record of mappings or switches lost by perf"),
            (aux(TRUNCATED), "time the trace buffer was full"),
            (aux(COLLISION), "time another user had the trace unit"),
            (overwritten.count() as u64, "gap between buffers"),
        ];
        let counted = counted.into_iter().filter(|&(count, _)| count > 0);
        let damage = self.capture.damage.iter().map(ToString::to_string);
        counted
            .map(|(count, what)| {
                let (first, rest) = what.split_once(' ').unwrap_or((what, ""));
                format!("{} {rest}", plural(count, first))
            })
            .chain(damage)
            .collect()
    }

    fn settings(&self) -> String {
        let config = &self.capture.pt_config;
        let mut parts = Vec::new();
        if config.tsc {
            parts.push("TSC".to_owned());
        }
        if config.mtc {
            parts.push(format!("MTC every 2^{} crystal clocks", config.mtc_freq));
        }
        if config.cyc {
            parts.push("CYC".to_owned());
        }
        parts.push(format!("PSB every {} KiB", 2 << config.psb_freq));
        parts.push(match config.no_return_compression {
            true => "returns not compressed".to_owned(),
            false => "returns compressed".to_owned(),
        });
        parts.join(", ")
    }

    fn text(&self) -> String {
        let (capture, machine) = (self.capture, &self.capture.machine);
        let mut text = String::new();
        let by = match capture.extra.as_ref().map(|extra| &extra.source) {
            Some(SourceNote::Software { engine, .. }) => {
                format!("the software recorder (engine {engine})")
            }
            Some(SourceNote::Hardware) => "the CPU's trace unit".to_owned(),
            None if machine.command.is_empty() => "not known".to_owned(),
            None => machine.command.join(" "),
        };
        let mut line = |name: &str, value: &str| {
            if !value.is_empty() {
                let _ = writeln!(text, "{name:<10}{value}");
            }
        };
        line("recorded", &by);
        if let Some(extra) = &capture.extra {
            line("command", &extra.command.join(" "));
            line("end", &extra.end);
        }
        let place = [&machine.hostname, &machine.os_release, &machine.arch];
        let place: Vec<_> = place.into_iter().filter(|part| !part.is_empty()).collect();
        line(
            "machine",
            &place
                .iter()
                .map(|s| s.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        );
        line("cpu", &self.cpu());
        let trace: u64 = capture.streams.iter().map(bytes).sum();
        let owners: Vec<_> = capture
            .streams
            .iter()
            .map(|stream| format!("{} {}", owner(stream), HumanBytes(bytes(stream))))
            .collect();
        line(
            "trace",
            &format!("{} bytes: {}", HumanCount(trace), owners.join(", ")),
        );
        line("settings", &self.settings());
        if let Some((first, last)) = self.times() {
            let long = duration(Picos(last.saturating_sub(first).saturating_mul(1000)));
            let clock = match capture.clock {
                Some(_) => "",
                None => "; how TSC ticks convert is not known",
            };
            line(
                "time",
                &format!("{long}, from {first} ns of perf's clock on{clock}"),
            );
        }
        for (pid, threads) in &self.processes {
            for (tid, thread) in threads {
                let mut parts = vec![thread.names.join(" → ")];
                parts.extend(
                    (thread.switches > 0).then(|| plural(thread.switches, "switch record")),
                );
                parts.extend(
                    (thread.trace > 0).then(|| format!("{} of trace", HumanBytes(thread.trace))),
                );
                parts.retain(|part| !part.is_empty());
                line("thread", &format!("{pid}/{tid}  {}", parts.join(", ")));
            }
        }
        let kernel: Vec<_> = self.images().filter(|i| is_kernel(i)).collect();
        for image in self.images().filter(|image| !is_kernel(image)) {
            let id = image.build_id().map_or("no build-id".to_owned(), hex);
            line(
                "code",
                &format!("{}  {id}  {}", image.path(), status(image)),
            );
        }
        if let Some(first) = kernel.first() {
            let more = plural(kernel.len() as u64 - 1, "module");
            line("code", &format!("the kernel and {more}  {}", status(first)));
        }
        for loss in self.losses() {
            line("missing", &loss);
        }
        for (kind, count) in &capture.unknown_records {
            line(
                "left out",
                &format!("{} of type {kind}", plural(*count, "record")),
            );
        }
        for note in capture.extra.iter().flat_map(|extra| &extra.notes) {
            line("note", note);
        }
        text
    }

    fn cpu(&self) -> String {
        let machine = &self.capture.machine;
        let id = self.capture.pt_config.cpu.map(|cpu| {
            format!(
                "family {} model {} stepping {}",
                cpu.family, cpu.model, cpu.stepping
            )
        });
        let parts = [Some(machine.cpu_description.clone()), id];
        let parts: Vec<_> = parts
            .into_iter()
            .flatten()
            .filter(|p| !p.is_empty())
            .collect();
        parts.join(", ")
    }

    fn json(&self) -> Value {
        let (capture, machine) = (self.capture, &self.capture.machine);
        let config = &capture.pt_config;
        let streams: Vec<_> = capture
            .streams
            .iter()
            .map(|stream| json!({"owner": owner(stream), "bytes": bytes(stream), "pieces": stream.pieces.len()}))
            .collect();
        let threads: Vec<_> = self
            .processes
            .iter()
            .flat_map(|(pid, threads)| threads.iter().map(move |(tid, thread)| (pid, tid, thread)))
            .map(|(pid, tid, thread)| {
                json!({
                    "pid": pid, "tid": tid, "names": thread.names, "switches": thread.switches,
                    "trace_bytes": thread.trace,
                })
            })
            .collect();
        let images: Vec<_> = self
            .images()
            .map(|image| {
                json!({
                    "path": image.path(),
                    "build_id": image.build_id().map(hex),
                    "captured": image.is_captured(),
                    "found": image.found(),
                    "problem": image.status().err().map(ToString::to_string),
                })
            })
            .collect();
        json!({
            "machine": {
                "hostname": machine.hostname, "os_release": machine.os_release,
                "arch": machine.arch, "cpu_description": machine.cpu_description,
                "cpuid": machine.cpuid, "command": machine.command,
            },
            "source": match capture.extra.as_ref().map(|extra| &extra.source) {
                Some(SourceNote::Software { .. }) => "software",
                Some(SourceNote::Hardware) => "hardware",
                None => "perf",
            },
            "command": capture.extra.as_ref().map(|extra| &extra.command),
            "end": capture.extra.as_ref().map(|extra| &extra.end),
            "pt": {
                "tsc": config.tsc, "mtc": config.mtc, "mtc_freq": config.mtc_freq, "cyc": config.cyc,
                "psb_freq": config.psb_freq,
                "no_return_compression": config.no_return_compression,
                "tsc_ctc": [config.tsc_ctc_n, config.tsc_ctc_d],
                "max_non_turbo_ratio": config.max_non_turbo_ratio,
            },
            "clock": capture.clock.map(|clock| {
                json!({"shift": clock.shift, "mult": clock.mult, "zero": clock.zero})
            }),
            "base_ns": base_time(capture).0,
            "time_ns": self.times().map(|(first, last)| [first, last]),
            "streams": streams,
            "threads": threads,
            "images": images,
            "missing": self.losses(),
            "left_out": capture.unknown_records,
        })
    }
}

fn is_kernel(image: &Image) -> bool {
    matches!(image.status(), Err(ImageError::Kernel { .. }))
}

/// Whether an image can be used, and where it is or why not.
fn status(image: &Image) -> String {
    match (image.status(), image.found()) {
        (Err(reason), _) => format!("NOT USABLE: {reason}"),
        (Ok(()), Some(path)) if path.as_os_str() == image.path() => "found".to_owned(),
        (Ok(()), Some(path)) => format!("found as {}", path.display()),
        (Ok(()), None) if image.is_perf_map() => "names of code".to_owned(),
        (Ok(()), None) if image.is_captured() => "in the capture".to_owned(),
        (Ok(()), None) => "this machine's".to_owned(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
