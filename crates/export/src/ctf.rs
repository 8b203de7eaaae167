//! Common Trace Format 1.8: a folder with a `metadata` text and a stream of events for each thread.
//!
//! ```text
//! ls.ctf/metadata      what is in the streams, in the format's own language
//! ls.ctf/thread-0      one packet: whose thread it is, then its events
//! ls.ctf/thread-1
//! ```
//!
//! | event | fields |
//! | --- | --- |
//! | `call_begin` | `function`, `mangled_name`, `module`, `address`, `call_site` (0 if unknown), `file`, `line` (0 if unknown) |
//! | `call_end` | `instructions`, `self_instructions`, `flags` |
//! | `point` | `kind`, `text` |
//! | `loss` | `end` (of what is missing), `cause`, `bytes`, `trace_offset`, `address`, `reason` |
//!
//! An empty text is `-`. An end is that of the innermost open call. Times are perf-clock nanoseconds, which the metadata ties
//! to the wall clock if that is known. The events of one thread stand in one file, so they wait in a
//! temporary one until all is known.
//!
//! The folder appears as a whole. One that is there already is replaced if it holds such a trace, and
//! left alone if it holds anything else.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufWriter, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use ptrail_pt::{Ip, Loss, PerfTime, Picos};
use ptrail_trace::{
    Function, FunctionId, Opened, Point, Recording, SinkError, Source, Span, SpanFlags, SpanSink,
    Track, TrackId, TrackKind,
};

use crate::{
    output::misuse,
    parts::Parts,
    spool::Spool,
    text::{clock_note, flag_names, nanos, point_kind, provenance},
};

/// Numbers of the events.
mod event {
    pub(super) const BEGIN: u8 = 0;
    pub(super) const END: u8 = 1;
    pub(super) const POINT: u8 = 2;
    pub(super) const LOSS: u8 = 3;
}

/// The first line of the metadata: readers know the format by it.
const SIGNATURE: &str = "/* CTF 1.8 */";

/// Writes a `.ctf` folder.
pub struct CtfWriter {
    /// Where it goes.
    path: PathBuf,
    /// Where it is made; `None` after an error and when finished.
    folder: Option<tempfile::TempDir>,
    spool: Spool,
    recording: Option<Recording>,
    base: PerfTime,
    functions: Vec<Option<Named>>,
    tracks: Vec<TrackState>,
    /// The event being put together.
    bytes: Vec<u8>,
}

/// The fields of a function, encoded: before and behind the call site.
struct Named {
    before: Vec<u8>,
    behind: Vec<u8>,
}

struct TrackState {
    track: Track,
    parts: Parts,
    first: Option<u64>,
    last: u64,
}

