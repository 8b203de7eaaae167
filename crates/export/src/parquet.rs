//! Apache Parquet: a table with one row a span, for SQL and data frames.
//!
//! | column | type | is |
//! | --- | --- | --- |
//! | `pid`, `tid` | unsigned 32 bits | process and thread |
//! | `thread`, `process` | text | their names |
//! | `begin_ps`, `duration_ps` | unsigned 64 bits | picoseconds; since the recording's base |
//! | `time` | timestamp in nanoseconds, UTC | the wall clock at the begin; null if it is not known |
//! | `depth` | 32 bits | as in the span stream: callers found late have negative ones |
//! | `function`, `module` | text | `module` is empty if there is none |
//! | `mangled_name`, `file`, `line` | text, text, unsigned 32 bits | null if not known |
//! | `address`, `call_site` | unsigned 64 bits | `call_site` is null if it was not seen |
//! | `instructions`, `self_instructions` | unsigned 64 bits | |
//! | `flags` | text | such as `inferred, cut` |
//!
//! Rows stand in the order of the stream: by thread, in the order of their ends. A row group has rows
//! of one thread alone, so queries on a thread read only that thread's. Texts are by number
//! (dictionary). The file's metadata has `command`, `source`, `base_ns` and `base_unix_ns`; points and
//! losses are not rows, and `losses` in the metadata says how many there were.

use std::{io, path::Path, sync::Arc};

use parquet::{
    basic::{Compression, Encoding},
    data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};
use ptrail_pt::Loss;
use ptrail_trace::{
    Function, Opened, Recording, SinkError, Span, SpanFlags, SpanSink, Track, TrackId, TrackKind,
};

use crate::{
    output::Output,
    text::{flag_names, process_name, provenance},
};

const SCHEMA: &str = "message spans {
    required int32 pid (integer(32, false));
    required int32 tid (integer(32, false));
    required byte_array thread (string);
    required byte_array process (string);
    required int64 begin_ps (integer(64, false));
    required int64 duration_ps (integer(64, false));
    optional int64 time (timestamp(nanos, true));
    required int32 depth (integer(32, true));
    required byte_array function (string);
    optional byte_array mangled_name (string);
    required byte_array module (string);
    required int64 address (integer(64, false));
    optional byte_array file (string);
    optional int32 line (integer(32, false));
    optional int64 call_site (integer(64, false));
    required int64 instructions (integer(64, false));
    required int64 self_instructions (integer(64, false));
    required byte_array flags (string);
}";

/// Rows of a group, which wait in memory until they are written.
const ROWS: usize = 64 << 10;

/// Writes a `.parquet` file.
pub struct ParquetWriter {
    path: std::path::PathBuf,
    /// `None` after an error and when finished.
    file: Option<SerializedFileWriter<Output>>,
    recording: Option<Recording>,
    functions: Vec<Option<Named>>,
    tracks: Vec<TrackState>,
    losses: u64,
    /// The track whose rows wait.
    current: TrackId,
    rows: Vec<Span>,
}

/// A function's columns.
struct Named {
    name: ByteArray,
    mangled: Option<ByteArray>,
    module: ByteArray,
    file: Option<ByteArray>,
    line: Option<i32>,
    address: u64,
}

struct TrackState {
    pid: u32,
    tid: u32,
    thread: ByteArray,
    process: ByteArray,
    open: u64,
}

