//! Packets, descriptors and track numbers, as the writer needs them.

use ptrail_pt::{Loss, PerfTime};
use ptrail_trace::{Recording, Source, Track, TrackKind};

use super::{
    args::Arg,
    proto::{
        CHILD_ORDERING_EXPLICIT, CLOCK_MONOTONIC, CLOCK_OF_SEQUENCE, CLOCK_REALTIME, Clock,
        ClockSnapshot, CounterDescriptor, DebugAnnotation, InternedData, ProcessDescriptor,
        SEQ_INCREMENTAL_STATE_CLEARED, SEQ_NEEDS_INCREMENTAL_STATE, TYPE_COUNTER, TYPE_INSTANT,
        ThreadDescriptor, TracePacket, TracePacketDefaults, TrackDescriptor, TrackEvent,
        TrackEventDefaults,
    },
};
use crate::text::process_name;

/// Levels on one track; the trace processor drops what lies deeper.
const LEVELS: i64 = 512;
/// How many of them a thread's own track keeps free for callers found late.
const LATE_LEVELS: i64 = 128;

/// The sequence of everything that belongs to no track's own.
const COMMON_SEQUENCE: u32 = 1;

/// Track numbers: the kind of track in the upper half, what it is for in the lower.
pub(super) mod uuid {
    const fn of(kind: u64, id: u32) -> u64 {
        kind << 32 | id as u64
    }
    pub(in super::super) const RECORDING: u64 = of(1, 0);
    pub(in super::super) const fn process(pid: u32) -> u64 {
        of(2, pid)
    }
    pub(in super::super) const fn thread(track: u32) -> u64 {
        of(3, track)
    }
    pub(in super::super) const fn losses(track: u32) -> u64 {
        of(4, track)
    }
    pub(in super::super) const fn rate(track: u32) -> u64 {
        of(5, track)
    }
    pub(in super::super) const fn points(pid: u32, rank: u64) -> u64 {
        of(0x100 + rank, pid)
    }
    /// Bands lie within ±2³² / 512.
    pub(in super::super) const fn band(track: u32, band: i64) -> u64 {
        of((0x4000_0000 + band) as u64, track)
    }
}

/// A packet of the common sequence. Its defaults give the clock, its first packet the arguments'
/// names; everything else it says itself.
pub(super) fn common() -> TracePacket {
    TracePacket {
        trusted_packet_sequence_id: Some(COMMON_SEQUENCE),
        sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
        ..Default::default()
    }
}

/// The same with an event, at a perf-clock time in nanoseconds.
pub(super) fn common_event(timestamp: u64, event: TrackEvent) -> TracePacket {
    TracePacket {
        timestamp: Some(timestamp),
        track_event: Some(event),
        ..common()
    }
}

/// The same with a track's descriptor.
pub(super) fn common_descriptor(descriptor: TrackDescriptor) -> TracePacket {
    TracePacket {
        track_descriptor: Some(Box::new(descriptor)),
        ..common()
    }
}

/// Number of the sequence of a track's own. Tracks are fewer than 2³² - 2.
pub(super) fn sequence(track: u32) -> u32 {
    track.wrapping_add(COMMON_SEQUENCE + 1)
}

fn clock(id: u32, timestamp: u64) -> Clock {
    Clock {
        clock_id: Some(id),
        timestamp: Some(timestamp),
        is_incremental: None,
    }
}

/// A sequence's first packet: clears, interns the arguments' names, sets defaults and clocks.
fn sequence_start(
    sequence: u32,
    clocks: ClockSnapshot,
    defaults: TracePacketDefaults,
) -> TracePacket {
    let interned = InternedData {
        debug_annotation_names: Arg::names(),
        ..Default::default()
    };
    TracePacket {
        clock_snapshot: Some(clocks),
        trace_packet_defaults: Some(defaults),
        trusted_packet_sequence_id: Some(sequence),
        sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED | SEQ_NEEDS_INCREMENTAL_STATE),
        first_packet_on_sequence: Some(true),
        interned_data: Some(Box::new(interned)),
        ..Default::default()
    }
}

/// The start of the common sequence, and of the file.
pub(super) fn common_start(recording: &Recording) -> TracePacket {
    let mut clocks = vec![clock(CLOCK_MONOTONIC, recording.base.0)];
    clocks.extend(recording.wall_clock.map(|at| clock(CLOCK_REALTIME, at)));
    let clocks = ClockSnapshot {
        clocks,
        primary_trace_clock: Some(CLOCK_MONOTONIC),
    };
    let defaults = TracePacketDefaults {
        timestamp_clock_id: Some(CLOCK_MONOTONIC),
        track_event_defaults: None,
    };
    sequence_start(COMMON_SEQUENCE, clocks, defaults)
}

