//! The other forms of `perf.data`: pipe stream, compressed, folder, snapshots, samples. Each is made
//! from a file of our own by moving its records about; perf itself writes one where it can.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ptrail_perfdata::{AuxStream, Capture, Gap, Owner, Record, Writer};
use ptrail_pt::{Encoder, Ip, Packet, PsbPlus, Tsc};

use crate::program::run;
use crate::{event, extra, target};

const PID: u32 = 100;
const DATA_SIZE_AT: usize = 48;

/// A stream of PSB+s with times.
fn packets(psbs: u64) -> Vec<u8> {
    let mut encoder = Encoder::new();
    for number in 0..psbs {
        encoder.psb_plus(&PsbPlus {
            tsc: Some(Tsc(50_000 + number)),
            ip: Some(Ip(0x40_1000 + number)),
            ..PsbPlus::default()
        });
        for count in 0..20 {
            encoder.put(&Packet::Mtc(count));
        }
    }
    encoder.bytes().to_vec()
}

fn write(path: &Path, traces: &[&[u8]]) {
    let mut writer = Writer::create(path, target()).unwrap();
    let comm = Record::Comm {
        name: "x".to_owned(),
        exec: true,
    };
    writer.record(&event(1, PID, PID, comm)).unwrap();
    for number in 0..200 {
        let map = Record::Mmap2 {
            address: 0x40_0000 + number * 0x1000,
            len: 0x1000,
            file_offset: 0,
            executable: true,
            path: format!("/lib/number {number}.so"),
            build_id: (number % 2 == 0).then(|| vec![number as u8; 20]),
        };
        writer.record(&event(2 + number, PID, PID, map)).unwrap();
    }
    for (number, trace) in traces.iter().enumerate() {
        let time = 1_000 + number as u64;
        writer.trace(PID, PID, time, trace).unwrap();
    }
    writer
        .record(&event(9_000, PID, PID, Record::Exit))
        .unwrap();
    writer.finish(&extra()).unwrap();
}

/// A seekable file taken apart.
struct Parts {
    /// Header and attributes.
    head: Vec<u8>,
    /// Records, trace data behind theirs.
    records: Vec<Vec<u8>>,
    /// The features as (number, bytes).
    features: Vec<(u64, Vec<u8>)>,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn kind(record: &[u8]) -> u32 {
    u32::from_le_bytes(record[..4].try_into().unwrap())
}

fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(((body.len() + 8) as u16).to_le_bytes());
    bytes.extend(body);
    bytes
}

impl Parts {
    fn of(path: &Path) -> Self {
        let file = std::fs::read(path).unwrap();
        let start = word(&file, 40) as usize;
        let end = start + word(&file, DATA_SIZE_AT) as usize;
        let mut records = Vec::new();
        let mut at = start;
        while at < end {
            let mut size = usize::from(u16::from_le_bytes([file[at + 6], file[at + 7]]));
            if kind(&file[at..]) == 71 {
                size += word(&file, at + 8) as usize;
            }
            records.push(file[at..at + size].to_vec());
            at += size;
        }
        let numbers = (0..256).filter(|bit| word(&file, 72 + bit / 64 * 8) >> (bit % 64) & 1 == 1);
        let features = numbers.enumerate().map(|(index, number)| {
            let entry = end + index * 16;
            let (offset, size) = (word(&file, entry) as usize, word(&file, entry + 8) as usize);
            (number as u64, file[offset..offset + size].to_vec())
        });
        Parts {
            head: file[..start].to_vec(),
            records,
            features: features.collect(),
        }
    }

    /// The file with these records.
    fn file(&self, records: &[Vec<u8>]) -> Vec<u8> {
        let mut file = self.head.clone();
        let data = records.concat();
        file[DATA_SIZE_AT..DATA_SIZE_AT + 8].copy_from_slice(&(data.len() as u64).to_le_bytes());
        file.extend(data);
        let mut at = file.len() + self.features.len() * 16;
        for (_, bytes) in &self.features {
            file.extend((at as u64).to_le_bytes());
            file.extend((bytes.len() as u64).to_le_bytes());
            at += bytes.len();
        }
        file.extend(self.features.iter().flat_map(|(_, bytes)| bytes));
        file
    }

    /// The two attributes with their ids.
    fn attributes(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (at, size) = (word(&self.head, 24) as usize, word(&self.head, 16) as usize);
        let section = &self.head[at..at + word(&self.head, 32) as usize];
        section.chunks(size).map(move |entry| {
            let (attr, ids) = entry.split_at(size - 16);
            let (offset, len) = (word(ids, 0) as usize, word(ids, 8) as usize);
            (attr, &self.head[offset..offset + len])
        })
    }

