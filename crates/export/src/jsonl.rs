//! JSON lines: everything the decoder says, one object a line, for scripts.
//!
//! ```json
//! {"type":"recording","source":"hardware","command":["demo"],"base_ns":75632000000000,"base_unix_ns":null}
//! {"type":"track","track":0,"pid":7,"tid":7,"name":"demo","process":"demo"}
//! {"type":"function","function_id":0,"name":"main","mangled":null,"module":"demo","address":"0x401000","file":null,"line":null}
//! {"type":"span","track":0,"pid":7,"tid":7,"begin_ps":1000,"duration_ps":8999,"depth":0,"function_id":0,"function":"main","module":"demo","address":"0x401000","call_site":null,"instructions":12,"self_instructions":12,"flags":["cut"]}
//! {"type":"rate","track":0,"pid":7,"tid":7,"begin_ps":0,"duration_ps":9999,"instructions":12}
//! {"type":"point","track":0,"pid":7,"tid":7,"at_ps":3500,"kind":"signal","text":"SIGUSR1"}
//! {"type":"loss","track":0,"pid":7,"tid":7,"begin_ps":9999,"duration_ps":0,"cause":"overflow","bytes":0,"offset":"0x1234","address":null,"reason":"the buffer was full"}
//! ```
//!
//! Lines stand in the order of the stream: a track and a function before they are referred to,
//! spans in the order of their ends, so a span comes after all spans within it. Times are whole
//! picoseconds since the base, the only format here that does not round them. Addresses are
//! hexadecimal text, because many readers of JSON keep 53 bits of a number. What is not known is
//! `null`; nothing is left out.

use std::path::Path;

use ptrail_pt::{Ip, Loss};
use ptrail_trace::{
    Function, FunctionId, Opened, Point, Rate, Recording, SinkError, Source, Span, SpanFlags,
    SpanSink, Track, TrackId, TrackKind,
};

use crate::{
    json::{put, put_text},
    output::Output,
    text::point_kind,
};

/// Writes a `.jsonl` file.
pub struct JsonLinesWriter {
    output: Output,
    /// Each function's members of a span's line.
    functions: Vec<Option<Vec<u8>>>,
    tracks: Vec<TrackState>,
    /// The line being written.
    line: Vec<u8>,
}

struct TrackState {
    /// Members that say which track it is.
    members: Vec<u8>,
    /// Functions open on it.
    open: u64,
}

impl JsonLinesWriter {
    /// Opens an output; the file appears under `path` in [`SpanSink::finish`].
    ///
    /// # Errors
    /// No temporary file can be made in the folder of `path`, or `path` is a folder.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        Ok(Self {
            output: Output::create(path)?,
            functions: Vec::new(),
            tracks: Vec::new(),
            line: Vec::with_capacity(512),
        })
    }

    fn start(&mut self, kind: &str) {
        self.line.clear();
        self.put(format_args!("{{\"type\":\"{kind}\""));
    }

    fn start_on(&mut self, kind: &str, track: TrackId) -> Result<(), SinkError> {
        self.start(kind);
        let Some(state) = self.tracks.get(track.0 as usize) else {
            return Err(self.output.unknown_track(track));
        };
        self.line.extend_from_slice(&state.members);
        Ok(())
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        put(&mut self.line, text);
    }

    fn end(&mut self) -> Result<(), SinkError> {
        self.line.extend_from_slice(b"}\n");
        self.output.write(&self.line)
    }

    fn check(&mut self, function: FunctionId) -> Result<(), SinkError> {
        match self.functions.get(function.0 as usize) {
            Some(Some(_)) => Ok(()),
            _ => Err(self.output.unknown_function(function)),
        }
    }

    /// Keeps the number of open functions, so that a stream that does not nest is refused.
    fn enter_or_leave(&mut self, track: TrackId, enters: bool) -> Result<(), SinkError> {
        let Some(state) = self.tracks.get_mut(track.0 as usize) else {
            return Err(self.output.unknown_track(track));
        };
        if enters {
            state.open += 1;
        } else if state.open > 0 {
            state.open -= 1;
        } else {
            return Err(self.output.nothing_open(track));
        }
        Ok(())
    }
}

