//! Options of `ptrail run` and `ptrail decode`.

use std::ffi::OsString;

use serde_json::Value;
use xtask::{Corpus, Exit};

use crate::recorded::{Recorded, dump, fnv1a64, ptrail};
use crate::spans::Spans;
use crate::{perf, viewer};

fn fib() -> Vec<OsString> {
    let corpus = Corpus::load().unwrap();
    let (program, variant) = corpus.find("fib", "O2-static").unwrap();
    vec![corpus.build(program, variant).unwrap().into_os_string()]
}

#[test]
fn every_timing_decodes_to_what_executed() {
    let mut sizes = Vec::new();
    for timing in ["cyc", "mtc", "tsc"] {
        let recorded = Recorded::new(&["--timing", timing], &fib(), "");
        let capture = recorded.capture();
        let digest = &dump(&capture, &["--instructions", "--digest"])[0];
        assert_eq!(
            digest["ip_fnv1a64"].as_str(),
            Some(fnv1a64(&recorded.truth).as_str()),
            "{timing}"
        );
        let (perf_ips, perf_errors) = perf::instructions(&capture);
        assert_eq!(perf_errors, Vec::<String>::new(), "{timing}");
        assert!(
            perf_ips == recorded.truth,
            "perf decodes something else with {timing}"
        );
        let spans = Spans::from_dump(&dump(&capture, &["--spans"]));
        assert_eq!(spans.faults(), Vec::<String>::new(), "{timing}");
        assert_eq!(spans.count("fib"), 177, "{timing}");
        sizes.push(std::fs::metadata(capture).unwrap().len());
    }
    assert!(
        sizes.is_sorted_by(|more, less| more > less),
        "more timing packets, larger trace: {sizes:?}"
    );
}

/// An instruction takes 500 ps, so a call that made no system call took 500 ps for each.
#[test]
fn times_are_those_of_the_virtual_clock() {
    let recorded = Recorded::new(&[], &fib(), "");
    let spans = Spans::from_dump(&dump(&recorded.capture(), &["--spans"]));
    let calls: Vec<_> = spans
        .all
        .iter()
        .filter(|span| span.function == "fib")
        .collect();
    assert_eq!(calls.len(), 177);
    for call in calls {
        let expected = call.instructions * 500;
        assert!(
            (call.end - call.begin).abs_diff(expected) <= 500,
            "{call:?}"
        );
    }
}

#[test]
fn two_outputs_in_one_pass_show_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = ptrail();
    command
        .current_dir(folder.path())
        .args(["run", "-o", "x.json", "-o", "x.pftrace", "--"])
        .args(fib());
    assert!(command.output().unwrap().status.success());
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("x.json")).unwrap()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let mut begins: Vec<_> = events
        .iter()
        .filter(|event| event["ph"] == "B")
        .map(|event| event["name"].as_str().unwrap().to_string())
        .collect();
    let mut slices: Vec<_> = viewer::view(&folder.path().join("x.pftrace"))
        .slices
        .into_iter()
        .map(|slice| slice.0)
        .collect();
    begins.sort();
    slices.sort();
    assert_eq!(begins, slices);
}

#[test]
fn decoding_later_gives_the_same_timeline() {
    let recorded = Recorded::new(&[], &fib(), "");
    let again = recorded.capture().with_extension("pftrace");
    let output = ptrail()
        .arg("decode")
        .arg(recorded.capture())
        .arg("-o")
        .arg(&again)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("by the software recorder (engine step)") && text.contains("losses    none"),
        "{text}"
    );
    assert!(std::fs::read(again).unwrap() == std::fs::read(recorded.timeline()).unwrap());
}

#[test]
fn capture_only_writes_no_timeline() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = ptrail();
    command.current_dir(folder.path()).args([
        "run",
        "--capture-only",
        "--keep-capture",
        "x.data",
        "--",
    ]);
    let output = command.args(fib()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["x.data"]);
}

#[test]
fn the_default_output_is_named_after_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = ptrail();
    command
        .current_dir(folder.path())
        .args(["run", "--json", "--", "/bin/sh", "-c", "exit 3"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let summary: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(summary["outputs"], serde_json::json!(["sh.pftrace"]));
    assert_eq!(
        summary["command"],
        serde_json::json!(["/bin/sh", "-c", "exit 3"])
    );
    assert_eq!(summary["end"], "the program exited with status 3");
    assert_eq!(
        (&summary["lost_bytes"], &summary["losses"]),
        (&0.into(), &serde_json::json!([]))
    );
    assert!(folder.path().join("sh.pftrace").exists());
}

#[test]
fn input_environment_and_arguments_reach_the_program() {
    let program = [
        "sh",
        "-c",
        "read line; echo \"$line $1 $PTRAIL_TEST\"; pwd",
        "sh",
        "an argument",
    ];
    let folder = tempfile::tempdir().unwrap();
    let mut command = ptrail();
    command
        .current_dir(folder.path())
        .env("PTRAIL_TEST", "from outside")
        .args(["run", "-q", "--"])
        .args(program);
    let outcome = xtask::Outcome::of_command(&mut command, "a line\n").unwrap();
    assert_eq!(outcome.exit, Exit::Status(0));
    let here = folder.path().canonicalize().unwrap();
    assert_eq!(
        outcome.stdout,
        format!("a line an argument from outside\n{}\n", here.display())
    );
}

/// Open files, signal masks and limits are those of a program started without ptrail.
#[test]
fn the_program_inherits_nothing_of_ptrail() {
    let script = "ls -l /proc/self/fd | wc -l; grep -E '^(SigBlk|SigIgn|NoNewPrivs)' /proc/self/status; ulimit -a; \
                  nice; umask; ps -o pgid= -p $$ | wc -l";
    let native =
        xtask::Outcome::of_command(std::process::Command::new("sh").args(["-c", script]), "")
            .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = ptrail();
    command
        .current_dir(folder.path())
        .args(["run", "--source", "step", "-q", "--", "sh", "-c", script]);
    assert_eq!(
        xtask::Outcome::of_command(&mut command, "").unwrap(),
        native
    );
}

/// Help lists what works, and what it lists works.
#[test]
fn help_is_there_for_every_command() {
    let help = |arguments: &[&str]| {
        let output = ptrail().args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let top = help(&["--help"]);
    let commands: Vec<_> = top
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(
        commands,
        [
            "run", "attach", "check", "decode", "info", "missing", "open", "pack", "archive",
            "dump", "help"
        ]
    );
    for (command, options) in [
        (
            "run",
            &[
                "--source",
                "--output",
                "--timing",
                "--keep-capture",
                "--capture-only",
                "--truth",
                "--trigger",
                "--after",
                "--snapshots",
                "--for",
                "--ready-fd",
                "--quiet",
                "--json",
            ][..],
        ),
        ("attach", &["--pid", "--trigger", "--for", "--ready-fd"]),
        ("check", &["--json"]),
        ("decode", &["--output", "--quiet", "--json"]),
        (
            "dump",
            &[
                "--packets",
                "--raw",
                "--cpu",
                "--time",
                "--stats",
                "--branches",
                "--instructions",
                "--spans",
                "--digest",
                "--json",
            ],
        ),
    ] {
        let text = help(&[command, "--help"]);
        for option in options {
            assert!(text.contains(option), "{command}: no {option} in {text}");
        }
    }
}
