//! The trace of each thread, put together from the capture's buffers.
//!
//! A thread's own buffer is its stream. A CPU's buffer is divided among the threads that ran
//! ([`crate::shares`]); a thread's shares of several CPUs follow each other in time. What belongs to
//! nobody is a loss of that CPU.

use std::collections::BTreeMap;
use std::ops::Range;

use ptrail_flow::Segment;
use ptrail_perfdata::{AuxStream, Capture, Gap, Owner, Record};
use ptrail_pt::{Loss, LossCause, PerfTime, Picos, TraceOffset};

use crate::chunks::{self, Chunk};
use crate::schedule::{Schedule, Thread};
use crate::shares::{self, Setting, Turn};

/// `PERF_AUX_FLAG_*` in `linux/perf_event.h`.
const AUX_TRUNCATED: u64 = 1;
const AUX_PARTIAL: u64 = 4;
const AUX_COLLISION: u64 = 8;

/// One thread's trace.
pub struct Stream<'a> {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Name of the thread.
    pub name: String,
    /// Its uninterrupted parts, one behind the other; together they are all of it.
    pub parts: Vec<Part<'a>>,
    /// What of it was lost before decoding.
    pub losses: Vec<Loss>,
}

/// Packets that follow each other without a break.
pub struct Part<'a> {
    /// Where in the stream.
    pub range: Range<u64>,
    /// Why it does not go on where the part before it ends, and one sentence for people.
    pub missing: Option<(LossCause, String)>,
    chunks: Vec<Chunk<'a>>,
}

impl Stream<'_> {
    /// How many bytes of packets it has.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.parts.last().map_or(0, |last| last.range.end)
    }

    /// Whether it has no packets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Part<'_> {
    /// Its segments, one for each PSB, and how many bytes are before the first.
    #[must_use]
    pub fn segments(&self) -> (Vec<Segment<'_>>, u64) {
        chunks::segments(&self.chunks)
    }

    fn owned(bytes: Vec<u8>) -> Self {
        Part {
            range: 0..bytes.len() as u64,
            missing: None,
            chunks: vec![Chunk::owned(bytes)],
        }
    }
}

/// All streams of a capture.
pub(crate) fn streams(capture: &Capture, base: PerfTime) -> Vec<Stream<'_>> {
    let mut all = Vec::new();
    let mut cpus = Vec::new();
    for stream in &capture.streams {
        let (pid, tid) = match stream.owner {
            Owner::Thread { pid, tid } => (pid.unwrap_or(tid), tid),
            Owner::Unknown => (0, 0),
            Owner::Cpu(cpu) => {
                cpus.push((cpu, stream));
                continue;
            }
        };
        all.push(Stream {
            pid,
            tid,
            name: name(capture, tid),
            parts: parts(capture, stream),
            losses: Vec::new(),
        });
    }
    all.extend(of_cpus(capture, &cpus, base));
    if let Some(first) = all.first_mut() {
        first.losses.extend(lost_sideband(capture, base));
    }
    all
}

fn name(capture: &Capture, tid: u32) -> String {
    capture
        .thread_name(tid)
        .map_or_else(|| format!("thread {tid}"), str::to_owned)
}

/// The parts of a stream: cut where the file or the kernel says that something is missing.
fn parts<'a>(capture: &'a Capture, stream: &AuxStream) -> Vec<Part<'a>> {
    let mut breaks: BTreeMap<u64, (LossCause, String)> = BTreeMap::new();
    let mut at = 0;
    for piece in &stream.pieces {
        match piece.gap {
            Some(Gap::Bytes(bytes)) => {
                let reason = format!("the capture lacks {bytes} bytes of trace here");
                breaks.insert(at, (LossCause::AuxGap, reason));
            }
            Some(Gap::Overwritten) => {
                let reason = "another snapshot begins here; what ran in between was overwritten";
                breaks.insert(at, (LossCause::AuxGap, reason.to_owned()));
            }
            None => {}
        }
        at += piece.range.end - piece.range.start;
    }
    let end = at;
    for (aux_end, why) in holes(capture, stream.owner) {
        if let Some(place) = place(stream, aux_end) {
            breaks.entry(place).or_insert(why);
        }
    }
    let first = breaks.remove(&0);
    let starts: Vec<_> = std::iter::once((0, first))
        .chain(breaks.into_iter().map(|(at, why)| (at, Some(why))))
        .collect();
    let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([end]);
    let ends: Vec<u64> = ends.collect();
    starts
        .into_iter()
        .zip(ends)
        .map(|((start, missing), end)| Part {
            range: start..end,
            missing,
            chunks: chunks::divide(&buffers(capture, stream, start..end), start),
        })
        .collect()
}

