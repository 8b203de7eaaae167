//! From the span stream to packets.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use ptrail_pt::{Loss, PerfTime, Picos};
use ptrail_trace::{
    Function, FunctionId, Opened, Point, PointKind, Rate, Recording, SinkError, Source, Span,
    SpanFlags, SpanSink, Track, TrackId, TrackKind,
};

use super::{
    args::Arg,
    event::{Event, sequence_fields},
    names::{Known, Named, Names},
    packets::{
        band_descriptor, band_of, common_descriptor, common_event, common_start, instant,
        loss_args, losses_descriptor, named_descriptor, process_descriptor, rate_descriptor,
        rate_event, sequence, thread_descriptor, track_start, uuid,
    },
    proto::{TYPE_SLICE_BEGIN, TYPE_SLICE_END, TracePacket, TrackDescriptor, TrackEvent},
};
use crate::{
    output::Output,
    parts::Parts,
    text::{flag_names, nanos, point_track, provenance},
};

/// Writes a `.pftrace` file.
pub struct PerfettoWriter {
    output: Output,
    base: PerfTime,
    source: Source,
    names: Names,
    tracks: Vec<TrackState>,
    processes: BTreeSet<u32>,
    /// Rank of each kind of point, by the name of its track.
    point_ranks: BTreeMap<&'static str, u64>,
    point_tracks: BTreeSet<u64>,
    /// The call's begin or end that is being put together.
    event: Event,
    /// The packet being encoded.
    bytes: Vec<u8>,
}

struct TrackState {
    pid: u32,
    label: String,
    /// What each packet of its sequence ends with.
    sequence: Vec<u8>,
    /// File position behind its descriptor.
    announced: u64,
    /// The sequence clock: perf-clock nanoseconds of its last event.
    clock: u64,
    known: Known,
    parts: Parts,
    bands: BTreeSet<i64>,
    /// End of the losses shown so far, once there are any.
    lost_until: Option<u64>,
    /// End of the rates shown so far, once there are any.
    rated_until: Option<Picos>,
}

impl PerfettoWriter {
    /// Opens an output; the file appears under `path` in [`SpanSink::finish`].
    ///
    /// # Errors
    /// No temporary file can be made in the folder of `path`, or `path` is a folder.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        Ok(Self {
            output: Output::create(path)?,
            base: PerfTime(0),
            source: Source::default(),
            names: Names::default(),
            tracks: Vec::new(),
            processes: BTreeSet::new(),
            point_ranks: BTreeMap::new(),
            point_tracks: BTreeSet::new(),
            event: Event::default(),
            bytes: Vec::with_capacity(1024),
        })
    }

    /// `Trace { repeated TracePacket packet = 1; }`: files are packets in a row.
    fn encode(&mut self, packet: &TracePacket) {
        self.bytes.clear();
        prost::encoding::message::encode(1, packet, &mut self.bytes);
    }

    fn write(&mut self, packet: &TracePacket) -> Result<(), SinkError> {
        self.encode(packet);
        self.output.write(&self.bytes)
    }

    fn describe(&mut self, descriptor: TrackDescriptor) -> Result<(), SinkError> {
        self.write(&common_descriptor(descriptor))
    }

    fn state(&mut self, track: TrackId) -> Result<&mut TrackState, SinkError> {
        match self.tracks.get_mut(track.0 as usize) {
            Some(state) => Ok(state),
            None => Err(self.output.unknown_track(track)),
        }
    }

    /// The track for a level of a thread: its own, or one below it that is made when first used.
    /// The result is `None` for its own.
    fn band(&mut self, track: TrackId, level: i64, late: bool) -> Result<Option<u64>, SinkError> {
        let band = band_of(level);
        if band == 0 {
            return Ok(None);
        }
        let state = self.state(track)?;
        let announced = state.announced;
        if state.bands.insert(band) {
            let descriptor = band_descriptor(track.0, band);
            if late {
                self.encode(&common_descriptor(descriptor));
                self.output.insert(announced, &self.bytes);
            } else {
                self.describe(descriptor)?;
            }
        }
        Ok(Some(uuid::band(track.0, band)))
    }

    /// Writes the event that was put together, of a function, on its track's own sequence.
    fn write_event(
        &mut self,
        track: TrackId,
        function: FunctionId,
        at: Picos,
    ) -> Result<(), SinkError> {
        let now = nanos(self.base, at);
        let Some(state) = self.tracks.get_mut(track.0 as usize) else {
            return Err(self.output.unknown_track(track));
        };
        // An incremental clock can't go back; a time that does is written whole.
        let timestamp = match now.checked_sub(state.clock) {
            Some(since) => {
                state.clock = now;
                (since, false)
            }
            None => (now, true),
        };
        let interned = self.names.unknown(function, &mut state.known);
        self.event.packet(
            &mut self.bytes,
            timestamp,
            &state.sequence,
            interned.as_deref(),
        );
        self.output.write(&self.bytes)
    }

    /// The begin of a caller found late: to be inserted, so it can't use its track's sequence.
    fn late_begin(&mut self, span: &Span, track_uuid: Option<u64>) -> Result<(), SinkError> {
        let mut debug_annotations = Vec::new();
        debug_annotations.extend(span.call_site.map(|ip| Arg::CallSite.pointer(ip)));
        self.names.plain_args(span.function, &mut debug_annotations);
        let named = self.names.get(span.function);
        let event = TrackEvent {
            debug_annotations,
            r#type: Some(TYPE_SLICE_BEGIN),
            track_uuid: track_uuid.or(Some(uuid::thread(span.track.0))),
            name: named.map(|named| named.name.clone()),
            source_location: named.and_then(Named::location),
            ..Default::default()
        };
        let position = self.output.position();
        let place = self.state(span.track)?.parts.late(span, position);
        self.encode(&common_event(nanos(self.base, span.begin), event));
        self.output.insert(place, &self.bytes);
        Ok(())
    }

    /// The number of the track for a kind of point in a process, made when first used.
    fn point_track(&mut self, pid: u32, kind: PointKind) -> Result<u64, SinkError> {
        let name = point_track(kind);
        let next = self.point_ranks.len() as u64;
        let uuid = uuid::points(pid, *self.point_ranks.entry(name).or_insert(next));
        if self.point_tracks.insert(uuid) {
            let parent = Some(uuid::process(pid));
            self.describe(named_descriptor(uuid, parent, name.to_owned()))?;
        }
        Ok(uuid)
    }
}

