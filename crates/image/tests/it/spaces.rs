//! Address spaces in time.

use proptest::prelude::*;
use ptrail_image::{FunctionKind, Mapping, Timeline, TimelineBuilder};
use ptrail_pt::{Ip, PerfTime};

/// A file mapping that is told apart by its path; its bytes are never asked for.
fn mapping(address: u64, len: u64, path: &str) -> Mapping {
    Mapping {
        address,
        len,
        file_offset: 0,
        path: path.to_owned(),
        build_id: None,
    }
}

/// The image at an address and time, by path.
fn path(timeline: &Timeline, pid: u32, time: u64, address: u64) -> Option<&str> {
    timeline
        .space(pid, PerfTime(time))
        .image(Ip(address))
        .map(|(_, image)| image.path())
}

fn shared_between_threads<T: Send + Sync>(_: &T) {}

#[test]
fn map_over_map() {
    let mut builder = TimelineBuilder::new();
    // Out of order: recordings have a ring for each CPU.
    builder.map(1, PerfTime(20), mapping(0x2000, 0x1000, "/b"));
    builder.map(1, PerfTime(10), mapping(0x1000, 0x4000, "/a"));
    builder.map(1, PerfTime(30), mapping(0x0, 0x10000, "/c"));
    let timeline = builder.build();
    shared_between_threads(&timeline);
    for time in [0, 10, 19] {
        assert_eq!(
            path(&timeline, 1, time, 0x2800),
            Some("/a"),
            "before the first map: the first version"
        );
    }
    for (address, expected) in [
        (0xfff, None),
        (0x1fff, Some("/a")),
        (0x2000, Some("/b")),
        (0x3000, Some("/a")),
    ] {
        assert_eq!(path(&timeline, 1, 25, address), expected);
    }
    assert_eq!(path(&timeline, 1, 30, 0x2800), Some("/c"));
    let changes: Vec<_> = [0, 15, 20, 99]
        .map(|time| timeline.space(1, PerfTime(time)).changes_at())
        .to_vec();
    assert_eq!(
        changes,
        [
            Some(PerfTime(20)),
            Some(PerfTime(20)),
            Some(PerfTime(30)),
            None
        ]
    );
    let versions = [0, 15, 20, 99].map(|time| timeline.space(1, PerfTime(time)).version());
    assert_eq!(versions[0], versions[1]);
    assert_ne!(versions[1], versions[2]);
    assert_ne!(versions[2], versions[3]);
}

#[test]
fn one_time_makes_one_version_and_repeats_make_none() {
    let mut builder = TimelineBuilder::new();
    builder.map(1, PerfTime(10), mapping(0x1000, 0x1000, "/a"));
    builder.map(1, PerfTime(10), mapping(0x3000, 0x1000, "/b"));
    builder.map(1, PerfTime(20), mapping(0x1000, 0x1000, "/a"));
    builder.map(1, PerfTime(30), mapping(0x5000, 0, "/empty"));
    let timeline = builder.build();
    let space = timeline.space(1, PerfTime(0));
    assert_eq!(space.changes_at(), None);
    assert_eq!(path(&timeline, 1, 0, 0x3000), Some("/b"));
}

#[test]
fn exec_drops_everything() {
    let mut builder = TimelineBuilder::new();
    builder.map(1, PerfTime(10), mapping(0x1000, 0x1000, "/old"));
    builder.exec(1, PerfTime(20));
    builder.map(1, PerfTime(22), mapping(0x8000, 0x1000, "/new"));
    builder.map(1, PerfTime(24), mapping(0x9000, 0x1000, "/linker"));
    let timeline = builder.build();
    assert_eq!(path(&timeline, 1, 19, 0x1000), Some("/old"));
    assert_eq!(path(&timeline, 1, 20, 0x1000), None);
    assert_eq!(
        path(&timeline, 1, 20, 0x8000),
        Some("/new"),
        "an empty space can run nothing"
    );
    assert_eq!(
        timeline.space(1, PerfTime(21)).changes_at(),
        Some(PerfTime(24))
    );
    assert_eq!(path(&timeline, 1, 24, 0x9000), Some("/linker"));
}

#[test]
fn a_process_that_begins_with_exec() {
    let mut builder = TimelineBuilder::new();
    builder.exec(1, PerfTime(5));
    builder.map(1, PerfTime(6), mapping(0x1000, 0x1000, "/a"));
    let timeline = builder.build();
    assert_eq!(path(&timeline, 1, 0, 0x1000), Some("/a"));
}

