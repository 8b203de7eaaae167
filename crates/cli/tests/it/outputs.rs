//! `--format`, and what is kept of a timeline: the same in every output and in `ptrail dump`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use xtask::Corpus;

use crate::recorded::{Recorded, dump, engines, ptrail};
use crate::viewer;

fn program(name: &str, variant: &str) -> Vec<OsString> {
    let corpus = Corpus::load().unwrap();
    let (program, variant) = corpus.find(name, variant).unwrap();
    vec![corpus.build(program, variant).unwrap().into_os_string()]
}

fn json_lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What is told of a span everywhere.
fn span(line: &Value) -> Option<(u64, u64, String)> {
    line.get("depth")?;
    let number = |key: &str| line[key].as_u64().unwrap();
    let name = line["function"].as_str().unwrap().to_owned();
    Some((number("begin_ps"), number("duration_ps"), name))
}

#[test]
fn a_choice_is_the_same_in_every_output_and_is_told() {
    let recorded = Recorded::new(&[], &program("fib", "O2-static"), "");
    let capture = recorded.capture();
    let folder = tempfile::tempdir().unwrap();
    let all: Vec<_> = dump(&capture, &["--spans"])
        .iter()
        .filter_map(span)
        .collect();
    for (options, some) in [
        (&["--function", "fib"][..], 177),
        (&["--min-duration", "100ns", "--function", "main"], 0),
        (&["--thread", "fib*", "--from", "1us", "--to", "40us"], 0),
    ] {
        let mut command = ptrail();
        command
            .current_dir(folder.path())
            .arg("decode")
            .arg(&capture);
        command.args(["--json", "--format", "jsonl", "-o", "x"]);
        let output = command
            .args(["--format", "perfetto", "-o", "y"])
            .args(options)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let mut what = vec!["--spans"];
        what.extend(options);
        let truth: Vec<_> = dump(&capture, &what).iter().filter_map(span).collect();
        assert!(!truth.is_empty() && truth.len() < all.len(), "{options:?}");
        assert!(
            some == 0 || truth.len() == some,
            "{options:?}: {}",
            truth.len()
        );
        let lines = json_lines(&folder.path().join("x"));
        assert_eq!(lines.iter().filter_map(span).collect::<Vec<_>>(), truth);
        let seen = viewer::view(&folder.path().join("y"));
        assert_eq!(seen.complaints, Vec::<Value>::new());
        let mut seen: Vec<_> = seen
            .slices
            .into_iter()
            .map(|slice| (slice.0, slice.2))
            .collect();
        let ns = |begin: &u64, duration: &u64| ((begin + duration) / 1000 - begin / 1000) as i64;
        let shown =
            |(begin, duration, name): &(u64, u64, String)| (name.clone(), ns(begin, duration));
        let mut shown: Vec<_> = truth.iter().map(shown).collect();
        seen.sort();
        shown.sort();
        assert_eq!(seen, shown);
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        let left_out = &summary["left_out"];
        assert_eq!(left_out["of_spans"].as_u64(), Some(all.len() as u64));
        assert_eq!(
            left_out["spans"].as_u64(),
            Some((all.len() - truth.len()) as u64)
        );
    }
}

#[test]
fn formats_are_chosen_by_name_too() {
    let recorded = Recorded::new(&[], &program("fib", "O2-static"), "");
    let folder = tempfile::tempdir().unwrap();
    let decode = |options: &[&str]| {
        let mut command = ptrail();
        command
            .current_dir(folder.path())
            .arg("decode")
            .arg(recorded.capture());
        command.args(options).output().unwrap()
    };
    let output = decode(&["--format", "folded", "--format", "jsonl"]);
    assert!(output.status.success(), "{output:?}");
    let names: BTreeSet<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        names,
        ["perf.data.folded", "perf.data.jsonl"]
            .map(str::to_owned)
            .into()
    );
    for (options, part) in [
        (
            &["--format", "folded", "--format", "jsonl", "-o", "x"][..],
            "once for each -o",
        ),
        (&["-o", "x.what"], "or give --format"),
        (&["--from", "2ms", "--to", "1ms"], "nothing would be left"),
    ] {
        let output = decode(options);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && message.contains(part),
            "{message}"
        );
    }
}

