//! The Firefox Profiler's processed profile, version 55: JSON with a table a thread for everything.
//!
//! *Samples* are intervals here, not moments: one for each stretch of time between two calls or
//! returns, with the stack that was open and the nanoseconds it lasted as its weight (`tracing-ms`).
//! So the call tree and the flame graph show exact times. *Markers* are the calls themselves, with
//! their instructions; points and losses are markers too.
//!
//! ```json
//! {"meta":{"product":"demo","preprocessedProfileVersion":55,"startTime":1700000000123.457},
//! "threads":[{"name":"demo","samples":{"stack":[0,1],"timeDeltas":[0.000001,0.000004],
//!   "weight":[0.000004,0.000005],"weightType":"tracing-ms","length":2},"markers":{},
//!   "stackTable":{"prefix":[null,0],"frame":[0,1],"length":2}}]}
//! ```
//!
//! A column of a table stands in one piece, so columns wait in a temporary file until all is known.
//! Memory is kept for each distinct call path of a thread and for each function.
//!
//! Written from the format's public description, `docs-developer/processed-profile-format.md`, and its
//! changelog.

mod stacks;
mod tables;

use std::{
    io::{self, Write as _},
    path::Path,
    rc::Rc,
};

use ptrail_pt::{Loss, PerfTime, Picos};
use ptrail_trace::{
    Function, FunctionId, Opened, Point, Recording, SinkError, Source, Span, SpanFlags, SpanSink,
    Track, TrackId, TrackKind,
};

use crate::{
    json::{put, put_text},
    output::{Output, Packing},
    spool::Spool,
    text::{clock_note, flag_names, nanos, point_kind, process_name, provenance},
};
use stacks::Stacks;
use tables::Local;

/// Columns of a thread that wait: which stream of the spool, within the thread's.
mod column {
    /// Of samples, binary.
    pub(super) const STACK: usize = 0;
    pub(super) const TIME: usize = 1;
    pub(super) const WEIGHT: usize = 2;
    /// Of markers, text.
    pub(super) const NAME: usize = 3;
    pub(super) const BEGIN: usize = 4;
    pub(super) const END: usize = 5;
    pub(super) const PHASE: usize = 6;
    pub(super) const DATA: usize = 7;
    pub(super) const COUNT: usize = 8;
}

/// No node of the stacks.
const NO_NODE: u32 = u32::MAX;

/// Phases of markers.
const INSTANT: u8 = 0;
const INTERVAL: u8 = 1;

/// Writes a profile.
pub struct FirefoxWriter {
    output: Output,
    spool: Spool,
    recording: Option<Recording>,
    functions: Vec<Option<Rc<Function>>>,
    tracks: Vec<TrackState>,
    line: Vec<u8>,
}

struct TrackState {
    track: Track,
    stacks: Stacks,
    local: Local,
    markers: u64,
    samples: u64,
    /// Nanoseconds since the base of the last sample's end.
    now: u64,
}

impl FirefoxWriter {
    /// Opens an output; the file appears under `path` in [`SpanSink::finish`].
    ///
    /// # Errors
    /// No temporary file can be made in the folder of `path`, or `path` is a folder.
    pub fn create(path: &Path, packing: Packing) -> Result<Self, SinkError> {
        let output = Output::packed(path, packing)?;
        Ok(Self {
            spool: Spool::new(output.scratch()?),
            output,
            recording: None,
            functions: Vec::new(),
            tracks: Vec::new(),
            line: Vec::with_capacity(512),
        })
    }

    fn state(&mut self, track: TrackId) -> Result<&mut TrackState, SinkError> {
        match self.tracks.get_mut(track.0 as usize) {
            Some(state) => Ok(state),
            None => Err(self.output.unknown_track(track)),
        }
    }

    fn known(&mut self, id: FunctionId) -> Result<Rc<Function>, SinkError> {
        match self.functions.get(id.0 as usize) {
            Some(Some(function)) => Ok(Rc::clone(function)),
            _ => Err(self.output.unknown_function(id)),
        }
    }

    fn append(&mut self, track: TrackId, column: usize, bytes: &[u8]) -> Result<(), SinkError> {
        let stream = track.0 as usize * column::COUNT + column;
        let appended = self.spool.append(stream, bytes);
        appended.map_err(|error| self.output.failed(error))
    }