    fn pipe(&self) -> Vec<u8> {
        let mut stream = b"PERFILE2".to_vec();
        stream.extend(16u64.to_le_bytes());
        for (attr, ids) in self.attributes() {
            stream.extend(record(64, &[attr, ids].concat()));
        }
        for (number, bytes) in &self.features {
            // The build-ids come as records of their own, the index of the trace data not at all.
            match number {
                2 => stream.extend(bytes),
                18 => {}
                _ => stream.extend(record(80, &[&number.to_le_bytes(), &bytes[..]].concat())),
            }
        }
        // Tracepoint descriptions, which stand behind their record.
        stream.extend(record(66, &5u32.to_le_bytes()));
        stream.extend(*b"hello\0\0\0");
        stream.extend(self.records.concat());
        stream
    }
}

/// Whether a record is one that perf takes from the kernel's rings, and so compresses.
fn is_kernels(record: &[u8]) -> bool {
    kind(record) < 64
}

fn bytes(capture: &Capture) -> Vec<(Owner, Vec<u8>)> {
    let of = |stream: &AuxStream| (stream.owner, capture.stream_bytes(stream).into_owned());
    capture.streams.iter().map(of).collect()
}

#[track_caller]
fn same(found: &Capture, expected: &Capture) {
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    assert_eq!(found.sideband, expected.sideband);
    assert_eq!(bytes(found), bytes(expected));
    assert_eq!(found.machine, expected.machine);
    assert_eq!(found.clock, expected.clock);
    // The software's own section is lost, and with it that there are no errata.
    let config = |capture: &Capture| ptrail_pt::PtConfig {
        cpu: None,
        ..capture.pt_config
    };
    assert_eq!(config(found), config(expected));
}

fn prepare(folder: &Path) -> (PathBuf, Capture, Parts) {
    let path = folder.join("trace.data");
    let packets = packets(30);
    let (first, second) = packets.split_at(333);
    write(&path, &[first, second]);
    let capture = Capture::open(&path).unwrap();
    let parts = Parts::of(&path);
    (path, capture, parts)
}

#[test]
fn a_pipe_stream() {
    let folder = tempfile::tempdir().unwrap();
    let (_, expected, parts) = prepare(folder.path());
    let stream = parts.pipe();
    let path = folder.path().join("piped.data");
    std::fs::write(&path, &stream).unwrap();
    same(&Capture::open(&path).unwrap(), &expected);
    same(&Capture::from_bytes(&path, stream).unwrap(), &expected);
}

#[test]
fn a_pipe_stream_from_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let (_, expected, parts) = prepare(folder.path());
    let fifo = folder.path().join("fifo");
    run("mkfifo", &[fifo.to_str().unwrap()]).unwrap();
    let (stream, place) = (parts.pipe(), fifo.clone());
    let writer = std::thread::spawn(move || std::fs::write(place, stream).unwrap());
    same(&Capture::open(&fifo).unwrap(), &expected);
    writer.join().unwrap();
}

/// `perf inject` writes a pipe stream if its output is a pipe.
#[test]
fn a_pipe_stream_that_perf_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let (path, expected, _) = prepare(folder.path());
    let input = path.to_str().unwrap();
    let piped = folder.path().join("piped.data");
    let command = format!(
        "HOME={} PERF_CONFIG=/dev/null perf inject -i {input} -o - | cat > {}",
        folder.path().display(),
        piped.display()
    );
    if run("perf", &["--version"]).is_none() || run("sh", &["-c", &command]).is_none() {
        return;
    }
    let stream = std::fs::read(&piped).unwrap();
    assert_eq!(word(&stream, 8), 16, "not the pipe form");
    let found = Capture::from_bytes(&piped, stream).unwrap();
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    assert_eq!(found.sideband, expected.sideband);
    assert_eq!(bytes(&found), bytes(&expected));
    assert_eq!(found.clock, expected.clock);
}

