//! What is written is read back.

use proptest::prelude::*;
use ptrail_perfdata::{Capture, CodeBlob, Extra, Owner, Record, Sideband, Writer};

use crate::{extra, target};

/// A record or trace bytes of thread 0, 1 or 2.
#[derive(Clone, Debug)]
enum Step {
    Record(Sideband),
    Trace(u32, Vec<u8>),
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[ -~]{1,40}",
        "/[^\0]{0,60}",
        Just(format!("/{}", "ordner mit ümlaut 🦀/".repeat(120))),
    ]
}

fn id() -> impl Strategy<Value = u32> {
    0..=i32::MAX as u32
}

fn record() -> impl Strategy<Value = Record> {
    let build_id = prop::option::of(prop::collection::vec(any::<u8>(), 1..=20));
    prop_oneof![
        (any::<[u64; 3]>(), any::<bool>(), name(), build_id).prop_map(
            |([address, len, file_offset], executable, path, build_id)| Record::Mmap2 {
                address,
                len,
                file_offset,
                executable,
                path,
                build_id
            }
        ),
        (name(), any::<bool>()).prop_map(|(name, exec)| Record::Comm { name, exec }),
        (id(), id()).prop_map(|(parent_pid, parent_tid)| Record::Fork {
            parent_pid,
            parent_tid
        }),
        Just(Record::Exit),
        Just(Record::ItraceStart),
        (any::<bool>(), any::<bool>(), prop::option::of((id(), id()))).prop_map(
            |(out, preempted, other)| Record::Switch {
                out,
                preempted: out && preempted,
                other
            }
        ),
        any::<u64>().prop_map(Record::Lost),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let ids = (
        prop::option::of(id()),
        prop::option::of(id()),
        prop::option::of(0..4096u32),
    );
    prop_oneof![
        (ids, record()).prop_map(|((pid, tid, cpu), record)| {
            let cpu = match record {
                Record::Switch { out: false, .. } => cpu.or(Some(0)),
                _ => cpu,
            };
            Step::Record(Sideband {
                time: None,
                pid,
                tid,
                cpu,
                record,
            })
        }),
        (0..3u32, trace_bytes()).prop_map(|(thread, bytes)| Step::Trace(thread, bytes)),
    ]
}

/// Bytes of any length, often with zeros at the end.
fn trace_bytes() -> impl Strategy<Value = Vec<u8>> {
    (prop::collection::vec(any::<u8>(), 0..50), 0..10usize).prop_map(|(mut bytes, zeros)| {
        bytes.resize(bytes.len() + zeros, 0);
        bytes
    })
}

fn code() -> impl Strategy<Value = Vec<CodeBlob>> {
    let blob = (
        any::<[u64; 2]>(),
        id(),
        name(),
        prop::collection::vec(any::<u8>(), 0..50),
    )
        .prop_map(|([address, time], pid, name, bytes)| CodeBlob {
            pid,
            address,
            time,
            name,
            bytes,
        });
    prop::collection::vec(blob, 0..4)
}

fn write(path: &std::path::Path, steps: &[Step], extra: &Extra) -> Vec<Sideband> {
    let mut writer = Writer::create(path, target()).unwrap();
    let mut expected = Vec::new();
    let mut offsets = [0u64; 3];
    for (time, step) in (0u64..).zip(steps) {
        match step {
            Step::Record(record) => {
                // Every third has no time and must keep its place.
                let mut record = record.clone();
                record.time = (time % 3 != 0).then_some(time * 1_000_000_007);
                writer.record(&record).unwrap();
                expected.push(record);
            }
            Step::Trace(thread, bytes) => {
                let (tid, time) = (100 + thread, time * 1_000_000_007);
                writer.trace(100, tid, time, bytes).unwrap();
                let aux_offset = offsets[*thread as usize];
                let size = bytes.len() as u64;
                offsets[*thread as usize] += size;
                if size > 0 {
                    let record = Record::Aux {
                        aux_offset,
                        size,
                        flags: 0,
                    };
                    expected.push(crate::event(time, 100, tid, record));
                }
            }
        }
    }
    writer.finish(extra).unwrap();
    expected
}

fn check(steps: &[Step], code: Vec<CodeBlob>) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.data");
    let extra = Extra { code, ..extra() };
    let expected = write(&path, steps, &extra);
    let capture = Capture::open(&path).unwrap();

    prop_assert_eq!(&capture.damage.len(), &0, "{:?}", capture.damage);
    prop_assert_eq!(&capture.sideband, &expected);
    prop_assert_eq!(capture.extra.as_ref(), Some(&extra));
    prop_assert_eq!(&capture.machine, &target().machine);
    prop_assert_eq!(capture.pt_config, target().pt_config);
    prop_assert_eq!(capture.clock, Some(target().clock));
    prop_assert!(capture.unknown_records.is_empty());
    for stream in &capture.streams {
        let Owner::Thread { tid, .. } = stream.owner else {
            return Err(TestCaseError::fail("a stream of a CPU"));
        };
        let read: Vec<u8> = stream
            .pieces
            .iter()
            .flat_map(|piece| capture.bytes(piece))
            .copied()
            .collect();
        let written: Vec<u8> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Trace(thread, bytes) if 100 + thread == tid => Some(bytes.clone()),
                _ => None,
            })
            .flatten()
            .collect();
        prop_assert_eq!(read, written);
    }
    let threads: std::collections::BTreeSet<u32> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Trace(thread, bytes) if !bytes.is_empty() => Some(*thread),
            _ => None,
        })
        .collect();
    prop_assert_eq!(capture.streams.len(), threads.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn anything_written_is_read_back(
        steps in prop::collection::vec(step(), 0..40),
        code in code(),
    ) {
        check(&steps, code)?;
    }
}

#[test]
fn a_large_piece_and_a_file_that_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.data");
    std::fs::write(&path, "old").unwrap();
    let bytes: Vec<u8> = (0..3_000_001u32).map(|i| (i % 251) as u8 + 1).collect();
    write(
        &path,
        &[Step::Trace(0, bytes.clone()), Step::Trace(0, vec![7])],
        &extra(),
    );
    let capture = Capture::open(&path).unwrap();
    let [stream] = &capture.streams[..] else {
        panic!("{:?}", capture.streams)
    };
    assert_eq!(capture.bytes(&stream.pieces[0]), bytes);
    assert_eq!(stream.pieces[1].aux_offset, 3_000_001);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn an_unfinished_file_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&folder.path().join("trace.data"), target()).unwrap();
    writer.trace(1, 1, 1, &[1; 100]).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn hardware_captures_keep_their_cpu_and_software_ones_have_none() {
    use ptrail_perfdata::SourceNote;
    use ptrail_pt::{CpuId, Vendor};
    let cpu = CpuId {
        vendor: Vendor::Intel,
        family: 6,
        model: 85,
        stepping: 4,
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.data");
    let cpu_of = |source| {
        let mut writer = Writer::create(&path, target()).unwrap();
        writer.trace(1, 1, 1, &[1; 8]).unwrap();
        writer.finish(&Extra { source, ..extra() }).unwrap();
        Capture::open(&path).unwrap().pt_config.cpu
    };
    assert_eq!(cpu_of(SourceNote::Hardware), Some(cpu));
    assert_eq!(cpu_of(extra().source), None);
}