/// The start of a track's own sequence, whose clock then stands at the base.
pub(super) fn track_start(track: u32, base: PerfTime) -> TracePacket {
    let own = Clock {
        is_incremental: Some(true),
        ..clock(CLOCK_OF_SEQUENCE, 0)
    };
    let clocks = ClockSnapshot {
        clocks: vec![own, clock(CLOCK_MONOTONIC, base.0)],
        primary_trace_clock: None,
    };
    let defaults = TracePacketDefaults {
        timestamp_clock_id: Some(CLOCK_OF_SEQUENCE),
        track_event_defaults: Some(TrackEventDefaults {
            track_uuid: Some(uuid::thread(track)),
        }),
    };
    sequence_start(sequence(track), clocks, defaults)
}

pub(super) fn process_descriptor(track: &Track, source: Source) -> TrackDescriptor {
    let TrackKind::Thread { pid, .. } = track.kind;
    let process = ProcessDescriptor {
        pid: Some(pid.cast_signed()),
        process_name: Some(process_name(track, source)),
    };
    TrackDescriptor {
        uuid: Some(uuid::process(pid)),
        process: Some(process),
        ..Default::default()
    }
}

/// A thread's descriptor. It stands on the track's own sequence: the trace processor ties a
/// sequence to the last thread that is described on it.
pub(super) fn thread_descriptor(track: &Track) -> TracePacket {
    let TrackKind::Thread { pid, tid } = track.kind;
    let thread = ThreadDescriptor {
        pid: Some(pid.cast_signed()),
        tid: Some(i64::from(tid)),
        thread_name: Some(track.name.clone()),
    };
    let descriptor = TrackDescriptor {
        uuid: Some(uuid::thread(track.id.0)),
        parent_uuid: Some(uuid::process(pid)),
        thread: Some(thread),
        child_ordering: Some(CHILD_ORDERING_EXPLICIT),
        ..Default::default()
    };
    TracePacket {
        trusted_packet_sequence_id: Some(sequence(track.id.0)),
        ..common_descriptor(descriptor)
    }
}

/// The descriptor of a track that shows something else than a thread's calls.
pub(super) fn named_descriptor(uuid: u64, parent: Option<u64>, name: String) -> TrackDescriptor {
    TrackDescriptor {
        uuid: Some(uuid),
        name: Some(name),
        parent_uuid: parent,
        ..Default::default()
    }
}

/// Which of a thread's tracks shows a level; 0 is its own.
pub(super) fn band_of(level: i64) -> i64 {
    (level + LATE_LEVELS).div_euclid(LEVELS)
}

pub(super) fn band_descriptor(track: u32, band: i64) -> TrackDescriptor {
    let first = band * LEVELS - LATE_LEVELS;
    let name = format!("levels {first} to {}", first + LEVELS - 1);
    TrackDescriptor {
        sibling_order_rank: i32::try_from(band).ok(),
        ..named_descriptor(uuid::band(track, band), Some(uuid::thread(track)), name)
    }
}

pub(super) fn losses_descriptor(track: u32) -> TrackDescriptor {
    let name = "trace losses".to_owned();
    TrackDescriptor {
        sibling_order_rank: Some(i32::MAX),
        ..named_descriptor(uuid::losses(track), Some(uuid::thread(track)), name)
    }
}

/// The descriptor of the track that counts a thread's instructions.
pub(super) fn rate_descriptor(track: u32) -> TrackDescriptor {
    let name = "instructions per µs".to_owned();
    TrackDescriptor {
        counter: Some(CounterDescriptor {
            unit_name: Some("instructions/µs".to_owned()),
        }),
        sibling_order_rank: Some(i32::MIN),
        ..named_descriptor(uuid::rate(track), Some(uuid::thread(track)), name)
    }
}

/// A value of that track, from now on.
pub(super) fn rate_event(track: u32, value: f64) -> TrackEvent {
    TrackEvent {
        r#type: Some(TYPE_COUNTER),
        track_uuid: Some(uuid::rate(track)),
        double_counter_value: Some(value),
        ..Default::default()
    }
}

/// An event of the common sequence at one moment; with another type, a slice's begin or end.
pub(super) fn instant(track_uuid: u64, name: String, args: Vec<DebugAnnotation>) -> TrackEvent {
    TrackEvent {
        debug_annotations: args,
        r#type: Some(TYPE_INSTANT),
        track_uuid: Some(track_uuid),
        name: Some(name),
        ..Default::default()
    }
}

pub(super) fn loss_args(loss: &Loss) -> Vec<DebugAnnotation> {
    let mut args = vec![
        Arg::Cause.text(loss.cause.name()),
        Arg::Reason.text(&loss.reason),
        Arg::Bytes.uint(loss.bytes),
        Arg::TraceOffset.hex(loss.offset.0),
    ];
    args.extend(loss.ip.map(|ip| Arg::Address.pointer(ip)));
    args
}