#[test]
fn quippers_pipe_stream_has_the_trace_that_the_reference_has() {
    let Some(folder) = xtask::reference_data("quipper") else {
        return;
    };
    let capture = Capture::open(&folder.join("perf.data.piped.intel_pt-4.14")).unwrap();
    let text = std::fs::read_to_string(folder.join("reference.json")).unwrap();
    let reference: serde_json::Value = serde_json::from_str(&text).unwrap();
    let file = &reference["files"][1];
    let buffers = file["auxtrace"].as_array().unwrap();
    assert_eq!(capture.streams.len(), buffers.len());
    for (stream, buffer) in capture.streams.iter().zip(buffers) {
        let n = |name: &str| buffer[name].as_u64().unwrap();
        assert_eq!(stream.owner, Owner::Cpu(n("cpu") as u32));
        assert_eq!(stream.pieces[0].range.start, n("file_offset"));
        let bytes = capture.stream_bytes(stream);
        let sum = crate::quipper::sha256(&bytes);
        assert_eq!(sum, buffer["sha256"].as_str().unwrap());
    }
    assert!(capture.damage.is_empty(), "{:?}", capture.damage);
    assert_eq!(capture.machine.os_release, "4.14.18");
    assert_eq!(capture.pt_config.mtc_freq, 3);
    let of_kind = |is: fn(&Record) -> bool| {
        let records = capture.sideband.iter().map(|entry| &entry.record);
        records.filter(|record| is(record)).count() as u64
    };
    let expected = |kind: &str| file["records_by_type"][kind].as_u64().unwrap();
    assert_eq!(
        of_kind(|r| matches!(r, Record::Switch { .. })),
        expected("SWITCH_CPU_WIDE")
    );
    assert_eq!(
        of_kind(|r| matches!(r, Record::Aux { .. })),
        expected("AUX")
    );
    assert_eq!(
        of_kind(|r| matches!(r, Record::Mmap2 { .. })),
        expected("MMAP") + expected("MMAP2")
    );
}

