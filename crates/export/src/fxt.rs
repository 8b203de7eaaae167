//! Fuchsia's trace format: records of 64-bit little-endian words.
//!
//! ```text
//! magic
//! metadata         provider 1 is "ptrail"
//! initialization   1,000,000,000 ticks a second
//! kernel object    process 7 is "demo"
//! kernel object    thread 7 of process 7 is "demo"
//! string           1 is "main"
//! string           2 is "demo"
//! event            duration begin, thread 7, name 1, category 2, at 75632123456790
//! event            duration end, …, instructions = 12, self_instructions = 12
//! ```
//!
//! A call's category is its module. Times are perf-clock nanoseconds. Losses are asynchronous events,
//! so that they may overlap; points are instants of their thread.
//!
//! *References.* Records name strings by a number of 15 bits and threads by one of 8. Numbers are
//! given in the order of first use; what comes when they have run out stands in the records
//! themselves, and so do the strings of begins that are put in between later.
//!
//! *Long names* are cut at 30,000 bytes: a record has at most 4,095 words.
//!
//! *Depth* is not limited here, but Perfetto shows no more than 512 levels of a thread.
//!
//! Written from the public description, "Fuchsia trace format".

use std::{collections::HashMap, path::Path, rc::Rc};

use ptrail_pt::{Loss, PerfTime, Picos};
use ptrail_trace::{
    Function, FunctionId, Opened, Point, Recording, SinkError, Source, Span, SpanFlags, SpanSink,
    Track, TrackId, TrackKind,
};

use crate::{
    output::{Output, Packing},
    parts::Parts,
    text::{flag_names, nanos, point_track, process_name, provenance},
};

const MAGIC: u64 = 0x0016_5478_4604_0010;
const TICKS_PER_SECOND: u64 = 1_000_000_000;
/// Bytes of a string.
const LONGEST: usize = 30_000;
/// The largest number of a string.
const STRINGS: u16 = 0x7fff;
/// The largest number of a thread.
const THREADS: u8 = 0xff;

/// Types of records.
mod record {
    pub(super) const METADATA: u64 = 0;
    pub(super) const INITIALIZATION: u64 = 1;
    pub(super) const STRING: u64 = 2;
    pub(super) const THREAD: u64 = 3;
    pub(super) const EVENT: u64 = 4;
    pub(super) const KERNEL_OBJECT: u64 = 7;
}

/// Types of events.
mod event {
    pub(super) const INSTANT: u64 = 0;
    pub(super) const BEGIN: u64 = 2;
    pub(super) const END: u64 = 3;
    pub(super) const ASYNC_BEGIN: u64 = 5;
    pub(super) const ASYNC_END: u64 = 7;
}

/// Types of arguments.
mod argument {
    pub(super) const UNSIGNED: u64 = 4;
    pub(super) const STRING: u64 = 6;
    pub(super) const POINTER: u64 = 7;
    pub(super) const KOID: u64 = 8;
}

/// Types of kernel objects.
const PROCESS: u64 = 1;
const THREAD: u64 = 2;

/// Writes a `.fxt` file.
pub struct FxtWriter {
    output: Output,
    base: PerfTime,
    source: Source,
    strings: HashMap<String, u16>,
    functions: Vec<Option<Rc<Function>>>,
    tracks: Vec<TrackState>,
    processes: Vec<u32>,
    threads: u8,
    losses: u64,
    /// The record being put together.
    words: Record,
}

struct TrackState {
    pid: u32,
    tid: u32,
    /// Its number in records; 0 if it has none.
    reference: u8,
    parts: Parts,
}

/// A record in the making.
#[derive(Default)]
struct Record {
    bytes: Vec<u8>,
    arguments: u64,
}

/// A string in a record: its number, or the string itself.
enum Text<'a> {
    Number(u16),
    Inline(&'a str),
}

/// The value of an argument.
enum Value<'a> {
    Unsigned(u64),
    Pointer(u64),
    Koid(u64),
    String(&'a str),
}

impl Record {
    fn start(&mut self) {
        self.bytes.clear();
        self.arguments = 0;
        self.word(0);
    }

