//! From the span stream to spans that know their parents.

use std::{collections::VecDeque, rc::Rc};

use ptrail_pt::{Loss, Picos};
use ptrail_trace::{
    Function, FunctionId, Opened, Point, Recording, SinkError, Span, SpanFlags, Track, TrackId,
    TrackKind,
};

use super::{About, Encoder, TraceParent};
use crate::{
    output::Output,
    text::{flag_names, point_kind, process_name, provenance},
};

/// Parts whose late callers may still come; as many as timelines remember.
const REMEMBERED: usize = 16;

/// A span that is complete.
pub(super) struct Node<'a> {
    pub(super) id: u64,
    pub(super) parent: Option<u64>,
    pub(super) name: &'a str,
    /// Nanoseconds since the Unix epoch.
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) attributes: Vec<(&'static str, Value<'a>)>,
}

/// The value of an attribute.
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(u64),
    Address(u64),
}

pub(super) struct Tree {
    parent: Option<TraceParent>,
    trace: u128,
    /// What ids are drawn from.
    seed: u64,
    drawn: u64,
    root: u64,
    recording: Option<Recording>,
    /// Nanoseconds since the Unix epoch at picosecond zero.
    epoch: u64,
    functions: Vec<Option<Rc<Function>>>,
    tracks: Vec<TrackState>,
    last: Picos,
}

struct TrackState {
    tid: u32,
    pid: u32,
    name: String,
    process: String,
    /// The ids of what is open.
    open: Vec<u64>,
    parts: VecDeque<Part>,
    /// A loss came, so the next event is a part's first.
    lost: bool,
    last: Picos,
}

/// A part of a track, between losses.
struct Part {
    /// The id of whatever will enclose all that it has.
    around: u64,
    /// Time of the last event before it.
    earliest: Picos,
    begin: Picos,
    end: Picos,
}

