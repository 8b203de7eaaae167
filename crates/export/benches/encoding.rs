//! How fast each format is written, how large it is, and how much memory that takes.
//!
//! ```sh
//! cargo bench -p ptrail-export --bench encoding -- [--spans N] [--keep FOLDER] [FORMAT…]
//! ```
//!
//! The spans are made up: a thread that runs through a tree of calls, 2,000 functions in 8 modules, at
//! most 24 deep, with a call site each. Without formats, all of them. Each runs in a process of its
//! own, so that the peak of its memory is its own; what making the spans takes is taken off. Files are removed again, unless a folder is given to keep
//! them.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use ptrail_export::{Format, create};
use ptrail_pt::{Ip, PerfTime, Picos};
use ptrail_trace::{
    Function, FunctionId, Opened, Recording, SinkError, Source, SourceLine, Span, SpanFlags,
    SpanSink, Track, TrackId, TrackKind,
};

const FUNCTIONS: u32 = 2_000;
const DEEPEST: usize = 24;

fn main() {
    let mut spans = 10_000_000;
    let mut formats = Vec::new();
    let (mut one, mut keep) = (None, None);
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--spans" => spans = arguments.next().unwrap().parse().unwrap(),
            "--one" => one = arguments.next(),
            "--keep" => keep = arguments.next(),
            name => formats.push(name.to_owned()),
        }
    }
    if let Some(name) = one {
        return measure(&name, spans, keep.as_deref());
    }
    if formats.is_empty() {
        formats = Format::ALL.iter().map(Format::to_string).collect();
    }
    println!(
        "{:<20} {:>12} {:>12} {:>10}",
        "format", "spans/s", "bytes/span", "peak MB"
    );
    for name in formats {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--one", &name, "--spans", &spans.to_string()])
            .args(keep.iter().flat_map(|folder| ["--keep", folder]))
            .status()
            .unwrap();
        assert!(status.success());
    }
}

fn measure(name: &str, spans: u64, keep: Option<&str>) {
    let format: Format = name.parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let place = keep.map_or(folder.path(), Path::new);
    let path = place.join(format!("spans.{}", format.extensions()[0]));
    let alone = time(|| play(&mut Nothing, spans));
    let mut sink = create(format, &path).unwrap();
    let whole = time(|| play(sink.as_mut(), spans));
    let rate = spans as f64 / whole.saturating_sub(alone).as_secs_f64();
    let bytes = size(&path) as f64 / spans as f64;
    println!(
        "{name:<20} {rate:>12.0} {bytes:>12.1} {:>10}",
        peak_kilobytes() / 1024
    );
}

fn time(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

fn size(path: &Path) -> u64 {
    if path.is_dir() {
        let files = path.read_dir().unwrap();
        return files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum();
    }
    path.metadata().unwrap().len()
}

fn peak_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// Takes everything and writes nothing.
struct Nothing;

impl SpanSink for Nothing {
    fn track(&mut self, _track: &Track) -> Result<(), SinkError> {
        Ok(())
    }
    fn function(&mut self, _function: &Function) -> Result<(), SinkError> {
        Ok(())
    }
    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        std::hint::black_box(span);
        Ok(())
    }
}

fn play(sink: &mut dyn SpanSink, spans: u64) {
    let track = TrackId(0);
    announce(sink, track);
    let mut dice = 0x5eed_u64;
    let mut below = |bound: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % bound
    };
    let (mut now, mut instructions, mut done) = (0, 0, 0);
    // Function, begin, call site, instructions at the begin, those of callees.
    let mut open = Vec::<(FunctionId, Picos, Option<Ip>, u64, u64)>::new();
    while done < spans {
        let ran = 1 + below(60);
        instructions += ran;
        now += ran * 500;
        let at = Picos(now);
        let enters = open.len() < 2 || (open.len() < DEEPEST && below(2) == 0);
        if enters {
            // Callees of one function are few.
            let caller = open.last().map_or(0, |frame| u64::from(frame.0.0));
            let function = FunctionId(((caller * 7 + 1 + below(4)) % u64::from(FUNCTIONS)) as u32);
            let call_site = Some(Ip(0x40_0000 + caller * 0x100 + below(4) * 8));
            let flags = SpanFlags::empty();
            open.push((function, at, call_site, instructions, 0));
            let begin = at;
            sink.open(&Opened {
                track,
                function,
                begin,
                call_site,
                flags,
            })
            .unwrap();
        } else if let Some((function, begin, call_site, before, callees)) = open.pop() {
            let all = instructions - before;
            if let Some(caller) = open.last_mut() {
                caller.4 += all;
            }
            sink.span(&Span {
                track,
                function,
                begin,
                end: at,
                depth: open.len() as i32,
                call_site,
                instructions: all,
                self_instructions: all - callees,
                flags: SpanFlags::empty(),
            })
            .unwrap();
            done += 1;
        }
    }
    while let Some((function, begin, call_site, before, callees)) = open.pop() {
        let all = instructions - before;
        sink.span(&Span {
            track,
            function,
            begin,
            end: Picos(now),
            depth: open.len() as i32,
            call_site,
            instructions: all,
            self_instructions: all - callees,
            flags: SpanFlags::CUT,
        })
        .unwrap();
        if let Some(caller) = open.last_mut() {
            caller.4 += all;
        }
    }
    sink.finish().unwrap();
}

fn announce(sink: &mut dyn SpanSink, track: TrackId) {
    sink.begin(&Recording {
        base: PerfTime(75_632_123_456_789),
        wall_clock: Some(1_700_000_000_123_456_789),
        source: Source::Hardware,
        command: vec!["bench".into()],
    })
    .unwrap();
    sink.track(&Track {
        id: track,
        kind: TrackKind::Thread { pid: 7, tid: 7 },
        name: "bench".into(),
        process: "bench".into(),
    })
    .unwrap();
    for number in 0..FUNCTIONS {
        let name = format!("module{}::some::function_{number}", number % 8);
        sink.function(&Function {
            id: FunctionId(number),
            mangled: Some(format!("_ZN7module{}4some{number}E", number % 8)),
            name,
            module: format!("libmodule{}.so", number % 8),
            address: Ip(0x7f00_0000_0000 + u64::from(number) * 0x100),
            source: Some(SourceLine {
                file: format!("/src/module{}/some.rs", number % 8),
                line: number + 1,
            }),
        })
        .unwrap();
    }
}
