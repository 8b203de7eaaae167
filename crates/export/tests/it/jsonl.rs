//! JSON lines, read back as a script would, and the call tree rebuilt from spans alone.

use std::{collections::HashMap, path::PathBuf};

use ptrail_export::{Format, create};
use ptrail_pt::LossCause;
use ptrail_trace::{PointKind, Source, SpanFlags};
use serde_json::{Value, json};

use crate::{
    program,
    stream::{BASE, Slice, Stream},
    viewer::assert_same,
};

fn lines(stream: &Stream) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("trace.jsonl");
    let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
    stream.play(sink.as_mut());
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

struct Tree {
    slice: Slice,
    depth: i64,
    children: Vec<Tree>,
}

#[derive(Default)]
struct Thread {
    name: String,
    done: Vec<Tree>,
    part: Vec<Tree>,
}

fn args(span: &Value, function: &Value) -> Vec<(String, String)> {
    let mut args = Vec::new();
    for key in ["address", "call_site", "module"] {
        let value = span[key].as_str().unwrap_or_default();
        args.extend((!value.is_empty()).then(|| (key.to_owned(), value.to_owned())));
    }
    for key in ["instructions", "self_instructions"] {
        args.push((key.to_owned(), span[key].to_string()));
    }
    if let Some(file) = function["file"].as_str() {
        args.push(("source.file_name".to_owned(), file.to_owned()));
        args.push((
            "source.line_number".to_owned(),
            function["line"].to_string(),
        ));
    }
    let mangled = function["mangled"].as_str().map(str::to_owned);
    args.extend(mangled.map(|mangled| ("mangled_name".to_owned(), mangled)));
    let flags: Vec<_> = span["flags"].as_array().unwrap().iter().collect();
    if !flags.is_empty() {
        let flags: Vec<_> = flags.iter().map(|flag| flag.as_str().unwrap()).collect();
        args.push(("flags".to_owned(), flags.join(", ")));
    }
    args.sort();
    args
}

/// Spans come in the order of their ends: one takes in what was left before it, lies deeper, and
/// is of the same part.
fn rebuilt(lines: &[Value]) -> Vec<Slice> {
    let mut functions = HashMap::new();
    let mut threads = Vec::<Thread>::new();
    let base = lines[0]["base_ns"].as_i64().unwrap();
    for line in lines {
        let track = line["track"].as_u64().map(|track| track as usize);
        match (line["type"].as_str().unwrap(), track) {
            ("track", Some(track)) => {
                assert_eq!(track, threads.len());
                let name = line["name"].as_str().unwrap().to_owned();
                threads.push(Thread {
                    name,
                    ..Thread::default()
                });
            }
            ("function", None) => {
                functions.insert(line["function_id"].to_string(), line);
            }
            ("span", Some(track)) => {
                let thread = &mut threads[track];
                let function = functions[&line["function_id"].to_string()];
                assert_eq!(line["function"], function["name"]);
                let number = |key: &str| line[key].as_i64().unwrap();
                let (begin, duration) = (number("begin_ps"), number("duration_ps"));
                let ns = |ps: i64| base + ps / 1000;
                let slice = Slice {
                    thread: (
                        number("pid") as u32,
                        number("tid") as u32,
                        thread.name.clone(),
                    ),
                    name: line["function"].as_str().unwrap().to_owned(),
                    ts: ns(begin),
                    dur: ns(begin + duration) - ns(begin),
                    depth: 0,
                    args: args(line, function),
                };
                let depth = number("depth");
                let inner = thread.part.iter().rev();
                let count = inner.take_while(|tree| tree.depth > depth).count();
                let children = thread.part.split_off(thread.part.len() - count);
                thread.part.push(Tree {
                    slice,
                    depth,
                    children,
                });
            }
            ("loss", Some(track)) => {
                let thread = &mut threads[track];
                thread.done.append(&mut thread.part);
            }
            _ => {}
        }
    }
    let mut slices = Vec::new();
    for mut thread in threads {
        thread.done.append(&mut thread.part);
        let mut rest: Vec<_> = thread
            .done
            .into_iter()
            .rev()
            .map(|tree| (tree, 0))
            .collect();
        while let Some((tree, depth)) = rest.pop() {
            slices.push(Slice {
                depth,
                ..tree.slice
            });
            let children = tree.children.into_iter().rev();
            rest.extend(children.map(|child| (child, depth + 1)));
        }
    }
    slices
}

#[test]
fn the_call_tree_comes_back() {
    for mut stream in [
        program::random(0x5eed_0001, 20_000),
        program::late_ties(),
        program::odd_names(),
        program::deep(10_000, 1_000),
    ] {
        let lines = lines(&stream);
        assert_same(&rebuilt(&lines), &stream.slices());
    }
}

#[test]
fn every_kind_of_line_is_whole() {
    let mut stream = Stream::new(Source::Software);
    let track = stream.thread(10, 11, "a \"thread\"");
    stream.enter(track, "main", 1);
    stream.point(track, 3_500, PointKind::Signal, "SIGUSR1");
    stream.loss(track, 5_000, 8_001, LossCause::Overflow, "line\nbreak");
    stream.leave(track, 20_002, SpanFlags::CUT);
    stream.rate(track, 1, 20_002, 7);
    assert_eq!(
        lines(&stream),
        [
            json!({"type": "recording", "source": "software", "command": ["demo", "--fast"],
                "base_ns": BASE, "base_unix_ns": 1_700_000_000_123_456_789_u64}),
            json!({"type": "track", "track": 0, "pid": 10, "tid": 11, "name": "a \"thread\"",
                "process": "process 10"}),
            json!({"type": "function", "function_id": 0, "name": "main", "mangled": "_Z4main",
                "module": "demo", "address": "0xffff800000000000", "file": null, "line": null}),
            json!({"type": "point", "track": 0, "pid": 10, "tid": 11, "at_ps": 3500,
                "kind": "signal", "text": "SIGUSR1"}),
            json!({"type": "loss", "track": 0, "pid": 10, "tid": 11, "begin_ps": 5000,
                "duration_ps": 3001, "cause": "overflow", "bytes": 4096, "offset": "0x1234",
                "address": "0x401000", "reason": "line\nbreak"}),
            json!({"type": "span", "track": 0, "pid": 10, "tid": 11, "begin_ps": 1,
                "duration_ps": 20_001, "depth": 0, "function_id": 0, "function": "main",
                "module": "demo", "address": "0xffff800000000000", "call_site": null,
                "instructions": 7, "self_instructions": 1, "flags": ["inferred", "cut"]}),
            json!({"type": "rate", "track": 0, "pid": 10, "tid": 11, "begin_ps": 1,
                "duration_ps": 20_001, "instructions": 7}),
        ]
    );
}
