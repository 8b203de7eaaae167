//! A capture with everything that decoding it needs.

use std::borrow::Cow;

use ptrail_flow::{Context, SegmentEnd, Sink, cut};
use ptrail_image::{Mapping, Timeline, TimelineBuilder};
use ptrail_perfdata::{AuxStream, Capture, Owner, Record, SourceNote};
use ptrail_pt::{Lexer, Loss, LossCause, Packet, PerfTime, Picos, PtConfig, TraceOffset, Tsc};
use ptrail_stack::Builder;
use ptrail_trace::{Fanout, Recording, SinkError, Source, SpanSink, Track, TrackId, TrackKind};

use crate::{Statistics, Summary, parallel};

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
    /// The trace is per CPU.
    #[error(
        "the capture was recorded per CPU, which ptrail can't decode yet; record one thread at a time \
         (`perf record --per-thread -e intel_pt//u -- PROGRAM`)"
    )]
    PerCpu,
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

/// One thread's trace.
pub struct Stream<'a> {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Name of the thread.
    pub name: String,
    /// All its packets.
    pub bytes: Cow<'a, [u8]>,
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
    /// It holds no trace, or one per CPU.
    pub fn new(capture: &'a Capture) -> Result<Self, Error> {
        let streams: Vec<_> = capture
            .streams
            .iter()
            .map(|stream| assemble(capture, stream))
            .collect::<Result<_, _>>()?;
        if streams.iter().all(|stream| stream.bytes.is_empty()) {
            return Err(Error::Empty);
        }
        let base = base_time(capture, &streams);
        Ok(Self {
            capture,
            timeline: timeline(capture),
            streams,
            base,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        })
    }

    /// Decodes on so many threads (at least 1); without, on as many as this machine has. The result
    /// is the same.
    pub fn set_threads(&mut self, threads: usize) {
        self.threads = threads.max(1);
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
        let context = Context {
            timeline: &self.timeline,
            pid: stream.pid,
            config: &self.capture.pt_config,
            conversion: self.capture.clock,
            base: self.base,
        };
        let cut = cut(&stream.bytes, TraceOffset(0));
        if cut.before_first_psb > 0 {
            sink.loss(before_first_psb(cut.before_first_psb), true, 0);
            let end = SegmentEnd {
                instructions: 0,
                lost_bytes: cut.before_first_psb,
                clamps: 0,
            };
            segment_done(sink, end, cut.before_first_psb)?;
        }
        let segments = &cut.segments;
        parallel::decode(segments, context, self.threads, sink, |sink, place, end| {
            let segment = &segments[place];
            let behind = segment.offset.0 + segment.bytes.len() as u64;
            segment_done(sink, end, behind)
        })
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
        let total = self
            .streams
            .iter()
            .map(|stream| stream.bytes.len() as u64)
            .sum();
        let mut done = 0;
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
            let mut builder = Builder::new(
                &self.timeline,
                stream.pid,
                self.base,
                execs,
                track,
                &mut both,
            );
            self.walk(stream, &mut builder, |builder, end, behind| {
                summary.clamps += end.clamps;
                summary.lost_bytes += end.lost_bytes;
                progress(Progress {
                    done: done + behind,
                    total,
                });
                builder.end_segment(end.instructions)
            })?;
            done += stream.bytes.len() as u64;
            summary.add(&builder.finish()?);
        }
        both.finish()?;
        drop(both);
        summary.trace_bytes = total;
        summary.calls = statistics.calls();
        summary.ledger = statistics.take_ledger();
        summary.slowest = statistics.slowest();
        Ok(summary)
    }

    fn process_name(&self, pid: u32) -> String {
        name_of(self.capture, |record_pid, tid| {
            record_pid == Some(pid) && tid == Some(pid)
        })
        .unwrap_or_else(|| format!("process {pid}"))
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

fn before_first_psb(bytes: u64) -> Loss {
    Loss {
        cause: LossCause::BeforeFirstPsb,
        bytes,
        offset: TraceOffset(0),
        begin: Picos(0),
        end: Picos(0),
        ip: None,
        reason: "the recording starts between two PSB packets; decoding starts at the first one"
            .into(),
    }
}

/// Puts a stream's pieces together; a single piece is not copied.
fn assemble<'a>(capture: &'a Capture, stream: &AuxStream) -> Result<Stream<'a>, Error> {
    let Owner::Thread { pid, tid } = stream.owner else {
        return Err(Error::PerCpu);
    };
    let pid = pid.unwrap_or(tid);
    let bytes = match stream.pieces.as_slice() {
        [piece] => Cow::Borrowed(capture.bytes(piece)),
        pieces => Cow::Owned(
            pieces
                .iter()
                .flat_map(|piece| capture.bytes(piece))
                .copied()
                .collect(),
        ),
    };
    let name = name_of(capture, |_, record_tid| record_tid == Some(tid))
        .unwrap_or_else(|| format!("thread {tid}"));
    Ok(Stream {
        pid,
        tid,
        name,
        bytes,
    })
}

/// The last name given to a thread that `is` accepts.
fn name_of(capture: &Capture, is: impl Fn(Option<u32>, Option<u32>) -> bool) -> Option<String> {
    capture
        .sideband
        .iter()
        .rev()
        .find_map(|entry| match &entry.record {
            Record::Comm { name, .. } if is(entry.pid, entry.tid) => Some(name.clone()),
            _ => None,
        })
}

/// The earliest time that the capture knows.
fn base_time(capture: &Capture, streams: &[Stream<'_>]) -> PerfTime {
    let records = capture
        .sideband
        .iter()
        .filter_map(|entry| entry.time)
        .filter(|&time| time > 0);
    let packets = streams
        .iter()
        .filter_map(|stream| first_tsc(&stream.bytes))
        .map(|tsc| {
            capture
                .clock
                .map_or(PerfTime(tsc.0), |clock| clock.to_perf(tsc))
                .0
        });
    PerfTime(records.chain(packets).min().unwrap_or(0))
}

fn first_tsc(bytes: &[u8]) -> Option<Tsc> {
    let segments = cut(bytes, TraceOffset(0)).segments;
    let mut packets = Lexer::new(segments.first()?.bytes, TraceOffset(0));
    packets.find_map(|item| match item.ok()?.packet {
        Packet::Tsc(tsc) => Some(Tsc(tsc)),
        _ => None,
    })
}

/// Builds the address spaces from the sideband and the captured code.
fn timeline(capture: &Capture) -> Timeline {
    let mut builder = TimelineBuilder::new();
    for entry in &capture.sideband {
        let (pid, time) = (entry.pid.unwrap_or(0), PerfTime(entry.time.unwrap_or(0)));
        match &entry.record {
            Record::Mmap2 {
                address,
                len,
                file_offset,
                executable: true,
                path,
                build_id,
            } => {
                builder.map(
                    pid,
                    time,
                    Mapping {
                        address: *address,
                        len: *len,
                        file_offset: *file_offset,
                        path: path.clone(),
                        build_id: build_id.clone(),
                    },
                );
            }
            Record::Comm { exec: true, .. } => builder.exec(pid, time),
            Record::Fork { parent_pid, .. } if *parent_pid != pid => {
                builder.fork(pid, *parent_pid, time)
            }
            _ => {}
        }
    }
    for blob in capture.extra.iter().flat_map(|extra| &extra.code) {
        builder.code(
            blob.pid,
            PerfTime(blob.time),
            blob.address,
            &blob.name,
            blob.bytes.clone(),
        );
    }
    builder.build()
}