impl CtfWriter {
    /// Opens an output; the folder appears under `path` in [`SpanSink::finish`].
    ///
    /// # Errors
    /// No temporary folder can be made beside `path`, or `path` is something else than such a trace.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        let prepared = check(path).and_then(|()| {
            let parent = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            let folder = tempfile::Builder::new()
                .prefix(".ptrail-")
                // Less the umask, as for every folder.
                .permissions(Permissions::from_mode(0o777))
                .tempdir_in(parent)?;
            let spool = Spool::new(tempfile::tempfile_in(folder.path())?);
            Ok((folder, spool))
        });
        let (folder, spool) = prepared.map_err(|source| SinkError::Io {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            folder: Some(folder),
            spool,
            recording: None,
            base: PerfTime(0),
            functions: Vec::new(),
            tracks: Vec::new(),
            bytes: Vec::with_capacity(512),
        })
    }

    fn failed(&mut self, source: io::Error) -> SinkError {
        self.folder = None;
        SinkError::Io {
            path: self.path.clone(),
            source,
        }
    }

    fn misuse(&mut self, what: String) -> SinkError {
        self.folder = None;
        SinkError::Misuse {
            path: self.path.clone(),
            what,
        }
    }

    fn state(&mut self, track: TrackId) -> Result<&mut TrackState, SinkError> {
        if self.tracks.len() <= track.0 as usize {
            return Err(self.misuse(misuse::unknown_track(track)));
        }
        Ok(&mut self.tracks[track.0 as usize])
    }

    /// Begins an event: its number and its time.
    fn start(&mut self, track: TrackId, kind: u8, at: Picos) -> Result<(), SinkError> {
        let now = nanos(self.base, at);
        let state = self.state(track)?;
        state.first = Some(state.first.map_or(now, |first| first.min(now)));
        state.last = state.last.max(now);
        self.bytes.clear();
        self.bytes.push(kind);
        self.number(now);
        Ok(())
    }

    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        put_text(&mut self.bytes, text);
    }

    fn append(&mut self, track: TrackId) -> Result<(), SinkError> {
        let appended = self.spool.append(track.0 as usize, &self.bytes);
        appended.map_err(|error| self.failed(error))
    }

    fn call_begin(
        &mut self,
        track: TrackId,
        function: FunctionId,
        at: Picos,
        call_site: Option<Ip>,
    ) -> Result<(), SinkError> {
        self.start(track, event::BEGIN, at)?;
        let Some(Some(named)) = self.functions.get(function.0 as usize) else {
            return Err(self.misuse(misuse::unknown_function(function)));
        };
        self.bytes.extend_from_slice(&named.before);
        let site = call_site.map_or(0, |ip| ip.0);
        self.bytes.extend_from_slice(&site.to_le_bytes());
        self.bytes.extend_from_slice(&named.behind);
        Ok(())
    }

    fn write_all(&mut self, folder: &Path) -> io::Result<()> {
        let recording = self.recording.take();
        fs::write(folder.join("metadata"), metadata(recording.as_ref()))?;
        let source = recording.map(|recording| recording.source);
        for number in 0..self.tracks.len() {
            if self.spool.position(number) > 0 {
                let file = File::create(folder.join(format!("thread-{number}")))?;
                let mut file = BufWriter::new(file);
                self.write_stream(number, source.unwrap_or_default(), &mut file)?;
                file.flush()?;
            }
        }
        Ok(())
    }

    /// A stream of one packet.
    fn write_stream(
        &mut self,
        number: usize,
        source: Source,
        file: &mut impl io::Write,
    ) -> io::Result<()> {
        let state = &self.tracks[number];
        let TrackKind::Thread { pid, tid } = state.track.kind;
        let mut head = Vec::new();
        head.extend_from_slice(&0xc1fc_1fc1_u32.to_le_bytes());
        head.extend_from_slice(&0_u32.to_le_bytes());
        let sizes = head.len();
        for number in [0, 0, state.first.unwrap_or(0), state.last] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        head.extend_from_slice(&pid.to_le_bytes());
        head.extend_from_slice(&tid.to_le_bytes());
        put_text(&mut head, &state.track.name);
        let process = format!("{}{}", state.track.process, clock_note(source));
        put_text(&mut head, &process);
        let bits = (head.len() as u64 + self.spool.length(number)).saturating_mul(8);
        for place in [sizes, sizes + 8] {
            head[place..place + 8].copy_from_slice(&bits.to_le_bytes());
        }
        file.write_all(&head)?;
        self.spool.take(number, |bytes| file.write_all(bytes))
    }
}

/// Whether the folder may be written: there is none, an empty one, or one that holds a trace.
fn check(path: &Path) -> io::Result<()> {
    match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(mut entries) => {
            if entries.next().is_none() {
                return Ok(());
            }
            let metadata = fs::read(path.join("metadata")).unwrap_or_default();
            if metadata.starts_with(SIGNATURE.as_bytes()) {
                return Ok(());
            }
            Err(io::Error::other(
                "the folder holds something else than a CTF trace; remove it or choose another name",
            ))
        }
    }
}

/// Puts the folder in place, and what was there away.
fn replace(folder: tempfile::TempDir, path: &Path) -> io::Result<()> {
    check(path)?;
    if path.exists() {
        let old = tempfile::Builder::new()
            .prefix(".ptrail-")
            .tempdir_in(folder.path().parent().unwrap_or(Path::new(".")))?;
        fs::rename(path, old.path().join("old"))?;
    }
    fs::rename(folder.path(), path)?;
    // There is nothing to remove at the old name.
    let _ = folder.keep();
    Ok(())
}

/// A text up to its end, or to a zero byte in it: the format ends texts with one. Nothing is a dash:
/// where a text is empty, babeltrace 2.0 shows the one that stood there in an event before.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let end = text.find('\0').unwrap_or(text.len());
    let text = if end == 0 { "-" } else { &text[..end] };
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
}