    /// Ends the current sample: what is open now was open up to `at`.
    fn sample(&mut self, track: TrackId, at: Picos) -> Result<(), SinkError> {
        let at = nanos(PerfTime(0), at);
        let state = self.state(track)?;
        let (from, stack) = (state.now, state.stacks.current());
        if at <= from {
            return Ok(());
        }
        state.now = at;
        self.put_sample(track, stack, from, at - from)
    }

    fn put_sample(
        &mut self,
        track: TrackId,
        stack: u32,
        at: u64,
        weight: u64,
    ) -> Result<(), SinkError> {
        self.state(track)?.samples += 1;
        self.append(track, column::STACK, &stack.to_le_bytes())?;
        self.append(track, column::TIME, &at.to_le_bytes())?;
        self.append(track, column::WEIGHT, &weight.to_le_bytes())
    }

    /// A marker with the data that stand in `line`.
    fn marker(
        &mut self,
        track: TrackId,
        name: &str,
        phase: u8,
        begin: Picos,
        end: Picos,
    ) -> Result<(), SinkError> {
        let state = self.state(track)?;
        state.markers += 1;
        let name = state.local.string(name);
        let data = std::mem::take(&mut self.line);
        let result = self.marker_columns(track, name, phase, begin, end, &data);
        self.line = data;
        result
    }

    fn marker_columns(
        &mut self,
        track: TrackId,
        name: u32,
        phase: u8,
        begin: Picos,
        end: Picos,
        data: &[u8],
    ) -> Result<(), SinkError> {
        let end = match phase {
            INSTANT => ",null".to_owned(),
            _ => format!(",{}", millis(nanos(PerfTime(0), end))),
        };
        let begin = format!(",{}", millis(nanos(PerfTime(0), begin)));
        self.append(track, column::NAME, format!(",{name}").as_bytes())?;
        self.append(track, column::BEGIN, begin.as_bytes())?;
        self.append(track, column::END, end.as_bytes())?;
        self.append(track, column::PHASE, format!(",{phase}").as_bytes())?;
        self.append(track, column::DATA, data)
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.output.write_fmt(text)
    }

