//! The test programs: what ptrail recorded equals what executed, what stock perf decodes, and what
//! the programs are known to call.

use std::fmt::Debug;

use xtask::{Corpus, Outcome, Program, Variant};

use crate::recorded::{Recorded, dump, engines, fnv1a64, passed_through};
use crate::spans::Spans;
use crate::{perf, stack_truth, viewer};

macro_rules! programs {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

programs! {
    aborts alarm breakpoint breakpoint_blocked cancel cold_paths computed_goto constructors contexts crash
    deep_recursion divide dynamic_load even_odd exceptions exec_self exit_deep exit_handlers
    far_transfers fib fibers fork_wait function_table ifunc ignored_signals illegal instructions
    interrupted_read jit kill_self last_calls lazy_binding library_calls long_jump nested_signals panics primes
    push_return raise_signal realtime_signals recursive_jump retpoline segv_fix segv_jump signal_stack sort switch_table tail_calls
    thread traits transactions vdso vfork_exec virtual_calls words
}

#[test]
fn every_program_of_the_corpus_has_its_test() {
    let corpus = Corpus::load().unwrap();
    let mut listed: Vec<_> = corpus
        .programs()
        .iter()
        .map(|program| program.name.as_str())
        .collect();
    listed.sort_unstable();
    assert_eq!(NAMES, listed);
}

fn check(name: &str) {
    let corpus = Corpus::load().unwrap();
    let program = corpus
        .programs()
        .iter()
        .find(|program| program.name == name)
        .unwrap();
    let mut faults = Vec::new();
    for engine in engines() {
        for (number, variant) in program.variants.iter().enumerate() {
            // The viewer is slow to start: once a program.
            let found = check_variant(&corpus, program, variant, engine, number == 0);
            faults.extend(
                found
                    .into_iter()
                    .take(10)
                    .map(|fault| format!("{name}/{} with {engine}: {fault}", variant.name)),
            );
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

fn check_variant(
    corpus: &Corpus,
    program: &Program,
    variant: &Variant,
    engine: &str,
    with_viewer: bool,
) -> Vec<String> {
    let executable = corpus.build(program, variant).unwrap();
    let mut words = vec![executable.into_os_string()];
    words.extend(program.args.iter().map(Into::into));
    let recorded = Recorded::new(&["--source", engine], &words, &program.stdin);
    let mut faults = check_recording(program, &recorded);
    let spans = Spans::from_dump(&dump(&recorded.capture(), &["--spans"]));
    faults.extend(spans.faults());
    if program.has_limit("stack-switch") {
        let named = |function: &String| program.calls.iter().any(|call| call.function == *function);
        let guessed = spans.all.iter().filter(|span| span.has("guessed"));
        let guessed = guessed.filter(|span| named(&span.function));
        faults.extend(guessed.map(|span| format!("guessed: {span:?}")));
    } else {
        faults.extend(stack_truth::fault(&recorded, &spans));
    }
    faults.extend(check_calls(program, variant, &recorded.outcome, &spans));
    if with_viewer {
        faults.extend(check_viewer(&recorded, &spans));
    }
    faults
}

/// The program ran as always; decoded == executed, for ptrail and for perf.
fn check_recording(program: &Program, recorded: &Recorded) -> Vec<String> {
    let mut faults = Vec::new();
    let native = Outcome {
        exit: recorded.outcome.exit,
        stdout: recorded.outcome.stdout.clone(),
    };
    let expected = passed_through(program.exit);
    if native.exit != expected {
        faults.push(format!("ended with {:?}, not {expected:?}", native.exit));
    }
    if let Err(error) = program.check(&Outcome {
        exit: program.exit,
        ..native
    }) {
        faults.push(format!("{error:#}"));
    }
    let capture = recorded.capture();
    let digest = &dump(&capture, &["--instructions", "--digest"])[0];
    let decoded = (
        digest["instructions"].as_u64(),
        digest["ip_fnv1a64"].as_str(),
        digest["losses"].as_u64(),
    );
    let executed = fnv1a64(&recorded.truth);
    if decoded != (Some(recorded.truth.len() as u64), Some(&executed), Some(0)) {
        faults.push(format!(
            "decoded {decoded:?}, executed {} {executed}",
            recorded.truth.len()
        ));
    }
    // perf has no place in which to look for code that stands in no file.
    if program.has_limit("code-changes") {
        return faults;
    }
    // The truth is that of the first thread.
    let first = digest["tid"].as_u64().unwrap() as u32;
    let (all, perf_errors) = perf::instructions_of_threads(&capture);
    let of_first = all.iter().filter(|(thread, _)| *thread == first);
    let perf_ips: Vec<u64> = of_first.map(|&(_, ip)| ip).collect();
    if let Some(error) = perf_errors.first() {
        faults.push(format!(
            "perf met {} errors, the first: {error}",
            perf_errors.len()
        ));
    }
    faults.extend(first_difference(
        "perf's instruction",
        &perf_ips,
        &recorded.truth,
    ));
    // perf tells the threads' branches in the order of time, the dump one thread after the other.
    let (mut of_perf, mut ours) = (perf::branches(&capture), branches(recorded));
    of_perf.sort_by_key(|branch| branch.0);
    ours.sort_by_key(|branch| branch.0);
    faults.extend(first_difference("perf's branch", &of_perf, &ours));
    faults
}

/// Thread, from and to.
fn branches(recorded: &Recorded) -> Vec<(u32, u64, u64)> {
    let lines = dump(&recorded.capture(), &["--branches"]);
    let address = |value: &serde_json::Value| {
        value.as_str().map_or(0, |hex| {
            u64::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap()
        })
    };
    lines
        .iter()
        .map(|line| {
            let thread = line["tid"].as_u64().unwrap() as u32;
            (thread, address(&line["from"]), address(&line["to"]))
        })
        .collect()
}

fn first_difference<T: PartialEq + Debug>(what: &str, seen: &[T], truth: &[T]) -> Option<String> {
    let common = seen
        .iter()
        .zip(truth)
        .position(|(seen, truth)| seen != truth);
    let index = common.or((seen.len() != truth.len()).then_some(seen.len().min(truth.len())))?;
    let show = |list: &[T]| {
        list.get(index)
            .map_or("none".to_string(), |item| format!("{item:x?}"))
    };
    Some(format!(
        "{what} {index} is {}, ours {} ({} of {})",
        show(seen),
        show(truth),
        seen.len(),
        truth.len()
    ))
}

/// The spans hold the calls that the program is known to make.
fn check_calls(
    program: &Program,
    variant: &Variant,
    outcome: &Outcome,
    spans: &Spans,
) -> Vec<String> {
    if variant.stripped {
        return Vec::new();
    }
    let mut faults = Vec::new();
    let counted = program.counted_calls(outcome).unwrap();
    for call in program.calls.iter().chain(&counted) {
        let count = spans.count(&call.function);
        if count as u64 != call.count {
            faults.push(format!(
                "{} calls of {}, not {}",
                count, call.function, call.count
            ));
        }
    }
    for (parent, child) in program.nesting(variant) {
        if !spans.nests(parent, child) {
            faults.push(format!("no {child} directly in {parent}"));
        }
    }
    for (outer, inner) in &program.inside {
        if !spans.is_inside(outer, inner) {
            faults.push(format!("a {inner} outside {outer}"));
        }
    }
    if !spans.losses.is_empty() {
        faults.push(format!("losses: {:?}", spans.losses));
    }
    faults
}

/// Perfetto shows the spans that the dump has.
fn check_viewer(recorded: &Recorded, spans: &Spans) -> Vec<String> {
    let viewed = viewer::view(&recorded.timeline());
    let mut faults: Vec<_> = viewed.complaints.iter().map(ToString::to_string).collect();
    let mut shown = viewed.slices;
    let base = shown.iter().map(|slice| slice.1).min().unwrap_or(0);
    let first = spans.all.iter().map(|span| span.begin).min().unwrap_or(0);
    // Both round down to nanoseconds; the perf-clock base is whole nanoseconds.
    let begin = |at: u64| (at / 1000 - first / 1000) as i64;
    let mut dumped: Vec<_> = spans
        .all
        .iter()
        // Deeper levels than a Perfetto track can show are on tracks of their own.
        .filter(|span| span.depth < 384)
        .map(|span| {
            (
                span.function.clone(),
                begin(span.begin) + base,
                begin(span.end) - begin(span.begin),
            )
        })
        .collect();
    shown.sort();
    dumped.sort();
    faults.extend(first_difference("Perfetto's slice", &shown, &dumped));
    faults
}
