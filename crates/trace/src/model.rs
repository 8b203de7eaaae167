//! Spans, tracks, functions and points.

use bitflags::bitflags;
use ptrail_pt::{Ip, PerfTime, Picos};

/// Number of a track, dense from 0 in the order of announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(pub u32);

/// Number of a function, dense from 0 in the order of announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

/// What a recording is, known before its first span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The perf-clock time at which [`Picos`] are zero.
    pub base: PerfTime,
    /// Wall-clock time of the base, nanoseconds since the Unix epoch, if the capture says.
    pub wall_clock: Option<u64>,
    /// Who wrote the packets.
    pub source: Source,
    /// Command line of the recorded program, if known.
    pub command: Vec<String>,
}

/// Who wrote the packets, and so what their times mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Source {
    /// A CPU's trace unit: real time.
    #[default]
    Hardware,
    /// The software recorder: its virtual clock.
    Software,
}

/// What a track shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrackKind {
    /// A thread's calls.
    Thread {
        /// Process id.
        pid: u32,
        /// Thread id.
        tid: u32,
    },
}

/// A row of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// Its number.
    pub id: TrackId,
    /// What it shows.
    pub kind: TrackKind,
    /// Its name: the thread's, or the process's.
    pub name: String,
    /// The process's name.
    pub process: String,
}

/// A function, named once and then referred to by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its number.
    pub id: FunctionId,
    /// Readable (demangled) name, or an address form such as `sub_4a30` where no name is known.
    pub name: String,
    /// The name as it stands in the symbol table, if it differs.
    pub mangled: Option<String>,
    /// File name of the image it is from, without folders (`libc.so.6`, `[vdso]`); empty if none.
    pub module: String,
    /// Its first address.
    pub address: Ip,
    /// Where it stands in the source, if debug information says.
    pub source: Option<SourceLine>,
}

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file, as the compiler was given it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

bitflags! {
    /// How a span is known, and what it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct SpanFlags: u16 {
        /// Its call was not seen; its begin is where the recording, or the part after a loss,
        /// begins.
        const INFERRED = 1 << 0;
        /// It was found only when it was returned to, so there was no `open` for it. Only
        /// together with `INFERRED`.
        const LATE = 1 << 1;
        /// It was still open when the recording ended or data was lost.
        const CUT = 1 << 2;
        /// It was left by longjmp, an exception or the like, not by its own return.
        const UNWOUND = 1 << 3;
        /// Decoded by a rule that may be wrong here.
        const GUESSED = 1 << 4;
        /// It ran in a transaction that was taken back.
        const ABORTED = 1 << 5;
        /// Kernel code.
        const KERNEL = 1 << 6;
        /// Entered by a signal or an interrupt, not by a call.
        const ASYNC = 1 << 7;
        /// Time outside the traced code (a system call, an interrupt), not a function.
        const GAP = 1 << 8;
        /// Entered by a jump that replaced its caller's frame.
        const TAIL_CALL = 1 << 9;
        /// The rest of a call whose stack was left for another one and gone back to: it began
        /// before, in a span that is over.
        const RESUMED = 1 << 10;
    }
}

impl SpanFlags {
    /// The set flags' names in outputs, such as `inferred`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(SpanFlags, &str); 11] = [
            (SpanFlags::INFERRED, "inferred"),
            (SpanFlags::LATE, "late"),
            (SpanFlags::CUT, "cut"),
            (SpanFlags::UNWOUND, "unwound"),
            (SpanFlags::GUESSED, "guessed"),
            (SpanFlags::ABORTED, "aborted"),
            (SpanFlags::KERNEL, "kernel"),
            (SpanFlags::ASYNC, "async"),
            (SpanFlags::GAP, "gap"),
            (SpanFlags::TAIL_CALL, "tail-call"),
            (SpanFlags::RESUMED, "resumed"),
        ];
        NAMES
            .into_iter()
            .filter(move |(flag, _)| self.contains(*flag))
            .map(|(_, name)| name)
    }
}

/// A function was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Where.
    pub track: TrackId,
    /// Which.
    pub function: FunctionId,
    /// When.
    pub begin: Picos,
    /// Address of the call or jump that entered it, if seen.
    pub call_site: Option<Ip>,
    /// What is known so far.
    pub flags: SpanFlags,
}

/// A function was left: the whole span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where.
    pub track: TrackId,
    /// Which.
    pub function: FunctionId,
    /// When it was entered.
    pub begin: Picos,
    /// When it was left, at or after `begin`.
    pub end: Picos,
    /// Number of spans around it, relative to the first function of its track (or of the part
    /// after a loss), which has 0; callers found late have negative depths.
    pub depth: i32,
    /// Address of the call or jump that entered it, if seen.
    pub call_site: Option<Ip>,
    /// Instructions executed in it and everything it called.
    pub instructions: u64,
    /// Instructions executed in it alone.
    pub self_instructions: u64,
    /// How it is known.
    pub flags: SpanFlags,
}

/// How many instructions ran in a stretch of time on a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Where.
    pub track: TrackId,
    /// From when.
    pub begin: Picos,
    /// Until when; after `begin`.
    pub end: Picos,
    /// Instructions decoded in that time.
    pub instructions: u64,
}

impl Rate {
    /// Instructions in a microsecond.
    #[must_use]
    pub fn per_microsecond(&self) -> f64 {
        self.instructions as f64 * 1e6 / self.end.0.saturating_sub(self.begin.0).max(1) as f64
    }
}

/// Something that happened at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Where.
    pub track: TrackId,
    /// When.
    pub at: Picos,
    /// What.
    pub kind: PointKind,
    /// One line for people.
    pub text: String,
}

/// Kinds of [`Point`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PointKind {
    /// A signal was delivered.
    Signal,
    /// The program image was replaced by exec.
    Exec,
    /// A trigger was hit.
    Trigger,
}
