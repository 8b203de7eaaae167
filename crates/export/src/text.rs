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

/// The name of a kind of point, for programs.
pub(crate) fn point_kind(kind: PointKind) -> &'static str {
    match kind {
        PointKind::Signal => "signal",
        PointKind::Exec => "exec",
        PointKind::Trigger => "trigger",
        _ => "event",
    }
}

/// What the recording is, for people.
pub(crate) fn provenance(source: Source) -> &'static str {
    match source {
        Source::Hardware => "hardware trace",
        Source::Software => "software recorder, virtual clock",
    }
}

/// What is added to names where the times under them are not real.
pub(crate) fn clock_note(source: Source) -> &'static str {
    match source {
        Source::Hardware => "",
        Source::Software => " (virtual clock)",
    }
}

/// A process's name, with the note that its times are not real if they are not. Viewers show it
/// above everything else, and nothing else so surely.
pub(crate) fn process_name(track: &Track, source: Source) -> String {
    format!("{}{}", track.process, clock_note(source))
}

/// A name for formats of lines: without control characters or spaces around it, and not empty.
pub(crate) fn one_line(name: &str) -> String {
    let spaced: String = name
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match spaced.trim() {
        "" => "[unnamed]".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}
