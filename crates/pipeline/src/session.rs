//! A capture with everything that decoding it needs.

use std::num::NonZeroUsize;

use ptrail_flow::{Context, Segment, SegmentEnd, Sink};
use ptrail_image::{ImageError, Timeline};
use ptrail_perfdata::{Capture, Record, SourceNote};
use ptrail_pt::{Loss, LossCause, PerfTime, Picos, PtConfig, TraceOffset};
use ptrail_stack::{Builder, Names};
use ptrail_trace::{Fanout, Recording, SinkError, Source, SpanSink, Track, TrackId, TrackKind};

use crate::streams::{BEFORE_FIRST_PSB, streams};
use crate::triggers::{self, WithHits};
use crate::{CodeOptions, Part, Statistics, Stream, Summary, base_time, code, parallel};

/// Why a capture could not be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The capture holds Intel PT records, but no trace data.
    #[error(
        "the capture holds no trace data; was the program running while it was recorded? Record again, \
         with a larger buffer if the recording was cut short"
    )]
    Empty,
    /// Code that the user gave can't be read.
    #[error(transparent)]
    Code(#[from] ImageError),
    /// An output could not be written.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// How far a decode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Trace bytes decoded.
    pub done: u64,
    /// Trace bytes there are.
    pub total: u64,
}

/// A capture, ready to be decoded.
pub struct Session<'a> {
    capture: &'a Capture,
    timeline: Timeline,
    streams: Vec<Stream<'a>>,
    base: PerfTime,
    threads: usize,
}

impl<'a> Session<'a> {
    /// Prepares a capture.
    ///
    /// # Errors
    /// It holds no trace.
    pub fn new(capture: &'a Capture) -> Result<Self, Error> {
        Self::with(capture, &CodeOptions::default())
    }

    /// Prepares a capture with what the user knows about its code.
    ///
    /// # Errors
    /// As for [`Session::new`]; also if code that the user gave can't be read.
    pub fn with(capture: &'a Capture, options: &CodeOptions) -> Result<Self, Error> {
        let base = base_time(capture);
        let streams = streams(capture, base);
        if capture.streams.is_empty() {
            return Err(Error::Empty);
        }
        Ok(Self {
            capture,
            timeline: code::timeline(capture, options)?,
            streams,
            base,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        })
    }

    /// Decodes on so many threads; without, on as many as this machine has. The result
    /// is the same.
    pub fn set_threads(&mut self, threads: NonZeroUsize) {
        self.threads = threads.get();
    }

    /// The code of the processes, over time.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The threads' traces.
    #[must_use]
    pub fn streams(&self) -> &[Stream<'a>] {
        &self.streams
    }

    /// Perf-clock time of picosecond zero.
    #[must_use]
    pub fn base(&self) -> PerfTime {
        self.base
    }

    /// The trace unit's settings.
    #[must_use]
    pub fn config(&self) -> &PtConfig {
        &self.capture.pt_config
    }

    /// What the recording is.
    #[must_use]
    pub fn recording(&self) -> Recording {
        let extra = self.capture.extra.as_ref();
        let source = match extra.map(|extra| &extra.source) {
            Some(SourceNote::Software { .. }) => Source::Software,
            _ => Source::Hardware,
        };
        Recording {
            base: self.base,
            wall_clock: extra.map(|extra| {
                extra
                    .wall_clock
                    .wrapping_add(self.base.0)
                    .wrapping_sub(extra.wall_clock_at)
            }),
            source,
            command: extra.map_or_else(Vec::new, |extra| extra.command.clone()),
        }
    }