impl SpanSink for JsonLinesWriter {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        self.start("recording");
        let source = match recording.source {
            Source::Hardware => "hardware",
            Source::Software => "software",
        };
        self.put(format_args!(",\"source\":\"{source}\",\"command\":["));
        for (index, word) in recording.command.iter().enumerate() {
            if index > 0 {
                self.line.push(b',');
            }
            put_text(&mut self.line, word);
        }
        self.put(format_args!("],\"base_ns\":{}", recording.base.0));
        match recording.wall_clock {
            Some(at) => self.put(format_args!(",\"base_unix_ns\":{at}")),
            None => self.put(format_args!(",\"base_unix_ns\":null")),
        }
        self.end()
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        let TrackKind::Thread { pid, tid } = track.kind;
        if track.id.0 as usize != self.tracks.len() {
            return Err(self.output.track_out_of_order(track.id));
        }
        let mut members = Vec::new();
        let id = track.id.0;
        put(
            &mut members,
            format_args!(",\"track\":{id},\"pid\":{pid},\"tid\":{tid}"),
        );
        self.tracks.push(TrackState { members, open: 0 });
        self.start_on("track", track.id)?;
        self.line.extend_from_slice(b",\"name\":");
        put_text(&mut self.line, &track.name);
        self.line.extend_from_slice(b",\"process\":");
        put_text(&mut self.line, &track.process);
        self.end()
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        let (id, address) = (function.id.0, function.address);
        let mut members = Vec::new();
        put(
            &mut members,
            format_args!(",\"function_id\":{id},\"function\":"),
        );
        put_text(&mut members, &function.name);
        let mut place = b",\"module\":".to_vec();
        put_text(&mut place, &function.module);
        put(&mut place, format_args!(",\"address\":\"{address:#x}\""));
        members.extend_from_slice(&place);
        let index = id as usize;
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, || None);
        }
        self.functions[index] = Some(members);

        self.start("function");
        self.put(format_args!(",\"function_id\":{id},\"name\":"));
        put_text(&mut self.line, &function.name);
        self.line.extend_from_slice(b",\"mangled\":");
        match &function.mangled {
            Some(mangled) => put_text(&mut self.line, mangled),
            None => self.line.extend_from_slice(b"null"),
        }
        self.line.extend_from_slice(&place);
        self.line.extend_from_slice(b",\"file\":");
        match &function.source {
            Some(source) => {
                put_text(&mut self.line, &source.file);
                self.put(format_args!(",\"line\":{}", source.line));
            }
            None => self.line.extend_from_slice(b"null,\"line\":null"),
        }
        self.end()
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        self.check(opened.function)?;
        self.enter_or_leave(opened.track, true)
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        if !span.flags.contains(SpanFlags::LATE) {
            self.enter_or_leave(span.track, false)?;
        }
        self.start_on("span", span.track)?;
        let (begin, duration) = (span.begin.0, span.end.0.saturating_sub(span.begin.0));
        let depth = span.depth;
        self.put(format_args!(
            ",\"begin_ps\":{begin},\"duration_ps\":{duration},\"depth\":{depth}"
        ));
        self.check(span.function)?;
        if let Some(Some(members)) = self.functions.get(span.function.0 as usize) {
            self.line.extend_from_slice(members);
        }
        self.put_address("call_site", span.call_site);
        let (all, own) = (span.instructions, span.self_instructions);
        self.put(format_args!(
            ",\"instructions\":{all},\"self_instructions\":{own},\"flags\":["
        ));
        for (index, flag) in span.flags.names().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            self.put(format_args!("{comma}\"{flag}\""));
        }
        self.line.push(b']');
        self.end()
    }

    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        self.start_on("point", point.track)?;
        let (at, kind) = (point.at.0, point_kind(point.kind));
        self.put(format_args!(
            ",\"at_ps\":{at},\"kind\":\"{kind}\",\"text\":"
        ));
        put_text(&mut self.line, &point.text);
        self.end()
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        self.start_on("loss", track)?;
        let (begin, duration) = (loss.begin.0, loss.end.0.saturating_sub(loss.begin.0));
        let (cause, bytes, offset) = (loss.cause.name(), loss.bytes, loss.offset.0);
        self.put(format_args!(
            ",\"begin_ps\":{begin},\"duration_ps\":{duration},\"cause\":\"{cause}\""
        ));
        self.put(format_args!(
            ",\"bytes\":{bytes},\"offset\":\"{offset:#x}\""
        ));
        self.put_address("address", loss.ip);
        self.line.extend_from_slice(b",\"reason\":");
        put_text(&mut self.line, &loss.reason);
        self.end()
    }

    fn rate(&mut self, rate: &Rate) -> Result<(), SinkError> {
        self.start_on("rate", rate.track)?;
        let (begin, duration) = (rate.begin.0, rate.end.0.saturating_sub(rate.begin.0));
        self.put(format_args!(
            ",\"begin_ps\":{begin},\"duration_ps\":{duration},\"instructions\":{}",
            rate.instructions
        ));
        self.end()
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.output.finish()
    }
}

impl JsonLinesWriter {
    fn put_address(&mut self, key: &str, ip: Option<Ip>) {
        match ip {
            Some(ip) => self.put(format_args!(",\"{key}\":\"{ip:#x}\"")),
            None => self.put(format_args!(",\"{key}\":null")),
        }
    }
}