/// Compresses with the zstd program.
fn zstd(bytes: &[u8]) -> Option<Vec<u8>> {
    let spawned = Command::new("zstd")
        .args(["-q", "-c", "--no-check"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        println!("skipped: no zstd program");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let feed = std::thread::spawn(move || stdin.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    Some(output.stdout)
}

/// The records with those of the kernel compressed, in parts of `size` bytes.
fn compressed(records: &[Vec<u8>], size: usize, kind: u32) -> Option<Vec<Vec<u8>>> {
    let (packed, plain): (Vec<_>, Vec<_>) = records.iter().cloned().partition(|r| is_kernels(r));
    let packed = packed.concat();
    // Two frames, the border inside a record.
    let (first, second) = packed.split_at(packed.len() / 2 + 3);
    let packed = [zstd(first)?, zstd(second)?].concat();
    let parts = packed.chunks(size).map(|part| {
        let mut body = part.to_vec();
        if kind == 83 {
            body = [&(part.len() as u64).to_le_bytes(), part].concat();
            body.resize(body.len().next_multiple_of(8), 0);
        }
        record(kind, &body)
    });
    Some(plain.iter().cloned().chain(parts).collect())
}

#[test]
fn a_compressed_file() {
    let folder = tempfile::tempdir().unwrap();
    let (_, expected, parts) = prepare(folder.path());
    for (size, kind) in [(60_000, 81), (77, 81), (60_000, 83), (100, 83)] {
        let Some(records) = compressed(&parts.records, size, kind) else {
            return;
        };
        let file = parts.file(&records);
        let found = Capture::from_bytes(Path::new("packed.data"), file).unwrap();
        same(&found, &expected);
    }
}

#[test]
fn a_compressed_file_that_is_cut_gives_what_comes_before() {
    let folder = tempfile::tempdir().unwrap();
    let (_, expected, parts) = prepare(folder.path());
    let Some(mut records) = compressed(&parts.records, 50, 81) else {
        return;
    };
    records.truncate(records.len() - 3);
    let found = Capture::from_bytes(Path::new("packed.data"), parts.file(&records)).unwrap();
    assert!(!found.damage.is_empty());
    let (found_bytes, expected_bytes) = (&bytes(&found)[0].1, &bytes(&expected)[0].1);
    assert!(found_bytes.starts_with(expected_bytes));
    let some = found.sideband.len();
    assert!((90..expected.sideband.len()).contains(&some), "{some}");
}

/// What perf itself compressed, with the record added that makes it a capture of Intel PT.
#[test]
fn a_file_that_perf_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.data");
    let recorded = Command::new("perf")
        .args(["record", "-q", "-z", "-e", "task-clock:u", "-o"])
        .arg(&path)
        .args(["--", "sh", "-c", "for i in 1 2 3 4 5 6; do /bin/true; done"])
        .output();
    if !recorded.is_ok_and(|output| output.status.success()) {
        println!("skipped: perf can't record here");
        return;
    }
    let parts = Parts::of(&path);
    assert!(parts.records.iter().any(|r| kind(r) == 81));
    let mut records = parts.records.clone();
    let pmu_type = parts.attributes().next().unwrap().0[..4].to_vec();
    let mut body = [[1, 0, 0, 0], [0; 4]].concat();
    body.extend(pmu_type);
    body.resize(160, 0);
    records.insert(0, record(70, &body));
    let found = Capture::from_bytes(&path, parts.file(&records)).unwrap();
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    let dump = run("perf", &["script", "-D", "-i", path.to_str().unwrap()]).unwrap();
    let count = |is: fn(&Record) -> bool| {
        let records = found.sideband.iter().map(|entry| &entry.record);
        records.filter(|record| is(record)).count()
    };
    for (text, found) in [
        (
            "PERF_RECORD_MMAP",
            count(|r| matches!(r, Record::Mmap2 { .. })),
        ),
        (
            "PERF_RECORD_COMM",
            count(|r| matches!(r, Record::Comm { .. })),
        ),
        (
            "PERF_RECORD_FORK",
            count(|r| matches!(r, Record::Fork { .. })),
        ),
        ("PERF_RECORD_EXIT", count(|r| matches!(r, Record::Exit))),
    ] {
        assert_eq!(dump.matches(text).count(), found, "{text}");
    }
    assert!(count(|r| matches!(r, Record::Fork { .. })) >= 6);
}

#[test]
fn a_folder_with_more_records_in_files_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (_, expected, parts) = prepare(folder.path());
    let threads = folder.path().join("threads.data");
    std::fs::create_dir(&threads).unwrap();
    let (kernels, own): (Vec<_>, Vec<_>) =
        parts.records.iter().cloned().partition(|r| is_kernels(r));
    std::fs::write(threads.join("data"), parts.file(&own)).unwrap();
    let (first, second) = kernels.split_at(kernels.len() / 2);
    let first = compressed(first, 100, 81).unwrap_or_else(|| first.to_vec());
    std::fs::write(threads.join("data.0"), first.concat()).unwrap();
    std::fs::write(threads.join("data.1"), second.concat()).unwrap();
    let found = Capture::open(&threads).unwrap();
    same(&found, &expected);
    assert_eq!(found.kernel, None);
    let copy = threads.join("kcore_dir");
    std::fs::create_dir(&copy).unwrap();
    std::fs::write(copy.join("kcore"), "").unwrap();
    let kernel = Capture::open(&threads).unwrap().kernel.unwrap();
    assert_eq!(kernel.kcore, copy.join("kcore"));
    assert_eq!(kernel.kallsyms, copy.join("kallsyms"));
}

#[test]
fn snapshots_of_a_ring_are_cut_to_what_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.data");
    let all = packets(30);
    let psb = all.len() / 30;
    // Each look sees 10 PSB+s; the third comes too late.
    let looks = [0..psb * 10 + 5, psb * 4 + 9..psb * 14, psb * 20..all.len()];
    let looks = looks.map(|range| &all[range]);
    write(&path, &looks);
    let mut parts = Parts::of(&path);
    const SNAPSHOT_MODE: usize = 8 + 8 + 8 * 8;
    let info = parts.records.iter_mut().find(|r| kind(r) == 70).unwrap();
    info[SNAPSHOT_MODE] = 1;
    let file = parts.file(&parts.records);
    let capture = Capture::from_bytes(&path, file).unwrap();
    assert_eq!(capture.streams.len(), 1);
    let gaps: Vec<_> = capture.streams[0].pieces.iter().map(|p| p.gap).collect();
    assert_eq!(gaps, [None, None, Some(Gap::Overwritten)]);
    let found = capture.stream_bytes(&capture.streams[0]);
    // The second look is filled up with zeros, PAD packets.
    let padding = looks[1].len().next_multiple_of(8) - looks[1].len();
    let expected = [&all[..psb * 14], &vec![0; padding], &all[psb * 20..]];
    assert!(found.starts_with(&expected.concat()));
}