    /// What is decoded.
    #[must_use]
    pub fn capture(&self) -> &'a Capture {
        self.capture
    }

    /// With what a stream is decoded.
    #[must_use]
    pub fn context(&self, stream: &Stream<'_>) -> Context<'_> {
        Context {
            timeline: &self.timeline,
            pid: stream.pid,
            config: &self.capture.pt_config,
            conversion: self.capture.clock,
            base: self.base,
        }
    }

    /// Decodes one stream into `sink`. After each segment `segment_done` is told how it ended and
    /// how many bytes of the stream are behind it; an error from it ends the walk.
    ///
    /// # Errors
    /// What `segment_done` returned.
    pub fn walk<S: Sink, E>(
        &self,
        stream: &Stream<'_>,
        sink: &mut S,
        mut segment_done: impl FnMut(&mut S, SegmentEnd, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let context = self.context(stream);
        for loss in &stream.losses {
            let broken = loss.bytes > 0;
            let end = lost(loss.bytes);
            sink.loss(loss.clone(), broken, 0);
            segment_done(sink, end, 0)?;
        }
        let (segments, mut heads) = segments(stream);
        let mut tell_heads =
            |sink: &mut S,
             place: usize,
             done: &mut dyn FnMut(&mut S, SegmentEnd, u64) -> Result<(), E>| {
                for (loss, behind) in std::mem::take(&mut heads[place]) {
                    let end = lost(loss.bytes);
                    sink.loss(loss, true, 0);
                    done(sink, end, behind)?;
                }
                Ok(())
            };
        tell_heads(sink, 0, &mut segment_done)?;
        parallel::decode(
            &segments,
            context,
            self.threads,
            sink,
            |sink, place, end| {
                let segment = &segments[place];
                let behind = segment.offset.0 + segment.bytes.len() as u64;
                segment_done(sink, end, behind)?;
                tell_heads(sink, place + 1, &mut segment_done)
            },
        )
    }

    /// Decodes everything into `sink`, and the statistics on the way.
    ///
    /// # Errors
    /// The sink could not write.
    pub fn run(
        &self,
        sink: &mut dyn SpanSink,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Summary, Error> {
        let mut statistics = Statistics::new();
        let mut summary = Summary {
            command: self.recording().command,
            ..Summary::default()
        };
        let mut both = Fanout::new();
        both.push(&mut statistics);
        both.push(sink);
        both.begin(&self.recording())?;
        let total = self.streams.iter().map(Stream::len).sum();
        let mut done = 0;
        let mut names = Names::new(&self.timeline);
        for (number, stream) in self.streams.iter().enumerate() {
            let track =
                TrackId(u32::try_from(number).expect("fewer than 2^32 streams fit in memory"));
            both.track(&Track {
                id: track,
                kind: TrackKind::Thread {
                    pid: stream.pid,
                    tid: stream.tid,
                },
                name: stream.name.clone(),
                process: self.process_name(stream.pid),
            })?;
            let execs = self.execs(stream.pid);
            let hits = triggers::hits(self.capture, self.base, stream.tid);
            let mut marked = WithHits::new(&mut both, track, hits);
            let mut builder =
                Builder::new(&mut names, stream.pid, self.base, execs, track, &mut marked);
            self.walk(stream, &mut builder, |builder, end, behind| {
                summary.clamps += end.clamps;
                summary.lost_bytes += end.lost_bytes;
                progress(Progress {
                    done: done + behind,
                    total,
                });
                builder.end_segment(end.instructions)
            })?;
            done += stream.len();
            summary.add(&builder.finish()?);
            marked.rest()?;
        }
        both.finish()?;
        drop(both);
        summary.trace_bytes = self.trace_bytes();
        summary.calls = statistics.calls();
        summary.ledger = statistics.take_ledger();
        summary.slowest = statistics.slowest();
        Ok(summary)
    }

    /// Bytes of trace in the capture, each counted once.
    fn trace_bytes(&self) -> u64 {
        let pieces = self.capture.streams.iter().flat_map(|s| &s.pieces);
        pieces
            .map(|piece| piece.range.end - piece.range.start)
            .sum()
    }

    fn process_name(&self, pid: u32) -> String {
        self.capture
            .process_name(pid)
            .map_or_else(|| format!("process {pid}"), str::to_owned)
    }

    /// When the process began to run a new image.
    fn execs(&self, pid: u32) -> Vec<Picos> {
        let times = self
            .capture
            .sideband
            .iter()
            .filter_map(|entry| match entry.record {
                Record::Comm { exec: true, .. } if entry.pid == Some(pid) => entry.time,
                _ => None,
            });
        times
            .map(|time| Picos(time.saturating_sub(self.base.0).saturating_mul(1000)))
            .collect()
    }
}

fn lost(bytes: u64) -> SegmentEnd {
    SegmentEnd {
        lost_bytes: bytes,
        ..SegmentEnd::default()
    }
}

/// The segments of a stream's parts; and for each, and for the end, the losses right before it and
/// the offset behind them.
fn segments<'s>(stream: &'s Stream<'_>) -> (Vec<Segment<'s>>, Vec<Vec<(Loss, u64)>>) {
    let (mut segments, mut heads) = (Vec::new(), vec![Vec::new()]);
    for part in &stream.parts {
        let (of_part, before_first_psb) = part.segments();
        if let Some(loss) = head(part, before_first_psb) {
            heads[segments.len()].push((loss, part.range.start + before_first_psb));
        }
        segments.extend(of_part);
        heads.resize_with(segments.len() + 1, Vec::new);
    }
    (segments, heads)
}

/// The loss at the head of a part.
fn head(part: &Part<'_>, before_first_psb: u64) -> Option<Loss> {
    let (cause, reason) = match &part.missing {
        Some(missing) => missing.clone(),
        None if before_first_psb == 0 => return None,
        None => (LossCause::BeforeFirstPsb, BEFORE_FIRST_PSB.to_owned()),
    };
    Some(Loss {
        cause,
        bytes: before_first_psb,
        offset: TraceOffset(part.range.start),
        begin: Picos(0),
        end: Picos(0),
        ip: None,
        reason,
    })
}
