//! pprof's profile: one gzipped protobuf message.
//!
//! A sample is a call path of a thread (labels `thread`, `tid`, `pid`) with three values: the
//! number of calls of its innermost function along this path, the instructions and the nanoseconds
//! in that function alone. Time is the default. The recording's wall-clock time and its length are
//! given; comments say the command and, for the software recorder, that the clock is virtual.
//!
//! Each function is a location of its own at its first address. A module is a mapping with its file
//! name; address ranges and build ids are not known here. A function's line is that of its first
//! instruction.
//!
//! A sample lists its whole path, so deep recursion makes large profiles: a function within itself
//! 10,000 times has 10,000 samples with 5,000 locations on average. gzip gets most of it back, but
//! readers unpack it.
//!
//! Written from the description of the format in pprof's `proto/profile.proto`.

use std::{
    collections::HashMap,
    io::{self, Write},
    path::Path,
};

use flate2::{Compression, write::GzEncoder};
use prost::Message;
use ptrail_trace::{FunctionId, Track, TrackKind};

use crate::{
    calls::{Step, Sums},
    profile::{Profile, ThreadPaths},
    text::provenance,
};

/// Numbers of the fields of `Profile` that are written one by one.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
    #[prost(int64, tag = "3")]
    num: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
    #[prost(int64, tag = "5")]
    start_line: i64,
}

pub(crate) fn write(mut profile: Profile, output: &mut impl Write) -> io::Result<()> {
    let threads = profile.take_paths(|track: &Track| track.id);
    let mut writer = Writer {
        gzip: GzEncoder::new(output, Compression::default()),
        strings: Strings::default(),
        bytes: Vec::new(),
    };
    writer.strings.number("");
    writer.head(&profile)?;
    writer.functions(&profile)?;
    for thread in &threads {
        writer.samples(thread)?;
    }
    writer.finish()
}

/// All functions, those of the program itself first: readers take the first mapping for the
/// program's.
fn main_module_first(profile: &Profile) -> impl Iterator<Item = &ptrail_trace::Function> {
    let recording = profile.recording.as_ref();
    let program = recording.and_then(|recording| recording.command.first());
    let file = program.and_then(|program| Path::new(program).file_name());
    let of_program = move |function: &&ptrail_trace::Function| {
        file.is_some_and(|file| *file == *function.module)
    };
    let all = || profile.functions();
    all().filter(of_program).chain(all())
}

/// The string table. The empty string must be the first.
#[derive(Default)]
struct Strings {
    all: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl Strings {
    fn number(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as i64;
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// Functions are numbered from 1 on: 0 means none.
fn id(function: FunctionId) -> u64 {
    u64::from(function.0) + 1
}

/// The format has no unsigned values.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

struct Writer<W: Write> {
    gzip: GzEncoder<W>,
    strings: Strings,
    bytes: Vec<u8>,
}

impl<W: Write> Writer<W> {
    fn message(&mut self, field: u32, message: &impl Message) -> io::Result<()> {
        self.bytes.clear();
        prost::encoding::message::encode(field, message, &mut self.bytes);
        self.gzip.write_all(&self.bytes)
    }

    fn number(&mut self, field: u32, number: i64) -> io::Result<()> {
        self.bytes.clear();
        prost::encoding::int64::encode(field, &number, &mut self.bytes);
        self.gzip.write_all(&self.bytes)
    }

    fn head(&mut self, profile: &Profile) -> io::Result<()> {
        let types = [
            ("calls", "count"),
            ("instructions", "count"),
            ("time", "nanoseconds"),
        ];
        for (name, unit) in types {
            let r#type = self.strings.number(name);
            let unit = self.strings.number(unit);
            self.message(field::SAMPLE_TYPE, &ValueType { r#type, unit })?;
        }
        let time = self.strings.number("time");
        self.number(field::DEFAULT_SAMPLE_TYPE, time)?;
        self.number(field::DURATION_NANOS, signed(profile.last))?;
        let Some(recording) = &profile.recording else {
            return Ok(());
        };
        if let Some(at) = recording.wall_clock {
            self.number(field::TIME_NANOS, signed(at))?;
        }
        let command = recording.command.join(" ");
        for comment in [provenance(recording.source), &command] {
            let comment = self.strings.number(comment);
            self.number(field::COMMENT, comment)?;
        }
        Ok(())
    }

    fn functions(&mut self, profile: &Profile) -> io::Result<()> {
        let mut mappings = HashMap::<&str, u64>::new();
        for function in main_module_first(profile) {
            let next = mappings.len() as u64 + 1;
            if !function.module.is_empty() && !mappings.contains_key(&*function.module) {
                mappings.insert(&function.module, next);
                let mapping = Mapping {
                    id: next,
                    filename: self.strings.number(&function.module),
                    has_functions: true,
                };
                self.message(field::MAPPING, &mapping)?;
            }
        }
        for function in profile.functions() {
            let mapping_id = mappings.get(&*function.module).copied().unwrap_or(0);
            let system_name = function.mangled.as_ref().unwrap_or(&function.name);
            let (name, system_name) = (
                self.strings.number(&function.name),
                self.strings.number(system_name),
            );
            let id = id(function.id);
            let source = function.source.as_ref();
            let line = source.map_or(0, |source| i64::from(source.line));
            let filename = self
                .strings
                .number(source.map_or("", |source| &source.file));
            self.message(
                field::FUNCTION,
                &Function {
                    id,
                    name,
                    system_name,
                    filename,
                    start_line: line,
                },
            )?;
            let location = Location {
                id,
                mapping_id,
                address: function.address.0,
                line: vec![Line {
                    function_id: id,
                    line,
                }],
            };
            self.message(field::LOCATION, &location)?;
        }
        Ok(())
    }

    fn samples(&mut self, thread: &ThreadPaths) -> io::Result<()> {
        let TrackKind::Thread { pid, tid } = thread.track.kind;
        let name = self.strings.number(&thread.track.name);
        let labels = [("thread", name, 0), ("tid", 0, tid), ("pid", 0, pid)];
        let label = labels.map(|(key, str, num)| Label {
            key: self.strings.number(key),
            str,
            num: i64::from(num),
        });
        let mut path = Vec::<u64>::new();
        thread.paths.walk(|step| {
            match step {
                Step::Enter(function, own) => {
                    path.push(id(function));
                    if own != Sums::default() {
                        let sample = Sample {
                            location_id: path.iter().rev().copied().collect(),
                            value: [own.calls, own.instructions, own.time].map(signed).to_vec(),
                            label: label.to_vec(),
                        };
                        self.message(field::SAMPLE, &sample)?;
                    }
                }
                Step::Leave(_) => {
                    path.pop();
                }
            }
            Ok(())
        })
    }

    fn finish(mut self) -> io::Result<()> {
        for text in std::mem::take(&mut self.strings.all) {
            self.bytes.clear();
            prost::encoding::string::encode(field::STRING_TABLE, &text, &mut self.bytes);
            self.gzip.write_all(&self.bytes)?;
        }
        self.gzip.finish().map(drop)
    }
}