/// A step of Steele, Lea and Flood's SplitMix64: numbers that look random from numbers in a row.
fn scatter(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Tree {
    pub(super) fn new(parent: Option<TraceParent>) -> Self {
        Self {
            parent,
            trace: 0,
            seed: 0,
            drawn: 0,
            root: 0,
            recording: None,
            epoch: 0,
            functions: Vec::new(),
            tracks: Vec::new(),
            last: Picos(0),
        }
    }

    /// A new id; never 0, which means none.
    fn draw(&mut self) -> u64 {
        loop {
            self.drawn += 1;
            let id = scatter(self.seed, self.drawn);
            if id != 0 {
                return id;
            }
        }
    }

    pub(super) fn begin(&mut self, recording: &Recording) -> About {
        self.epoch = recording.wall_clock.unwrap_or(recording.base.0);
        let of_command = recording.command.iter().flat_map(|word| word.bytes());
        self.seed = of_command.fold(scatter(self.epoch, recording.base.0), |seed, byte| {
            scatter(seed, u64::from(byte))
        });
        if let Some(parent) = self.parent {
            // The same capture in another trace has other spans.
            self.seed = scatter(self.seed, parent.span);
        }
        let (upper, lower) = (self.draw(), self.draw());
        let own = u128::from(upper) << 64 | u128::from(lower);
        self.trace = self.parent.map_or(own, |parent| parent.trace);
        self.root = self.draw();
        self.recording = Some(recording.clone());
        let program = recording.command.first().map_or("", String::as_str);
        let name = program.rsplit('/').next().unwrap_or_default();
        About {
            trace: self.trace,
            service: if name.is_empty() { "ptrail" } else { name }.to_owned(),
            source: provenance(recording.source),
        }
    }

    pub(super) fn track(&mut self, track: &Track, output: &mut Output) -> Result<(), SinkError> {
        let TrackKind::Thread { pid, tid } = track.kind;
        if track.id.0 as usize != self.tracks.len() {
            return Err(output.track_out_of_order(track.id));
        }
        let source = self.recording.as_ref().map(|recording| recording.source);
        self.tracks.push(TrackState {
            tid,
            pid,
            name: track.name.clone(),
            process: process_name(track, source.unwrap_or_default()),
            open: Vec::new(),
            parts: VecDeque::new(),
            lost: false,
            last: Picos(0),
        });
        Ok(())
    }

    pub(super) fn function(&mut self, function: &Function) {
        let index = function.id.0 as usize;
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, || None);
        }
        self.functions[index] = Some(Rc::new(function.clone()));
    }

    fn known(&self, id: FunctionId, output: &mut Output) -> Result<Rc<Function>, SinkError> {
        match self.functions.get(id.0 as usize) {
            Some(Some(function)) => Ok(Rc::clone(function)),
            _ => Err(output.unknown_function(id)),
        }
    }

    fn check(&self, track: TrackId, output: &mut Output) -> Result<usize, SinkError> {
        match self.tracks.get(track.0 as usize) {
            Some(_) => Ok(track.0 as usize),
            None => Err(output.unknown_track(track)),
        }
    }

    fn unix(&self, at: Picos) -> u64 {
        self.epoch.saturating_add(at.0 / 1000)
    }

    /// Begins a part if one must begin, and takes in the time of an event.
    fn event(
        &mut self,
        track: usize,
        unseen: bool,
        begin: Picos,
        end: Picos,
        (output, encoder): (&mut Output, &mut dyn Encoder),
    ) -> Result<(), SinkError> {
        let state = &self.tracks[track];
        if unseen || state.lost || state.parts.is_empty() {
            let forgotten = state.parts.len() == REMEMBERED;
            if forgotten && let Some(part) = self.tracks[track].parts.pop_front() {
                self.tell_thread(track, &part, output, encoder)?;
            }
            let around = self.draw();
            let state = &mut self.tracks[track];
            state.lost = false;
            state.parts.push_back(Part {
                around,
                earliest: state.last,
                begin: begin.max(state.last),
                end,
            });
        }
        self.last = self.last.max(end);
        let state = &mut self.tracks[track];
        state.last = state.last.max(end);
        if let Some(part) = state.parts.back_mut() {
            part.end = part.end.max(end);
        }
        Ok(())
    }

    pub(super) fn open(
        &mut self,
        opened: &Opened,
        output: &mut Output,
        encoder: &mut dyn Encoder,
    ) -> Result<(), SinkError> {
        let track = self.check(opened.track, output)?;
        let unseen =
            self.tracks[track].open.is_empty() && opened.flags.contains(SpanFlags::INFERRED);
        let (begin, out) = (opened.begin, (output, encoder));
        self.event(track, unseen, begin, begin, out)?;
        let id = self.draw();
        self.tracks[track].open.push(id);
        Ok(())
    }

    pub(super) fn span(
        &mut self,
        span: &Span,
        output: &mut Output,
        encoder: &mut dyn Encoder,
    ) -> Result<(), SinkError> {
        let track = self.check(span.track, output)?;
        let function = self.known(span.function, output)?;
        self.event(track, false, span.begin, span.end, (output, encoder))?;
        let (id, parent) = if span.flags.contains(SpanFlags::LATE) {
            self.late(track, span, output, encoder)?
        } else {
            let state = &mut self.tracks[track];
            let Some(id) = state.open.pop() else {
                return Err(output.nothing_open(span.track));
            };
            let around = state.parts.back().map(|part| part.around);
            (id, state.open.last().copied().or(around))
        };
        let flags = flag_names(span.flags);
        let state = &self.tracks[track];
        let mut attributes = thread_attributes(state);
        attributes.extend([
            ("code.function.name", Value::Text(&function.name)),
            ("ptrail.address", Value::Address(function.address.0)),
            ("ptrail.instructions", Value::Number(span.instructions)),
            (
                "ptrail.self_instructions",
                Value::Number(span.self_instructions),
            ),
        ]);
        if let Some(source) = &function.source {
            attributes.push(("code.file.path", Value::Text(&source.file)));
            attributes.push(("code.line.number", Value::Number(source.line.into())));
        }
        let texts = [
            ("ptrail.module", &*function.module),
            (
                "ptrail.mangled_name",
                function.mangled.as_deref().unwrap_or(""),
            ),
            ("ptrail.flags", &flags),
        ];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        attributes.extend(texts.map(|(key, text)| (key, Value::Text(text))));
        if let Some(ip) = span.call_site {
            attributes.push(("ptrail.call_site", Value::Address(ip.0)));
        }
        let node = Node {
            id,
            parent,
            name: &function.name,
            begin: self.unix(span.begin),
            end: self.unix(span.end),
            attributes,
        };
        encoder.span(&node, output)
    }

    /// A late caller takes the id that its part was waiting for, and leaves another. Parts within it
    /// that were not its own get a span of the thread each.
    fn late(
        &mut self,
        track: usize,
        span: &Span,
        output: &mut Output,
        encoder: &mut dyn Encoder,
    ) -> Result<(u64, Option<u64>), SinkError> {
        let around = self.draw();
        let parts = &mut self.tracks[track].parts;
        let fits = |part: &Part| part.earliest <= span.begin;
        let first = parts.iter().rposition(fits).unwrap_or(0);
        let within = parts.split_off((first + 1).min(parts.len()));
        let Some(part) = parts.back_mut() else {
            return Ok((around, Some(self.root)));
        };
        let id = std::mem::replace(&mut part.around, around);
        part.begin = part.begin.min(span.begin);
        part.end = part.end.max(span.end);
        for part in within {
            self.tell_thread_in(track, &part, id, output, encoder)?;
        }
        Ok((id, Some(around)))
    }

    /// What encloses all of a part, if no late caller did.
    fn tell_thread(
        &mut self,
        track: usize,
        part: &Part,
        output: &mut Output,
        encoder: &mut dyn Encoder,
    ) -> Result<(), SinkError> {
        self.tell_thread_in(track, part, self.root, output, encoder)
    }

    fn tell_thread_in(
        &self,
        track: usize,
        part: &Part,
        parent: u64,
        output: &mut Output,
        encoder: &mut dyn Encoder,
    ) -> Result<(), SinkError> {
        let state = &self.tracks[track];
        let name = format!("thread {} {}", state.name, state.tid);
        let mut attributes = thread_attributes(state);
        attributes.push(("ptrail.process", Value::Text(&state.process)));
        let node = Node {
            id: part.around,
            parent: Some(parent),
            name: &name,
            begin: self.unix(part.begin),
            end: self.unix(part.end),
            attributes,
        };
        encoder.span(&node, output)
    }

    pub(super) fn point(
        &mut self,
        point: &Point,
        output: &mut Output,
        encoder: &mut dyn Encoder,
    ) -> Result<(), SinkError> {
        let track = self.check(point.track, output)?;
        let id = self.draw();
        self.last = self.last.max(point.at);
        let state = &self.tracks[track];
        let mut attributes = thread_attributes(state);
        attributes.push(("ptrail.event", Value::Text(point_kind(point.kind))));
        let at = self.unix(point.at);
        let node = Node {
            id,
            parent: Some(state.open.last().copied().unwrap_or(self.root)),
            name: &point.text,
            begin: at,
            end: at,
            attributes,
        };
        encoder.span(&node, output)
    }

    pub(super) fn loss(
        &mut self,
        track: TrackId,
        loss: &Loss,
        output: &mut Output,
        encoder: &mut dyn Encoder,
    ) -> Result<(), SinkError> {
        let track = self.check(track, output)?;
        let id = self.draw();
        let end = loss.end.max(loss.begin);
        self.last = self.last.max(end);
        let state = &mut self.tracks[track];
        state.lost = state.open.is_empty();
        let state = &self.tracks[track];
        let name = format!("lost: {}", loss.cause.name());
        let mut attributes = thread_attributes(state);
        attributes.extend([
            ("ptrail.event", Value::Text("loss")),
            ("ptrail.cause", Value::Text(loss.cause.name())),
            ("ptrail.reason", Value::Text(&loss.reason)),
            ("ptrail.bytes", Value::Number(loss.bytes)),
            ("ptrail.trace_offset", Value::Address(loss.offset.0)),
        ]);
        let node = Node {
            id,
            parent: Some(self.root),
            name: &name,
            begin: self.unix(loss.begin),
            end: self.unix(end),
            attributes,
        };
        encoder.span(&node, output)
    }

    pub(super) fn finish(
        &mut self,
        output: &mut Output,
        encoder: &mut dyn Encoder,
    ) -> Result<(), SinkError> {
        for track in 0..self.tracks.len() {
            for part in std::mem::take(&mut self.tracks[track].parts) {
                self.tell_thread(track, &part, output, encoder)?;
            }
        }
        let recording = self.recording.take();
        let command = recording.map_or(Vec::new(), |recording| recording.command);
        let command = command.join(" ");
        let node = Node {
            id: self.root,
            parent: self.parent.map(|parent| parent.span),
            name: if command.is_empty() {
                "recording"
            } else {
                &command
            },
            begin: self.epoch,
            end: self.unix(self.last),
            attributes: Vec::new(),
        };
        encoder.span(&node, output)
    }
}

fn thread_attributes(state: &TrackState) -> Vec<(&'static str, Value<'_>)> {
    vec![
        ("thread.id", Value::Number(state.tid.into())),
        ("thread.name", Value::Text(&state.name)),
        ("process.pid", Value::Number(state.pid.into())),
    ]
}
