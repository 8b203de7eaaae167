//! Chrome's trace event format: one JSON object, an array of events in it.
//!
//! ```json
//! {"displayTimeUnit":"ns","traceEvents":[
//! {"ph":"M","pid":7,"tid":7,"name":"thread_name","args":{"name":"demo"}},
//! {"ph":"B","pid":7,"tid":7,"ts":0.001,"name":"main","args":{"address":"0x401000","module":"demo"}},
//! {"ph":"E","pid":7,"tid":7,"ts":0.009,"name":"main","args":{"instructions":12,"self_instructions":12}}
//! ],"otherData":{"source":"hardware trace"}}
//! ```
//!
//! Times are microseconds of the perf clock with three decimals, written from whole nanoseconds,
//! not through floating point. Readers that go through a `double` keep them exact up to 2⁵³ ns,
//! 104 days.
//!
//! Losses are asynchronous events (`b`, `e`) with an id each, so they may overlap; points are
//! instants of their process. Depth is not limited here, but Perfetto shows no more than 512
//! levels of a thread; its own format has a way round that.

use std::{collections::BTreeSet, path::Path};

use ptrail_pt::{Ip, Loss, PerfTime, Picos};
use ptrail_trace::{
    Function, FunctionId, Opened, Point, Recording, SinkError, Source, Span, SpanFlags, SpanSink,
    Track, TrackId, TrackKind,
};

use crate::{
    json::{put, put_text},
    output::Output,
    parts::Parts,
    text::{flag_names, nanos, point_track, process_name, provenance},
};

/// Writes a Chrome trace event `.json` file.
pub struct ChromeWriter {
    output: Output,
    base: PerfTime,
    /// What ends the file, from the recording.
    other_data: Vec<(&'static str, String)>,
    source: Source,
    functions: Vec<Option<Named>>,
    tracks: Vec<TrackState>,
    processes: BTreeSet<u32>,
    losses: u64,
    /// The event being written.
    line: Vec<u8>,
}

/// A function's JSON, ready to be put in.
struct Named {
    /// The quoted name.
    name: Vec<u8>,
    /// Members of `args`, without a comma at the end.
    args: Vec<u8>,
}

struct TrackState {
    pid: u32,
    tid: u32,
    name: String,
    parts: Parts,
}

impl ChromeWriter {
    /// Opens an output; the file appears under `path` in [`SpanSink::finish`].
    ///
    /// # Errors
    /// No temporary file can be made in the folder of `path`, or `path` is a folder.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        let mut output = Output::create(path)?;
        output.write(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Self {
            output,
            base: PerfTime(0),
            other_data: Vec::new(),
            source: Source::default(),
            functions: Vec::new(),
            tracks: Vec::new(),
            processes: BTreeSet::new(),
            losses: 0,
            line: Vec::with_capacity(512),
        })
    }

    fn state(&mut self, track: TrackId) -> Result<&mut TrackState, SinkError> {
        match self.tracks.get_mut(track.0 as usize) {
            Some(state) => Ok(state),
            None => Err(self.output.unknown_track(track)),
        }
    }

    /// Begins a line: phase and place. The comma in front is what makes an event inserted anywhere
    /// behind the first leave the JSON valid.
    fn start(&mut self, phase: &str, pid: u32, tid: u32) {
        self.line.clear();
        let first = self.tracks.is_empty() && self.processes.is_empty() && self.losses == 0;
        if !first {
            self.line.push(b',');
        }
        self.put(format_args!(
            "\n{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid}"
        ));
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        put(&mut self.line, text);
    }

    fn put_time(&mut self, at: Picos) {
        let ns = nanos(self.base, at);
        self.put(format_args!(",\"ts\":{}.{:03}", ns / 1000, ns % 1000));
    }

    fn put_text(&mut self, text: &str) {
        put_text(&mut self.line, text);
    }

    fn metadata(
        &mut self,
        pid: u32,
        tid: u32,
        name: &str,
        key: &str,
        value: &str,
    ) -> Result<(), SinkError> {
        self.start("M", pid, tid);
        self.put(format_args!(",\"name\":\"{name}\",\"args\":{{\"{key}\":"));
        self.put_text(value);
        self.line.extend_from_slice(b"}}");
        self.output.write(&self.line)
    }

    /// Makes the line a span's begin. Its arguments are what is known when it is entered.
    fn begin_line(
        &mut self,
        track: TrackId,
        function: FunctionId,
        at: Picos,
        call_site: Option<Ip>,
    ) -> Result<(), SinkError> {
        let &mut TrackState { pid, tid, .. } = self.state(track)?;
        self.start("B", pid, tid);
        self.put_time(at);
        let Some(Some(named)) = self.functions.get(function.0 as usize) else {
            return Err(self.output.unknown_function(function));
        };
        self.line.extend_from_slice(b",\"name\":");
        self.line.extend_from_slice(&named.name);
        self.line.extend_from_slice(b",\"args\":{");
        self.line.extend_from_slice(&named.args);
        if let Some(ip) = call_site {
            self.put(format_args!(",\"call_site\":\"{ip:#x}\""));
        }
        self.line.extend_from_slice(b"}}");
        Ok(())
    }
}