    fn write_all(&mut self) -> io::Result<()> {
        self.write_meta()?;
        self.write(format_args!("\"libs\":["))?;
        let libraries = self.libraries();
        for (index, module) in libraries.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            self.line.clear();
            put_text(&mut self.line, module);
            let name = String::from_utf8_lossy(&self.line).into_owned();
            self.write(format_args!(
                "{comma}\n{{\"name\":{name},\"path\":{name},\"debugName\":{name},\"debugPath\":{name},\
                 \"breakpadId\":\"\",\"codeId\":null,\"arch\":\"x86_64\"}}"
            ))?;
        }
        self.write(format_args!("],\n\"threads\":["))?;
        let mut comma = "";
        for track in 0..self.tracks.len() {
            self.write(format_args!("{comma}\n"))?;
            comma = ",";
            self.write_thread(track, &libraries)?;
        }
        self.write(format_args!(
            "],\n\"pages\":[],\"profilerOverhead\":[],\"counters\":[]}}\n"
        ))
    }

    /// Modules, each once.
    fn libraries(&self) -> Vec<String> {
        let modules = self.functions.iter().flatten().map(|f| &f.module);
        let mut libraries: Vec<_> = modules.filter(|module| !module.is_empty()).collect();
        libraries.sort();
        libraries.dedup();
        libraries.into_iter().cloned().collect()
    }

    fn write_meta(&mut self) -> io::Result<()> {
        let (recording, source) = (self.recording.clone(), self.source());
        let (command, start) = recording.map_or((Vec::new(), 0), |recording| {
            let start = recording.wall_clock.unwrap_or(recording.base.0);
            (recording.command, start)
        });
        let command = format!("{}{}", command.join(" "), clock_note(source));
        self.line.clear();
        put_text(&mut self.line, &command);
        let product = String::from_utf8_lossy(&self.line).into_owned();
        // The shortest stretch of time that is told apart, in milliseconds.
        let interval = "0.000001";
        self.write(format_args!(
            "{{\"meta\":{{\"product\":{product},\"oscpu\":\"Linux x86_64\",\"misc\":\"{}\",\
             \"preprocessedProfileVersion\":55,\"version\":24,\"interval\":{interval},\"startTime\":{},\
             \"processType\":0,\"stackwalk\":1,\"debug\":false,\"symbolicated\":true,\
             \"usesOnlyOneStackType\":true,\"sourceCodeIsNotOnSearchfox\":true,\"pausedRanges\":[],\
             \"sampleUnits\":{{\"time\":\"ms\",\"eventDelay\":\"ms\",\"threadCPUDelta\":\"ns\"}},\
             \"categories\":{},\"extensions\":{{\"length\":0,\"baseURL\":[],\"id\":[],\"name\":[]}},\
             \"importedFrom\":\"ptrail {}\",\"markerSchema\":{}}},\n",
            provenance(source),
            millis(start),
            tables::CATEGORIES,
            env!("CARGO_PKG_VERSION"),
            tables::MARKER_SCHEMA,
        ))
    }

    fn write_thread(&mut self, number: usize, libraries: &[String]) -> io::Result<()> {
        let source = self.source();
        let state = &mut self.tracks[number];
        let TrackKind::Thread { pid, tid } = state.track.kind;
        let text = |text: &str| {
            let mut quoted = Vec::new();
            put_text(&mut quoted, text);
            String::from_utf8_lossy(&quoted).into_owned()
        };
        let (name, process) = (
            text(&state.track.name),
            text(&process_name(&state.track, source)),
        );
        let (samples, markers) = (state.samples, state.markers);
        let order = state.stacks.order();
        let stacks = order.json(|function| state.local.frame(function));
        let mut tables = Vec::new();
        state.local.put(&self.functions, libraries, &mut tables);
        let main = pid == tid;
        self.write(format_args!(
            "{{\"name\":{name},\"processName\":{process},\"processType\":\"default\",\"isMainThread\":{main},\
             \"pid\":\"{pid}\",\"tid\":\"{tid}\",\"registerTime\":0,\"unregisterTime\":null,\
             \"processStartupTime\":0,\"processShutdownTime\":null,\"pausedRanges\":[],\
             \"showMarkersInTimeline\":true,\n\"samples\":{{\"length\":{samples},\"weightType\":\"tracing-ms\",\"stack\":["
        ))?;
        let stream = number * column::COUNT;
        self.numbers::<4>(stream + column::STACK, |bytes, _| {
            let old = u32::from_le_bytes(bytes);
            order
                .place(old)
                .map_or("null".to_owned(), |new| new.to_string())
        })?;
        self.write(format_args!("],\"timeDeltas\":["))?;
        self.numbers::<8>(stream + column::TIME, |bytes, before| {
            let at = u64::from_le_bytes(bytes);
            let since = at - std::mem::replace(before, at);
            millis(since)
        })?;
        self.write(format_args!("],\"weight\":["))?;
        self.numbers::<8>(stream + column::WEIGHT, |bytes, _| {
            millis(u64::from_le_bytes(bytes))
        })?;
        self.write(format_args!("]}},\n\"markers\":{{\"length\":{markers}"))?;
        for (key, column) in [
            ("name", column::NAME),
            ("startTime", column::BEGIN),
            ("endTime", column::END),
            ("phase", column::PHASE),
            ("data", column::DATA),
        ] {
            self.write(format_args!(",\"{key}\":["))?;
            self.texts(stream + column)?;
            self.write(format_args!("]"))?;
        }
        self.write(format_args!(",\"category\":["))?;
        for index in 0..markers {
            self.write(format_args!("{}0", if index == 0 { "" } else { "," }))?;
        }
        self.write(format_args!("]}},\n{stacks},\n"))?;
        io::Write::write_all(&mut self.output, &tables)?;
        self.write(format_args!("}}"))
    }

    fn source(&self) -> Source {
        self.recording
            .as_ref()
            .map(|r| r.source)
            .unwrap_or_default()
    }

    /// A column of numbers, each told as text; the second argument is kept between them.
    fn numbers<const SIZE: usize>(
        &mut self,
        stream: usize,
        mut tell: impl FnMut([u8; SIZE], &mut u64) -> String,
    ) -> io::Result<()> {
        let (mut before, mut comma) = (0, "");
        let Self { spool, output, .. } = self;
        spool.take(stream, |bytes| {
            let (numbers, _) = bytes.as_chunks::<SIZE>();
            for number in numbers {
                let text = tell(*number, &mut before);
                write!(output, "{comma}{text}")?;
                comma = ",";
            }
            Ok(())
        })
    }

    /// A column of texts, each with a comma in front.
    fn texts(&mut self, stream: usize) -> io::Result<()> {
        let mut first = true;
        let Self { spool, output, .. } = self;
        spool.take(stream, |bytes| {
            let skipped = usize::from(first && !bytes.is_empty());
            first &= bytes.is_empty();
            io::Write::write_all(output, &bytes[skipped..])
        })
    }
}