#[test]
fn fork_copies() {
    let mut builder = TimelineBuilder::new();
    builder.map(1, PerfTime(10), mapping(0x1000, 0x1000, "/a"));
    builder.fork(2, 1, PerfTime(20));
    builder.fork(1, 1, PerfTime(21)); // a thread
    builder.map(1, PerfTime(30), mapping(0x1000, 0x1000, "/parent"));
    builder.map(2, PerfTime(40), mapping(0x1000, 0x1000, "/child"));
    builder.fork(3, 2, PerfTime(35));
    builder.exec(3, PerfTime(50));
    builder.map(3, PerfTime(51), mapping(0x7000, 0x1000, "/other"));
    // The process id is used again, for a child of the first.
    builder.fork(3, 1, PerfTime(60));
    let timeline = builder.build();
    assert_eq!(path(&timeline, 2, 20, 0x1000), Some("/a"));
    assert_eq!(path(&timeline, 2, 35, 0x1000), Some("/a"));
    assert_eq!(path(&timeline, 2, 40, 0x1000), Some("/child"));
    assert_eq!(path(&timeline, 1, 40, 0x1000), Some("/parent"));
    assert_eq!(path(&timeline, 3, 35, 0x1000), Some("/a"));
    assert_eq!(
        (
            path(&timeline, 3, 55, 0x1000),
            path(&timeline, 3, 55, 0x7000)
        ),
        (None, Some("/other"))
    );
    assert_eq!(
        (
            path(&timeline, 3, 60, 0x1000),
            path(&timeline, 3, 60, 0x7000)
        ),
        (Some("/parent"), None)
    );
    let version = |pid, time| timeline.space(pid, PerfTime(time)).version();
    assert_eq!(version(1, 20), version(2, 20), "same code, same cache key");
    assert_eq!(version(1, 30), version(3, 60));
    assert_ne!(version(1, 30), version(2, 30));
}

#[test]
fn captured_code() {
    let mut builder = TimelineBuilder::new();
    builder.code(1, PerfTime(10), 0x1000, "first", vec![0x90; 16]);
    builder.code(1, PerfTime(20), 0x1008, "second", vec![0xcc; 16]);
    // At the same time and for special mappings, captured bytes win; a later file replaces them.
    builder.map(1, PerfTime(10), mapping(0x1000, 0x1000, "/same/time"));
    builder.map(1, PerfTime(25), mapping(0x1000, 0x1000, "//anon"));
    builder.map(1, PerfTime(30), mapping(0x1000, 0x1000, "/later"));
    // The same function in another process is the same image.
    builder.code(2, PerfTime(0), 0x9000, "first", vec![0x90; 16]);
    let timeline = builder.build();
    let space = |time| timeline.space(1, PerfTime(time));
    assert_eq!(space(10).code(Ip(0x1000)).unwrap(), [0x90; 16]);
    assert_eq!(path(&timeline, 1, 10, 0x1010), Some("/same/time"));
    assert_eq!(space(20).code(Ip(0x1000)).unwrap(), [0x90; 8]);
    assert_eq!(space(25).code(Ip(0x100c)).unwrap(), [0xcc; 12]);
    assert_eq!(path(&timeline, 1, 25, 0x1018), Some("//anon"));
    assert_eq!(path(&timeline, 1, 30, 0x1008), Some("/later"));

    let hit = space(25).function(Ip(0x1009)).unwrap();
    assert_eq!(
        (hit.entry, hit.start, hit.end),
        (Ip(0x1008), Ip(0x1008), Ip(0x1018))
    );
    let function = timeline.function(hit.id);
    assert_eq!(
        (&*function.name, function.module, function.kind),
        ("second", "[jit]", FunctionKind::Jit)
    );
    let first = space(10).function(Ip(0x1000)).unwrap();
    let twin = timeline.space(2, PerfTime(0)).function(Ip(0x900f)).unwrap();
    assert_eq!((first.id, twin.entry), (twin.id, Ip(0x9000)));
}

#[test]
fn instructions_across_mappings() {
    let mut builder = TimelineBuilder::new();
    builder.code(1, PerfTime(0), 0x1000, "a", (0..8).collect());
    builder.code(1, PerfTime(0), 0x1008, "b", (8..12).collect());
    builder.code(1, PerfTime(0), 0x100c, "c", (12..99).collect());
    builder.code(1, PerfTime(0), u64::MAX - 3, "top", vec![7; 3]);
    let timeline = builder.build();
    let space = timeline.space(1, PerfTime(0));
    assert_eq!(space.code(Ip(0x1005)).unwrap(), [5, 6, 7]);
    let mut buffer = [0; 15];
    assert_eq!(space.fetch(Ip(0x1005), &mut buffer), 15);
    assert_eq!(buffer.to_vec(), (5..20).collect::<Vec<u8>>());
    assert_eq!(space.fetch(Ip(u64::MAX - 2), &mut buffer), 2);
    assert_eq!(space.fetch(Ip(0x50), &mut buffer), 0);
}