impl SpanSink for ChromeWriter {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        self.base = recording.base;
        self.source = recording.source;
        self.other_data = vec![
            ("source", provenance(recording.source).to_owned()),
            ("command", recording.command.join(" ")),
            ("base_ns", recording.base.0.to_string()),
        ];
        self.other_data.extend(
            recording
                .wall_clock
                .map(|at| ("base_unix_ns", at.to_string())),
        );
        Ok(())
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        let TrackKind::Thread { pid, tid } = track.kind;
        if track.id.0 as usize != self.tracks.len() {
            return Err(self.output.track_out_of_order(track.id));
        }
        if !self.processes.contains(&pid) {
            let name = process_name(track, self.source);
            self.metadata(pid, tid, "process_name", "name", &name)?;
            self.processes.insert(pid);
        }
        self.metadata(pid, tid, "thread_name", "name", &track.name)?;
        self.tracks.push(TrackState {
            pid,
            tid,
            name: track.name.clone(),
            parts: Parts::default(),
        });
        Ok(())
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        let mut named = Named {
            name: Vec::new(),
            args: Vec::new(),
        };
        put_text(&mut named.name, &function.name);
        put(
            &mut named.args,
            format_args!("\"address\":\"{:#x}\"", function.address),
        );
        if !function.module.is_empty() {
            named.args.extend_from_slice(b",\"module\":");
            put_text(&mut named.args, &function.module);
        }
        if let Some(mangled) = function
            .mangled
            .as_ref()
            .filter(|mangled| **mangled != function.name)
        {
            named.args.extend_from_slice(b",\"mangled_name\":");
            put_text(&mut named.args, mangled);
        }
        if let Some(source) = &function.source {
            named.args.extend_from_slice(b",\"source.file_name\":");
            put_text(&mut named.args, &source.file);
            put(
                &mut named.args,
                format_args!(",\"source.line_number\":{}", source.line),
            );
        }
        let index = function.id.0 as usize;
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, || None);
        }
        self.functions[index] = Some(named);
        Ok(())
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        let position = self.output.position();
        self.state(opened.track)?.parts.open(opened, position);
        self.begin_line(
            opened.track,
            opened.function,
            opened.begin,
            opened.call_site,
        )?;
        self.output.write(&self.line)
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        let position = self.output.position();
        let state = self.state(span.track)?;
        let (pid, tid) = (state.pid, state.tid);
        if span.flags.contains(SpanFlags::LATE) {
            let place = state.parts.late(span, position);
            self.begin_line(span.track, span.function, span.begin, span.call_site)?;
            self.output.insert(place, &self.line);
        } else if state.parts.close(span).is_none() {
            return Err(self.output.nothing_open(span.track));
        }
        self.start("E", pid, tid);
        self.put_time(span.end);
        let Some(Some(named)) = self.functions.get(span.function.0 as usize) else {
            return Err(self.output.unknown_function(span.function));
        };
        self.line.extend_from_slice(b",\"name\":");
        self.line.extend_from_slice(&named.name);
        let (all, own) = (span.instructions, span.self_instructions);
        self.put(format_args!(
            ",\"args\":{{\"instructions\":{all},\"self_instructions\":{own}"
        ));
        if !span.flags.is_empty() {
            self.put(format_args!(",\"flags\":\"{}\"", flag_names(span.flags)));
        }
        self.line.extend_from_slice(b"}}");
        self.output.write(&self.line)
    }

    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        let state = self.state(point.track)?;
        let (pid, tid, thread) = (state.pid, state.tid, state.name.clone());
        self.start("i", pid, tid);
        self.put_time(point.at);
        self.line.extend_from_slice(b",\"s\":\"p\",\"name\":");
        self.put_text(&point.text);
        self.put(format_args!(
            ",\"cat\":\"{}\",\"args\":{{\"thread\":",
            point_track(point.kind)
        ));
        self.put_text(&format!("{thread} {tid}"));
        self.line.extend_from_slice(b"}}");
        self.output.write(&self.line)
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        let state = self.state(track)?;
        state.parts.lose();
        let (pid, tid, thread) = (state.pid, state.tid, state.name.clone());
        let id = self.losses;
        for (phase, at) in [("b", loss.begin), ("e", loss.end.max(loss.begin))] {
            self.start(phase, pid, tid);
            self.put_time(at);
            let name = loss.cause.name();
            self.put(format_args!(
                ",\"cat\":\"trace losses\",\"id2\":{{\"local\":\"{id:#x}\"}}"
            ));
            self.put(format_args!(",\"name\":\"lost: {name}\""));
            if phase == "b" {
                self.put(format_args!(
                    ",\"args\":{{\"cause\":\"{name}\",\"bytes\":{},\"reason\":",
                    loss.bytes
                ));
                self.put_text(&loss.reason);
                self.line.extend_from_slice(b",\"thread\":");
                self.put_text(&format!("{thread} {tid}"));
                self.put(format_args!(",\"trace_offset\":\"{:#x}\"", loss.offset.0));
                if let Some(ip) = loss.ip {
                    self.put(format_args!(",\"address\":\"{ip:#x}\""));
                }
                self.line.push(b'}');
            }
            self.line.push(b'}');
            self.output.write(&self.line)?;
        }
        self.losses += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.line.clear();
        self.line.extend_from_slice(b"\n],\"otherData\":{");
        for (index, (key, value)) in std::mem::take(&mut self.other_data).into_iter().enumerate() {
            self.put(format_args!(
                "{}\"{key}\":",
                if index == 0 { "" } else { "," }
            ));
            self.put_text(&value);
        }
        self.line.extend_from_slice(b"}}\n");
        self.output.write(&self.line)?;
        self.output.finish()
    }
}
