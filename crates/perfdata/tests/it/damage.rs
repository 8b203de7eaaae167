//! Cut and changed files: an error or a part, never a panic or a large allocation.

use std::path::Path;

use ptrail_perfdata::{Capture, Error, Record, Writer};

use crate::{event, extra, target};

/// A small file of each kind of record.
fn small_file() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.data");
    let mut writer = Writer::create(&path, target()).unwrap();
    let map = Record::Mmap2 {
        address: 0x40_0000,
        len: 0x1000,
        file_offset: 0,
        executable: true,
        path: "/bin/some program".to_owned(),
        build_id: Some(vec![9; 20]),
    };
    let switch = Record::Switch {
        out: true,
        preempted: true,
        other: Some((1, 1)),
    };
    let fork = Record::Fork {
        parent_pid: 1,
        parent_tid: 1,
    };
    let comm = Record::Comm {
        name: "x".to_owned(),
        exec: true,
    };
    for record in [
        comm,
        Record::ItraceStart,
        map,
        switch,
        fork,
        Record::Lost(3),
        Record::Exit,
    ] {
        writer.record(&event(1, 100, 100, record)).unwrap();
        writer
            .trace(100, 100, 1, &[0x02, 0x23, 0x02, 0x23])
            .unwrap();
    }
    writer.finish(&extra()).unwrap();
    std::fs::read(path).unwrap()
}

/// Opens the bytes as a file and touches every piece.
fn open(folder: &Path, bytes: &[u8]) -> Result<(usize, usize, u64), Error> {
    let path = folder.join("broken.data");
    std::fs::write(&path, bytes).unwrap();
    let capture = Capture::open(&path)?;
    let pieces = capture.streams.iter().flat_map(|stream| &stream.pieces);
    let trace: u64 = pieces.map(|piece| capture.bytes(piece).len() as u64).sum();
    assert!(trace <= bytes.len() as u64, "pieces that overlap");
    assert!(capture.sideband.len() <= bytes.len() / 8);
    for error in &capture.damage {
        assert!(error.to_string().contains("broken.data"), "{error}");
    }
    Ok((capture.damage.len(), capture.sideband.len(), trace))
}

fn cut_at_every_64th(whole: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let (damage, records, trace) = open(folder.path(), whole).unwrap();
    assert_eq!(damage, 0);
    let mut last = (0, 0);
    let mut opened = 0;
    for i in 0..64 {
        let cut = &whole[..whole.len() * i / 64];
        match open(folder.path(), cut) {
            Ok((_, records, trace)) => {
                // The more is there, the more is found.
                assert!((records, trace) >= last, "{i}/64");
                last = (records, trace);
                opened += 1;
            }
            Err(error) => assert!(
                matches!(error, Error::Truncated { .. } | Error::NotPerfData { .. }),
                "{i}/64: {error}"
            ),
        }
    }
    assert!(opened > 0);
    assert!(last <= (records, trace));
}

#[test]
fn cut_files() {
    cut_at_every_64th(&small_file());
    if let Some(recordings) = xtask::reference_data("quipper") {
        for name in ["perf.data.intel_pt-4.14", "perf.data.piped.intel_pt-4.14"] {
            cut_at_every_64th(&std::fs::read(recordings.join(name)).unwrap());
        }
    }
}

#[test]
fn a_cut_inside_the_data_is_told() {
    let whole = small_file();
    let folder = tempfile::tempdir().unwrap();
    // The section of ptrail's own and the features are behind the data.
    let (damage, records, trace) = open(folder.path(), &whole[..whole.len() / 4]).unwrap();
    assert!(damage > 0 && records > 0 && trace > 0);
}

#[test]
fn a_changed_bit_in_every_byte_of_a_small_file() {
    let whole = small_file();
    let folder = tempfile::tempdir().unwrap();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        let _ = open(folder.path(), &changed);
    }
}

/// A real recording with a few changed bytes at places that a fixed sequence chooses.
#[test]
fn changed_bytes_in_a_real_recording() {
    let Some(recordings) = xtask::reference_data("quipper") else {
        return;
    };
    let whole = std::fs::read(recordings.join("perf.data.intel_pt-4.14")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut state = 1u64;
    let mut next = || {
        // Knuth's MMIX generator.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for _ in 0..500 {
        let mut changed = whole.clone();
        for _ in 0..1 + next() % 8 {
            // Half of them outside of the trace data, which are most of the file.
            let at = if next() % 2 == 0 {
                next() % 0x2900
            } else {
                next() % whole.len()
            };
            changed[at] ^= 1 << (next() % 8);
        }
        let _ = open(folder.path(), &changed);
    }
}

/// Every 8 bytes of the file in turn set to very large numbers: lengths and offsets among them lead
/// nowhere, and nothing of their size is allocated.
#[test]
fn absurd_lengths() {
    let whole = small_file();
    let folder = tempfile::tempdir().unwrap();
    for at in (0..whole.len() - 8).step_by(4) {
        for value in [u64::MAX, u64::MAX - 7, 1 << 62, u64::from(u32::MAX), 0] {
            let mut changed = whole.clone();
            changed[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let _ = open(folder.path(), &changed);
        }
    }
    assert!(peak_memory_kib() < 512 * 1024, "{} KiB", peak_memory_kib());
}

fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A recorder that was killed leaves the size of the data section empty.
#[test]
fn an_unfinished_recording_is_read_to_its_end() {
    let mut whole = small_file();
    let folder = tempfile::tempdir().unwrap();
    let (_, records, trace) = open(folder.path(), &whole).unwrap();
    let data_size = u64::from_le_bytes(whole[48..56].try_into().unwrap());
    let data_offset = u64::from_le_bytes(whole[40..48].try_into().unwrap());
    whole.truncate((data_offset + data_size) as usize);
    whole[48..56].fill(0);
    assert_eq!(open(folder.path(), &whole).unwrap(), (1, records, trace));
}