    fn word(&mut self, word: u64) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(end, 0);
    }

    /// What stands for a string in a header; an inline one must follow with [`Record::inline`].
    fn reference(text: &Text<'_>) -> u64 {
        match text {
            Text::Number(number) => u64::from(*number),
            Text::Inline("") => 0,
            Text::Inline(text) => 0x8000 | cut(text).len() as u64,
        }
    }

    fn inline(&mut self, text: &Text<'_>) {
        if let Text::Inline(text) = text {
            self.padded(cut(text).as_bytes());
        }
    }

    fn argument(&mut self, name: &Text<'_>, value: &Value<'_>) {
        let start = self.bytes.len();
        self.word(0);
        self.inline(name);
        let mut upper = 0;
        let kind = match *value {
            Value::Unsigned(number) => {
                self.word(number);
                argument::UNSIGNED
            }
            Value::Pointer(address) => {
                self.word(address);
                argument::POINTER
            }
            Value::Koid(koid) => {
                self.word(koid);
                argument::KOID
            }
            Value::String(text) => {
                let text = Text::Inline(text);
                upper = Self::reference(&text);
                self.inline(&text);
                argument::STRING
            }
        };
        let size = ((self.bytes.len() - start) / 8) as u64;
        let header = kind | size << 4 | Self::reference(name) << 16 | upper << 32;
        self.bytes[start..start + 8].copy_from_slice(&header.to_le_bytes());
        self.arguments += 1;
    }

    /// Completes the header with the record's type and size.
    fn end(&mut self, kind: u64, rest: u64) -> &[u8] {
        let size = (self.bytes.len() / 8) as u64;
        let header = kind | size << 4 | rest;
        self.bytes[..8].copy_from_slice(&header.to_le_bytes());
        &self.bytes
    }
}

