//! Chrome trace event `.json` files.

use std::{collections::HashMap, path::PathBuf};

use ptrail_export::{Format, create};
use ptrail_pt::LossCause;
use ptrail_trace::{PointKind, Source, SpanFlags, TrackKind};
use serde_json::Value;

use crate::{
    program,
    stream::{BASE, Slice, Stream},
    viewer::{ARGS, COMPLAINTS, SLICES, assert_same, number, query, slices, text},
};

fn written(stream: &Stream) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
    stream.play(sink.as_mut());
    (dir, path)
}

fn parsed(path: &PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn in_trace_processor(mut stream: Stream) {
    let (_dir, path) = written(&stream);
    let [complaints, rows, arg_rows] = query(&path, [COMPLAINTS, SLICES, ARGS]);
    assert!(complaints.is_empty(), "{complaints:?}");
    let mut truth = stream.slices();
    for slice in &mut truth {
        // From JSON it does not decode `\u` escapes, which must be used for control characters.
        slice.name = slice
            .name
            .replace('\u{1}', "\\u0001")
            .replace('\u{1f}', "\\u001f");
        for (_, value) in &mut slice.args {
            *value = value
                .replace('\u{1}', "\\u0001")
                .replace('\u{1f}', "\\u001f");
        }
        if slice.name.is_empty() {
            slice.name = "[No name]".to_owned();
        }
    }
    assert_same(&slices(&rows, &arg_rows), &truth);
}

/// Reads the file as a viewer that does not sort: events in file order, each end closing the
/// innermost begin, whose name it must have. Times must not go backwards within a thread.
fn in_file_order(stream: &mut Stream) {
    let (_dir, path) = written(stream);
    let file = parsed(&path);
    let mut threads = HashMap::<(u64, u64), Vec<(Slice, Vec<(String, String)>)>>::new();
    let mut last = HashMap::<(u64, u64), i64>::new();
    let mut open = HashMap::<(u64, u64), Vec<usize>>::new();
    for event in file["traceEvents"].as_array().unwrap() {
        let phase = event["ph"].as_str().unwrap();
        if !matches!(phase, "B" | "E") {
            continue;
        }
        let thread = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        let ts = (event["ts"].as_f64().unwrap() * 1000.0).round() as i64;
        assert!(
            last.insert(thread, ts).is_none_or(|before| before <= ts),
            "time goes back at {event}"
        );
        let pairs = |args: &Value| -> Vec<(String, String)> {
            let plain = |value: &Value| {
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            };
            args.as_object()
                .unwrap()
                .iter()
                .map(|(key, value)| (key.clone(), plain(value)))
                .collect()
        };
        let (slices, open) = (
            threads.entry(thread).or_default(),
            open.entry(thread).or_default(),
        );
        let name = event["name"].as_str().unwrap().to_owned();
        if phase == "B" {
            let (thread, depth) = ((0, 0, String::new()), open.len() as i64);
            open.push(slices.len());
            slices.push((
                Slice {
                    thread,
                    name,
                    ts,
                    dur: -1,
                    depth,
                    args: Vec::new(),
                },
                pairs(&event["args"]),
            ));
        } else {
            let (slice, args) = &mut slices[open.pop().expect("something is open")];
            assert_eq!(slice.name, name);
            slice.dur = ts - slice.ts;
            args.extend(pairs(&event["args"]));
            args.sort();
        }
    }
    assert!(open.values().all(Vec::is_empty));
    let mut seen = Vec::new();
    for track in &stream.tracks {
        let TrackKind::Thread { pid, tid } = track.kind;
        for (slice, args) in threads
            .remove(&(u64::from(pid), u64::from(tid)))
            .unwrap_or_default()
        {
            seen.push(Slice {
                thread: (pid, tid, track.name.clone()),
                args,
                ..slice
            });
        }
    }
    assert_same(&seen, &stream.slices());
}

#[test]
fn random_programs() {
    let program = || program::random(0x0bad_cafe_1234_5678, 20_000);
    in_trace_processor(program());
    in_file_order(&mut program());
}

#[test]
fn late_callers_at_equal_times() {
    in_trace_processor(program::late_ties());
    in_file_order(&mut program::late_ties());
}

#[test]
fn odd_names_and_many_threads() {
    in_trace_processor(program::odd_names());
    in_file_order(&mut program::odd_names());
}

#[test]
fn ten_thousand_levels() {
    in_file_order(&mut program::deep(10_000, 1_000));
}

#[test]
fn times_have_three_exact_decimals() {
    let mut stream = Stream::new(Source::Hardware);
    let track = stream.thread(1, 1, "t");
    stream.enter(track, "f", 211_999);
    stream.leave(track, 1_211_000, SpanFlags::empty());
    let (_dir, path) = written(&stream);
    let file = std::fs::read_to_string(path).unwrap();
    assert_eq!(BASE, 75_632_123_456_789);
    assert!(file.contains(r#""ts":75632123457.000,"#), "{file}");
    assert!(file.contains(r#""ts":75632123458.000,"#), "{file}");
    assert!(!file.contains("e+"), "{file}");
}

#[test]
fn points_losses_and_the_note() {
    let mut stream = Stream::new(Source::Software);
    let track = stream.thread(10, 11, "a \"thread\"");
    stream.enter(track, "main", 0);
    stream.point(track, 3_500, PointKind::Signal, "SIGUSR1 \"delivered\"");
    stream.loss(track, 5_000, 8_000, LossCause::Overflow, "line\nbreak");
    stream.loss(track, 7_000, 9_000, LossCause::NoCode, "no code");
    stream.leave(track, 20_000, SpanFlags::CUT);
    let (_dir, path) = written(&stream);
    let file = parsed(&path);
    assert_eq!(file["displayTimeUnit"], "ns");
    assert_eq!(
        file["otherData"]["source"],
        "software recorder, virtual clock"
    );
    assert_eq!(file["otherData"]["command"], "demo --fast");

    let others = "select p.pid, p.name as process, s.name, s.ts - 75632123456789 as at, s.dur, s.depth from slice s
        join process_track k on s.track_id = k.id join process p using (upid) order by s.id";
    let [complaints, rows] = query(&path, [COMPLAINTS, others]);
    assert!(complaints.is_empty(), "{complaints:?}");
    assert_eq!(text(&rows[0], "process"), "process 10 (virtual clock)");
    let seen: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                number(row, "pid"),
                text(row, "name"),
                number(row, "at"),
                number(row, "dur"),
                number(row, "depth"),
            )
        })
        .collect();
    let seen: Vec<_> = seen
        .iter()
        .map(|(pid, n, at, dur, depth)| (*pid, &**n, *at, *dur, *depth))
        .collect();
    assert_eq!(
        seen,
        [
            (10, "SIGUSR1 \"delivered\"", 3, 0, 0),
            (10, "lost: overflow", 5, 3, 0),
            (10, "lost: no-code", 7, 2, 0),
        ]
    );
}

#[test]
fn a_recording_without_anything() {
    let (_dir, path) = written(&Stream::new(Source::Hardware));
    assert_eq!(parsed(&path)["traceEvents"], Value::Array(Vec::new()));
}
