//! speedscope, run through `tools/consumers/speedscope.cjs`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use ptrail_trace::{Source, SpanFlags};
use serde_json::Value;

use crate::{
    program,
    stream::{BASE, Slice, Stream},
    sums, write,
};

/// What speedscope made of a stream written under this name.
fn saved(stream: &Stream, name: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    write(stream, &path);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let consumers = std::env::var_os("PTRAIL_CONSUMERS")
        .map_or_else(|| workspace.join("target/consumers"), PathBuf::from);
    let output = Command::new("node")
        .arg(workspace.join("tools/consumers/speedscope.cjs"))
        .arg(&path)
        .env("PTRAIL_CONSUMERS", consumers)
        .output()
        .expect("node runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "speedscope: {messages}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// An event: is it an open, name, nanoseconds since the base.
type Event = (bool, String, i64);

fn events(file: &Value) -> Vec<(String, Vec<Event>)> {
    let frames = file["shared"]["frames"].as_array().unwrap();
    let event = |event: &Value| {
        let frame = event["frame"].as_u64().unwrap() as usize;
        let name = frames[frame]["name"].as_str().unwrap().to_owned();
        (event["type"] == "O", name, event["at"].as_i64().unwrap())
    };
    let profiles = file["profiles"].as_array().unwrap().iter();
    profiles
        .map(|profile| {
            let events = profile["events"].as_array().unwrap();
            let name = profile["name"].as_str().unwrap().to_owned();
            (name, events.iter().map(event).collect())
        })
        .collect()
}

/// The same from the truth. speedscope saves no calls that took no time.
fn truth(slices: &[Slice], note: &str) -> Vec<(String, Vec<Event>)> {
    let mut profiles = Vec::<(String, Vec<Event>)>::new();
    let mut open = Vec::<&Slice>::new();
    let close = |events: &mut Vec<Event>, slice: &Slice| {
        let end = slice.ts + slice.dur - BASE as i64;
        events.push((false, slice.name.clone(), end));
    };
    for slice in slices {
        let name = format!("{} {}{note}", slice.thread.2, slice.thread.1);
        if profiles.last().is_none_or(|(last, _)| *last != name) {
            if let Some((_, events)) = profiles.last_mut() {
                open.drain(..).rev().for_each(|slice| close(events, slice));
            }
            profiles.push((name, Vec::new()));
        }
        if slice.dur > 0 {
            let (_, events) = profiles.last_mut().unwrap();
            let inner = open.split_off(slice.depth as usize);
            inner.iter().rev().for_each(|slice| close(events, slice));
            events.push((true, slice.name.clone(), slice.ts - BASE as i64));
            open.push(slice);
        }
    }
    if let Some((_, events)) = profiles.last_mut() {
        open.drain(..).rev().for_each(|slice| close(events, slice));
    }
    profiles
}

#[test]
fn all_calls_in_their_places() {
    for mut stream in [
        program::random(0x5eed_0003, 10_000),
        program::late_ties(),
        program::odd_names(),
    ] {
        let note = match stream.recording.source {
            Source::Hardware => "",
            Source::Software => " (virtual clock)",
        };
        let (seen, truth) = (
            events(&saved(&stream, "a.speedscope.json")),
            truth(&stream.slices(), note),
        );
        assert_eq!(seen.len(), truth.len());
        for (seen, truth) in seen.iter().zip(&truth) {
            assert_eq!(seen.0, truth.0);
            for (index, (seen, truth)) in seen.1.iter().zip(&truth.1).enumerate() {
                assert_eq!(seen, truth, "event {index}");
            }
            assert_eq!(seen.1.len(), truth.1.len());
        }
    }
}

#[test]
fn a_deep_stack_and_the_note() {
    let mut stream = Stream::new(Source::Software);
    let track = stream.thread(1, 1, "deep");
    for level in 0..1_000 {
        stream.enter(track, "f", level * 1_000);
    }
    for level in 0..1_000 {
        stream.leave(track, (1_000 + level) * 1_000, SpanFlags::empty());
    }
    let file = saved(&stream, "a.speedscope.json");
    assert_eq!(file["name"], "demo --fast");
    let truth = truth(&stream.slices(), " (virtual clock)");
    assert_eq!(events(&file), truth);
}

/// Nanoseconds in each name's own frames, from the events.
fn own_time(events: &[Event]) -> BTreeMap<String, i64> {
    let (mut times, mut path, mut last) = (BTreeMap::new(), Vec::new(), 0);
    for (opens, name, at) in events {
        if let Some(innermost) = path.last() {
            *times.entry(String::clone(innermost)).or_default() += at - last;
        }
        last = *at;
        if *opens {
            path.push(name.clone());
        } else {
            assert_eq!(path.pop().as_ref(), Some(name));
        }
    }
    times.retain(|_, time| *time > 0);
    times
}

#[test]
fn folded_stacks_and_pprof_have_the_same_sums() {
    for name in ["a.folded", "a.pprof"] {
        let mut stream = program::random(0x5eed_0009, 5_000);
        let file = saved(&stream, name);
        let profiles = events(&file);
        assert_eq!(profiles.len(), 1);
        let mut truth = BTreeMap::new();
        for own in sums::own(&stream.slices()) {
            let name = match name {
                "a.folded" => own.slice.name.replace(['\n', '\t'], " "),
                _ => own.slice.name.clone(),
            };
            *truth.entry(name).or_default() += own.time as i64;
        }
        assert_eq!(own_time(&profiles[0].1), truth, "{name}");
    }
}