/// A string that fits into a record.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl FxtWriter {
    /// Opens an output; the file appears under `path` in [`SpanSink::finish`].
    ///
    /// # Errors
    /// No temporary file can be made in the folder of `path`, or `path` is a folder.
    pub fn create(path: &Path, packing: Packing) -> Result<Self, SinkError> {
        let mut writer = Self {
            output: Output::packed(path, packing)?,
            base: PerfTime(0),
            source: Source::default(),
            strings: HashMap::new(),
            functions: Vec::new(),
            tracks: Vec::new(),
            processes: Vec::new(),
            threads: 0,
            losses: 0,
            words: Record::default(),
        };
        writer.output.write(&MAGIC.to_le_bytes())?;
        let (provider, name) = (1, "ptrail");
        writer.words.start();
        writer.words.padded(name.as_bytes());
        let rest = 1 << 16 | provider << 20 | (name.len() as u64) << 52;
        writer.end(record::METADATA, rest)?;
        writer.words.start();
        writer.words.word(TICKS_PER_SECOND);
        writer.end(record::INITIALIZATION, 0)?;
        Ok(writer)
    }

    fn end(&mut self, kind: u64, rest: u64) -> Result<(), SinkError> {
        self.output.write(self.words.end(kind, rest))
    }

    /// The number of a string, which is told first if it is new.
    fn string<'a>(&mut self, text: &'a str) -> Result<Text<'a>, SinkError> {
        if text.is_empty() {
            return Ok(Text::Number(0));
        }
        if let Some(&number) = self.strings.get(text) {
            return Ok(Text::Number(number));
        }
        let number = self.strings.len() as u16 + 1;
        if number > STRINGS {
            return Ok(Text::Inline(text));
        }
        self.strings.insert(text.to_owned(), number);
        let bytes = cut(text).as_bytes();
        self.words.start();
        self.words.padded(bytes);
        let rest = u64::from(number) << 16 | (bytes.len() as u64) << 32;
        self.end(record::STRING, rest)?;
        Ok(Text::Number(number))
    }

    fn state(&mut self, track: TrackId) -> Result<&mut TrackState, SinkError> {
        match self.tracks.get_mut(track.0 as usize) {
            Some(state) => Ok(state),
            None => Err(self.output.unknown_track(track)),
        }
    }

    /// Puts an event together. The result is what its header has besides type and size. `arguments`
    /// come with the numbers of their names; `id` is that of asynchronous events.
    fn event(
        &mut self,
        kind: u64,
        track: TrackId,
        at: Picos,
        [category, name]: [&Text<'_>; 2],
        arguments: &[(Text<'_>, Value<'_>)],
        id: Option<u64>,
    ) -> Result<u64, SinkError> {
        let now = nanos(self.base, at);
        let &mut TrackState {
            pid,
            tid,
            reference,
            ..
        } = self.state(track)?;
        let words = &mut self.words;
        words.start();
        words.word(now);
        if reference == 0 {
            words.word(u64::from(pid));
            words.word(u64::from(tid));
        }
        words.inline(category);
        words.inline(name);
        for (name, value) in arguments {
            words.argument(name, value);
        }
        if let Some(id) = id {
            words.word(id);
        }
        Ok(kind << 16
            | words.arguments << 20
            | u64::from(reference) << 24
            | Record::reference(category) << 32
            | Record::reference(name) << 48)
    }

    /// Arguments with the numbers of their names.
    fn arguments<'a>(
        &mut self,
        arguments: Vec<(&'static str, Value<'a>)>,
    ) -> Result<Vec<(Text<'static>, Value<'a>)>, SinkError> {
        arguments
            .into_iter()
            .map(|(name, value)| Ok((self.string(name)?, value)))
            .collect()
    }

    fn known(&mut self, id: FunctionId) -> Result<Rc<Function>, SinkError> {
        match self.functions.get(id.0 as usize) {
            Some(Some(function)) => Ok(Rc::clone(function)),
            _ => Err(self.output.unknown_function(id)),
        }
    }

    /// A begin that is put in where the part of the track began: there, no number is known yet.
    fn late_begin(&mut self, span: &Span) -> Result<(), SinkError> {
        let function = self.known(span.function)?;
        let arguments: Vec<_> = begin_arguments(&function, span.call_site)
            .into_iter()
            .map(|(name, value)| (Text::Inline(name), value))
            .collect();
        let texts = [
            &Text::Inline(&function.module),
            &Text::Inline(&function.name),
        ];
        let rest = self.event(
            event::BEGIN,
            span.track,
            span.begin,
            texts,
            &arguments,
            None,
        )?;
        let position = self.output.position();
        let place = self.state(span.track)?.parts.late(span, position);
        self.output
            .insert(place, self.words.end(record::EVENT, rest));
        Ok(())
    }
}

fn begin_arguments(
    function: &Function,
    call_site: Option<ptrail_pt::Ip>,
) -> Vec<(&'static str, Value<'_>)> {
    let mut arguments = vec![("address", Value::Pointer(function.address.0))];
    arguments.extend(call_site.map(|ip| ("call_site", Value::Pointer(ip.0))));
    if !function.module.is_empty() {
        arguments.push(("module", Value::String(&function.module)));
    }
    let mangled = function.mangled.as_ref();
    if let Some(mangled) = mangled.filter(|mangled| **mangled != function.name) {
        arguments.push(("mangled_name", Value::String(mangled)));
    }
    if let Some(source) = &function.source {
        arguments.push(("source.file_name", Value::String(&source.file)));
        arguments.push(("source.line_number", Value::Unsigned(source.line.into())));
    }
    arguments
}