/// A string of the metadata's language.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            control if control.is_control() => quoted.push(' '),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn metadata(recording: Option<&Recording>) -> String {
    let source = recording
        .map(|recording| recording.source)
        .unwrap_or_default();
    let command = recording.map(|recording| recording.command.join(" "));
    // Nanoseconds between the clock's zero and the Unix epoch.
    let offset = recording
        .and_then(|recording| recording.wall_clock?.checked_sub(recording.base.0))
        .unwrap_or(0);
    format!(
        "{SIGNATURE}

typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
typealias integer {{ size = 64; align = 8; signed = false; base = 16; }} := address_t;

trace {{
    major = 1;
    minor = 8;
    byte_order = le;
    packet.header := struct {{ uint32_t magic; uint32_t stream_id; }};
}};

env {{
    tracer_name = \"ptrail\";
    tracer_version = {version};
    command = {command};
    source = {source};
}};

clock {{
    name = perf;
    description = {source};
    freq = 1000000000;
    offset_s = {seconds};
    offset = {nanoseconds};
}};

typealias integer {{ size = 64; align = 8; signed = false; map = clock.perf.value; }} := time_t;

stream {{
    id = 0;
    packet.context := struct {{
        uint64_t content_size;
        uint64_t packet_size;
        time_t timestamp_begin;
        time_t timestamp_end;
        uint32_t pid;
        uint32_t tid;
        string thread;
        string process;
    }};
    event.header := struct {{ uint8_t id; time_t timestamp; }};
}};

event {{
    id = {begin};
    name = call_begin;
    stream_id = 0;
    fields := struct {{
        string function;
        string mangled_name;
        string module;
        address_t address;
        address_t call_site;
        string file;
        uint32_t line;
    }};
}};

event {{
    id = {end};
    name = call_end;
    stream_id = 0;
    fields := struct {{
        uint64_t instructions;
        uint64_t self_instructions;
        string flags;
    }};
}};

event {{
    id = {point};
    name = point;
    stream_id = 0;
    fields := struct {{ string kind; string text; }};
}};

event {{
    id = {loss};
    name = loss;
    stream_id = 0;
    fields := struct {{
        uint64_t end;
        string cause;
        uint64_t bytes;
        address_t trace_offset;
        address_t address;
        string reason;
    }};
}};
",
        version = quoted(env!("CARGO_PKG_VERSION")),
        command = quoted(&command.unwrap_or_default()),
        source = quoted(provenance(source)),
        seconds = offset / 1_000_000_000,
        nanoseconds = offset % 1_000_000_000,
        begin = event::BEGIN,
        end = event::END,
        point = event::POINT,
        loss = event::LOSS,
    )
}

impl SpanSink for CtfWriter {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        self.base = recording.base;
        self.recording = Some(recording.clone());
        Ok(())
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        if track.id.0 as usize != self.tracks.len() {
            return Err(self.misuse(misuse::track_out_of_order(track.id)));
        }
        self.spool.add();
        self.tracks.push(TrackState {
            track: track.clone(),
            parts: Parts::default(),
            first: None,
            last: 0,
        });
        Ok(())
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        let mangled = function.mangled.as_deref().unwrap_or_default();
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        for text in [&*function.name, mangled, &*function.module] {
            put_text(&mut before, text);
        }
        before.extend_from_slice(&function.address.0.to_le_bytes());
        let source = function.source.as_ref();
        put_text(&mut behind, source.map_or("", |source| &source.file));
        let line = source.map_or(0, |source| source.line);
        behind.extend_from_slice(&line.to_le_bytes());
        let index = function.id.0 as usize;
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, || None);
        }
        self.functions[index] = Some(Named { before, behind });
        Ok(())
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        let track = opened.track;
        self.call_begin(track, opened.function, opened.begin, opened.call_site)?;
        let position = self.spool.position(track.0 as usize);
        self.state(track)?.parts.open(opened, position);
        self.append(track)
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        let track = span.track;
        if span.flags.contains(SpanFlags::LATE) {
            self.call_begin(track, span.function, span.begin, span.call_site)?;
            let position = self.spool.position(track.0 as usize);
            let place = self.state(track)?.parts.late(span, position);
            self.spool.insert(track.0 as usize, place, &self.bytes);
        } else if self.state(track)?.parts.close(span).is_none() {
            return Err(self.misuse(misuse::nothing_open(track)));
        }
        self.start(track, event::END, span.end)?;
        self.number(span.instructions);
        self.number(span.self_instructions);
        self.text(&flag_names(span.flags));
        self.append(track)
    }

    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        self.start(point.track, event::POINT, point.at)?;
        self.text(point_kind(point.kind));
        self.text(&point.text);
        self.append(point.track)
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        self.start(track, event::LOSS, loss.begin)?;
        self.state(track)?.parts.lose();
        self.number(nanos(self.base, loss.end.max(loss.begin)));
        self.text(loss.cause.name());
        self.number(loss.bytes);
        self.number(loss.offset.0);
        self.number(loss.ip.map_or(0, |ip| ip.0));
        self.text(&loss.reason);
        self.append(track)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        let Some(folder) = self.folder.take() else {
            return Err(self.failed(crate::output::closed()));
        };
        let written = self
            .write_all(folder.path())
            .and_then(|()| replace(folder, &self.path));
        written.map_err(|error| self.failed(error))
    }
}
