//! Callgrind files, read by `callgrind_annotate` (Debian package valgrind) and by a reader of our
//! own that keeps what the program does not print.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    process::Command,
};

use ptrail_export::{Format, create};
use ptrail_trace::{Source, SpanFlags};

use crate::{
    program,
    stream::{Slice, Stream},
    sums::{Sums, add, arg, own},
};

fn written(stream: &Stream) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("callgrind.out.1");
    let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
    stream.play(sink.as_mut());
    (dir, path)
}

/// Own costs by function, and calls with inclusive costs by caller and callee; a function is
/// `module:name`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Costs {
    own: BTreeMap<String, (u64, u64)>,
    calls: BTreeMap<(String, String), Sums>,
}

fn name(slice: &Slice) -> String {
    let name = slice
        .name
        .replace(|c: char| c.is_control(), " ")
        .trim()
        .to_owned();
    let name = if name.is_empty() { "[unnamed]" } else { &name };
    let module = match arg(slice, "source.file_name") {
        none if none.is_empty() => arg(slice, "module"),
        file => file,
    };
    let module = if module.is_empty() { "???" } else { &module };
    format!("{module}:{name}")
}

fn truth(slices: &[Slice]) -> Costs {
    let mut costs = Costs::default();
    let own = own(slices);
    // From the inside out: what a slice and all within it spent.
    let mut inclusive: Vec<_> = own.iter().map(|own| (own.time, own.instructions)).collect();
    let mut callers = Vec::new();
    let mut path = Vec::<usize>::new();
    for (index, own) in own.iter().enumerate() {
        path.truncate(own.slice.depth as usize);
        callers.push(path.last().copied());
        path.push(index);
    }
    for index in (0..own.len()).rev() {
        if let Some(caller) = callers[index] {
            inclusive[caller].0 += inclusive[index].0;
            inclusive[caller].1 += inclusive[index].1;
        }
    }
    let names: Vec<_> = own.iter().map(|own| name(own.slice)).collect();
    let mut path = Vec::<usize>::new();
    let mut on_stack = HashMap::<&str, usize>::new();
    for (index, own) in own.iter().enumerate() {
        for left in path.split_off(own.slice.depth as usize) {
            *on_stack.get_mut(&*names[left]).unwrap() -= 1;
        }
        let sums = costs.own.entry(names[index].clone()).or_default();
        *sums = (sums.0 + own.time, sums.1 + own.instructions);
        let (_, tid, thread) = &own.slice.thread;
        let caller = callers[index].map_or_else(
            || format!("???:[thread {thread} {tid}]"),
            |caller| names[caller].clone(),
        );
        let active = on_stack.entry(&names[index]).or_default();
        let counted = if *active == 0 {
            inclusive[index]
        } else {
            (0, 0)
        };
        *active += 1;
        path.push(index);
        let edge = costs.calls.entry((caller, names[index].clone()));
        add(edge.or_default(), (1, counted.0, counted.1));
    }
    costs
}

/// Reads a file by the rules of the format's manual page, as far as ours use them.
fn read(path: &Path) -> Costs {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.starts_with("# callgrind format\nversion: 1\n"));
    let (_, body) = text.split_once("\nevents: Ns Ir\n").unwrap();
    let mut costs = Costs::default();
    let mut names = HashMap::<(&str, &str), &str>::new();
    let (mut place, mut callee) = (HashMap::new(), HashMap::new());
    let (mut calls, mut callee_line) = (None, "");
    let function = |place: &HashMap<&str, &str>| format!("{}:{}", place["fl"], place["fn"]);
    for line in body.lines().filter(|line| !line.is_empty()) {
        if let Some(totals) = line.strip_prefix("totals: ") {
            let sum = |cost: fn(&(u64, u64)) -> u64| costs.own.values().map(cost).sum::<u64>();
            assert_eq!(totals, format!("{} {}", sum(|c| c.0), sum(|c| c.1)));
        } else if let Some((count, line)) = line
            .strip_prefix("calls=")
            .and_then(|rest| rest.split_once(' '))
        {
            callee_line = line;
            calls = Some(count.parse().unwrap());
        } else if let Some((key, value)) = line.split_once("=(") {
            let (number, name) = value.split_once(')').unwrap();
            let table = match key {
                "fl" | "cfi" => "fl",
                key => key.trim_start_matches('c'),
            };
            let name = match name.trim_start() {
                "" => names[&(table, number)],
                name => {
                    assert!(names.insert((table, number), name).is_none());
                    name
                }
            };
            let to = if key.starts_with('c') {
                &mut callee
            } else {
                &mut place
            };
            to.insert(table, name);
        } else {
            let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
            let [line, time, instructions] = numbers[..] else {
                panic!("{line}")
            };
            let from = function(&place);
            // Functions that the made-up programs give a line have it from 10 on.
            let has_line = |of: &HashMap<&str, &str>| of["fl"].starts_with("/src/");
            assert_eq!(line >= 10, has_line(&place));
            assert!(has_line(&place) || place["ob"] == place["fl"]);
            if let Some(count) = calls.take() {
                assert_eq!(callee_line != "0", has_line(&callee));
                let edge = costs.calls.entry((from, function(&callee))).or_default();
                add(edge, (count, time, instructions));
            } else if !from.starts_with("???:[thread ") {
                let own = costs.own.entry(from).or_default();
                *own = (own.0 + time, own.1 + instructions);
            }
        }
    }
    costs
}

