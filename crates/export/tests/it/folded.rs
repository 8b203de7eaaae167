//! Folded stacks, read as flame graph tools read them.

use std::collections::BTreeMap;

use ptrail_export::{Format, create};
use ptrail_trace::{Source, SpanFlags};

use crate::{
    program,
    stream::Stream,
    sums::{Sums, by_path},
};

fn written(stream: &Stream, name: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
    stream.play(sink.as_mut());
    std::fs::read_to_string(path).unwrap()
}

/// Frames up to the last space, then a number.
fn read(text: &str) -> BTreeMap<Vec<String>, u64> {
    let mut paths = BTreeMap::new();
    for line in text.lines() {
        let (path, value) = line.rsplit_once(' ').unwrap();
        let path: Vec<_> = path.split(';').map(str::to_owned).collect();
        assert!(path.iter().all(|frame| !frame.is_empty()), "{line}");
        *paths.entry(path).or_default() += value.parse::<u64>().unwrap();
    }
    paths
}

fn plain(name: &str) -> String {
    let name = name.replace(['\n', '\t', '\u{1}', '\u{1f}'], " ");
    match name.trim() {
        "" => "[unnamed]".to_owned(),
        name => name.to_owned(),
    }
}

fn truth(stream: &mut Stream, value: impl Fn(Sums) -> u64) -> BTreeMap<Vec<String>, u64> {
    let slices = stream.slices();
    let paths = by_path(
        &slices,
        |slice| slice.thread.2.clone(),
        |slice| plain(&slice.name),
    );
    let values = paths.into_iter().map(|(path, sums)| (path, value(sums)));
    values.filter(|(_, value)| *value > 0).collect()
}

#[test]
fn every_path_has_what_was_spent_in_it() {
    for program in [
        || program::random(0x5eed_0004, 20_000),
        || program::random(0x5eed_0005, 3_000),
        program::odd_names,
    ] {
        let mut stream = program();
        let by_time = read(&written(&stream, "a.folded"));
        let by_instructions = read(&written(&stream, "a.instructions.folded"));
        let whole: i64 = stream
            .slices()
            .iter()
            .filter(|slice| slice.depth == 0)
            .map(|slice| slice.dur)
            .sum();
        assert_eq!(by_time.values().sum::<u64>(), whole as u64);
        assert_eq!(by_time, truth(&mut program(), |sums| sums.1));
        assert_eq!(by_instructions, truth(&mut program(), |sums| sums.2));
    }
}

#[test]
fn late_callers_and_the_note() {
    let mut stream = program::late_ties();
    let seen = read(&written(&stream, "a.folded"));
    let mut truth = truth(&mut stream, |sums| sums.1);
    truth = truth
        .into_iter()
        .map(|(mut path, value)| {
            path[0] += " (virtual clock)";
            (path, value)
        })
        .collect();
    assert_eq!(seen, truth);
    let instructions = written(&stream, "a.instructions.folded");
    assert!(instructions.starts_with("tied;"), "{instructions}");
}

#[test]
fn separators_in_names() {
    let mut stream = Stream::new(Source::Hardware);
    let track = stream.thread(1, 1, "a;b");
    stream.enter(track, "<[T; 4]>::sum ", 0);
    stream.leave(track, 5_000, SpanFlags::empty());
    assert_eq!(written(&stream, "a.folded"), "a:b;<[T: 4]>::sum 5\n");
}

#[test]
fn ten_thousand_levels() {
    let mut stream = Stream::new(Source::Hardware);
    let track = stream.thread(1, 1, "deep");
    for _ in 0..10_000 {
        stream.enter(track, "f", 1_000);
    }
    for _ in 0..10_000 {
        stream.leave(track, 8_000, SpanFlags::empty());
    }
    let text = written(&stream, "a.folded");
    assert_eq!(text, format!("deep{} 7\n", ";f".repeat(10_000)));
}
