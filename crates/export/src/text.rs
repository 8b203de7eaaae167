//! What every format says in the same words.

use ptrail_pt::{PerfTime, Picos};
use ptrail_trace::{PointKind, Source, SpanFlags, Track};

/// Perf-clock time in whole nanoseconds, rounded down, so that order and nesting survive.
pub(crate) fn nanos(base: PerfTime, at: Picos) -> u64 {
    base.0.saturating_add(at.0 / 1000)
}

/// The flags as one string, such as `inferred, cut`.
pub(crate) fn flag_names(flags: SpanFlags) -> String {
    flags.names().collect::<Vec<_>>().join(", ")
}

/// The name of the track that shows points of a kind.
pub(crate) fn point_track(kind: PointKind) -> &'static str {
    match kind {
        PointKind::Signal => "signals",
        PointKind::Exec => "exec",
        PointKind::Trigger => "triggers",
        _ => "events",
    }
}

/// What the recording is, for people.
pub(crate) fn provenance(source: Source) -> &'static str {
    match source {
        Source::Hardware => "hardware trace",
        Source::Software => "software recorder, virtual clock",
    }
}

/// A process's name, with the note that its times are not real if they are not. Viewers show it
/// above everything else, and nothing else so surely.
pub(crate) fn process_name(track: &Track, source: Source) -> String {
    match source {
        Source::Hardware => track.process.clone(),
        Source::Software => format!("{} (virtual clock)", track.process),
    }
}