/// What `callgrind_annotate` prints: nanoseconds and instructions by `module:name`.
fn annotated(path: &Path, inclusive: &str) -> BTreeMap<String, (u64, u64)> {
    let output = Command::new("callgrind_annotate")
        .args(["--threshold=100", "--auto=no"])
        .arg(format!("--inclusive={inclusive}"))
        .arg(path)
        .output()
        .expect("callgrind_annotate runs; it is in the Debian package valgrind");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && messages.is_empty(), "{messages}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, table) = text.split_once("file:function\n").unwrap();
    let mut functions = BTreeMap::new();
    for line in table.lines().skip(1).take_while(|line| !line.is_empty()) {
        // "1,234 (56.7%) 12 ( 0.1%)  module:name [module]"
        let (numbers, name) = line.split_once("  ").map_or((line, ""), |_| {
            let at = line.find(|c: char| c.is_alphabetic() || "?[/".contains(c));
            line.split_at(at.unwrap_or(line.len()))
        });
        let numbers = numbers.replace(',', "");
        let mut numbers = numbers
            .split(|c: char| c.is_whitespace() || c == '(' || c == ')')
            .filter(|word| !word.is_empty() && !word.ends_with('%'))
            .map(|word| {
                if word == "." {
                    0
                } else {
                    word.parse().unwrap()
                }
            });
        let costs = (numbers.next().unwrap(), numbers.next().unwrap());
        // In brackets, the object; not of the pseudo functions, which have none.
        let name = match name.rsplit_once(" [") {
            Some((name, object)) if object.ends_with(']') && !object.contains(' ') => name,
            _ => name,
        };
        assert!(functions.insert(name.to_owned(), costs).is_none(), "{name}");
    }
    functions
}

fn check(mut stream: Stream) {
    let (_dir, path) = written(&stream);
    let slices = stream.slices();
    let truth = truth(&slices);
    assert_eq!(read(&path), truth);

    let mut inclusive = BTreeMap::<String, (u64, u64)>::new();
    for ((caller, callee), sums) in &truth.calls {
        for name in [
            Some(callee),
            caller.starts_with("???:[thread ").then_some(caller),
        ] {
            let all = inclusive
                .entry(name.cloned().unwrap_or_default())
                .or_default();
            *all = (all.0 + sums.1, all.1 + sums.2);
        }
    }
    inclusive.remove("");
    for (way, truth) in [("no", truth.own), ("yes", inclusive)] {
        let mut seen = annotated(&path, way);
        // Whether it prints functions that cost nothing is its own business.
        seen.retain(|_, cost| *cost != (0, 0));
        let costly = truth.into_iter().filter(|(_, cost)| *cost != (0, 0));
        assert_eq!(seen, costly.collect(), "inclusive: {way}");
    }
}

#[test]
fn random_programs() {
    check(program::random(0x5eed_0006, 20_000));
}

#[test]
fn late_callers_at_equal_times() {
    check(program::late_ties());
}

#[test]
fn odd_names_and_many_threads() {
    check(program::odd_names());
}

#[test]
fn ten_thousand_levels() {
    check(program::deep(10_000, 1_000));
}

#[test]
fn the_header_says_what_was_recorded() {
    let mut stream = Stream::new(Source::Software);
    let track = stream.thread(42, 42, "demo");
    stream.enter(track, "f", 0);
    stream.leave(track, 5_000, SpanFlags::empty());
    let (_dir, path) = written(&stream);
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("\npid: 42\ncmd: demo --fast\n"), "{text}");
    assert!(
        text.contains("\ndesc: Clock: software recorder, virtual clock\n"),
        "{text}"
    );
}
