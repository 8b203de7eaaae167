//! speedscope's own JSON: one evented profile for each thread, all on one time axis.
//!
//! ```json
//! {"$schema":"https://www.speedscope.app/file-format-schema.json",
//! "exporter":"ptrail 0.1.0","name":"demo","activeProfileIndex":0,"profiles":[
//! {"type":"evented","name":"demo 7","unit":"nanoseconds","startValue":0,"endValue":9,"events":[
//! {"type":"O","frame":0,"at":1},
//! {"type":"C","frame":0,"at":9}]}],
//! "shared":{"frames":[
//! {"name":"main","file":"demo"}]}}
//! ```
//!
//! Times are whole nanoseconds since the recording's base, so readers that go through a `double`
//! keep them exact for 104 days. The profiles of all threads run from the base to the last event of
//! any. A frame's number is the function's; its `file` is the source file, with the line, or else the
//! module, because speedscope has no other place for it. Threads without spans are left out.
//!
//! The format has no place for instruction counts, call sites, flags, points and losses.
//!
//! The events of one thread stand in one piece, so they wait in a temporary file until all is
//! known.

use std::path::Path;

use ptrail_pt::{Loss, PerfTime, Picos};
use ptrail_trace::{
    Function, FunctionId, Opened, Recording, SinkError, Source, Span, SpanFlags, SpanSink, Track,
    TrackId, TrackKind,
};

use crate::{
    json::{put, put_text},
    output::Output,
    parts::Parts,
    spool::Spool,
    text::{clock_note, nanos},
};

/// Writes a `.speedscope.json` file.
pub struct SpeedscopeWriter {
    output: Output,
    spool: Spool,
    /// The recording's name.
    name: String,
    source: Source,
    /// Each function's frame, as JSON.
    frames: Vec<Option<Vec<u8>>>,
    tracks: Vec<TrackState>,
    /// Nanoseconds since the base of the last event of all tracks.
    last: u64,
    /// The event being written.
    line: Vec<u8>,
}

struct TrackState {
    name: String,
    parts: Parts,
}

impl SpeedscopeWriter {
    /// Opens an output; the file appears under `path` in [`SpanSink::finish`].
    ///
    /// # Errors
    /// No temporary file can be made in the folder of `path`, or `path` is a folder.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        let output = Output::create(path)?;
        Ok(Self {
            spool: Spool::new(output.scratch()?),
            output,
            name: String::new(),
            source: Source::default(),
            frames: Vec::new(),
            tracks: Vec::new(),
            last: 0,
            line: Vec::with_capacity(512),
        })
    }

    /// The spool's streams are numbered like the tracks.
    fn check(&mut self, track: TrackId) -> Result<(), SinkError> {
        match self.tracks.get(track.0 as usize) {
            Some(_) => Ok(()),
            None => Err(self.output.unknown_track(track)),
        }
    }

    /// Makes the line an event. The comma in front lets late events be put in anywhere; the very
    /// first one is taken off in the end.
    fn event(&mut self, kind: char, function: FunctionId, at: Picos) -> Result<(), SinkError> {
        if !matches!(self.frames.get(function.0 as usize), Some(Some(_))) {
            return Err(self.output.unknown_function(function));
        }
        let (frame, at) = (function.0, nanos(PerfTime(0), at));
        self.last = self.last.max(at);
        self.line.clear();
        put(
            &mut self.line,
            format_args!(",\n{{\"type\":\"{kind}\",\"frame\":{frame},\"at\":{at}}}"),
        );
        Ok(())
    }

    fn append(&mut self, track: TrackId) -> Result<(), SinkError> {
        let appended = self.spool.append(track.0 as usize, &self.line);
        appended.map_err(|error| self.output.failed(error))
    }

    fn write_text(&mut self, text: &str) -> Result<(), SinkError> {
        self.line.clear();
        put_text(&mut self.line, text);
        self.output.write(&self.line)
    }

    fn write_profile(&mut self, track: usize) -> Result<(), SinkError> {
        self.output.write(b"{\"type\":\"evented\",\"name\":")?;
        let name = std::mem::take(&mut self.tracks[track].name);
        self.write_text(&name)?;
        let rest = format!(
            ",\"unit\":\"nanoseconds\",\"startValue\":0,\"endValue\":{},\"events\":[",
            self.last
        );
        self.output.write(rest.as_bytes())?;
        let mut comma = true;
        let Self { spool, output, .. } = self;
        let copied = spool.take(track, |bytes| {
            let skipped = usize::from(comma && !bytes.is_empty());
            comma &= bytes.is_empty();
            std::io::Write::write_all(output, &bytes[skipped..])
        });
        copied.map_err(|error| self.output.failed(error))?;
        self.output.write(b"]}")
    }
}

