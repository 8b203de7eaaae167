//! Firefox Profiler's profiles, read by the format's description. `tests/consumers` opens them in the
//! profiler's own code.

use std::{collections::BTreeMap, io::Read as _, path::PathBuf};

use ptrail_export::{Format, create};
use ptrail_pt::LossCause;
use ptrail_trace::{PointKind, Source, SpanFlags};
use serde_json::Value;

use crate::{
    program,
    stream::{Slice, Stream},
    sums::{arg, by_path},
};

fn written(stream: &Stream, name: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join(name);
    let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
    stream.play(sink.as_mut());
    let mut bytes = std::fs::read(&path).unwrap();
    if name.ends_with(".gz") {
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&*bytes)
            .read_to_end(&mut unpacked)
            .unwrap();
        bytes = unpacked;
    }
    serde_json::from_slice(&bytes).unwrap()
}

/// A table: all of its columns are as long as it says.
fn check_tables(thread: &Value) {
    for (name, table) in thread.as_object().unwrap() {
        let Some(length) = table.get("length").and_then(Value::as_u64) else {
            continue;
        };
        for (key, column) in table.as_object().unwrap() {
            let fits = column
                .as_array()
                .is_none_or(|column| column.len() as u64 == length);
            assert!(fits, "{name}.{key} is not {length} long");
        }
    }
}

fn nanoseconds(milliseconds: &Value) -> u64 {
    (milliseconds.as_f64().unwrap() * 1e6).round() as u64
}

