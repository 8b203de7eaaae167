//! `.ctf` folders, read by babeltrace 2 through its Python bindings (Debian packages babeltrace2 and
//! python3-bt2), which complain about whatever does not fit the format.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Command,
};

use ptrail_export::{Format, create};
use ptrail_pt::LossCause;
use ptrail_trace::{PointKind, Source, SpanFlags};
use serde_json::{Value, json};

use crate::{
    program,
    stream::{Slice, Stream},
    viewer::assert_same,
};

/// Prints each event as JSON: name, time, packet context and fields.
const READER: &str = r#"
import bt2, json, sys
for message in bt2.TraceCollectionMessageIterator(sys.argv[1]):
    if type(message) is bt2._EventMessageConst:
        event = message.event
        plain = lambda field: {key: str(value) if isinstance(value, bt2._StringFieldConst) else int(value)
                               for key, value in field.items()}
        print(json.dumps([event.name, message.default_clock_snapshot.value,
                          message.default_clock_snapshot.ns_from_origin,
                          plain(event.packet.context_field), plain(event.payload_field)]))
"#;

fn written(stream: &Stream) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.ctf");
    let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
    stream.play(sink.as_mut());
    (dir, path)
}

fn has_babeltrace() -> bool {
    let python = Command::new("/usr/bin/python3")
        .args(["-c", "import bt2"])
        .output();
    let has = python.is_ok_and(|output| output.status.success());
    if !has {
        eprintln!("SKIPPED: babeltrace2 is not here (tools/setup.sh test installs it)");
    }
    has
}

fn events(path: &Path) -> Vec<Value> {
    let output = Command::new("/usr/bin/python3")
        .args(["-c", READER])
        .arg(path)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && messages.is_empty(), "{messages}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The call tree; each thread's in the order of its events.
fn read(path: &Path) -> Vec<Slice> {
    let mut threads = HashMap::<u64, (Vec<Slice>, Vec<usize>)>::new();
    for event in events(path) {
        let (name, at) = (event[0].as_str().unwrap(), event[1].as_i64().unwrap());
        let (context, fields) = (&event[3], &event[4]);
        let tid = context["tid"].as_u64().unwrap();
        let (slices, open) = threads.entry(tid).or_default();
        let text = |key: &str| match fields[key].as_str().unwrap() {
            "-" => String::new(),
            text => text.to_owned(),
        };
        let hex = |key: &str| format!("{:#x}", fields[key].as_u64().unwrap());
        match name {
            "call_begin" => {
                let mut args = vec![("address", hex("address"))];
                let texts = [
                    ("mangled_name", "mangled_name"),
                    ("module", "module"),
                    ("source.file_name", "file"),
                ];
                args.extend(texts.map(|(key, field)| (key, text(field))));
                if fields["call_site"] != 0 {
                    args.push(("call_site", hex("call_site")));
                }
                if fields["line"] != 0 {
                    args.push(("source.line_number", fields["line"].to_string()));
                }
                args.retain(|(_, value)| !value.is_empty());
                let thread = context["thread"].as_str().unwrap().to_owned();
                let pid = context["pid"].as_u64().unwrap() as u32;
                open.push(slices.len());
                slices.push(Slice {
                    thread: (pid, tid as u32, thread),
                    name: text("function"),
                    ts: at,
                    dur: -1,
                    depth: open.len() as i64 - 1,
                    args: args
                        .into_iter()
                        .map(|(key, value)| (key.to_owned(), value))
                        .collect(),
                });
            }
            "call_end" => {
                let slice = &mut slices[open.pop().unwrap()];
                slice.dur = at - slice.ts;
                for key in ["instructions", "self_instructions"] {
                    slice.args.push((key.to_owned(), fields[key].to_string()));
                }
                if !text("flags").is_empty() {
                    slice.args.push(("flags".to_owned(), text("flags")));
                }
                slice.args.sort();
            }
            _ => {}
        }
    }
    let mut threads: Vec<_> = threads.into_iter().collect();
    threads.sort_by_key(|(tid, _)| *tid);
    let all = threads.into_iter().flat_map(|(_, (slices, open))| {
        assert!(open.is_empty());
        slices
    });
    all.collect()
}

#[test]
fn babeltrace_finds_every_call() {
    if !has_babeltrace() {
        return;
    }
    for mut stream in [
        program::random(0x5eed_0030, 20_000),
        program::late_ties(),
        program::odd_names(),
        program::deep(10_000, 1_000),
    ] {
        let (_dir, path) = written(&stream);
        assert_same(&read(&path), &stream.slices());
    }
}

#[test]
fn points_losses_and_the_clock() {
    if !has_babeltrace() {
        return;
    }
    let mut stream = Stream::new(Source::Software);
    let track = stream.thread(10, 11, "a \"thread\"");
    stream.enter(track, "main", 0);
    stream.point(track, 3_500, PointKind::Signal, "SIGUSR1");
    stream.loss(track, 5_000, 8_000, LossCause::Overflow, "line\nbreak");
    stream.leave(track, 20_000, SpanFlags::CUT);
    let (_dir, path) = written(&stream);
    let events = events(&path);
    assert_eq!(events[1][4], json!({"kind": "signal", "text": "SIGUSR1"}));
    let end = stream.recording.base.0 + 8;
    assert_eq!(
        events[2][4],
        json!({"end": end, "cause": "overflow", "bytes": 4096, "trace_offset": 0x1234,
            "address": 0x401000, "reason": "line\nbreak"})
    );
    // The wall clock.
    let unix = stream.recording.wall_clock.unwrap();
    assert_eq!(events[1][2].as_u64(), Some(unix + 3));
    assert_eq!(events[0][3]["process"], "process 10 (virtual clock)");
}

#[test]
fn a_folder_is_replaced_only_if_it_holds_a_trace() {
    let stream = program::late_ties();
    let (dir, path) = written(&stream);
    let mut sink = create(Format::Ctf, &path).unwrap();
    std::fs::write(path.join("thread-99"), "old").unwrap();
    stream.play(sink.as_mut());
    let names = |path: &Path| {
        let entries = path.read_dir().unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&path), ["metadata", "thread-0"]);
    assert_eq!(names(dir.path()), ["trace.ctf"]);
    let other = dir.path().join("other.ctf");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("letter"), "dear").unwrap();
    let error = create(Format::Ctf, &other).err().unwrap().to_string();
    assert!(error.contains("something else than a CTF trace"), "{error}");
    // Unfinished, nothing is left.
    drop(create(Format::Ctf, &dir.path().join("new.ctf")).unwrap());
    assert_eq!(names(dir.path()), ["other.ctf", "trace.ctf"]);
}