/// Nanoseconds as milliseconds, exactly.
fn millis(ns: u64) -> String {
    let (whole, rest) = (ns / 1_000_000, ns % 1_000_000);
    if rest == 0 {
        whole.to_string()
    } else {
        format!("{whole}.{rest:06}")
    }
}

impl SpanSink for FirefoxWriter {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        self.recording = Some(recording.clone());
        Ok(())
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        if track.id.0 as usize != self.tracks.len() {
            return Err(self.output.track_out_of_order(track.id));
        }
        (0..column::COUNT).for_each(|_| self.spool.add());
        self.tracks.push(TrackState {
            track: track.clone(),
            stacks: Stacks::default(),
            local: Local::default(),
            markers: 0,
            samples: 0,
            now: 0,
        });
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
        self.known(opened.function)?;
        self.sample(opened.track, opened.begin)?;
        let state = self.state(opened.track)?;
        state.local.frame(opened.function);
        state.stacks.open(opened);
        Ok(())
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        let function = self.known(span.function)?;
        self.sample(span.track, span.end)?;
        let state = self.state(span.track)?;
        if span.flags.contains(SpanFlags::LATE) {
            state.local.frame(span.function);
            state.stacks.late(span);
        } else if !state.stacks.close(span) {
            return Err(self.output.nothing_open(span.track));
        }
        let line = &mut self.line;
        line.clear();
        put(
            line,
            format_args!(
                ",\n{{\"type\":\"call\",\"instructions\":{},\"self_instructions\":{}",
                span.instructions, span.self_instructions
            ),
        );
        if !span.flags.is_empty() {
            put(
                line,
                format_args!(",\"flags\":\"{}\"", flag_names(span.flags)),
            );
        }
        if let Some(ip) = span.call_site {
            put(line, format_args!(",\"call_site\":\"{ip:#x}\""));
        }
        line.push(b'}');
        let (begin, end) = (span.begin, span.end);
        self.marker(span.track, &function.name, INTERVAL, begin, end)
    }

    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        self.line.clear();
        let kind = point_kind(point.kind);
        put(
            &mut self.line,
            format_args!(",\n{{\"type\":\"point\",\"kind\":\"{kind}\",\"text\":"),
        );
        put_text(&mut self.line, &point.text);
        self.line.push(b'}');
        self.marker(point.track, kind, INSTANT, point.at, point.at)
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        self.sample(track, loss.begin)?;
        let lost_until = nanos(PerfTime(0), loss.end.max(loss.begin));
        let state = self.state(track)?;
        if state.stacks.lose() {
            // Of that time nothing is known.
            state.now = state.now.max(lost_until);
        }
        self.line.clear();
        let cause = loss.cause.name();
        put(
            &mut self.line,
            format_args!(
                ",\n{{\"type\":\"loss\",\"cause\":\"{cause}\",\"bytes\":{},\"reason\":",
                loss.bytes
            ),
        );
        put_text(&mut self.line, &loss.reason);
        self.line.push(b'}');
        let (begin, end) = (loss.begin, loss.end.max(loss.begin));
        self.marker(track, &format!("lost: {cause}"), INTERVAL, begin, end)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        for number in 0..self.tracks.len() {
            // A sample without a stack says where the last one ends.
            let now = self.tracks[number].now;
            if now > 0 {
                self.put_sample(TrackId(number as u32), NO_NODE, now, 0)?;
            }
        }
        let written = self.write_all();
        written.map_err(|error| self.output.failed(error))?;
        self.output.finish()
    }
}
