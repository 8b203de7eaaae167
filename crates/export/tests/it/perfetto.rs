//! `.pftrace` files.

use std::path::PathBuf;

use ptrail_export::{Format, create};
use ptrail_pt::LossCause;
use ptrail_trace::{PointKind, Source, SpanFlags};

use crate::{
    program,
    stream::{BASE, Stream},
    viewer::{ARGS, COMPLAINTS, SLICES, args, assert_same, number, query, slices, text},
};

fn written(stream: &Stream) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.pftrace");
    let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
    stream.play(sink.as_mut());
    (dir, path)
}

fn check(mut stream: Stream) {
    let (_dir, path) = written(&stream);
    let [complaints, rows, arg_rows] = query(&path, [COMPLAINTS, SLICES, ARGS]);
    assert!(complaints.is_empty(), "{complaints:?}");
    assert_same(&slices(&rows, &arg_rows), &stream.slices());
}

#[test]
fn random_programs() {
    check(program::random(0x1234_5678_9abc_def1, 20_000));
    check(program::random(0xfeed_beef_0000_0001, 20_000));
}

#[test]
fn late_callers_at_equal_times() {
    check(program::late_ties());
}

#[test]
fn odd_names_and_many_threads() {
    check(program::odd_names());
}

/// Levels beyond what one track can show go on in tracks below it, and none is lost.
#[test]
fn ten_thousand_levels() {
    let (late, depth) = (1_000, 10_000);
    let mut stream = program::deep(depth, late);
    let (_dir, path) = written(&stream);
    let below = "select k.name as track, s.name, s.ts, s.dur, s.depth from slice s join track k on s.track_id = k.id
        order by s.id";
    let [complaints, rows] = query(&path, [COMPLAINTS, below]);
    assert!(complaints.is_empty(), "{complaints:?}");
    let mut seen: Vec<_> = rows
        .iter()
        .filter(|row| !text(row, "track").starts_with("recording"))
        .map(|row| {
            let track = text(row, "track");
            // "levels -640 to -129"; the thread's own track holds -128 to 383.
            let first = track
                .strip_prefix("levels ")
                .map(|range| range.split(' ').next().unwrap().parse().unwrap());
            let level = first.unwrap_or(-128) + number(row, "depth");
            (
                level,
                text(row, "name"),
                number(row, "ts"),
                number(row, "dur"),
            )
        })
        .collect();
    // A track's depths count from its outermost slice, which is not the band's first level where
    // the stack ends; there the track's first level is off by as much.
    let outermost = -(late as i64);
    let missing = |level: i64| if level < -640 { outermost - (-1152) } else { 0 };
    seen.iter_mut()
        .for_each(|slice| slice.0 += missing(slice.0));
    seen.sort();
    let truth = stream.slices();
    let mut truth: Vec<_> = truth
        .into_iter()
        .map(|s| (s.depth + outermost, s.name, s.ts, s.dur))
        .collect();
    truth.sort();
    assert_eq!(seen.len(), truth.len());
    for (seen, truth) in seen.iter().zip(&truth) {
        assert_eq!(seen, truth);
    }
}

fn points_and_losses() -> (Stream, ptrail_trace::TrackId) {
    let mut stream = Stream::new(Source::Software);
    let (one, two) = (stream.thread(10, 10, "one"), stream.thread(10, 11, "two"));
    stream.enter(one, "main", 0);
    stream.enter(two, "worker", 2_000);
    stream.point(one, 3_500, PointKind::Signal, "SIGUSR1 delivered");
    stream.point(two, 3_500, PointKind::Signal, "SIGALRM delivered");
    stream.point(two, 4_000, PointKind::Trigger, "trigger: worker");
    stream.lose(
        one,
        5_000,
        8_000,
        LossCause::Overflow,
        "the buffer was full; record less",
    );
    stream.loss(one, 7_000, 9_000, LossCause::NoCode, "no code at 0x401000");
    stream.loss(one, 9_500, 9_500, LossCause::BadPacket, "no packet");
    stream.loss(one, 10_000, 11_000, LossCause::Guessed, "perhaps");
    stream.enter(one, "main", 8_000);
    stream.leave(one, 20_000, SpanFlags::CUT);
    stream.leave(two, 30_000, SpanFlags::CUT);
    (stream, two)
}

