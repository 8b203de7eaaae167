//! `.parquet` files, read row by row. `tests/consumers` opens them in DuckDB.

use std::{collections::HashMap, fs::File, path::PathBuf};

use parquet::{
    file::reader::{FileReader as _, SerializedFileReader},
    record::{Field, Row},
};
use ptrail_export::{Format, create};
use ptrail_trace::Source;

use crate::{
    program,
    stream::{BASE, Slice, Stream},
};

fn written(stream: &Stream) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
    stream.play(sink.as_mut());
    (dir, path)
}

/// What a row says, in the words of a slice. The depth is not the slice's: it is left out.
fn slice(row: &Row) -> Slice {
    let fields: HashMap<_, _> = row
        .get_column_iter()
        .map(|(k, v)| (k.as_str(), v))
        .collect();
    let text = |key: &str| match fields[key] {
        Field::Str(text) => Some(text.clone()),
        Field::Null => None,
        other => panic!("{key}: {other:?}"),
    };
    let number = |key: &str| match *fields[key] {
        Field::ULong(number) => Some(number),
        Field::UInt(number) => Some(u64::from(number)),
        Field::Null => None,
        ref other => panic!("{key}: {other:?}"),
    };
    let (begin, duration) = (number("begin_ps").unwrap(), number("duration_ps").unwrap());
    let hex = |key: &str| number(key).map(|address| format!("{address:#x}"));
    let plain = |key: &str| number(key).map(|number| number.to_string());
    let args = [
        ("address", hex("address")),
        ("call_site", hex("call_site")),
        ("flags", text("flags")),
        ("instructions", plain("instructions")),
        ("mangled_name", text("mangled_name")),
        ("module", text("module")),
        ("self_instructions", plain("self_instructions")),
        ("source.file_name", text("file")),
        ("source.line_number", plain("line")),
    ];
    let args = args
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value.filter(|v| !v.is_empty())?)));
    let ns = |ps: u64| (BASE + ps / 1000) as i64;
    Slice {
        thread: (
            number("pid").unwrap() as u32,
            number("tid").unwrap() as u32,
            text("thread").unwrap(),
        ),
        name: text("function").unwrap(),
        ts: ns(begin),
        dur: ns(begin + duration) - ns(begin),
        depth: 0,
        args: args.collect(),
    }
}

/// Rows stand in the order of ends, slices in that of begins; the tree is the JSON lines' business.
fn sorted(slices: Vec<Slice>) -> Vec<String> {
    let mut lines: Vec<_> = slices
        .into_iter()
        .map(|slice| format!("{:?}", Slice { depth: 0, ..slice }))
        .collect();
    lines.sort();
    lines
}

#[test]
fn every_span_is_a_row() {
    for mut stream in [
        program::random(0x5eed_0040, 20_000),
        program::late_ties(),
        program::odd_names(),
        program::deep(10_000, 1_000),
    ] {
        let (_dir, path) = written(&stream);
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let rows: Vec<_> = reader.into_iter().map(Result::unwrap).collect();
        let seen = sorted(rows.iter().map(slice).collect());
        assert!(seen == sorted(stream.slices()));
    }
}

#[test]
fn a_row_group_is_of_one_thread_and_the_recording_is_told() {
    let mut stream = Stream::new(Source::Software);
    for tid in [7, 8] {
        let track = stream.thread(7, tid, "t");
        for at in 0..if tid == 7 { 70_000 } else { 3 } {
            stream.enter(track, "f", at * 1000);
            stream.leave(track, at * 1000 + 500, ptrail_trace::SpanFlags::empty());
        }
    }
    let (_dir, path) = written(&stream);
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let rows: Vec<_> = (0..reader.num_row_groups())
        .map(|group| reader.metadata().row_group(group).num_rows())
        .collect();
    assert_eq!(rows, [1 << 16, 70_000 - (1 << 16), 3]);
    let file = reader.metadata().file_metadata();
    assert_eq!(file.num_rows(), 70_003);
    let facts: HashMap<_, _> = file
        .key_value_metadata()
        .unwrap()
        .iter()
        .map(|fact| (fact.key.as_str(), fact.value.clone().unwrap()))
        .collect();
    assert_eq!(facts["command"], "demo --fast");
    assert_eq!(facts["source"], "software recorder, virtual clock");
    assert_eq!(facts["base_unix_ns"], "1700000000123456789");
    let first = reader.get_row_iter(None).unwrap().next().unwrap().unwrap();
    let time = first.get_column_iter().find(|(name, _)| *name == "time");
    assert_eq!(time.unwrap().1.to_string(), "1700000000123456789");
}
