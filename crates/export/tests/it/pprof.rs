//! pprof profiles, decoded by a reader of protobuf's wire format that knows only field numbers.
//!
//! `tests/consumers` opens them with `go tool pprof`.

use std::{collections::BTreeMap, io::Read as _};

use flate2::read::GzDecoder;
use ptrail_export::{Format, create};
use ptrail_trace::{Source, SpanFlags};

use crate::{
    program,
    protobuf::{self, messages, number, numbers},
    stream::Stream,
    sums::{arg, by_path},
};

fn written(stream: &Stream) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pprof");
    let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
    stream.play(sink.as_mut());
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The string table.
fn strings(profile: &[u8]) -> Vec<String> {
    protobuf::strings(profile, 6)
}

/// Each location's name, made of all that is known of it.
fn places(profile: &[u8], strings: &[String]) -> BTreeMap<u64, String> {
    let text = |message: &[u8], field| &*strings[number(message, field) as usize];
    let mappings: BTreeMap<_, _> = messages(profile, 3)
        .into_iter()
        .map(|mapping| {
            assert_eq!(number(mapping, 7), 1, "has functions");
            (number(mapping, 1), text(mapping, 5))
        })
        .collect();
    let functions: BTreeMap<_, _> = messages(profile, 5)
        .into_iter()
        .map(|function| {
            let source = format!("{}:{}", text(function, 4), number(function, 5));
            let names = (text(function, 2), text(function, 3), source);
            (number(function, 1), names)
        })
        .collect();
    messages(profile, 4)
        .into_iter()
        .map(|location| {
            let module = match number(location, 2) {
                0 => "",
                mapping => mappings[&mapping],
            };
            let lines = messages(location, 4);
            assert_eq!(lines.len(), 1);
            let (name, mangled, source) = &functions[&number(lines[0], 1)];
            assert!(source.ends_with(&format!(":{}", number(lines[0], 2))));
            let address = number(location, 3);
            let place = format!("{name}|{mangled}|{module}|{address:#x}|{source}");
            (number(location, 1), place)
        })
        .collect()
}

fn check(mut stream: Stream) {
    let profile = written(&stream);
    let strings = strings(&profile);
    assert_eq!(strings[0], "");
    let places = places(&profile, &strings);
    let mut seen = BTreeMap::new();
    for sample in messages(&profile, 2) {
        let mut path = Vec::new();
        for label in messages(sample, 3) {
            let key = &strings[number(label, 1) as usize];
            let text = &strings[number(label, 2) as usize];
            path.push(format!("{key}={text}{}", number(label, 3)));
        }
        let mut path = vec![path.join(" ")];
        let locations = numbers(sample, 1);
        path.extend(locations.iter().rev().map(|id| places[id].clone()));
        let [calls, instructions, time] = numbers(sample, 2)[..] else {
            panic!("not three values")
        };
        let before = seen.insert(path, (calls, time, instructions));
        assert!(before.is_none(), "two samples of one path");
    }
    let slices = stream.slices();
    let truth = by_path(
        &slices,
        |slice| {
            let (pid, tid, name) = &slice.thread;
            format!("thread={name}0 tid={tid} pid={pid}")
        },
        |slice| {
            let mangled = match arg(slice, "mangled_name") {
                mangled if mangled.is_empty() => slice.name.clone(),
                mangled => mangled,
            };
            let (module, address) = (arg(slice, "module"), arg(slice, "address"));
            let line = match arg(slice, "source.line_number") {
                none if none.is_empty() => "0".to_owned(),
                line => line,
            };
            let file = arg(slice, "source.file_name");
            format!("{}|{mangled}|{module}|{address}|{file}:{line}", slice.name)
        },
    );
    assert_eq!(seen, truth);
}

#[test]
fn every_path_has_its_sample() {
    check(program::random(0x5eed_0007, 10_000));
    check(program::late_ties());
    check(program::odd_names());
}

#[test]
fn what_is_said_of_the_recording() {
    let mut stream = Stream::new(Source::Software);
    let track = stream.thread(1, 1, "t");
    stream.enter(track, "f", 0);
    stream.leave(track, 5_999, SpanFlags::empty());
    let profile = written(&stream);
    let strings = strings(&profile);
    let text = |number: u64| strings[number as usize].as_str();
    let types: Vec<_> = messages(&profile, 1)
        .into_iter()
        .map(|of| (text(number(of, 1)), text(number(of, 2))))
        .collect();
    assert_eq!(
        types,
        [
            ("calls", "count"),
            ("instructions", "count"),
            ("time", "nanoseconds")
        ]
    );
    assert_eq!(text(number(&profile, 14)), "time");
    assert_eq!(number(&profile, 9), 1_700_000_000_123_456_789);
    assert_eq!(number(&profile, 10), 5);
    let comments: Vec<_> = numbers(&profile, 13).into_iter().map(text).collect();
    assert_eq!(
        comments,
        ["software recorder, virtual clock", "demo --fast"]
    );
}

#[test]
fn the_program_is_the_first_mapping() {
    let mut stream = Stream::new(Source::Hardware);
    stream.recording.command[0] = "/lib/libc.so.6".to_owned();
    let track = stream.thread(1, 1, "t");
    for name in ["in demo", "in libc", "in vdso"] {
        stream.enter(track, name, 0);
        stream.leave(track, 1_000, SpanFlags::empty());
    }
    let profile = written(&stream);
    let strings = strings(&profile);
    let mappings = messages(&profile, 3).into_iter();
    let names: Vec<_> = mappings
        .map(|mapping| strings[number(mapping, 5) as usize].as_str())
        .collect();
    assert_eq!(names, ["libc.so.6", "demo", "[vdso]"]);
}

#[test]
fn ten_thousand_levels() {
    let profile = written(&program::deep(9_000, 1_000));
    let samples = messages(&profile, 2);
    assert_eq!(samples.len(), 10_000);
    let deepest = samples.iter().max_by_key(|sample| sample.len()).unwrap();
    let strings = strings(&profile);
    let places = places(&profile, &strings);
    let path = numbers(deepest, 1);
    assert_eq!(path.len(), 10_000);
    // Outermost the late callers, then one of three functions is the even one.
    for (level, id) in path.iter().rev().enumerate() {
        let even = level >= 1_000 && (level - 1_000) % 3 == 0;
        let name = if even { "even|" } else { "recurse|" };
        assert!(places[id].starts_with(name), "level {level}");
    }
}