impl SpanSink for PerfettoWriter {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        (self.base, self.source) = (recording.base, recording.source);
        self.write(&common_start(recording))?;
        let source = provenance(recording.source);
        let name = format!("recording: {source}");
        self.describe(named_descriptor(uuid::RECORDING, None, name))?;
        let mut args = vec![Arg::Source.text(source)];
        if !recording.command.is_empty() {
            args.push(Arg::Command.text(recording.command.join(" ")));
        }
        let note = instant(uuid::RECORDING, source.to_owned(), args);
        self.write(&common_event(recording.base.0, note))
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        let TrackKind::Thread { pid, tid } = track.kind;
        if track.id.0 as usize != self.tracks.len() {
            return Err(self.output.track_out_of_order(track.id));
        }
        if self.processes.insert(pid) {
            self.describe(process_descriptor(track, self.source))?;
        }
        self.write(&track_start(track.id.0, self.base))?;
        self.write(&thread_descriptor(track))?;
        self.tracks.push(TrackState {
            pid,
            label: format!("{} {tid}", track.name),
            sequence: sequence_fields(sequence(track.id.0)),
            announced: self.output.position(),
            clock: self.base.0,
            known: Known::default(),
            parts: Parts::default(),
            bands: BTreeSet::new(),
            lost_until: None,
            rated_until: None,
        });
        Ok(())
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        self.names.add(function);
        Ok(())
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        let function = opened.function;
        let position = self.output.position();
        let level = self.state(opened.track)?.parts.open(opened, position);
        let band = self.band(opened.track, i64::from(level), false)?;
        let Some(named) = self.names.get(function) else {
            return Err(self.output.unknown_function(function));
        };
        self.event
            .begin(&named.begin_fields, opened.call_site, band);
        self.write_event(opened.track, function, opened.begin)
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        let late = span.flags.contains(SpanFlags::LATE);
        let state = self.state(span.track)?;
        let level = if late {
            i64::from(span.depth)
        } else {
            match state.parts.close(span) {
                Some(level) => i64::from(level),
                None => return Err(self.output.nothing_open(span.track)),
            }
        };
        let band = self.band(span.track, level, late)?;
        if late {
            self.late_begin(span, band)?;
        }
        let Some(named) = self.names.get(span.function) else {
            return Err(self.output.unknown_function(span.function));
        };
        let flags = (!span.flags.is_empty()).then(|| flag_names(span.flags));
        let instructions = (span.instructions, span.self_instructions);
        self.event
            .end(&named.end_fields, instructions, flags.as_deref(), band);
        self.write_event(span.track, span.function, span.end)
    }

    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        let state = self.state(point.track)?;
        let (pid, args) = (state.pid, vec![Arg::Thread.text(&state.label)]);
        let track_uuid = self.point_track(pid, point.kind)?;
        let event = instant(track_uuid, point.text.clone(), args);
        self.write(&common_event(nanos(self.base, point.at), event))
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        let (begin, end) = (nanos(self.base, loss.begin), nanos(self.base, loss.end));
        let state = self.state(track)?;
        state.parts.lose();
        let before = state.lost_until;
        let shown = before.unwrap_or(0);
        state.lost_until = Some(shown.max(end));
        if before.is_none() {
            self.describe(losses_descriptor(track.0))?;
        }
        let (uuid, name) = (uuid::losses(track.0), loss.cause.name().to_owned());
        let mut args = loss_args(loss);
        // Slices of one track must nest, so a loss that overlaps another is an instant.
        if begin < shown || end <= begin {
            args.push(Arg::DurationNs.uint(end.saturating_sub(begin)));
            return self.write(&common_event(begin, instant(uuid, name, args)));
        }
        let (mut opens, mut closes) = (
            instant(uuid, name.clone(), args),
            instant(uuid, name, Vec::new()),
        );
        (opens.r#type, closes.r#type) = (Some(TYPE_SLICE_BEGIN), Some(TYPE_SLICE_END));
        self.write(&common_event(begin, opens))?;
        self.write(&common_event(end, closes))
    }

    fn rate(&mut self, rate: &Rate) -> Result<(), SinkError> {
        let track = rate.track.0;
        let state = self.state(rate.track)?;
        if state.rated_until.replace(rate.end).is_none() {
            self.describe(rate_descriptor(track))?;
        }
        let event = rate_event(track, rate.per_microsecond());
        self.write(&common_event(nanos(self.base, rate.begin), event))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        // A value holds until the next one.
        for track in 0..self.tracks.len() {
            if let Some(end) = self.tracks[track].rated_until {
                let event = rate_event(track as u32, 0.0);
                self.write(&common_event(nanos(self.base, end), event))?;
            }
        }
        self.output.finish()
    }
}