impl ParquetWriter {
    /// Opens an output; the file appears under `path` in [`SpanSink::finish`].
    ///
    /// # Errors
    /// No temporary file can be made in the folder of `path`, or `path` is a folder.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        let output = Output::create(path)?;
        let delta = |name: &str| ColumnPath::from(name);
        let properties = WriterProperties::builder()
            .set_created_by(format!("ptrail {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::SNAPPY)
            .set_column_dictionary_enabled(delta("begin_ps"), false)
            .set_column_encoding(delta("begin_ps"), Encoding::DELTA_BINARY_PACKED)
            .set_column_dictionary_enabled(delta("time"), false)
            .set_column_encoding(delta("time"), Encoding::DELTA_BINARY_PACKED)
            .build();
        let file = parse_message_type(SCHEMA).and_then(|schema| {
            SerializedFileWriter::new(output, Arc::new(schema), Arc::new(properties))
        });
        let path = path.to_owned();
        Ok(Self {
            file: Some(file.map_err(|error| failed(&path, error))?),
            path,
            recording: None,
            functions: Vec::new(),
            tracks: Vec::new(),
            losses: 0,
            current: TrackId(0),
            rows: Vec::with_capacity(ROWS),
        })
    }

    fn misuse(&mut self, what: String) -> SinkError {
        self.file = None;
        SinkError::Misuse {
            path: self.path.clone(),
            what,
        }
    }

    fn state(&mut self, track: TrackId) -> Result<&mut TrackState, SinkError> {
        if self.tracks.len() <= track.0 as usize {
            return Err(self.misuse(crate::output::misuse::unknown_track(track)));
        }
        Ok(&mut self.tracks[track.0 as usize])
    }

    /// Writes the rows that wait, all of one track, as a group.
    fn flush(&mut self) -> Result<(), SinkError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let written = match self.file.as_mut() {
            Some(file) => {
                let rows = Rows {
                    spans: &self.rows,
                    track: &self.tracks[self.current.0 as usize],
                    functions: &self.functions,
                    // Nanoseconds since the epoch at picosecond zero.
                    epoch: self.recording.as_ref().and_then(|r| r.wall_clock),
                };
                file.next_row_group().and_then(|group| rows.write(group))
            }
            None => Err(ParquetError::from(crate::output::closed())),
        };
        self.rows.clear();
        written.map_err(|error| {
            self.file = None;
            failed(&self.path, error)
        })
    }
}

fn failed(path: &Path, error: ParquetError) -> SinkError {
    let source = match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    };
    SinkError::Io {
        path: path.to_owned(),
        source,
    }
}

/// A group of rows, to be written column by column.
struct Rows<'a> {
    spans: &'a [Span],
    track: &'a TrackState,
    functions: &'a [Option<Named>],
    epoch: Option<u64>,
}

type Group<'g> = SerializedRowGroupWriter<'g, Output>;

impl Rows<'_> {
    fn write(&self, mut group: Group<'_>) -> Result<(), ParquetError> {
        self.columns(&mut group)?;
        group.close().map(drop)
    }

    /// In the order of the schema.
    fn columns(&self, group: &mut Group<'_>) -> Result<(), ParquetError> {
        let track = self.track;
        self.column::<Int32Type>(group, |_| track.pid.cast_signed())?;
        self.column::<Int32Type>(group, |_| track.tid.cast_signed())?;
        self.column::<ByteArrayType>(group, |_| track.thread.clone())?;
        self.column::<ByteArrayType>(group, |_| track.process.clone())?;
        self.column::<Int64Type>(group, |span| span.begin.0.cast_signed())?;
        self.column::<Int64Type>(group, |span| {
            span.end.0.saturating_sub(span.begin.0).cast_signed()
        })?;
        self.optional::<Int64Type>(group, |span| {
            let ns = self.epoch?.checked_add(span.begin.0 / 1000)?;
            i64::try_from(ns).ok()
        })?;
        self.column::<Int32Type>(group, |span| span.depth)?;
        let named = |span: &Span| self.functions.get(span.function.0 as usize)?.as_ref();
        let text = |text: Option<&ByteArray>| text.cloned().unwrap_or_default();
        self.column::<ByteArrayType>(group, |span| text(named(span).map(|f| &f.name)))?;
        self.optional::<ByteArrayType>(group, |span| named(span)?.mangled.clone())?;
        self.column::<ByteArrayType>(group, |span| text(named(span).map(|f| &f.module)))?;
        self.column::<Int64Type>(group, |span| {
            named(span).map_or(0, |function| function.address.cast_signed())
        })?;
        self.optional::<ByteArrayType>(group, |span| named(span)?.file.clone())?;
        self.optional::<Int32Type>(group, |span| named(span)?.line)?;
        self.optional::<Int64Type>(group, |span| Some(span.call_site?.0.cast_signed()))?;
        self.column::<Int64Type>(group, |span| span.instructions.cast_signed())?;
        self.column::<Int64Type>(group, |span| span.self_instructions.cast_signed())?;
        self.column::<ByteArrayType>(group, |span| flag_names(span.flags).into_bytes().into())?;
        Ok(())
    }

    fn column<T: DataType>(
        &self,
        group: &mut Group<'_>,
        value: impl Fn(&Span) -> T::T,
    ) -> Result<(), ParquetError> {
        let values: Vec<_> = self.spans.iter().map(value).collect();
        put::<T>(group, &values, None)
    }

    fn optional<T: DataType>(
        &self,
        group: &mut Group<'_>,
        value: impl Fn(&Span) -> Option<T::T>,
    ) -> Result<(), ParquetError> {
        let all: Vec<_> = self.spans.iter().map(value).collect();
        let levels: Vec<_> = all.iter().map(|value| i16::from(value.is_some())).collect();
        let values: Vec<_> = all.into_iter().flatten().collect();
        put::<T>(group, &values, Some(&levels))
    }
}

