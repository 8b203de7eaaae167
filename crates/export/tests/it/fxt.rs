//! `.fxt` files, opened in Perfetto's trace processor, and read by a reader of our own that knows
//! only the format's public description, for what the trace processor does not show.

use std::{
    collections::HashMap,
    io::Read as _,
    path::{Path, PathBuf},
    process::Command,
};

use ptrail_export::{Format, create};
use ptrail_pt::LossCause;
use ptrail_trace::{PointKind, Source, SpanFlags};

use crate::{
    program,
    stream::{BASE, Slice, Stream},
    viewer::{ARGS, COMPLAINTS, SLICES, assert_same, number, query, slices, text},
};

fn written(stream: &Stream, name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
    stream.play(sink.as_mut());
    (dir, path)
}

fn check(mut stream: Stream, name: &str) {
    let (_dir, path) = written(&stream, name);
    let [complaints, rows, arg_rows] = query(&path, [COMPLAINTS, SLICES, ARGS]);
    assert!(complaints.is_empty(), "{complaints:?}");
    let mut seen = slices(&rows, &arg_rows);
    // The note on what was recorded is an instant of the first thread.
    let notes = ["hardware trace", "software recorder, virtual clock"];
    seen.retain(|slice| !notes.contains(&&*slice.name));
    assert_same(&seen, &stream.slices());
}

#[test]
fn random_programs() {
    check(program::random(0x5eed_0020, 20_000), "a.fxt");
    check(program::random(0x5eed_0021, 5_000), "a.fxt.gz");
}

#[test]
fn late_callers_at_equal_times() {
    check(program::late_ties(), "a.fxt");
}

#[test]
fn odd_names_and_many_threads() {
    check(program::odd_names(), "a.fxt");
}

/// Name, begin, end, depth.
type Call = (String, u64, u64, usize);

/// Strings and threads by number.
#[derive(Default)]
struct Reader<'a> {
    bytes: &'a [u8],
    strings: HashMap<u64, String>,
    threads: HashMap<u64, (u64, u64)>,
    names: HashMap<u64, String>,
    /// What is open, and what was seen, of each thread.
    open: HashMap<(u64, u64), Vec<usize>>,
    calls: HashMap<(u64, u64), Vec<Call>>,
}

impl Reader<'_> {
    fn word(&mut self) -> u64 {
        let (word, rest) = self.bytes.split_at(8);
        self.bytes = rest;
        u64::from_le_bytes(word.try_into().unwrap())
    }

    fn inline(&mut self, len: u64) -> String {
        let (text, rest) = self.bytes.split_at((len as usize).next_multiple_of(8));
        self.bytes = rest;
        String::from_utf8(text[..len as usize].to_vec()).unwrap()
    }

    fn string(&mut self, reference: u64) -> String {
        match reference {
            0 => String::new(),
            number if number & 0x8000 == 0 => self.strings[&number].clone(),
            len => self.inline(len & 0x7fff),
        }
    }

    fn read(&mut self) {
        while !self.bytes.is_empty() {
            let whole = self.bytes;
            let header = self.word();
            let bits = |from: u32, count: u32| header >> from & ((1 << count) - 1);
            let size = bits(4, 12) as usize * 8;
            match bits(0, 4) {
                1 => assert_eq!(self.word(), 1_000_000_000),
                2 => {
                    let text = self.inline(bits(32, 15));
                    self.strings.insert(bits(16, 15), text);
                }
                3 => {
                    let thread = (self.word(), self.word());
                    self.threads.insert(bits(16, 8), thread);
                }
                4 => self.event(header),
                7 => {
                    let koid = self.word();
                    let name = self.string(bits(24, 16));
                    self.names.insert(koid << 8 | bits(16, 8), name);
                }
                _ => {}
            }
            self.bytes = &whole[size..];
        }
    }

    fn event(&mut self, header: u64) {
        let at = self.word();
        let thread = match header >> 24 & 0xff {
            0 => (self.word(), self.word()),
            number => self.threads[&number],
        };
        let _category = self.string(header >> 32 & 0xffff);
        let name = self.string(header >> 48);
        let calls = self.calls.entry(thread).or_default();
        let open = self.open.entry(thread).or_default();
        match header >> 16 & 0xf {
            2 => {
                open.push(calls.len());
                calls.push((name, at, u64::MAX, open.len() - 1));
            }
            3 => {
                let call = &mut calls[open.pop().unwrap()];
                assert_eq!(call.0, name);
                call.2 = at;
            }
            _ => {}
        }
    }
}