/// The bytes of a part of a stream, as they stand in the files.
fn buffers<'a>(capture: &'a Capture, stream: &AuxStream, part: Range<u64>) -> Vec<&'a [u8]> {
    let mut at = 0;
    let mut buffers = Vec::new();
    for piece in &stream.pieces {
        let bytes = capture.bytes(piece);
        let len = bytes.len() as u64;
        let (start, end) = (part.start.clamp(at, at + len), part.end.clamp(at, at + len));
        if start < end {
            buffers.push(&bytes[(start - at) as usize..(end - at) as usize]);
        }
        at += len;
    }
    buffers
}

/// Where the kernel says that it could not go on writing, by the AUX area's own count.
fn holes(
    capture: &Capture,
    owner: Owner,
) -> impl Iterator<Item = (u64, (LossCause, String))> + use<'_> {
    capture.sideband.iter().filter_map(move |entry| {
        let Record::Aux {
            aux_offset,
            size,
            flags,
        } = entry.record
        else {
            return None;
        };
        let ours = match owner {
            Owner::Cpu(cpu) => entry.cpu == Some(cpu),
            Owner::Thread { tid, .. } => entry.tid == Some(tid),
            Owner::Unknown => false,
        };
        let why = if flags & AUX_COLLISION != 0 {
            let reason = "another user of the trace unit had it here; record without the other one";
            (LossCause::AuxCollision, reason)
        } else if flags & AUX_TRUNCATED != 0 {
            let reason = "the buffer was full here; record with a larger one (perf's -m,64M)";
            (LossCause::AuxTruncated, reason)
        } else if flags & AUX_PARTIAL != 0 {
            let reason = "the CPU was in a virtual machine here, which is not traced";
            (LossCause::AuxGap, reason)
        } else {
            return None;
        };
        let why = (why.0, why.1.to_owned());
        ours.then_some((aux_offset.saturating_add(size), why))
    })
}

/// The place in the stream of an offset in the AUX area's own count.
fn place(stream: &AuxStream, aux: u64) -> Option<u64> {
    let mut at = 0;
    for piece in &stream.pieces {
        let len = piece.range.end - piece.range.start;
        if let Some(inside) = aux.checked_sub(piece.aux_offset)
            && inside <= len
        {
            return Some(at + inside);
        }
        at += len;
    }
    None
}

/// A CPU's turns with what they are turns of.
struct Divided<'a> {
    cpu: u32,
    parts: Vec<Part<'a>>,
    turns: Vec<(usize, Turn)>,
}

/// Divides the streams of all CPUs.
fn of_cpus<'a>(
    capture: &'a Capture,
    cpus: &[(u32, &AuxStream)],
    base: PerfTime,
) -> Vec<Stream<'a>> {
    let setting = Setting {
        config: &capture.pt_config,
        conversion: capture.clock,
        base,
    };
    let divided: Vec<Divided<'_>> = cpus
        .iter()
        .map(|&(cpu, stream)| {
            let schedule = Schedule::of(capture, cpu, base);
            let parts = parts(capture, stream);
            let mut turns = Vec::new();
            for (number, part) in parts.iter().enumerate() {
                let found = shares::turns(&part.segments().0, setting, &schedule);
                turns.extend(found.into_iter().map(|turn| (number, turn)));
            }
            Divided { cpu, parts, turns }
        })
        .collect();
    let mut threads: BTreeMap<Thread, Vec<(usize, usize, &Turn)>> = BTreeMap::new();
    for (number, cpu) in divided.iter().enumerate() {
        for (part, turn) in &cpu.turns {
            if let Some(thread) = turn.thread {
                threads
                    .entry(thread)
                    .or_default()
                    .push((number, *part, turn));
            }
        }
    }
    let segments: Vec<Vec<Vec<Segment<'_>>>> = divided
        .iter()
        .map(|cpu| cpu.parts.iter().map(|part| part.segments().0).collect())
        .collect();
    let of_threads = threads.into_iter().map(|(thread, mut turns)| {
        turns.sort_by_key(|(_, _, turn)| turn.begin);
        let bytes = join(&segments, &turns, setting);
        Stream {
            pid: thread.pid,
            tid: thread.tid,
            name: name(capture, thread.tid),
            parts: vec![Part::owned(bytes)],
            losses: Vec::new(),
        }
    });
    let mut streams: Vec<_> = of_threads.collect();
    streams.extend(divided.iter().filter_map(nobodys));
    streams
}