#[test]
fn foreign_ids_do_no_harm() {
    let timeline = TimelineBuilder::new().build();
    let id = ptrail_image::FunctionId(0x7_0000_0009);
    assert_eq!((id.image(), id.number()), (7, 9));
    assert_eq!(timeline.function(id).name, "[unknown]");
    assert!(timeline.image(7).is_none());
}

const SPACE: usize = 48;
const PIDS: usize = 3;

#[derive(Clone, Debug)]
enum Event {
    Map { address: u64, len: u64, path: u8 },
    Code { address: u64, len: u8, fill: u8 },
    Exec,
    Fork { parent: usize },
}

/// What lies at each address: the file's number, or captured bytes with their time.
type Model = [Option<(u8, Option<u64>)>; SPACE];

fn events() -> impl Strategy<Value = Vec<(u64, usize, Event)>> {
    let event = prop_oneof![
        4 => (0..SPACE as u64, 1..24u64, 0..4u8).prop_map(|(address, len, path)| Event::Map { address, len, path }),
        2 => (0..SPACE as u64, 1..12u8, 100..104u8).prop_map(|(address, len, fill)| Event::Code { address, len, fill }),
        1 => Just(Event::Exec),
        1 => (0..PIDS).prop_map(|parent| Event::Fork { parent }),
    ];
    prop::collection::vec((0..30u64, 0..PIDS, event), 0..40)
}

fn apply(models: &mut [Model; PIDS], time: u64, pid: usize, event: &Event) {
    let end = |address: u64, len: u64| ((address + len) as usize).min(SPACE);
    match *event {
        Event::Map { address, len, path } => {
            for slot in &mut models[pid][address as usize..end(address, len)] {
                if !slot.is_some_and(|(_, captured)| captured == Some(time)) {
                    *slot = Some((path, None));
                }
            }
        }
        Event::Code { address, len, fill } => {
            models[pid][address as usize..end(address, len.into())].fill(Some((fill, Some(time))));
        }
        Event::Exec => models[pid] = [None; SPACE],
        Event::Fork { parent } => models[pid] = models[parent],
    }
}

fn build(events: &[(u64, usize, Event)]) -> Timeline {
    let mut builder = TimelineBuilder::new();
    for (time, pid, event) in events {
        let (time, pid) = (PerfTime(*time), *pid as u32);
        match event {
            Event::Map { address, len, path } => {
                let len = (*len).min(SPACE as u64 - address);
                builder.map(pid, time, mapping(*address, len, &format!("/{path}")));
            }
            Event::Code { address, len, fill } => {
                let len = usize::from(*len).min(SPACE - *address as usize);
                builder.code(pid, time, *address, &format!("/{fill}"), vec![*fill; len]);
            }
            Event::Exec => builder.exec(pid, time),
            Event::Fork { parent } => builder.fork(pid, *parent as u32, time),
        }
    }
    builder.build()
}

fn content(timeline: &Timeline, pid: usize, time: u64) -> [Option<u8>; SPACE] {
    std::array::from_fn(|address| {
        path(timeline, pid as u32, time, address as u64).map(|path| path[1..].parse().unwrap())
    })
}

proptest! {
    /// At every time when something runs, each address has what a replay into plain arrays has.
    #[test]
    fn timelines_are_as_the_model_says(events in events()) {
        let timeline = build(&events);
        let mut sorted = events.clone();
        sorted.sort_by_key(|event| event.0);
        let mut models = [[None; SPACE]; PIDS];
        let mut versions = std::collections::HashMap::new();
        for time in 0..30 {
            for (_, pid, event) in sorted.iter().filter(|event| event.0 == time) {
                apply(&mut models, time, *pid, event);
            }
            for (pid, model) in models.iter().enumerate() {
                // An empty space takes its successor's content.
                if model.iter().all(Option::is_none) {
                    continue;
                }
                let expected = model.map(|slot| slot.map(|(path, _)| path));
                let found = content(&timeline, pid, time);
                prop_assert_eq!(found, expected, "process {} at {}", pid, time);
                let space = timeline.space(pid as u32, PerfTime(time));
                let same_key = versions.entry(space.version()).or_insert(found);
                prop_assert_eq!(*same_key, found, "one version, two contents");
                prop_assert!(space.changes_at().is_none_or(|next| next.0 > time));
                if let Some(next) = space.changes_at() {
                    prop_assert_eq!(content(&timeline, pid, next.0 - 1), found, "unchanged until then");
                }
            }
        }
    }
}
