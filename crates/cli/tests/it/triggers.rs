//! Snapshots around a trigger: taken at exactly the hits, ending exactly there, every hit counted.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::perf;
use crate::recorded::{Recorded, dump, engines, fnv1a64, ptrail};
use crate::spans::Spans;

const MAIN: [&str; 2] = ["--window-start", "main"];

struct Program {
    folder: tempfile::TempDir,
}

impl Program {
    fn build(source: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = Self { folder };
        let status = Command::new("gcc")
            .args(["-O2", "-g", "-o"])
            .arg(program.path())
            .arg(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/programs")).join(source))
            .status()
            .unwrap();
        assert!(status.success());
        program
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    fn record(&self, engine: &str, options: &[&str]) -> Recorded {
        self.record_with(engine, options, &[])
    }

    fn record_with(&self, engine: &str, options: &[&str], arguments: &[&str]) -> Recorded {
        let mut all = vec!["--source", engine];
        all.extend(MAIN);
        all.extend(options);
        let path = self.path();
        let mut command = vec![path.to_str().unwrap()];
        command.extend(arguments);
        Recorded::new(&all, &command, "")
    }

    /// The line of the source that holds this.
    fn line_of(source: &str, part: &str) -> usize {
        source.lines().position(|line| line.contains(part)).unwrap() + 1
    }
}

/// What the capture says of its triggers and snapshots.
fn story(recorded: &Recorded) -> (Vec<Value>, Vec<Value>) {
    let output = ptrail()
        .arg("decode")
        .arg(recorded.capture())
        .args(["--json", "-o"])
        .arg(recorded.capture().with_extension("jsonl"))
        .output()
        .unwrap();
    assert!(output.status.success());
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |key: &str| summary[key].as_array().unwrap().clone();
    (list("triggers"), list("snapshots"))
}

fn decoded(recorded: &Recorded) -> Vec<u64> {
    dump(&recorded.capture(), &["--instructions"])
        .iter()
        .filter_map(|line| line["ip"].as_str())
        .map(|ip| u64::from_str_radix(ip.trim_start_matches("0x"), 16).unwrap())
        .collect()
}

fn assert_perf_has(recorded: &Recorded, ips: &[u64], engine: &str) {
    let (perf_ips, perf_errors) = perf::instructions(&recorded.capture());
    assert_eq!(perf_errors, Vec::<String>::new(), "{engine}");
    assert!(perf_ips == ips, "{engine}: perf has other instructions");
}

#[test]
fn exactly_the_slow_calls() {
    let program = Program::build("slow_calls.c");
    for engine in engines() {
        let options = ["--trigger", "slow_call>200us", "--snapshots", "3"];
        let recorded = program.record(engine, &options);
        let (triggers, snapshots) = story(&recorded);
        assert_eq!(triggers[0]["hits"], 3, "{engine}");
        assert_eq!(triggers[0]["calls"], 3000, "{engine}");
        assert_eq!(snapshots.len(), 3, "{engine}");
        for snapshot in &snapshots {
            assert!(snapshot["took"].as_u64().unwrap() > 200_000, "{engine}");
        }
        // The recording ends with the return of the 3,000th call.
        let back = snapshots[0]["ip"].as_u64().unwrap();
        let returns = recorded.truth.iter().filter(|&&ip| ip == back).count();
        assert_eq!(returns, 2999, "{engine}");
        // The rings reach back to each other: nothing is missing, for perf too.
        let digest = &dump(&recorded.capture(), &["--instructions", "--digest"])[0];
        assert_eq!(digest["losses"], 0, "{engine}");
        let expected = fnv1a64(&recorded.truth);
        assert_eq!(digest["ip_fnv1a64"].as_str(), Some(expected.as_str()));
        assert_perf_has(&recorded, &recorded.truth, engine);
        // The slow calls end where their snapshots do.
        let spans = Spans::from_dump(&dump(&recorded.capture(), &["--spans"]));
        assert_eq!(spans.count("slow_call"), 3000, "{engine}");
        let text = std::fs::read_to_string(recorded.capture().with_extension("jsonl")).unwrap();
        let point = |line: &&str| line.contains(r#""kind":"trigger""#);
        assert_eq!(text.lines().filter(point).count(), 3, "{engine}");
    }
}

/// Rings too small to reach back: each snapshot is a piece that ends at its hit.
#[test]
fn small_rings_hold_what_was_right_before_the_hit() {
    let program = Program::build("slow_calls.c");
    for engine in engines() {
        let options = [
            "--trigger",
            "slow_call>200us",
            "--snapshots",
            "3",
            "--snapshot-size",
            "8K",
        ];
        let recorded = program.record(engine, &options);
        let (_, snapshots) = story(&recorded);
        assert_eq!(snapshots.len(), 3, "{engine}");
        let back = snapshots[0]["ip"].as_u64().unwrap();
        let mut ends: Vec<usize> = recorded
            .truth
            .iter()
            .enumerate()
            .filter(|&(_, &ip)| ip == back)
            .map(|(place, _)| place)
            .collect();
        ends.push(recorded.truth.len());
        let mut left = &decoded(&recorded)[..];
        let mut from = 0;
        for calls in [1000, 2000, 3000] {
            let upto = &recorded.truth[from..ends[calls - 1]];
            let held = (1..=upto.len().min(left.len()))
                .rev()
                .find(|&len| left[..len] == upto[upto.len() - len..])
                .unwrap();
            assert!(held > 2000, "{engine}: {held} of {}", upto.len());
            assert!(held < upto.len(), "{engine}: the ring reaches back");
            left = &left[held..];
            from = ends[calls - 1];
        }
        assert_eq!(left, [0_u64; 0], "{engine}");
    }
}

#[test]
fn the_ring_ends_before_the_functions_first_instruction() {
    let program = Program::build("slow_calls.c");
    for engine in engines() {
        let recorded = program.record(engine, &["--trigger", "slow_call", "--snapshots", "2"]);
        let (triggers, snapshots) = story(&recorded);
        assert_eq!(triggers[0]["hits"], 2, "{engine}");
        let entry = snapshots[1]["ip"].as_u64().unwrap();
        let entries = recorded.truth.iter().filter(|&&ip| ip == entry).count();
        assert_eq!(entries, 1, "{engine}");
        assert_eq!(decoded(&recorded), recorded.truth, "{engine}");
        if *engine == "step" {
            assert_eq!(snapshots[0]["arguments"][0], 1);
            assert_eq!(snapshots[1]["arguments"][0], 2);
        }
        assert_perf_has(&recorded, &recorded.truth, engine);
    }
}

#[test]
fn after_the_hit_it_goes_on_for_a_while() {
    let program = Program::build("slow_calls.c");
    for engine in engines() {
        let options = ["--trigger", "slow_call", "--after", "2us"];
        let recorded = program.record(engine, &options);
        let (triggers, snapshots) = story(&recorded);
        assert_eq!(snapshots.len(), 1, "{engine}");
        let entry = snapshots[0]["ip"].as_u64().unwrap();
        let first = recorded.truth.iter().position(|&ip| ip == entry).unwrap();
        // 2 µs, and whole nanoseconds.
        let behind = recorded.truth.len() - first;
        assert!((3999..=4001).contains(&behind), "{engine}: {behind}");
        let entries = recorded.truth.iter().filter(|&&ip| ip == entry).count();
        assert_eq!(triggers[0]["hits"], entries as u64, "{engine}");
        assert_eq!(decoded(&recorded), recorded.truth, "{engine}");
    }
}

#[test]
fn places_of_all_kinds() {
    let source = include_str!("programs/endings.c");
    let program = Program::build("endings.c");
    let line = Program::line_of(source, "places[2] += i");
    let leaf = Program::line_of(source, "places[0] = argument");
    let main_line = Program::line_of(source, "level(5, 40)");
    // (trigger, its hits in all)
    let cases = [
        ("level".to_owned(), 6),
        ("level@return".to_owned(), 6),
        ("level+0".to_owned(), 6),
        ("copied".to_owned(), 2),
        (format!("endings.c:{leaf}"), 1),
        (format!("programs/endings.c:{main_line}"), 1),
        ("main@return".to_owned(), 1),
        ("exit".to_owned(), 1),
    ];
    for engine in engines() {
        for (trigger, hits) in &cases {
            let recorded = program.record(engine, &["--trigger", trigger, "--snapshots", "100"]);
            let (triggers, snapshots) = story(&recorded);
            assert_eq!(triggers[0]["hits"], *hits, "{engine}: {trigger}");
            assert_eq!(snapshots.len(), *hits, "{engine}: {trigger}");
        }
        let trigger = format!("endings.c:{line}");
        let recorded = program.record(engine, &["--trigger", &trigger]);
        assert_eq!(story(&recorded).1.len(), 1, "{engine}");
    }
}

/// The inner five return into `level`, the outermost into `main`.
#[test]
fn recursive_calls_return_innermost_first() {
    let program = Program::build("endings.c");
    for engine in engines() {
        let recorded = program.record(engine, &["--trigger", "level@return", "--snapshots", "6"]);
        let (_, snapshots) = story(&recorded);
        let took: Vec<u64> = snapshots
            .iter()
            .map(|snapshot| snapshot["took"].as_u64().unwrap())
            .collect();
        assert!(took.is_sorted(), "{engine}: {took:?}");
        let ips: Vec<&Value> = snapshots.iter().map(|snapshot| &snapshot["ip"]).collect();
        assert!(ips[..5].iter().all(|ip| *ip == ips[0]), "{engine}");
        assert_ne!(ips[4], ips[5], "{engine}");
        assert_eq!(decoded(&recorded), recorded.truth, "{engine}");
    }
}

#[test]
fn a_crash_leaves_its_last_instructions() {
    let program = Program::build("endings.c");
    for engine in engines() {
        let options = ["--trigger", "crash", "--snapshot-size", "64K"];
        let recorded = program.record_with(engine, &options, &["crash"]);
        let (triggers, snapshots) = story(&recorded);
        assert_eq!(
            (triggers[0]["hits"].as_u64(), snapshots.len()),
            (Some(1), 1)
        );
        assert_eq!(decoded(&recorded), recorded.truth, "{engine}");
        let spans = Spans::from_dump(&dump(&recorded.capture(), &["--spans"]));
        assert_eq!(spans.count("last_words"), 1, "{engine}");
        assert!(
            recorded.messages.contains("killed by signal 11"),
            "{}",
            recorded.messages
        );
    }
}

#[test]
fn without_a_hit_there_is_the_end() {
    let program = Program::build("endings.c");
    for engine in engines() {
        let recorded = program.record(engine, &["--trigger", "last_words"]);
        let (triggers, snapshots) = story(&recorded);
        assert_eq!(
            (triggers[0]["hits"].as_u64(), snapshots.len()),
            (Some(0), 0)
        );
        let note = "no trigger was hit: this is the end of the recording";
        assert!(recorded.messages.contains(note), "{}", recorded.messages);
        assert_eq!(decoded(&recorded), recorded.truth, "{engine}");
    }
}

/// A function that is called at instruction 5,000,000, and then 100,000 times a second and more.
#[test]
fn a_late_and_hot_trigger() {
    if !engines().contains(&"qemu") {
        return;
    }
    let program = Program::build("late.c");
    let options = ["--trigger", "late", "--snapshot-size", "16K"];
    let recorded = program.record("qemu", &options);
    let (triggers, snapshots) = story(&recorded);
    assert_eq!(
        (triggers[0]["hits"].as_u64(), snapshots.len()),
        (Some(1), 1)
    );
    assert!(recorded.truth.len() > 5_000_000, "{}", recorded.truth.len());
    let ips = decoded(&recorded);
    assert!(ips.len() > 10_000, "{}", ips.len());
    assert!(recorded.truth.ends_with(&ips));
    let held: u64 = trace_bytes(&recorded);
    assert_eq!(held, 16 << 10);

    // Hits while a snapshot is under way are counted, all of them.
    let options = ["--trigger", "late", "--after", "1s"];
    let recorded = program.record("qemu", &options);
    let (triggers, snapshots) = story(&recorded);
    assert_eq!(triggers[0]["hits"], 200_000);
    assert_eq!(snapshots.len(), 1);
}

fn trace_bytes(recorded: &Recorded) -> u64 {
    let output = ptrail()
        .arg("decode")
        .arg(recorded.capture())
        .args(["--json", "-o"])
        .arg(recorded.capture().with_extension("folded"))
        .output()
        .unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    summary["trace_bytes"].as_u64().unwrap()
}

#[test]
fn what_is_misspelt_is_told_before_the_program_runs() {
    let program = Program::build("endings.c");
    let run = |trigger: &str| {
        let output = ptrail()
            .args([
                "run",
                "--source",
                "step",
                "--limit",
                "10",
                "--trigger",
                trigger,
            ])
            .args(["-o"])
            .arg(program.folder.path().join("x.folded"))
            .arg("--")
            .arg(program.path())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let similar = run("levle");
    assert!(similar.contains("did you mean level?"), "{similar}");
    let empty = run("endings.c:3");
    let next = Program::line_of(include_str!("programs/endings.c"), "places[x & 7] += x");
    assert!(empty.contains("no code at that line"), "{empty}");
    assert!(empty.contains(&format!("is {next}")), "{empty}");
    let inlined = run("copied@return");
    assert!(inlined.contains("inlined"), "{inlined}");
    let kernel = run("tracepoint:sched:sched_switch");
    assert!(kernel.contains("no kernel events"), "{kernel}");
    let column = run("endings.c:3:4");
    assert!(column.contains("did you mean endings.c:3?"), "{column}");
}

/// A shell waits for the line on a descriptor of its own; then the recording ends by its time.
#[test]
fn a_script_knows_when_it_may_begin() {
    let program = Program::build("slow_calls.c");
    let mut running = Running::start(&program);
    let script = r#"
        exec 5>&1
        "$0" attach -p "$1" --for 300ms --ready-fd 7 -o "$2" --json 7>&1 >&5 2>"$2.err" | {
            read -r line && echo "heard $line"
        } >&2
    "#;
    let begin = Instant::now();
    let output = Command::new("bash")
        .args(["-c", script])
        .arg(ptrail().get_program())
        .arg(running.child.id().to_string())
        .arg(program.folder.path().join("x.folded"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text, "heard ready\n");
    assert!(begin.elapsed() >= Duration::from_millis(300));
    let errors = std::fs::read_to_string(program.folder.path().join("x.folded.err")).unwrap();
    let summary: Value = serde_json::from_str(errors.lines().last().unwrap()).unwrap();
    let end = "as long as was to be recorded; the program went on";
    assert_eq!(summary["end"], end);
    running.go();
    running.end();
}

#[test]
fn a_process_is_recorded_while_a_command_runs() {
    let program = Program::build("slow_calls.c");
    let mut running = Running::start(&program);
    let output = running
        .attach(&program, &[])
        .args(["--", "sh", "-c", "sleep 0.2; echo ran; exit 7"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert_eq!(output.stdout, b"ran\n");
    let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let end = "as long as the command ran; the program went on";
    assert_eq!(summary["end"], end);
    let output = running
        .attach(&program, &["--quiet"])
        .args(["--", "/no/such/command"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot run /no/such/command"), "{text}");
    running.go();
    running.end();
}

#[test]
fn a_recording_by_time_lets_the_program_go_on() {
    for engine in engines() {
        let recorded = Recorded::new(
            &["--source", engine, "--for", "200ms"],
            &["sh", "-c", "sleep 1; echo slept"],
            "",
        );
        assert_eq!(recorded.outcome.stdout, "slept\n", "{engine}");
        let end = "as long as was to be recorded";
        assert!(recorded.messages.contains(end), "{}", recorded.messages);
    }
}

/// A running program, until its `ready`.
struct Running {
    child: std::process::Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(program: &Program) -> Self {
        let mut child = Command::new(program.path())
            .args(["5500", "wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, output }
    }

    fn attach(&self, program: &Program, options: &[&str]) -> Command {
        let file = |name: &str| program.folder.path().join(name);
        let mut command = ptrail();
        command
            .args(["attach", "-p", &self.child.id().to_string()])
            .args(options)
            .arg("-o")
            .arg(file("x.jsonl"))
            .arg("--keep-capture")
            .arg(file("perf.data"))
            .arg("--json");
        command
    }

    fn wait_until_traced(&self) {
        let status = format!("/proc/{}/status", self.child.id());
        let begin = Instant::now();
        while std::fs::read_to_string(&status)
            .unwrap()
            .contains("TracerPid:\t0\n")
        {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn end(mut self) {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("{}\n", total()));
        assert!(self.child.wait().unwrap().success());
    }
}

/// What the program prints.
fn total() -> u32 {
    (1..=5500_u32).fold(0, |total, number| (total ^ number).wrapping_add(number))
}

#[test]
fn a_running_process_is_let_go_after_its_slow_calls() {
    let program = Program::build("slow_calls.c");
    let mut running = Running::start(&program);
    let options = ["--trigger", "slow_call>200us", "--snapshots", "3"];
    let recorder = running
        .attach(&program, &options)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    running.wait_until_traced();
    running.go();
    let output = recorder.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(summary["triggers"][0]["hits"], 3, "{text}");
    assert_eq!(summary["triggers"][0]["calls"], 3000, "{text}");
    assert_eq!(summary["snapshots"].as_array().unwrap().len(), 3);
    assert_eq!(summary["losses"].as_array().unwrap().len(), 0, "{text}");
    running.end();
}

#[test]
fn a_signal_asks_for_a_snapshot_of_a_waiting_process() {
    let program = Program::build("slow_calls.c");
    let mut running = Running::start(&program);
    let recorder = running
        .attach(&program, &["--trigger", "signal:USR1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    running.wait_until_traced();
    let kill = ["-c", "kill -s USR1 $0", &recorder.id().to_string()].map(str::to_owned);
    assert!(Command::new("sh").args(kill).status().unwrap().success());
    let output = recorder.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(summary["triggers"][0]["hits"], 1, "{text}");
    running.go();
    running.end();
}

#[test]
fn a_misspelt_trigger_does_not_touch_the_process() {
    let program = Program::build("slow_calls.c");
    let mut running = Running::start(&program);
    let output = running
        .attach(&program, &["--trigger", "slow_cal"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("did you mean slow_call"), "{text}");
    running.go();
    running.end();
}