#[test]
fn samples_with_trace_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.data");
    write(&path, &[]);
    let mut parts = Parts::of(&path);
    let all = packets(10);
    let psb = all.len() / 10;
    // PERF_SAMPLE_AUX in the type of both events.
    let (attrs, size) = (
        word(&parts.head, 24) as usize,
        word(&parts.head, 16) as usize,
    );
    for attr in [attrs, attrs + size] {
        parts.head[attr + 24 + 2] |= 1 << 4;
    }
    let sample = |time: u64, tid: u32, trace: &[u8]| {
        let (id, ip, cpu) = (1u64, 0x40_1000u64, 2u64);
        let mut body = [id.to_le_bytes(), ip.to_le_bytes()].concat();
        body.extend(PID.to_le_bytes());
        body.extend(tid.to_le_bytes());
        body.extend(time.to_le_bytes());
        body.extend(cpu.to_le_bytes());
        body.extend((trace.len() as u64).to_le_bytes());
        body.extend(trace);
        record(9, &body)
    };
    // Rings of two CPUs stand one behind the other.
    parts.records.push(sample(300, PID, &all[psb..psb * 6]));
    parts.records.push(sample(100, PID, &all[..psb * 2]));
    parts.records.push(sample(200, 101, &all[psb * 8..]));
    let capture = Capture::from_bytes(&path, parts.file(&parts.records)).unwrap();
    assert!(capture.damage.is_empty(), "{:?}", capture.damage);
    let found = bytes(&capture);
    let thread = |tid| Owner::Thread {
        pid: Some(PID),
        tid,
    };
    assert_eq!(
        found,
        [
            (thread(PID), all[..psb * 6].to_vec()),
            (thread(101), all[psb * 8..].to_vec())
        ]
    );
    assert!(capture.unknown_records.is_empty());
}

#[test]
fn kernel_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.data");
    write(&path, &[]);
    let parts = Parts::of(&path);
    let id = |body: &[u8]| {
        // The end of each record of ours: thread, time, CPU, id.
        let mut body = body.to_vec();
        body.extend([PID, PID].map(u32::to_le_bytes).concat());
        body.extend([700, 3, 2].map(u64::to_le_bytes).concat());
        body
    };
    let words = |words: &[u64]| {
        words
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let ksymbol = [
        &words(&[0xffff_0000]),
        &[0, 1, 0, 0, 1, 0, 1, 0][..],
        b"bpf_prog_1\0\0\0\0\0\0",
    ];
    let poke = [
        &words(&[0xffff_1000]),
        &[2, 0, 2, 0, 0x90, 0x90, 0xeb, 0x05][..],
    ];
    let error = [
        &[
            1, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0, 0, 100, 0, 0, 0, 100, 0, 0, 0, 1, 0, 0, 0,
        ][..],
        &words(&[0x40_1000, 700]),
        b"lost",
        &[0; 60],
    ];
    let added = [
        record(13, &id(&words(&[17]))),
        record(
            16,
            &id(&words(&[
                u64::from(PID) << 32 | u64::from(PID),
                2,
                1,
                2,
                3,
                4,
            ])),
        ),
        record(17, &id(&ksymbol.concat())),
        record(18, &id(&[[1, 0, 0, 0, 9, 0, 0, 0], [0; 8]].concat())),
        record(20, &id(&poke.concat())),
        record(21, &id(&words(&[4]))),
        record(72, &error.concat()),
        record(19, &id(&words(&[1, 2]))),
        record(4711, &[0; 40]),
    ];
    let records = [parts.records.clone(), added.to_vec()].concat();
    let capture = Capture::from_bytes(&path, parts.file(&records)).unwrap();
    assert!(capture.damage.is_empty(), "{:?}", capture.damage);
    let found: Vec<_> = capture
        .sideband
        .iter()
        .filter(|entry| entry.time == Some(700))
        .map(|entry| {
            assert_eq!(
                (entry.pid, entry.tid, entry.cpu),
                (Some(PID), Some(PID), Some(3))
            );
            entry.record.clone()
        })
        .collect();
    assert_eq!(
        found,
        [
            Record::LostSamples(17),
            Record::Namespaces(vec![(1, 2), (3, 4)]),
            Record::Ksymbol {
                address: 0xffff_0000,
                len: 0x100,
                kind: 1,
                unregister: true,
                name: "bpf_prog_1".to_owned(),
            },
            Record::BpfEvent { kind: 1, id: 9 },
            Record::TextPoke {
                address: 0xffff_1000,
                old: vec![0x90, 0x90],
                new: vec![0xeb, 0x05],
            },
            Record::AuxOutputHwId(4),
            Record::AuxtraceError {
                code: 5,
                ip: 0x40_1000,
                message: "lost".to_owned(),
            },
        ]
    );
    assert_eq!(capture.unknown_records, [(19, 1), (4711, 1)].into());
}