/// Writes the next column.
fn put<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the schema has no more columns".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

impl SpanSink for ParquetWriter {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        self.recording = Some(recording.clone());
        Ok(())
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        let TrackKind::Thread { pid, tid } = track.kind;
        if track.id.0 as usize != self.tracks.len() {
            return Err(self.misuse(crate::output::misuse::track_out_of_order(track.id)));
        }
        let source = self.recording.as_ref().map(|recording| recording.source);
        let process = process_name(track, source.unwrap_or_default());
        self.tracks.push(TrackState {
            pid,
            tid,
            thread: track.name.as_str().into(),
            process: process.as_str().into(),
            open: 0,
        });
        Ok(())
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        let index = function.id.0 as usize;
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, || None);
        }
        let source = function.source.as_ref();
        self.functions[index] = Some(Named {
            name: function.name.as_str().into(),
            mangled: function.mangled.as_deref().map(Into::into),
            module: function.module.as_str().into(),
            file: source.map(|source| source.file.as_str().into()),
            line: source.map(|source| source.line.cast_signed()),
            address: function.address.0,
        });
        Ok(())
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        self.state(opened.track)?.open += 1;
        Ok(())
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        let state = self.state(span.track)?;
        if !span.flags.contains(SpanFlags::LATE) {
            match state.open.checked_sub(1) {
                Some(open) => state.open = open,
                None => return Err(self.misuse(crate::output::misuse::nothing_open(span.track))),
            }
        }
        let known = self.functions.get(span.function.0 as usize);
        if !matches!(known, Some(Some(_))) {
            return Err(self.misuse(crate::output::misuse::unknown_function(span.function)));
        }
        if self.current != span.track || self.rows.len() == ROWS {
            self.flush()?;
            self.current = span.track;
        }
        self.rows.push(*span);
        Ok(())
    }

    fn loss(&mut self, _track: TrackId, _loss: &Loss) -> Result<(), SinkError> {
        self.losses += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.flush()?;
        let Some(mut file) = self.file.take() else {
            return Err(failed(&self.path, crate::output::closed().into()));
        };
        let mut facts = vec![("losses", self.losses.to_string())];
        if let Some(recording) = &self.recording {
            facts.push(("command", recording.command.join(" ")));
            facts.push(("source", provenance(recording.source).to_owned()));
            facts.push(("base_ns", recording.base.0.to_string()));
            facts.extend(
                recording
                    .wall_clock
                    .map(|at| ("base_unix_ns", at.to_string())),
            );
        }
        for (key, value) in facts {
            file.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        let output = file.into_inner();
        output.map_err(|error| failed(&self.path, error))?.finish()
    }
}