fn index(value: &Value) -> Option<usize> {
    value.as_u64().map(|number| number as usize)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// What a function is, in the words of slices.
fn function(thread: &Value, frame: usize) -> String {
    let strings = list(&thread["stringArray"]);
    let text = |number: &Value| index(number).map_or("", |n| strings[n].as_str().unwrap());
    let functions = &thread["funcTable"];
    let function = index(&thread["frameTable"]["func"][frame]).unwrap();
    let module = index(&functions["resource"][function]).map_or("", |resource| {
        text(&thread["resourceTable"]["name"][resource])
    });
    let line = &functions["lineNumber"][function];
    assert_eq!(line, &thread["frameTable"]["line"][frame]);
    let line = index(line).map_or(String::new(), |line| line.to_string());
    let (name, file) = (
        text(&functions["name"][function]),
        text(&functions["fileName"][function]),
    );
    format!("{name}|{module}|{file}|{line}")
}

/// Nanoseconds by thread and call path.
fn times(profile: &Value) -> BTreeMap<Vec<String>, u64> {
    let mut times = BTreeMap::new();
    for thread in list(&profile["threads"]) {
        check_tables(thread);
        let stacks = &thread["stackTable"];
        let mut paths = Vec::<Vec<String>>::new();
        for (row, prefix) in list(&stacks["prefix"]).iter().enumerate() {
            let mut path = match index(prefix) {
                Some(prefix) => paths[prefix].clone(),
                None => vec![format!("{} {}", thread["name"], thread["tid"])],
            };
            path.push(function(thread, index(&stacks["frame"][row]).unwrap()));
            paths.push(path);
        }
        let samples = &thread["samples"];
        assert_eq!(samples["weightType"], "tracing-ms");
        for (row, stack) in list(&samples["stack"]).iter().enumerate() {
            let weight = nanoseconds(&samples["weight"][row]);
            if let Some(stack) = index(stack) {
                *times.entry(paths[stack].clone()).or_default() += weight;
            }
            let last = row + 1 == list(&samples["stack"]).len();
            assert_eq!(weight == 0, last, "the last sample ends the one before");
        }
    }
    times
}

/// All calls, from the markers: thread, name, begin, duration, instructions, flags.
fn calls(profile: &Value, epoch: u64) -> Vec<String> {
    assert_eq!(
        nanoseconds(&profile["meta"]["startTime"]) / 1000,
        epoch / 1000
    );
    let mut calls = Vec::new();
    for thread in list(&profile["threads"]) {
        let markers = &thread["markers"];
        for (row, data) in list(&markers["data"]).iter().enumerate() {
            if data["type"] != "call" {
                continue;
            }
            assert_eq!(markers["phase"][row], 1);
            let name = index(&markers["name"][row]).unwrap();
            let begin = nanoseconds(&markers["startTime"][row]);
            let duration = nanoseconds(&markers["endTime"][row]) - begin;
            calls.push(format!(
                "{} {} {begin} {duration} {} {} {} {}",
                thread["tid"],
                thread["stringArray"][name],
                data["instructions"],
                data["self_instructions"],
                data["flags"],
                data["call_site"],
            ));
        }
    }
    calls.sort();
    calls
}

fn check(mut stream: Stream, name: &str) {
    let profile = written(&stream, name);
    let slices = stream.slices();
    let base = stream.recording.base.0;
    let truth = by_path(
        &slices,
        |slice| format!("{:?} \"{}\"", slice.thread.2, slice.thread.1),
        |slice| {
            let of = |key| arg(slice, key);
            let (module, file, line) = (
                of("module"),
                of("source.file_name"),
                of("source.line_number"),
            );
            format!("{}|{module}|{file}|{line}", slice.name)
        },
    );
    let truth: BTreeMap<_, _> = truth
        .into_iter()
        .filter_map(|(path, (_, time, _))| (time > 0).then_some((path, time)))
        .collect();
    let seen = times(&profile);
    for (seen, truth) in seen.iter().zip(&truth) {
        assert_eq!(seen, truth);
    }
    assert_eq!(seen.len(), truth.len());
    let or_null = |text: String| match text.is_empty() {
        true => Value::Null,
        false => text.into(),
    };
    let call = |slice: &Slice| {
        format!(
            "\"{}\" {} {} {} {} {} {} {}",
            slice.thread.1,
            Value::from(slice.name.clone()),
            slice.ts as u64 - base,
            slice.dur,
            arg(slice, "instructions"),
            arg(slice, "self_instructions"),
            or_null(arg(slice, "flags")),
            or_null(arg(slice, "call_site")),
        )
    };
    let mut truth: Vec<_> = slices.iter().map(call).collect();
    truth.sort();
    let seen = calls(&profile, stream.recording.wall_clock.unwrap());
    for (seen, truth) in seen.iter().zip(&truth) {
        assert_eq!(seen, truth);
    }
    assert_eq!(seen.len(), truth.len());
}

#[test]
fn every_path_has_its_time_and_every_call_its_marker() {
    check(program::random(0x5eed_0060, 20_000), "a.profile.json");
    check(program::late_ties(), "a.profile.json.gz");
    check(program::odd_names(), "a.profile.json");
    check(program::deep(2_000, 200), "a.profile.json");
}

#[test]
fn points_losses_and_the_note() {
    let mut stream = Stream::new(Source::Software);
    let track = stream.thread(10, 11, "a \"thread\"");
    stream.enter(track, "main", 0);
    stream.point(track, 3_500, PointKind::Signal, "SIGUSR1");
    stream.loss(track, 5_000, 8_000, LossCause::Overflow, "line\nbreak");
    stream.leave(track, 20_000, SpanFlags::CUT);
    let profile = written(&stream, "a.profile.json");
    assert_eq!(profile["meta"]["product"], "demo --fast (virtual clock)");
    let thread = &profile["threads"][0];
    assert_eq!(thread["processName"], "process 10 (virtual clock)");
    assert_eq!(thread["isMainThread"], false);
    let markers = &thread["markers"];
    let data = list(&markers["data"]);
    assert_eq!(data[0]["text"], "SIGUSR1");
    assert_eq!(
        (&markers["phase"][0], &markers["endTime"][0]),
        (&0.into(), &Value::Null)
    );
    assert_eq!(data[1]["reason"], "line\nbreak");
    let times = ["startTime", "endTime"].map(|key| nanoseconds(&markers[key][1]));
    assert_eq!(times, [5, 8]);
}
