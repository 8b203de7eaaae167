//! `cargo xtask bench decode`: this decoder and others, in turn on the same traces.
//!
//! ```text
//! ptrail-bench decode [--warm SECONDS] [--only TEXT] TRACE…
//! ```
//!
//! A TRACE is a `perf.data`, or a folder with `trace.pt`, `pages.addr` and `pages.dump` (memory
//! pages and their addresses, as libxdc's test set has them).

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod iptr;
#[cfg(feature = "libipt")]
mod libipt;
mod ours;
mod perf;
mod spans;
mod trace;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::time::{ClockId, clock_gettime};

use trace::Trace;

const HELP: &str = "ptrail-bench decode [--warm SECONDS] [--only TEXT] TRACE…";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ptrail-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some("decode") {
        bail!("{HELP}");
    }
    let mut warm = Duration::from_secs(2);
    let mut only = String::new();
    let mut paths = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--warm" => {
                let seconds = arguments.next().context(HELP)?.parse()?;
                warm = Duration::from_secs_f64(seconds);
            }
            "--only" => only = arguments.next().context(HELP)?,
            _ => paths.push(argument),
        }
    }
    for path in paths {
        let trace = Trace::open(path.as_ref()).context(path)?;
        bench(&trace, warm, &only)?;
    }
    Ok(())
}

/// One way to decode a trace, measured.
struct Row {
    /// Seconds of a pass with nothing known, the best of several.
    cold: f64,
    /// Seconds of a pass, the best of several with everything known; `None` if it forgets.
    warm: Option<f64>,
    /// Instructions, if it counts them.
    instructions: Option<u64>,
    /// Taken branches, if it counts them.
    branches: Option<u64>,
}

/// So many passes that they take about this long together, but three at least.
fn passes(time: Duration) -> impl Iterator<Item = ()> {
    let end = Instant::now() + time;
    (0..).map_while(move |pass| (pass < 3 || Instant::now() < end).then_some(()))
}

/// What `work` gives, and the CPU time it took on this thread, in seconds: what else the machine does
/// counts less than it would in the time that passed.
fn timed<T>(work: impl FnOnce() -> T) -> Result<(T, f64)> {
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let start = now()?;
    let result = work();
    Ok((result, (now()? - start).as_secs_f64()))
}

/// A decoder's name and how to measure it.
type Candidate = (&'static str, fn(&Trace, Duration) -> Result<Option<Row>>);

const CANDIDATES: &[Candidate] = &[
    ("ptrail, calls", ours::calls),
    ("ptrail, spans", spans::spans),
    ("ptrail, all branches", ours::branches),
    ("ptrail, all instructions", ours::instructions),
    ("ptrail, calls, 2 cores", ours::two_cores),
    #[cfg(feature = "libipt")]
    ("libipt, blocks", libipt::blocks),
    #[cfg(feature = "libipt")]
    ("libipt, instructions", libipt::instructions),
    ("iptr, bitmap only", iptr::bitmap),
    ("perf script, calls", perf::calls),
    ("perf script, branches", perf::branches),
];

fn bench(trace: &Trace, warm: Duration, only: &str) -> Result<()> {
    let mut rows = Vec::new();
    for (name, measure) in CANDIDATES.iter().filter(|(name, _)| name.contains(only)) {
        let row = measure(trace, warm).with_context(|| name.to_string())?;
        rows.extend(row.map(|row| (*name, row)));
    }
    let megabytes = trace.len() as f64 / 1e6;
    println!(
        "\n{}: {megabytes:.2} MB of trace, {} segments",
        trace.name,
        trace.segments().len()
    );
    println!(
        "{:<24} {:>10} {:>10} {:>14} {:>14} {:>14}",
        "", "cold MB/s", "warm MB/s", "M instr/s", "instructions", "branches"
    );
    for (name, row) in &rows {
        let best = row.warm.unwrap_or(row.cold);
        let number = |value: Option<u64>| value.map_or_else(String::new, |v| v.to_string());
        println!(
            "{:<24} {:>10.1} {:>10} {:>14} {:>14} {:>14}",
            name,
            megabytes / row.cold,
            row.warm
                .map_or_else(String::new, |warm| format!("{:.1}", megabytes / warm)),
            row.instructions
                .map_or_else(String::new, |n| format!("{:.0}", n as f64 / best / 1e6)),
            number(row.instructions),
            number(row.branches),
        );
    }
    check(&rows, |row| row.instructions);
    check(&rows, |row| row.branches);
    Ok(())
}

/// All that count the same thing must agree.
fn check(rows: &[(&str, Row)], count: fn(&Row) -> Option<u64>) {
    let mut known = rows
        .iter()
        .filter_map(|(name, row)| Some((name, count(row)?)));
    if let Some((name, first)) = known.next() {
        for (other, value) in known.filter(|known| known.1 != first) {
            println!("  they differ: {name} {first}, {other} {value}");
        }
    }
}