impl SpanSink for SpeedscopeWriter {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        self.name = recording.command.join(" ");
        self.source = recording.source;
        Ok(())
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        let TrackKind::Thread { tid, .. } = track.kind;
        if track.id.0 as usize != self.tracks.len() {
            return Err(self.output.track_out_of_order(track.id));
        }
        self.spool.add();
        self.tracks.push(TrackState {
            // speedscope shows this name, not the file's.
            name: format!("{} {tid}{}", track.name, clock_note(self.source)),
            parts: Parts::default(),
        });
        Ok(())
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        let mut frame = b"{\"name\":".to_vec();
        put_text(&mut frame, &function.name);
        if let Some(source) = &function.source {
            frame.extend_from_slice(b",\"file\":");
            put_text(&mut frame, &source.file);
            put(&mut frame, format_args!(",\"line\":{}", source.line));
        } else if !function.module.is_empty() {
            frame.extend_from_slice(b",\"file\":");
            put_text(&mut frame, &function.module);
        }
        frame.push(b'}');
        let index = function.id.0 as usize;
        if self.frames.len() <= index {
            self.frames.resize_with(index + 1, || None);
        }
        self.frames[index] = Some(frame);
        Ok(())
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        self.check(opened.track)?;
        let track = opened.track.0 as usize;
        let position = self.spool.position(track);
        self.tracks[track].parts.open(opened, position);
        self.event('O', opened.function, opened.begin)?;
        self.append(opened.track)
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        self.check(span.track)?;
        let stream = span.track.0 as usize;
        let position = self.spool.position(stream);
        let parts = &mut self.tracks[stream].parts;
        if span.flags.contains(SpanFlags::LATE) {
            let place = parts.late(span, position);
            self.event('O', span.function, span.begin)?;
            self.spool.insert(stream, place, &self.line);
        } else if parts.close(span).is_none() {
            return Err(self.output.nothing_open(span.track));
        }
        self.event('C', span.function, span.end)?;
        self.append(span.track)
    }

    fn loss(&mut self, track: TrackId, _loss: &Loss) -> Result<(), SinkError> {
        self.check(track)?;
        self.tracks[track.0 as usize].parts.lose();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.output.write(
            concat!(
                "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n",
                "\"exporter\":\"ptrail ",
                env!("CARGO_PKG_VERSION"),
                "\",\"name\":"
            )
            .as_bytes(),
        )?;
        let name = std::mem::take(&mut self.name);
        self.write_text(&name)?;
        self.output
            .write(b",\"activeProfileIndex\":0,\"profiles\":[")?;
        let mut separator: &[u8] = b"\n";
        for track in 0..self.tracks.len() {
            if self.spool.position(track) > 0 {
                self.output.write(separator)?;
                separator = b",\n";
                self.write_profile(track)?;
            }
        }
        self.output.write(b"],\n\"shared\":{\"frames\":[")?;
        let mut separator: &[u8] = b"\n";
        for frame in std::mem::take(&mut self.frames) {
            self.output.write(separator)?;
            separator = b",\n";
            // A number that no function has, so no event either.
            let frame = frame.unwrap_or_else(|| b"{\"name\":\"\"}".to_vec());
            self.output.write(&frame)?;
        }
        self.output.write(b"]}}\n")?;
        self.output.finish()
    }
}