impl SpanSink for FxtWriter {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        (self.base, self.source) = (recording.base, recording.source);
        Ok(())
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        let TrackKind::Thread { pid, tid } = track.kind;
        if track.id.0 as usize != self.tracks.len() {
            return Err(self.output.track_out_of_order(track.id));
        }
        if !self.processes.contains(&pid) {
            self.processes.push(pid);
            let name = process_name(track, self.source);
            let name = Text::Inline(&name);
            self.words.start();
            self.words.word(u64::from(pid));
            self.words.inline(&name);
            let rest = PROCESS << 16 | Record::reference(&name) << 24;
            self.end(record::KERNEL_OBJECT, rest)?;
        }
        let name = Text::Inline(&track.name);
        let process = self.string("process")?;
        self.words.start();
        self.words.word(u64::from(tid));
        self.words.inline(&name);
        self.words.argument(&process, &Value::Koid(u64::from(pid)));
        let rest = THREAD << 16 | Record::reference(&name) << 24 | 1 << 40;
        self.end(record::KERNEL_OBJECT, rest)?;
        let mut reference = 0;
        if self.threads < THREADS {
            self.threads += 1;
            reference = self.threads;
            self.words.start();
            self.words.word(u64::from(pid));
            self.words.word(u64::from(tid));
            self.end(record::THREAD, u64::from(reference) << 16)?;
        }
        self.tracks.push(TrackState {
            pid,
            tid,
            reference,
            parts: Parts::default(),
        });
        // The only place for what a recording is: an instant, which needs a thread.
        if self.tracks.len() == 1 {
            let category = self.string("recording")?;
            let name = self.string(provenance(self.source))?;
            let rest = self.event(
                event::INSTANT,
                track.id,
                Picos(0),
                [&category, &name],
                &[],
                None,
            )?;
            self.end(record::EVENT, rest)?;
        }
        Ok(())
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        let index = function.id.0 as usize;
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, || None);
        }
        self.functions[index] = Some(Rc::new(function.clone()));
        Ok(())
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        let function = self.known(opened.function)?;
        let category = self.string(&function.module)?;
        let name = self.string(&function.name)?;
        let arguments = begin_arguments(&function, opened.call_site);
        let arguments = self.arguments(arguments)?;
        let position = self.output.position();
        self.state(opened.track)?.parts.open(opened, position);
        let texts = [&category, &name];
        let rest = self.event(
            event::BEGIN,
            opened.track,
            opened.begin,
            texts,
            &arguments,
            None,
        )?;
        self.end(record::EVENT, rest)
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        if span.flags.contains(SpanFlags::LATE) {
            self.late_begin(span)?;
        } else if self.state(span.track)?.parts.close(span).is_none() {
            return Err(self.output.nothing_open(span.track));
        }
        let function = self.known(span.function)?;
        let category = self.string(&function.module)?;
        let name = self.string(&function.name)?;
        let flags = flag_names(span.flags);
        let mut arguments = vec![
            ("instructions", Value::Unsigned(span.instructions)),
            ("self_instructions", Value::Unsigned(span.self_instructions)),
        ];
        if !flags.is_empty() {
            arguments.push(("flags", Value::String(&flags)));
        }
        let arguments = self.arguments(arguments)?;
        let texts = [&category, &name];
        let rest = self.event(event::END, span.track, span.end, texts, &arguments, None)?;
        self.end(record::EVENT, rest)
    }

    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        let category = self.string(point_track(point.kind))?;
        let name = Text::Inline(&point.text);
        let texts = [&category, &name];
        let rest = self.event(event::INSTANT, point.track, point.at, texts, &[], None)?;
        self.end(record::EVENT, rest)
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        self.state(track)?.parts.lose();
        let id = Some(self.losses);
        self.losses += 1;
        let category = self.string("trace losses")?;
        let name = format!("lost: {}", loss.cause.name());
        let name = self.string(&name)?;
        let mut arguments = vec![
            ("cause", Value::String(loss.cause.name())),
            ("reason", Value::String(&loss.reason)),
            ("bytes", Value::Unsigned(loss.bytes)),
            ("trace_offset", Value::Pointer(loss.offset.0)),
        ];
        arguments.extend(loss.ip.map(|ip| ("address", Value::Pointer(ip.0))));
        let arguments = self.arguments(arguments)?;
        let texts = [&category, &name];
        let rest = self.event(event::ASYNC_BEGIN, track, loss.begin, texts, &arguments, id)?;
        self.end(record::EVENT, rest)?;
        let end = loss.end.max(loss.begin);
        let rest = self.event(event::ASYNC_END, track, end, texts, &[], id)?;
        self.end(record::EVENT, rest)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.output.finish()
    }
}