/// Functions have one number in all threads, so profiles, which name them in the end, name the right
/// ones.
#[test]
fn profiles_of_several_threads_name_each_threads_functions() {
    if !engines().contains(&"qemu") {
        return;
    }
    let program = program("thread", "O0");
    let recorded = Recorded::new(&["--source", "qemu"], &program, "");
    let folder = tempfile::tempdir().unwrap();
    let mut command = ptrail();
    command
        .current_dir(folder.path())
        .arg("decode")
        .arg(recorded.capture());
    let output = command
        .args(["-o", "x.jsonl", "-o", "x.instructions.folded"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = json_lines(&folder.path().join("x.jsonl"));
    let numbers: Vec<_> = lines
        .iter()
        .filter(|line| line["type"] == "function")
        .map(|line| line["function_id"].as_u64().unwrap() as usize)
        .collect();
    assert!(numbers.iter().copied().eq(0..numbers.len()));
    let truth: BTreeSet<_> = lines
        .iter()
        .filter(|line| line["type"] == "span" && line["self_instructions"] != 0)
        .map(|line| line["function"].as_str().unwrap().replace(';', ":"))
        .collect();
    let text = std::fs::read_to_string(folder.path().join("x.instructions.folded")).unwrap();
    let paths = text.lines().map(|line| line.rsplit_once(' ').unwrap().0);
    let seen: BTreeSet<_> = paths
        .map(|path| path.rsplit(';').next().unwrap().to_owned())
        .collect();
    assert_eq!(seen, truth);
    let work = text
        .lines()
        .find(|line| line.contains("in_thread;thread_work "));
    assert!(work.is_some(), "{text}");
}

/// A function stands where its first instruction does; the corpus is built with debug information.
#[test]
fn functions_have_their_source_lines() {
    let recorded = Recorded::new(&[], &program("fib", "O0"), "");
    let file = recorded.capture().with_extension("jsonl");
    let mut command = ptrail();
    command
        .arg("decode")
        .arg(recorded.capture())
        .arg("-o")
        .arg(&file);
    assert!(command.output().unwrap().status.success());
    let lines = json_lines(&file);
    let source = std::fs::read_to_string(xtask::workspace_root().join("testdata/programs/fib.c"));
    let source = source.unwrap();
    for name in ["fib", "main"] {
        let function = lines
            .iter()
            .find(|line| line["type"] == "function" && line["name"] == name);
        let function = function.unwrap();
        assert!(
            function["file"].as_str().unwrap().ends_with("fib.c"),
            "{function}"
        );
        let line = function["line"].as_u64().unwrap() as usize;
        // Compilers take the line of the name or that of the brace behind it.
        let lines: Vec<_> = source.lines().skip(line - 2).take(2).collect();
        let text = lines.join("\n");
        assert!(text.contains(&format!("{name}(")), "{line}: {text}");
    }
}

/// Function names, with their calls and nanoseconds.
type Calls = BTreeMap<String, (u64, u64)>;

fn add(calls: &mut Calls, name: &str, nanoseconds: u64) {
    let sums = calls.entry(name.to_owned()).or_default();
    *sums = (sums.0 + 1, sums.1 + nanoseconds);
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn in_trace_processor(file: &Path) -> Calls {
    let seen = viewer::view(file);
    assert_eq!(seen.complaints, Vec::<Value>::new(), "{}", file.display());
    let mut calls = Calls::new();
    for (name, _, duration) in seen.slices {
        add(&mut calls, &name, duration as u64);
    }
    // The Fuchsia trace's note on the recording.
    calls.remove("software recorder, virtual clock");
    calls
}

fn in_otlp(file: &Path) -> Calls {
    let file = json(file);
    let mut calls = Calls::new();
    for span in list(&file["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
        let keys = list(&span["attributes"])
            .iter()
            .map(|attribute| &attribute["key"]);
        if keys.into_iter().any(|key| key == "code.function.name") {
            let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
            let duration = time("endTimeUnixNano") - time("startTimeUnixNano");
            add(&mut calls, span["name"].as_str().unwrap(), duration);
        }
    }
    calls
}

fn in_zipkin(file: &Path) -> Calls {
    let mut calls = Calls::new();
    for span in list(&json(file)) {
        if span["tags"].get("code.function.name").is_some() {
            let duration = span["tags"]["ptrail.duration_ns"].as_str().unwrap();
            add(
                &mut calls,
                span["name"].as_str().unwrap(),
                duration.parse().unwrap(),
            );
        }
    }
    calls
}

fn in_firefox(file: &Path) -> Calls {
    let file = json(file);
    let mut calls = Calls::new();
    for thread in list(&file["threads"]) {
        let markers = &thread["markers"];
        for (row, name) in list(&markers["name"]).iter().enumerate() {
            let time = |key: &str| (markers[key][row].as_f64().unwrap() * 1e6).round() as u64;
            if markers["data"][row]["type"] == "call" {
                let name = &thread["stringArray"][name.as_u64().unwrap() as usize];
                let duration = time("endTime") - time("startTime");
                add(&mut calls, name.as_str().unwrap(), duration);
            }
        }
    }
    calls
}

fn in_speedscope(file: &Path) -> Calls {
    let file = json(file);
    let mut calls = Calls::new();
    for profile in list(&file["profiles"]) {
        let mut open = Vec::new();
        for event in list(&profile["events"]) {
            let at = event["at"].as_u64().unwrap();
            if event["type"] == "O" {
                open.push(at);
            } else {
                let frame = event["frame"].as_u64().unwrap() as usize;
                let name = file["shared"]["frames"][frame]["name"].as_str().unwrap();
                add(&mut calls, name, at - open.pop().unwrap());
            }
        }
    }
    calls
}

/// `babeltrace2` prints a line an event; ends are those of the innermost begin.
fn in_babeltrace(folder: &Path) -> Calls {
    let output = Command::new("babeltrace2")
        .args(["--clock-cycles"])
        .arg(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let (mut calls, mut open) = (Calls::new(), Vec::new());
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let at = line.trim_start_matches('[').split(']').next().unwrap();
        let at: u64 = at.parse().unwrap();
        if line.contains(" call_begin: ") {
            let (_, name) = line.split_once("function = \"").unwrap();
            let (name, _) = name.split_once("\", mangled_name").unwrap();
            open.push((name.to_owned(), at));
        } else if line.contains(" call_end: ") {
            let (name, begin) = open.pop().unwrap();
            add(&mut calls, &name, at - begin);
        }
    }
    assert!(open.is_empty());
    calls
}

/// One real capture in every timeline format, each read by the program it is for or by its rules.
#[test]
fn every_format_shows_the_calls_that_dump_prints() {
    let program = program("exceptions", "O2-static-pie");
    let recorded = Recorded::new(&[], &program, "");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let mut command = ptrail();
    command.arg("decode").arg(recorded.capture());
    for name in [
        "a.pftrace",
        "a.json",
        "a.fxt",
        "a.otlp.json",
        "a.zipkin.json",
        "a.profile.json",
        "a.speedscope.json",
        "a.ctf",
    ] {
        command.arg("-o").arg(file(name));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut truth = Calls::new();
    for line in dump(&recorded.capture(), &["--spans"]) {
        if let Some((begin, duration, name)) = span(&line) {
            add(&mut truth, &name, (begin + duration) / 1000 - begin / 1000);
        }
    }
    assert!(truth.len() > 50 && truth.contains_key("pass_through(int)"));
    for name in ["a.pftrace", "a.json", "a.fxt"] {
        // The perf clock's base is whole nanoseconds, so rounding is the same.
        assert_eq!(in_trace_processor(&file(name)), truth, "{name}");
    }
    assert_eq!(in_otlp(&file("a.otlp.json")), truth);
    assert_eq!(in_zipkin(&file("a.zipkin.json")), truth);
    assert_eq!(in_firefox(&file("a.profile.json")), truth);
    assert_eq!(in_speedscope(&file("a.speedscope.json")), truth);
    match Command::new("babeltrace2").arg("--version").output() {
        Ok(_) => assert_eq!(in_babeltrace(&file("a.ctf")), truth),
        Err(_) => eprintln!("SKIPPED: there is no babeltrace2 (tools/setup.sh test installs it)"),
    }
}

/// Too large a timeline loses its shortest calls, and only it; the summary says so.
#[test]
fn a_timeline_is_made_to_fit() {
    let recorded = Recorded::new(&[], &program("fib", "O0"), "");
    let folder = tempfile::tempdir().unwrap();
    let decode = |options: &[&str], names: [&str; 3]| -> Value {
        let mut command = ptrail();
        command
            .current_dir(folder.path())
            .arg("decode")
            .arg(recorded.capture())
            .arg("--json")
            .args(options);
        for name in names {
            command.args(["-o", name]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let size = |name: &str| folder.path().join(name).metadata().unwrap().len();
    let summary = decode(&[], ["a.pftrace", "a.jsonl", "a.callgrind"]);
    assert_eq!(summary["output_notes"], serde_json::json!([]));
    let most = size("a.jsonl") / 3;
    assert!(size("a.pftrace") < most && most < size("a.jsonl"));
    let options = ["--max-size", &most.to_string()];
    let summary = decode(&options, ["b.pftrace", "b.jsonl", "b.callgrind"]);
    let notes = list(&summary["output_notes"]);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0]
            .as_str()
            .unwrap()
            .starts_with("b.jsonl would have had "),
        "{notes:?}"
    );
    assert!(
        size("b.jsonl") <= most && size("b.jsonl") > most / 4,
        "{}",
        size("b.jsonl")
    );
    // The others are whole.
    assert_eq!(size("b.pftrace"), size("a.pftrace"));
    assert_eq!(size("b.callgrind"), size("a.callgrind"));
    let durations = |name: &str| -> Vec<u64> {
        let lines = json_lines(&folder.path().join(name));
        let mut durations: Vec<_> = lines.iter().filter_map(span).map(|span| span.1).collect();
        durations.sort();
        durations
    };
    let (all, kept) = (durations("a.jsonl"), durations("b.jsonl"));
    assert_eq!(
        kept[..],
        all[all.len() - kept.len()..],
        "the longest are kept"
    );
}
