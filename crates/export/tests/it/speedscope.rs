//! speedscope files: checked against the rules of the published schema, and replayed.
//!
//! `tests/consumers` opens them in speedscope itself.

use std::path::PathBuf;

use ptrail_export::{Format, create};
use ptrail_trace::{Source, SpanFlags};
use serde_json::{Map, Value};

use crate::{
    program,
    stream::{BASE, Slice, Stream},
};

fn written(stream: &Stream) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("trace.speedscope.json");
    let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
    stream.play(sink.as_mut());
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// An object with these members and no others; those with a question mark may be missing.
fn object<'a>(value: &'a Value, members: &[&str]) -> &'a Map<String, Value> {
    let object = value.as_object().unwrap();
    for key in object.keys() {
        let known = |member: &&str| member.trim_end_matches('?') == key;
        assert!(members.iter().any(known), "{key} is not in the schema");
    }
    for member in members.iter().filter(|member| !member.ends_with('?')) {
        assert!(object.contains_key(*member), "{member} is missing");
    }
    object
}

/// What `file-format-schema.json` (speedscope 1.25) asks of a file with evented profiles. It allows
/// more members than it knows; we use none.
fn check_schema(file: &Value) {
    let members = [
        "$schema",
        "profiles",
        "shared",
        "name?",
        "exporter?",
        "activeProfileIndex?",
    ];
    let top = object(file, &members);
    assert_eq!(
        top["$schema"],
        "https://www.speedscope.app/file-format-schema.json"
    );
    assert!(top["name"].is_string() && top["exporter"].is_string());
    assert!(top["activeProfileIndex"].is_number());
    for frame in object(&top["shared"], &["frames"])["frames"]
        .as_array()
        .unwrap()
    {
        let frame = object(frame, &["name", "file?", "line?", "col?"]);
        assert!(frame["name"].is_string());
        assert!(frame.get("file").is_none_or(Value::is_string));
    }
    let members = ["type", "name", "unit", "startValue", "endValue", "events"];
    for profile in top["profiles"].as_array().unwrap() {
        let profile = object(profile, &members);
        assert_eq!(profile["type"], "evented");
        assert_eq!(profile["unit"], "nanoseconds");
        assert!(profile["name"].is_string());
        assert!(profile["startValue"].is_number() && profile["endValue"].is_number());
        for event in profile["events"].as_array().unwrap() {
            let event = object(event, &["type", "frame", "at"]);
            assert!(event["type"] == "O" || event["type"] == "C");
            assert!(event["frame"].is_number() && event["at"].is_number());
        }
    }
}

/// One call: name, module, begin, end (perf-clock nanoseconds), depth.
type Call = (String, String, i64, i64, usize);

/// Goes through the events as the format says: times never go back, and each close is that of the
/// innermost open frame. The result is each profile's name and calls, parents first.
fn replayed(file: &Value) -> Vec<(String, Vec<Call>)> {
    let frames = file["shared"]["frames"].as_array().unwrap();
    let mut profiles = Vec::new();
    for profile in file["profiles"].as_array().unwrap() {
        let (mut calls, mut open) = (Vec::<Call>::new(), Vec::new());
        let mut last = profile["startValue"].as_i64().unwrap();
        for event in profile["events"].as_array().unwrap() {
            let (frame, at) = (&event["frame"], event["at"].as_i64().unwrap());
            assert!(at >= last, "time goes back at {event}");
            last = at;
            if event["type"] == "O" {
                let place = &frames[frame.as_u64().unwrap() as usize];
                let text = |key: &str| place[key].as_str().unwrap_or_default().to_owned();
                let at = BASE as i64 + at;
                calls.push((text("name"), text("file"), at, -1, open.len()));
                open.push((frame, calls.len() - 1));
            } else {
                let (opened, call) = open.pop().expect("something is open");
                assert_eq!(frame, opened);
                calls[call].3 = BASE as i64 + at;
            }
        }
        assert!(open.is_empty());
        assert!(profile["endValue"].as_i64().unwrap() >= last);
        profiles.push((profile["name"].as_str().unwrap().to_owned(), calls));
    }
    profiles
}

fn truth(slices: &[Slice], note: &str) -> Vec<(String, Vec<Call>)> {
    let mut profiles = Vec::<(String, Vec<Call>)>::new();
    for slice in slices {
        let name = format!("{} {}{note}", slice.thread.2, slice.thread.1);
        if profiles.last().is_none_or(|(last, _)| *last != name) {
            profiles.push((name, Vec::new()));
        }
        let arg = |name| slice.args.iter().find(|(key, _)| key == name);
        let module = arg("source.file_name").or_else(|| arg("module"));
        let (_, calls) = profiles.last_mut().unwrap();
        calls.push((
            slice.name.clone(),
            module.map(|(_, module)| module.clone()).unwrap_or_default(),
            slice.ts,
            slice.ts + slice.dur,
            slice.depth as usize,
        ));
    }
    profiles
}

#[test]
fn all_calls_in_their_places() {
    for mut stream in [
        program::random(0x5eed_0002, 20_000),
        program::late_ties(),
        program::odd_names(),
        program::deep(10_000, 1_000),
    ] {
        let file = written(&stream);
        check_schema(&file);
        let note = match stream.recording.source {
            Source::Hardware => "",
            Source::Software => " (virtual clock)",
        };
        let (seen, truth) = (replayed(&file), truth(&stream.slices(), note));
        assert_eq!(seen.len(), truth.len());
        for (seen, truth) in seen.iter().zip(&truth) {
            assert_eq!(seen.0, truth.0);
            for (index, (seen, truth)) in seen.1.iter().zip(&truth.1).enumerate() {
                assert_eq!(seen, truth, "call {index}");
            }
            assert_eq!(seen.1.len(), truth.1.len());
        }
    }
}

#[test]
fn all_profiles_have_the_same_range_and_idle_threads_are_left_out() {
    let mut stream = Stream::new(Source::Software);
    let first = stream.thread(1, 1, "first");
    stream.thread(1, 2, "idle");
    let third = stream.thread(1, 3, "third");
    for (track, at) in [(first, 1_500), (third, 7_000)] {
        stream.enter(track, "f", at);
        stream.leave(track, at + 2_000, SpanFlags::empty());
    }
    let file = written(&stream);
    check_schema(&file);
    assert_eq!(file["name"], "demo --fast");
    let ranges: Vec<_> = file["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|profile| {
            (
                profile["name"].as_str().unwrap(),
                profile["startValue"].as_u64().unwrap(),
                profile["endValue"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        ranges,
        [
            ("first 1 (virtual clock)", 0, 9),
            ("third 3 (virtual clock)", 0, 9)
        ]
    );
}

#[test]
fn a_recording_without_anything() {
    let file = written(&Stream::new(Source::Hardware));
    check_schema(&file);
    assert_eq!(file["profiles"], Value::Array(Vec::new()));
}
