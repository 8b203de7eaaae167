//! Spall's binary format, version 1, which its viewer in the browser and its native one both read.
//!
//! | bytes | are |
//! | --- | --- |
//! | header | magic `0x0badf00d`, version 1, microseconds of a tick (0.001), 0: 8 bytes each |
//! | begin | type 3, category 0, pid, tid (4 bytes each), ticks (a double), lengths of name and arguments (a byte each), name, arguments |
//! | end | type 4, pid, tid, ticks |
//!
//! Ticks are nanoseconds since the recording's base, exact up to 2⁵³. A name has at most 255 bytes and
//! is cut if it is longer; the arguments say the module. Spall goes by the order in the file, so a
//! late caller's begin stands where its part of the track begins. The format has no place for
//! instructions, flags, points, losses and names of threads.
//!
//! Written from the public description of the format by its author (the structures of `spall.h`).

use std::path::Path;

use ptrail_pt::{Loss, PerfTime, Picos};
use ptrail_trace::{
    Function, FunctionId, Opened, SinkError, Span, SpanFlags, SpanSink, Track, TrackId, TrackKind,
};

use crate::{output::Output, parts::Parts, text::nanos};

const MAGIC: u64 = 0x0bad_f00d;
const VERSION: u64 = 1;
const MICROSECONDS_OF_A_TICK: f64 = 0.001;
const BEGIN: u8 = 3;
const END: u8 = 4;
/// Bytes of a name.
const LONGEST: usize = 255;

/// Writes a `.spall` file.
pub struct SpallWriter {
    output: Output,
    /// What stands behind the time in a function's begins.
    functions: Vec<Option<Vec<u8>>>,
    tracks: Vec<TrackState>,
    /// The event being put together.
    bytes: Vec<u8>,
}

struct TrackState {
    /// Process and thread.
    place: [u8; 8],
    parts: Parts,
}

impl SpallWriter {
    /// Opens an output; the file appears under `path` in [`SpanSink::finish`].
    ///
    /// # Errors
    /// No temporary file can be made in the folder of `path`, or `path` is a folder.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        let mut output = Output::create(path)?;
        for word in [MAGIC, VERSION, MICROSECONDS_OF_A_TICK.to_bits(), 0] {
            output.write(&word.to_le_bytes())?;
        }
        Ok(Self {
            output,
            functions: Vec::new(),
            tracks: Vec::new(),
            bytes: Vec::with_capacity(512),
        })
    }

    fn state(&mut self, track: TrackId) -> Result<&mut TrackState, SinkError> {
        match self.tracks.get_mut(track.0 as usize) {
            Some(state) => Ok(state),
            None => Err(self.output.unknown_track(track)),
        }
    }

    fn put_place(&mut self, track: TrackId, at: Picos) -> Result<(), SinkError> {
        let place = self.state(track)?.place;
        self.bytes.extend_from_slice(&place);
        let ticks = nanos(PerfTime(0), at) as f64;
        self.bytes.extend_from_slice(&ticks.to_le_bytes());
        Ok(())
    }

    fn begin_event(
        &mut self,
        track: TrackId,
        function: FunctionId,
        at: Picos,
    ) -> Result<(), SinkError> {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[BEGIN, 0]);
        self.put_place(track, at)?;
        let Some(Some(texts)) = self.functions.get(function.0 as usize) else {
            return Err(self.output.unknown_function(function));
        };
        self.bytes.extend_from_slice(texts);
        Ok(())
    }
}

/// A text that fits.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl SpanSink for SpallWriter {
    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        let TrackKind::Thread { pid, tid } = track.kind;
        if track.id.0 as usize != self.tracks.len() {
            return Err(self.output.track_out_of_order(track.id));
        }
        let place = u64::from(tid) << 32 | u64::from(pid);
        self.tracks.push(TrackState {
            place: place.to_le_bytes(),
            parts: Parts::default(),
        });
        Ok(())
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        let (name, module) = (cut(&function.name), cut(&function.module));
        let mut texts = vec![name.len() as u8, module.len() as u8];
        texts.extend_from_slice(name.as_bytes());
        texts.extend_from_slice(module.as_bytes());
        let index = function.id.0 as usize;
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, || None);
        }
        self.functions[index] = Some(texts);
        Ok(())
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        let position = self.output.position();
        self.state(opened.track)?.parts.open(opened, position);
        self.begin_event(opened.track, opened.function, opened.begin)?;
        self.output.write(&self.bytes)
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        let position = self.output.position();
        if span.flags.contains(SpanFlags::LATE) {
            let place = self.state(span.track)?.parts.late(span, position);
            self.begin_event(span.track, span.function, span.begin)?;
            self.output.insert(place, &self.bytes);
        } else if self.state(span.track)?.parts.close(span).is_none() {
            return Err(self.output.nothing_open(span.track));
        }
        self.bytes.clear();
        self.bytes.push(END);
        self.put_place(span.track, span.end)?;
        self.output.write(&self.bytes)
    }

    fn loss(&mut self, track: TrackId, _loss: &Loss) -> Result<(), SinkError> {
        self.state(track)?.parts.lose();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.output.finish()
    }
}