#[test]
fn points_and_losses_have_tracks_of_their_own() {
    let (mut stream, _) = points_and_losses();
    let (_dir, path) = written(&stream);
    let others = "select k.name as track, p.name as parent, p.type as parent_type, s.name, s.ts - 75632123456789 as at,
        s.dur, s.depth, s.arg_set_id from slice s join track k on s.track_id = k.id left join track p on k.parent_id = p.id
        where k.id not in (select id from thread_track) or k.name is not null order by s.id";
    let [complaints, rows, arg_rows, own] = query(&path, [COMPLAINTS, others, ARGS, SLICES]);
    assert!(complaints.is_empty(), "{complaints:?}");
    let seen: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                text(row, "track"),
                text(row, "name"),
                number(row, "at"),
                number(row, "dur"),
                number(row, "depth"),
            )
        })
        .collect();
    let seen: Vec<_> = seen
        .iter()
        .map(|(t, n, at, dur, depth)| (&**t, &**n, *at, *dur, *depth))
        .collect();
    let note = "software recorder, virtual clock";
    assert_eq!(
        seen,
        [
            ("recording: software recorder, virtual clock", note, 0, 0, 0),
            ("signals", "SIGUSR1 delivered", 3, 0, 0),
            // A tie: the trace processor nests the second instant in the first.
            ("signals", "SIGALRM delivered", 3, 0, 1),
            ("triggers", "trigger: worker", 4, 0, 0),
            ("trace losses", "overflow", 5, 3, 0),
            ("trace losses", "no-code", 7, 0, 1),
            ("trace losses", "bad-packet", 9, 0, 0),
            ("trace losses", "guessed", 10, 1, 0),
        ]
    );
    let args_of = |row: usize| args(&arg_rows, &rows[row]["arg_set_id"]);
    let pairs = |pairs: &[(&str, &str)]| -> Vec<_> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    assert_eq!(
        args_of(0),
        pairs(&[("command", "demo --fast"), ("source", note)])
    );
    assert_eq!(args_of(2), pairs(&[("thread", "two 11")]));
    assert_eq!(
        args_of(5),
        pairs(&[
            ("address", "0x401000"),
            ("bytes", "4096"),
            ("cause", "no-code"),
            ("duration_ns", "2"),
            ("reason", "no code at 0x401000"),
            ("trace_offset", "0x1234"),
        ])
    );
    assert_same(&slices(&own, &arg_rows), &stream.slices());
}

#[test]
fn processes_threads_and_clocks() {
    let (stream, _) = points_and_losses();
    let (_dir, path) = written(&stream);
    let queries = [
        "select pid, name from process where pid != 0",
        "select tid, t.name from thread t join process p using (upid) where tid != 0 and pid = 10 order by tid",
        "select start_ts, end_ts from trace_bounds",
        "select clock_name, clock_value from clock_snapshot where clock_name in ('REALTIME', 'MONOTONIC')
            order by clock_name",
    ];
    let [processes, threads, bounds, clocks] = query(&path, queries);
    let named = |rows: &[crate::viewer::Row], id: &str| -> Vec<_> {
        rows.iter()
            .map(|row| (number(row, id), text(row, "name")))
            .collect()
    };
    assert_eq!(
        named(&processes, "pid"),
        [(10, "process 10 (virtual clock)".to_owned())]
    );
    assert_eq!(
        named(&threads, "tid"),
        [(10, "one".to_owned()), (11, "two".to_owned())]
    );
    let base = BASE as i64;
    assert_eq!(
        (number(&bounds[0], "start_ts"), number(&bounds[0], "end_ts")),
        (base, base + 30)
    );
    let clocks: Vec<_> = clocks
        .iter()
        .map(|row| (text(row, "clock_name"), number(row, "clock_value")))
        .collect();
    assert!(
        clocks.contains(&("REALTIME".to_owned(), 1_700_000_000_123_456_789)),
        "{clocks:?}"
    );
    assert!(
        clocks.contains(&("MONOTONIC".to_owned(), base)),
        "{clocks:?}"
    );
}

/// A thread number can come again, and raw dumps know no numbers at all.
#[test]
fn equal_and_missing_thread_numbers() {
    let mut stream = Stream::new(Source::Hardware);
    let ids = [(5, 6), (5, 6), (0, 0), (u32::MAX, u32::MAX)];
    for (n, (pid, tid)) in ids.into_iter().enumerate() {
        let track = stream.thread(pid, tid, &format!("t{n}"));
        stream.enter(track, &format!("f{n}"), 10_000);
        stream.leave(track, 20_000, SpanFlags::empty());
    }
    let (_dir, path) = written(&stream);
    let all = "select s.name, s.ts, s.dur, s.depth from slice s where s.dur > 0 order by s.name";
    let [complaints, rows] = query(&path, [COMPLAINTS, all]);
    assert!(complaints.is_empty(), "{complaints:?}");
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (text(row, "name"), number(row, "dur"), number(row, "depth")))
        .collect();
    assert_eq!(
        seen,
        ["f0", "f1", "f2", "f3"].map(|name| (name.to_owned(), 10, 0))
    );
}

#[test]
fn a_recording_without_anything() {
    let (_dir, path) = written(&Stream::new(Source::Hardware));
    let [complaints, rows] = query(&path, [COMPLAINTS, "select name from slice"]);
    assert!(complaints.is_empty(), "{complaints:?}");
    assert_eq!(rows.len(), 1);
    assert_eq!(text(&rows[0], "name"), "hardware trace");
}

#[test]
fn instructions_per_microsecond_are_a_counter() {
    let mut stream = Stream::new(Source::Hardware);
    let track = stream.thread(10, 11, "worker");
    stream.enter(track, "main", 0);
    stream.rate(track, 0, 10_000_000, 5_000);
    stream.rate(track, 10_000_000, 30_000_000, 1_000);
    stream.leave(track, 30_000_000, SpanFlags::CUT);
    let (_dir, path) = written(&stream);
    let values = "select k.name, k.unit, t.tid, c.ts, c.value from counter c join counter_track k on c.track_id = k.id
        left join thread_counter_track using (id) left join thread t using (utid) order by c.ts";
    let [complaints, rows] = query(&path, [COMPLAINTS, values]);
    assert!(complaints.is_empty(), "{complaints:?}");
    let seen: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                number(row, "ts") - BASE as i64,
                row["value"].as_f64().unwrap(),
            )
        })
        .collect();
    assert_eq!(seen, [(0, 500.0), (10_000, 50.0), (30_000, 0.0)]);
    assert_eq!(text(&rows[0], "name"), "instructions per µs");
}
