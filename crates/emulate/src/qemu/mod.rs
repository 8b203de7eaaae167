//! The `qemu` engine: the program runs under `qemu-x86_64`, and ptrail's plugin in it tells which
//! blocks of code execute.
//!
//! - [`start`] starts QEMU with the plugin and the memory that both share.
//! - [`rings`] reads that memory; its layout is the plugin's ([`shared`]).
//! - [`blocks`] has the blocks: straight code, known by a number.
//! - [`replay`] turns a thread's blocks and events into what the recording wants to know.
//! - [`turns`] reads the threads in the order in which they ran.

mod blocks;
mod replay;
mod rings;
#[path = "../../../../tools/qemu-plugin/src/shared.rs"]
#[allow(unreachable_pub, dead_code)] // It is the plugin's too.
mod shared;
mod start;
mod turns;

use std::time::{Duration, Instant};

use ptrail_record::Trigger;

use crate::interrupt::Guard;
use crate::ptrace::{self, Stop};
use crate::recording::Recording;
use crate::request::{Early, describe};
use crate::{End, Engine, Error, Outcome, Program, Progress, Request};
use rings::Memory;
pub use start::Qemu;
use start::Started;
use turns::Turns;

/// How long to sleep when QEMU has nothing to say.
const PAUSE: Duration = Duration::from_micros(200);
/// Between two calls of the progress callback.
const PROGRESS: Duration = Duration::from_millis(50);

/// Runs a program under QEMU and records it until it ends, or until Ctrl-C stops the recording.
pub(crate) fn record(
    program: &Program,
    request: &Request<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, Error> {
    let qemu = Qemu::find(program)?;
    let memory = Memory::new(request.follow_forks)?;
    let qemu = qemu.start(&memory)?;
    let pid = qemu.pid;
    let mut guard = Guard::install(pid)?;
    guard.answer(&request.signals())?;
    if let Some(time) = request.duration {
        guard.stop_after(time);
    }
    let mut recording =
        Recording::new(Engine::Qemu, request, pid.as_raw() as u32, program.words())?;
    recording.image_replaced(pid.as_raw() as u32, &program.kernel_name())?;
    let turns = Turns::new(memory, recording);
    let session = Session { qemu, guard, turns };
    progress(Progress::default());
    session.run(progress)
}

struct Session {
    qemu: Started,
    guard: Guard,
    turns: Turns,
}

impl Session {
    fn run(mut self, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, Error> {
        let begin = Instant::now();
        let mut shown = begin;
        let end = loop {
            if shown.elapsed() >= PROGRESS {
                shown = Instant::now();
                progress(Progress {
                    instructions: self.turns.recording.instructions(),
                    elapsed: begin.elapsed(),
                });
            }
            let any = self.turns.read(&self.guard)?;
            while let Some(signal) = self.guard.asked() {
                self.turns.happened(&Trigger::Signal(signal))?;
            }
            if self.turns.recording.is_full() {
                let early = self.turns.recording.early();
                return self.stop(early);
            }
            if any {
                continue;
            }
            let stop = ptrace::poll(self.qemu.pid).map_err(Error::io("wait for QEMU"))?;
            if let Some(end) = stop.and_then(end_of) {
                break end;
            }
            if self.guard.must_stop() {
                let early = self.guard.early();
                return self.stop(early.unwrap_or(Early::Stopped));
            }
            std::thread::sleep(PAUSE);
        };
        self.turns.read_rest(&self.guard)?;
        self.ended(end, None)
    }

    /// Stops recording; the program runs on by itself, and its end is waited for.
    fn stop(self, early: Early) -> Result<Outcome, Error> {
        self.turns.memory.close();
        let end = loop {
            if let Some(end) = ptrace::wait(self.qemu.pid)
                .map_err(Error::io("wait for QEMU"))?
                .and_then(end_of)
            {
                break end;
            }
        };
        self.ended(end, Some(early))
    }

    fn ended(self, end: End, early: Option<Early>) -> Result<Outcome, Error> {
        self.turns.memory.close();
        if self.turns.has_begun() {
            let pid = self.qemu.pid.as_raw() as u32;
            let end = match (end, self.turns.killed_by(pid)) {
                (End::Killed(_), Some(signal)) => End::Killed(signal),
                (end, _) => end,
            };
            let how = describe(end, early, self.guard.interrupted());
            let recording = self.turns.finish()?;
            let instructions = recording.instructions();
            let notes = recording.finish(early.is_none().then_some(end), &how)?;
            return Ok(Outcome {
                end,
                stopped_early: early.is_some(),
                instructions,
                notes,
            });
        }
        Err(Error::Qemu {
            end: describe(end, None, false),
        })
    }
}

fn end_of(stop: Stop) -> Option<End> {
    match stop {
        Stop::Exited(status) => Some(End::Exited(status)),
        Stop::Killed(signal) => Some(End::Killed(signal)),
        Stop::Signal(_) | Stop::Event { .. } => None,
    }
}