fn read(path: &Path) -> Vec<Slice> {
    let bytes = std::fs::read(path).unwrap();
    let mut reader = Reader {
        bytes: &bytes,
        ..Reader::default()
    };
    assert_eq!(reader.word(), 0x0016_5478_4604_0010);
    reader.read();
    assert!(reader.open.values().all(Vec::is_empty));
    let mut threads: Vec<_> = reader.calls.into_iter().collect();
    threads.sort();
    let mut slices = Vec::new();
    for ((pid, tid), calls) in threads {
        let thread = (
            pid as u32,
            tid as u32,
            reader.names[&(tid << 8 | 2)].clone(),
        );
        slices.extend(calls.into_iter().map(|(name, begin, end, depth)| Slice {
            thread: thread.clone(),
            name,
            ts: begin as i64,
            dur: (end - begin) as i64,
            depth: depth as i64,
            args: Vec::new(),
        }));
    }
    slices
}

fn without_args(stream: &mut Stream) -> Vec<Slice> {
    let mut slices = stream.slices();
    slices.iter_mut().for_each(|slice| slice.args.clear());
    slices
}

/// More threads than have a number, more levels than Perfetto shows, names of any length.
#[test]
fn a_reader_by_the_description_finds_every_call() {
    let mut many = Stream::new(Source::Hardware);
    for tid in 0..300 {
        let track = many.thread(1, 1000 + tid, &format!("thread {tid}"));
        many.enter(track, "outer", 5_000);
        many.enter(track, "", 5_000);
        many.leave(track, 5_000, SpanFlags::empty());
        many.leave(track, 7_000, SpanFlags::CUT);
    }
    for mut stream in [
        many,
        program::deep(10_000, 1_000),
        program::odd_names(),
        program::random(0x5eed_0022, 20_000),
    ] {
        let (_dir, path) = written(&stream, "a.fxt");
        assert_same(&read(&path), &without_args(&mut stream));
    }
}

#[test]
fn a_name_beyond_what_a_record_holds_is_cut() {
    let mut stream = Stream::new(Source::Hardware);
    let track = stream.thread(1, 1, "t");
    stream.enter(track, &"ö".repeat(40_000), 0);
    stream.leave(track, 1, SpanFlags::empty());
    let (_dir, path) = written(&stream, "a.fxt");
    assert_eq!(read(&path)[0].name, "ö".repeat(15_000));
}

#[test]
fn points_losses_and_processes() {
    let mut stream = Stream::new(Source::Software);
    let track = stream.thread(10, 11, "a \"thread\"");
    stream.enter(track, "main", 0);
    stream.point(track, 3_500, PointKind::Signal, "SIGUSR1");
    stream.loss(track, 5_000, 8_000, LossCause::Overflow, "line\nbreak");
    stream.loss(track, 7_000, 9_000, LossCause::NoCode, "no code");
    stream.leave(track, 20_000, SpanFlags::CUT);
    let (_dir, path) = written(&stream, "a.fxt");
    let all = "select s.name, s.ts, s.dur from slice s where s.name != 'main' order by s.ts, s.id";
    let processes = "select pid, name from process where pid = 10";
    let [complaints, rows, processes] = query(&path, [COMPLAINTS, all, processes]);
    assert!(complaints.is_empty(), "{complaints:?}");
    let base = BASE as i64;
    let seen: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                text(row, "name"),
                number(row, "ts") - base,
                number(row, "dur"),
            )
        })
        .collect();
    let row = |name: &str, at, dur| (name.to_owned(), at, dur);
    assert_eq!(
        seen,
        [
            row("software recorder, virtual clock", 0, 0),
            row("SIGUSR1", 3, 0),
            row("lost: overflow", 5, 3),
            row("lost: no-code", 7, 2),
        ]
    );
    assert_eq!(text(&processes[0], "name"), "process 10 (virtual clock)");
}

/// What the system's own tools unpack is the plain file.
#[test]
fn packed_files_hold_the_same() {
    let stream = program::random(0x5eed_0023, 20_000);
    let (_dir, plain) = written(&stream, "a.fxt");
    let plain = std::fs::read(plain).unwrap();
    let (_dir, gzip) = written(&stream, "a.fxt.gz");
    let mut unpacked = Vec::new();
    let file = std::fs::File::open(gzip).unwrap();
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut unpacked)
        .unwrap();
    assert!(unpacked == plain);
    let (_dir, zstd) = written(&stream, "a.fxt.zst");
    assert!(plain.len() > 1 << 20, "more than a frame");
    match Command::new("zstd").arg("-dc").arg(zstd).output() {
        Ok(output) => assert!(output.status.success() && output.stdout == plain),
        Err(_) => eprintln!("SKIPPED: there is no zstd"),
    }
}
