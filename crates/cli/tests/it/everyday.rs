//! Programs that everyone has, and that nobody built for tests.

use std::process::Command;

use xtask::Exit;

use crate::recorded::{Recorded, dump, fnv1a64};
use crate::spans::Spans;
use crate::{perf, viewer};

/// Records a program and checks what must hold for every recording; returns its spans.
fn check(program: &[&str], stdin: &str) -> (Recorded, Spans) {
    let native = native(program, stdin);
    let recorded = Recorded::new(&[], program, stdin);
    assert_eq!(
        (recorded.outcome.exit, recorded.outcome.stdout.as_str()),
        (native.0, native.1.as_str())
    );
    let digest = &dump(&recorded.capture(), &["--instructions", "--digest"])[0];
    assert_eq!(
        digest["ip_fnv1a64"].as_str(),
        Some(fnv1a64(&recorded.truth).as_str())
    );
    assert_eq!(
        digest["instructions"].as_u64(),
        Some(recorded.truth.len() as u64)
    );
    let (perf_ips, perf_errors) = perf::instructions(&recorded.capture());
    assert_eq!(perf_errors, Vec::<String>::new());
    assert!(perf_ips == recorded.truth, "perf decodes something else");
    let spans = Spans::from_dump(&dump(&recorded.capture(), &["--spans"]));
    assert_eq!(spans.faults(), Vec::<String>::new());
    assert_eq!(spans.losses, Vec::<serde_json::Value>::new());
    check_viewer(&recorded, &spans);
    (recorded, spans)
}

fn native(program: &[&str], stdin: &str) -> (Exit, String) {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]);
    let outcome = xtask::Outcome::of_command(&mut command, stdin).unwrap();
    (outcome.exit, outcome.stdout)
}

/// Perfetto finds the file whole, each slice closed and each as long as the dump says.
fn check_viewer(recorded: &Recorded, spans: &Spans) {
    let timeline = recorded.timeline();
    let viewed = viewer::view(&timeline);
    assert_eq!(viewed.complaints, Vec::<serde_json::Value>::new());
    let slices = viewed.slices;
    assert_eq!(slices.len(), spans.all.len());
    assert!(slices.iter().all(|slice| slice.2 >= 0), "an unclosed slice");
    let sum = slices.iter().map(|slice| slice.2 as u64).sum::<u64>();
    let dumped = spans
        .all
        .iter()
        .map(|span| span.end / 1000 - span.begin / 1000)
        .sum::<u64>();
    assert_eq!(sum, dumped);
}

fn assert_startup(spans: &Spans) {
    for function in ["_start", "main"] {
        assert!(spans.count(function) > 0, "no {function}");
    }
    assert!(
        spans
            .all
            .iter()
            .any(|span| span.function.starts_with("__libc_start_main"))
    );
    assert!(spans.nests("_start", "__libc_start_main"));
}

#[test]
fn ls() {
    let (_, spans) = check(&["/bin/ls", "/usr"], "");
    assert_startup(&spans);
}

#[test]
fn ls_of_something_that_is_not_there() {
    let (recorded, _) = check(&["/bin/ls", "/nonexistent"], "");
    assert_eq!(recorded.outcome.exit, Exit::Status(2));
    assert!(
        recorded.messages.contains("/nonexistent"),
        "{}",
        recorded.messages
    );
}

#[test]
fn r#true() {
    let (_, spans) = check(&["/bin/true"], "");
    assert_startup(&spans);
}

#[test]
fn bash() {
    let (recorded, spans) = check(&["bash", "-c", "echo hi"], "");
    assert_eq!(recorded.outcome.stdout, "hi\n");
    assert_startup(&spans);
}

#[test]
fn a_shell_pipeline_says_that_its_children_were_not_recorded() {
    let (recorded, _) = check(&["sh", "-c", "echo one | cat; echo two | cat"], "");
    assert_eq!(recorded.outcome.stdout, "one\ntwo\n");
    let note = "note      the program started a child process, which was not recorded (4 times)";
    assert!(recorded.messages.contains(note), "{}", recorded.messages);
}

#[test]
fn sort_of_a_thousand_lines() {
    // Every number below 1009 but zero, in an order without pattern.
    let lines: String = (1..1009_u32)
        .map(|i| format!("{}\n", i * 611 % 1009))
        .collect();
    let (_, spans) = check(&["sort", "-n"], &lines);
    assert_startup(&spans);
}