/// A thread's turns as one stream: those that follow each other in the same segment share a copy of
/// it. `segments` are by CPU and part.
fn join(
    segments: &[Vec<Vec<Segment<'_>>>],
    turns: &[(usize, usize, &Turn)],
    setting: Setting<'_>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let same = |a: &(usize, usize, &Turn), b: &(usize, usize, &Turn)| {
        (a.0, a.1, a.2.segment) == (b.0, b.1, b.2.segment) && a.2.range.end <= b.2.range.start
    };
    for of_segment in turns.chunk_by(same) {
        let (cpu, part, turn) = of_segment[0];
        let ranges: Vec<_> = of_segment.iter().map(|(_, _, t)| t.range.clone()).collect();
        let segment = &segments[cpu][part][turn.segment];
        bytes.extend(shares::share(segment, setting, &ranges));
    }
    bytes
}

/// What of a CPU's stream belongs to nobody, as losses; `None` if nothing does.
fn nobodys<'a>(cpu: &Divided<'_>) -> Option<Stream<'a>> {
    let mut losses: Vec<Loss> = Vec::new();
    for part in &cpu.parts {
        let (_, before) = part.segments();
        let (cause, reason) = match &part.missing {
            Some(missing) => missing.clone(),
            None if before == 0 => continue,
            None => (LossCause::BeforeFirstPsb, BEFORE_FIRST_PSB.to_owned()),
        };
        let offset = TraceOffset(part.range.start);
        losses.push(loss(cause, before, offset, Picos(0), reason));
    }
    let unknown = cpu.turns.iter().filter(|(_, turn)| turn.thread.is_none());
    let mut last_segment = None;
    for (part, turn) in unknown {
        let len = turn.range.end - turn.range.start;
        let segment = Some((*part, turn.segment));
        match losses.last_mut() {
            Some(last) if segment == last_segment => {
                last.bytes += len;
                last.end = last.end.max(turn.begin);
            }
            _ => {
                let reason = format!(
                    "no context switch record says which thread ran on CPU {} here",
                    cpu.cpu
                );
                let offset = TraceOffset(turn.range.start);
                let cause = LossCause::Unattributed;
                losses.push(loss(cause, len, offset, turn.begin, reason));
            }
        }
        last_segment = segment;
    }
    (!losses.is_empty()).then(|| Stream {
        pid: 0,
        tid: cpu.cpu,
        name: format!("cpu {}", cpu.cpu),
        parts: Vec::new(),
        losses,
    })
}

/// Why decoding does not start with the first byte.
pub(crate) const BEFORE_FIRST_PSB: &str =
    "the recording starts between two PSB packets; decoding starts at the first one";

fn loss(cause: LossCause, bytes: u64, offset: TraceOffset, at: Picos, reason: String) -> Loss {
    Loss {
        cause,
        bytes,
        offset,
        begin: at,
        end: at,
        ip: None,
        reason,
    }
}

/// Records that perf lost: mappings and switches may be among them.
fn lost_sideband(capture: &Capture, base: PerfTime) -> impl Iterator<Item = Loss> + use<'_> {
    capture.sideband.iter().filter_map(move |entry| {
        let Record::Lost(count) = entry.record else {
            return None;
        };
        let time = entry.time.unwrap_or(base.0);
        let at = Picos(time.saturating_sub(base.0).saturating_mul(1000));
        let reason = format!(
            "perf lost {count} records here, maybe of mappings or context switches; record with a \
             larger buffer (perf's -m)"
        );
        Some(loss(LossCause::SidebandLost, 0, TraceOffset(0), at, reason))
    })
}
