//! What a recording is asked for, and what it answers.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;

use ptrail_record::{TriggerSignal, Triggers};

use crate::{Error, Injection, Program, Settings, Window, qemu, step};

/// What runs the program and sees what it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The kernel, one ptrace step an instruction.
    Step,
    /// QEMU's user-mode emulation with ptrail's plugin.
    Qemu,
}

impl Engine {
    /// Its name, as captures have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Qemu => "qemu",
        }
    }
}

/// Whom to record.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A program, from its start on.
    Program(&'a Program, Engine),
    /// A running process, by its id: its first thread, single-stepped.
    Process(u32),
}

/// What to record, and where to.
pub struct Request<'a> {
    /// Whom to record.
    pub subject: Subject<'a>,
    /// Settings of the virtual trace unit.
    pub settings: Settings,
    /// The `perf.data` to write.
    pub capture: PathBuf,
    /// If given, the address of every executed instruction goes there, 8 little-endian bytes each,
    /// the time-stamp counter behind each to a file of the same name with `.tsc` at its end, and
    /// from the step engine the stack pointer before each to one with `.sp`.
    pub truth: Option<PathBuf>,
    /// Part of the run to record.
    pub window: Window,
    /// Keep only the last so many bytes of each thread's trace.
    pub snapshot_size: Option<usize>,
    /// When to take snapshots; without, one is taken at the end.
    pub triggers: Option<Triggers>,
    /// The recording ends after so long, in real time.
    pub duration: Option<Duration>,
    /// Faults to inject.
    pub inject: Option<Injection>,
    /// Record child processes too.
    pub follow_forks: bool,
    /// A sentence for the capture's notes.
    pub note: Option<String>,
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Instructions executed.
    pub instructions: u64,
    /// Real time since the start.
    pub elapsed: Duration,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By exit, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It goes on: ptrail has let go of a process that ran before.
    GoesOn,
}

/// A finished recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How the program ended.
    pub end: End,
    /// The recording ended before the program: by Ctrl-C (or SIGTERM), or because its window was full.
    pub stopped_early: bool,
    /// Instructions recorded.
    pub instructions: u64,
    /// What was not recorded, one sentence each.
    pub notes: Vec<String>,
}

/// Runs a program and records it until it ends, or until Ctrl-C stops the recording. `progress` is first
/// called when all is armed, before anything is recorded.
///
/// # Errors
/// The program can't be started or traced, or the capture can't be written (nothing is left under
/// its name then).
pub fn record(request: &Request<'_>, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, Error> {
    match request.subject {
        Subject::Program(program, Engine::Step) => step::record(program, request, progress),
        Subject::Program(program, Engine::Qemu) => qemu::record(program, request, progress),
        Subject::Process(pid) => step::attach(pid, request, progress),
    }
}

/// Why a recording ended before the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Early {
    /// By Ctrl-C.
    Stopped,
    /// Its window was full.
    Full,
    /// All snapshots were taken.
    Taken,
    /// Its time was up.
    TimeUp,
    /// What it was to last for has ended.
    OccasionEnded,
}

impl Request<'_> {
    /// The signals that ask for a snapshot.
    pub(crate) fn signals(&self) -> Vec<TriggerSignal> {
        let triggers = self.triggers.as_ref();
        triggers.map_or_else(Vec::new, Triggers::signals)
    }
}

/// How the recording ended, for people.
pub(crate) fn describe(end: End, early: Option<Early>, interrupted: bool) -> String {
    let how = match (early, end) {
        (Some(Early::Stopped), _) => {
            return "stopped by Ctrl-C before the program ended".to_string();
        }
        (Some(Early::Full), _) => {
            return "as many instructions as were to be recorded; the program went on".to_string();
        }
        (Some(Early::OccasionEnded), _) => {
            return "as long as the command ran; the program went on".to_string();
        }
        (Some(Early::TimeUp), _) => {
            return "as long as was to be recorded; the program went on".to_string();
        }
        (Some(Early::Taken), _) => {
            return "all snapshots were taken; the program went on".to_string();
        }
        (None, End::GoesOn) => "ptrail let go of the process".to_string(),
        (None, End::Exited(status)) => format!("the program exited with status {status}"),
        (None, End::Killed(number)) => format!(
            "the program was killed by signal {number}{}",
            signal_name(number)
        ),
    };
    if interrupted {
        format!("{how} after Ctrl-C")
    } else {
        how
    }
}

fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| String::new(), |signal| format!(" ({signal})"))
}
