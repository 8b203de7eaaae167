//! The `step` engine: one ptrace single-step after the other.
//!
//! A step normally executes one instruction. The exceptions make up this file:
//!
//! - A system call runs to its end within its step; on the way there may be stops for new children
//!   and for exec. The program returns to user code only when the next instruction executes there:
//!   until then a signal may send it elsewhere.
//! - At a signal's delivery stop nothing executed. If it is passed on and has a handler, the next
//!   stop is at the handler's first instruction, marked by `si_code` SIGTRAP. If not, an interrupted
//!   system call may begin again.
//! - A step of a repeated string instruction is one iteration; it executed when the address changes.
//! - While SIGTRAP is blocked, the kernel would take a step's end for a reason to drop the program's
//!   handler for it: so it is kept unblocked.
//! - MOV SS lets the next instruction execute along; XBEGIN aborts at once, since stepping does that.

use std::time::{Duration, Instant};

use nix::libc;
use ptrail_flow::{Class, FarKind, Instruction};
use ptrail_pt::Ip;
use ptrail_record::Trigger;

use crate::interrupt::Guard;
use crate::ptrace::Stop;
use crate::recording::Recording;
use crate::request::{Early, describe};
use crate::thread::ThreadId;
use crate::tracee::Tracee;
use crate::{End, Engine, Error, Outcome, Program, Progress, Request, maps};

/// Results of system calls that begin again after a signal (`ERESTARTSYS`, `ERESTARTNOINTR`,
/// `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`; include/linux/errno.h).
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
/// Length of SYSCALL and of INT n in bytes.
const SYSCALL_LEN: u64 = 2;
/// Between two calls of the progress callback there are at least this many instructions.
const PROGRESS_STEPS: u64 = 1024;

/// Runs a program and records it until it ends, or until Ctrl-C stops the recording.
pub(crate) fn record(
    program: &Program,
    request: &Request<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, Error> {
    let tracee = Tracee::start(program)?;
    let mut guard = Guard::install(tracee.pid)?;
    guard.answer(&request.signals())?;
    let mut stepper = Stepper::new(tracee, guard, request, program.words())?;
    stepper.begin(request, progress);
    if let Some(end) = stepper.run_to_start()? {
        return stepper.ended(end, None);
    }
    stepper.run(progress)
}

/// Records the first thread of a running process, until it ends, the window is full, or Ctrl-C.
pub(crate) fn attach(
    pid: u32,
    request: &Request<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, Error> {
    let mut guard = Guard::install_to_stop()?;
    guard.answer(&request.signals())?;
    let tracee = Tracee::attach(pid)?;
    let others = tracee.thread_count().saturating_sub(1);
    let mut stepper = Stepper::new(tracee, guard, request, maps::command(pid))?;
    // Its libraries are all there: what is not found now was misspelt.
    if let Some(error) = stepper.recording.unresolved() {
        stepper.tracee.detach(0)?;
        return Err(error);
    }
    if others > 0 {
        let note = format!("the process has {others} more threads, which were not recorded");
        stepper.recording.note(&note);
    }
    stepper.begin(request, progress);
    stepper.run(progress)
}

/// What the next stop of the program will mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// One instruction executed.
    Instruction,
    /// The end of a system call that has been entered.
    SyscallEnd,
    /// A signal was passed on: its handler, or what comes without one. The flag says that an
    /// interrupted system call begins again if there is no handler.
    Handler { restart: bool },
}

enum Next {
    /// Go on, and take this signal first (0: none).
    Step(i32),
    Listen,
    Ended(End),
}

struct Stepper {
    tracee: Tracee,
    recording: Recording,
    thread: ThreadId,
    guard: Guard,
    /// The next instruction to execute.
    at: Ip,
    expect: Expect,
    /// The system call under way, by number, and when it began; `None` at the program's start.
    syscall: Option<(u64, Instant)>,
    /// What a step costs when the kernel has nothing to do, to be taken off a system call's time.
    step_cost: Duration,
}

impl Stepper {
    fn new(
        tracee: Tracee,
        guard: Guard,
        request: &Request<'_>,
        command: Vec<String>,
    ) -> Result<Self, Error> {
        let pid = tracee.pid.as_raw() as u32;
        let mut recording = Recording::new(Engine::Step, request, pid, command)?;
        recording.image_replaced(pid, &tracee.name())?;
        recording.mappings_changed(pid)?;
        let thread = recording.thread(pid, pid)?;
        let at = tracee.ip().unwrap_or_default();
        Ok(Self {
            tracee,
            recording,
            thread,
            guard,
            at,
            expect: Expect::SyscallEnd,
            syscall: None,
            step_cost: Duration::from_micros(20),
        })
    }

    /// All is armed.
    fn begin(&mut self, request: &Request<'_>, progress: &mut dyn FnMut(Progress)) {
        if let Some(time) = request.duration {
            self.guard.stop_after(time);
        }
        progress(Progress::default());
    }

    /// Why the recording ends before the program.
    fn early(&self) -> Early {
        self.guard.early().unwrap_or_else(|| self.recording.early())
    }

    fn pid(&self) -> u32 {
        self.tracee.pid.as_raw() as u32
    }

    fn run(mut self, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, Error> {
        let begin = Instant::now();
        let mut next = Next::Step(0);
        let mut shown = 0;
        let end = loop {
            let instruction = self.instruction();
            if self.recording.has_truth()
                && let Some(sp) = self.tracee.sp()
            {
                self.recording.stack_is(self.thread, sp)?;
            }
            self.answer_signals()?;
            if self.expect == Expect::Instruction && self.recording.is_watched(self.at) {
                self.recording.arguments_are(self.tracee.arguments());
            }
            if self.expect == Expect::Instruction && instruction.is_some_and(enters_kernel) {
                self.syscall = Some((self.tracee.rax().unwrap_or(u64::MAX), Instant::now()));
            }
            match next {
                Next::Step(signal) => self.tracee.step(signal)?,
                Next::Listen => self.tracee.listen()?,
                Next::Ended(end) => break end,
            }
            let Some(stop) = self.wait()? else {
                return self.stop_running();
            };
            if !stop.is_end() && (self.guard.must_stop() || self.recording.is_full()) {
                let early = self.early();
                return self.stop_stopped(stop, early);
            }
            next = self.stopped(stop, instruction)?;
            let instructions = self.recording.instructions();
            if instructions >= shown + PROGRESS_STEPS {
                shown = instructions;
                let elapsed = begin.elapsed();
                self.step_cost = elapsed / u32::try_from(shown).unwrap_or(u32::MAX);
                self.tracee.cpu.balance(self.tracee.pid);
                progress(Progress {
                    instructions: shown,
                    elapsed,
                });
            }
        };
        self.ended(end, None)
    }

    /// Lets the program run by itself to where its window begins; its end, if that comes first.
    fn run_to_start(&mut self) -> Result<Option<End>, Error> {
        if self.recording.has_begun() {
            return Ok(None);
        }
        let Some(start) = self.recording.starts_at() else {
            return Err(Error::NoStart);
        };
        let code = self.tracee.set_breakpoint(start)?;
        let mut signal = 0;
        loop {
            self.tracee.resume(signal)?;
            signal = 0;
            match self.tracee.wait_on()? {
                Stop::Exited(status) => return Ok(Some(End::Exited(status))),
                Stop::Killed(signal) => return Ok(Some(End::Killed(signal))),
                Stop::Signal(libc::SIGTRAP) if self.tracee.ip() == Some(Ip(start + 1)) => break,
                Stop::Signal(other) => {
                    self.guard.arrived(other);
                    signal = other;
                }
                Stop::Event { event, .. } if event != libc::PTRACE_EVENT_STOP => {
                    if let Some(child) = self.tracee.new_child() {
                        self.tracee.release(child);
                    }
                }
                Stop::Event { .. } => {}
            }
        }
        self.tracee.take_breakpoint(start, code)?;
        self.recording.mappings_changed(self.pid())?;
        self.recording.begin();
        self.at = Ip(start);
        self.expect = Expect::Instruction;
        Ok(None)
    }

    /// Waits for the next stop; `None` if the recording is to be stopped first.
    fn wait(&mut self) -> Result<Option<Stop>, Error> {
        loop {
            if let Some(stop) = self.tracee.wait()? {
                return Ok(Some(stop));
            }
            self.answer_signals()?;
            if self.guard.must_stop() || self.recording.is_full() {
                return Ok(None);
            }
        }
    }

    /// Snapshots that signals ask for.
    fn answer_signals(&mut self) -> Result<(), Error> {
        while let Some(signal) = self.guard.asked() {
            self.recording
                .happened(self.thread, &Trigger::Signal(signal))?;
        }
        Ok(())
    }

    fn instruction(&mut self) -> Option<Instruction> {
        let may_change = self.recording.follow_code(self.pid(), self.at);
        self.tracee.instruction(self.at, may_change)
    }

    // ---- stops ----

    fn stopped(&mut self, stop: Stop, instruction: Option<Instruction>) -> Result<Next, Error> {
        match stop {
            Stop::Exited(status) => self.gone(instruction, End::Exited(status)),
            Stop::Killed(signal) => self.gone(instruction, End::Killed(signal)),
            Stop::Event {
                event: libc::PTRACE_EVENT_STOP,
                signal,
            } => Ok(match signal {
                libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Next::Listen,
                _ => Next::Step(0),
            }),
            Stop::Event { event, .. } => self.event(event, instruction),
            Stop::Signal(libc::SIGTRAP) => self.trap(instruction),
            Stop::Signal(signal) => {
                self.guard.arrived(signal);
                self.signal(signal)
            }
        }
    }

    /// The program has ended, within this step.
    fn gone(&mut self, instruction: Option<Instruction>, end: End) -> Result<Next, Error> {
        let exits = self.expect == Expect::Instruction && instruction.is_some_and(enters_kernel);
        if exits {
            self.recording.entered_kernel(self.thread, self.at)?;
        } else {
            self.recording.interrupted(self.thread, self.at);
        }
        self.pass_syscall();
        Ok(Next::Ended(end))
    }

    /// An event within a system call: exec, or a new child or thread.
    fn event(&mut self, event: i32, instruction: Option<Instruction>) -> Result<Next, Error> {
        if self.expect == Expect::Instruction && instruction.is_some_and(enters_kernel) {
            self.recording.entered_kernel(self.thread, self.at)?;
        }
        self.expect = Expect::SyscallEnd;
        if event == libc::PTRACE_EVENT_EXEC {
            self.tracee.forget_code();
            let name = self.tracee.name();
            self.recording.image_replaced(self.pid(), &name)?;
            self.recording.mappings_changed(self.pid())?;
        } else if let Some(child) = self.tracee.new_child() {
            self.recording.note(match event {
                libc::PTRACE_EVENT_CLONE => "the program started a thread, which was not recorded",
                _ => "the program started a child process, which was not recorded",
            });
            self.tracee.release(child);
        }
        Ok(Next::Step(0))
    }

    /// SIGTRAP: a step is done, or a handler begins, or the program itself got a SIGTRAP.
    fn trap(&mut self, instruction: Option<Instruction>) -> Result<Next, Error> {
        let Some(ip) = self.tracee.ip() else {
            return Ok(Next::Step(0));
        };
        if self.expect == Expect::SyscallEnd {
            return self.syscall_ended(ip);
        }
        if let Expect::Handler { restart } = self.expect {
            self.expect = Expect::Instruction;
            // ptrace_notify(SIGTRAP) at the first instruction of a handler.
            if self.tracee.signal_code() == libc::SIGTRAP {
                self.tracee.keep_trap_unblocked();
                self.syscall = None;
                self.at = ip;
                return Ok(Next::Step(0));
            }
            if restart {
                let call = Ip(self.at.0.wrapping_sub(SYSCALL_LEN));
                self.recording.entered_kernel(self.thread, call)?;
                return self.syscall_ended(ip);
            }
        }
        let Some(instruction) = instruction else {
            // Code that can't be read (vsyscall, execute-only): the decoder won't see it either.
            self.recording
                .note("the program ran code that ptrail could not read");
            self.recording.interrupted(self.thread, self.at);
            self.at = ip;
            return Ok(Next::Step(0));
        };
        let breakpoint = matches!(instruction.class, Class::Far(FarKind::Interrupt));
        if (breakpoint || ip == self.at) && is_real_trap(self.tracee.signal_code()) {
            if breakpoint && ip != self.at {
                self.recording.entered_kernel(self.thread, self.at)?;
                self.at = ip;
            }
            return self.signal(libc::SIGTRAP);
        }
        if enters_kernel(instruction) {
            self.recording.entered_kernel(self.thread, self.at)?;
            return self.syscall_ended(ip);
        }
        if ip == self.at && self.is_repeating() {
            return Ok(Next::Step(0));
        }
        self.executed(instruction, ip)?;
        Ok(Next::Step(0))
    }

    /// A signal is about to be delivered; nothing executed since the stop before.
    fn signal(&mut self, signal: i32) -> Result<Next, Error> {
        if let Some(ip) = self.tracee.ip()
            && self.expect == Expect::SyscallEnd
        {
            self.syscall_ended(ip)?;
        }
        let restart = !self.recording.is_on(self.thread)
            && self.tracee.in_syscall()
            && self
                .tracee
                .rax()
                .is_some_and(|rax| RESTARTS.contains(&(rax as i64)));
        if restart {
            self.syscall = Some((u64::MAX, Instant::now()));
        }
        self.recording.interrupted(self.thread, self.at);
        self.expect = Expect::Handler { restart };
        Ok(Next::Step(signal))
    }

    fn syscall_ended(&mut self, ip: Ip) -> Result<Next, Error> {
        self.expect = Expect::Instruction;
        if let Some((number, begin)) = self.syscall.take() {
            let took = begin.elapsed().saturating_sub(self.step_cost);
            if changes_mappings(number) {
                self.tracee.forget_code();
                self.recording.mappings_changed(self.pid())?;
            }
            self.recording.pass(took);
        }
        self.tracee.keep_trap_unblocked();
        self.at = ip;
        Ok(Next::Step(0))
    }

    // ---- instructions ----

    /// The instruction executed and the program now stands at `ip`.
    fn executed(&mut self, instruction: Instruction, ip: Ip) -> Result<(), Error> {
        let behind = self.at.offset(u64::from(instruction.len));
        let straight = match instruction.class {
            Class::Plain => ip == behind,
            Class::Conditional => ip == behind || ip == instruction.target,
            _ => true,
        };
        if straight {
            self.recording
                .executed(self.thread, self.at, instruction, ip)?;
            self.at = ip;
            return Ok(());
        }
        self.recording
            .executed(self.thread, self.at, instruction, behind)?;
        let second = self.tracee.instruction(behind, true);
        match second.filter(|second| {
            behind.offset(u64::from(second.len)) == ip && second.class == Class::Plain
        }) {
            Some(second) => self.recording.executed(self.thread, behind, second, ip)?,
            None => self.recording.transaction_aborted(self.thread, behind, ip),
        }
        self.at = ip;
        Ok(())
    }

    /// Whether the instruction is a repeated string instruction, of which a step is one iteration.
    fn is_repeating(&self) -> bool {
        let mut bytes = [0; 15];
        let len = self.tracee.read(self.at.0, &mut bytes);
        prefixes(&bytes[..len]).any(|byte| matches!(byte, 0xf2 | 0xf3))
    }

    // ---- ends ----

    /// Stops recording the program, which is running.
    fn stop_running(self) -> Result<Outcome, Error> {
        let stop = self.tracee.interrupt()?;
        let early = self.early();
        self.stop_stopped(stop, early)
    }

    /// Stops recording the program, which stopped like this; it runs on by itself, and its end is
    /// waited for.
    fn stop_stopped(mut self, mut stop: Stop, early: Early) -> Result<Outcome, Error> {
        // What executes from here on is not recorded.
        self.recording.interrupted(self.thread, self.at);
        self.pass_syscall();
        let end = loop {
            let signal = match stop {
                Stop::Exited(status) => break End::Exited(status),
                Stop::Killed(signal) => break End::Killed(signal),
                // The end of the last step.
                Stop::Signal(libc::SIGTRAP) | Stop::Event { .. } => 0,
                Stop::Signal(signal) => signal,
            };
            if self.tracee.has_trap_pending() {
                self.tracee.resume(signal)?;
            } else {
                self.tracee.detach(signal)?;
                if self.tracee.is_attached() {
                    break End::GoesOn;
                }
            }
            stop = self.tracee.wait_on()?;
        };
        self.ended(end, Some(early))
    }

    /// The time since the system call began that is still under way, if there is one.
    fn pass_syscall(&mut self) {
        if let Some((_, begin)) = self.syscall.take() {
            self.recording
                .pass(begin.elapsed().saturating_sub(self.step_cost));
        }
    }

    fn ended(self, end: End, early: Option<Early>) -> Result<Outcome, Error> {
        let instructions = self.recording.instructions();
        let how = describe(end, early, self.guard.interrupted());
        let notes = self
            .recording
            .finish(early.is_none().then_some(end), &how)?;
        Ok(Outcome {
            end,
            stopped_early: early.is_some(),
            instructions,
            notes,
        })
    }
}

/// The legacy prefixes of an instruction (SDM volume 2, "Instruction Prefixes").
pub(crate) fn prefixes(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().copied().take_while(|byte| {
        matches!(
            byte,
            0xf2 | 0xf3 | 0x66 | 0x67 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65
        )
    })
}

fn enters_kernel(instruction: Instruction) -> bool {
    matches!(
        instruction.class,
        Class::Far(FarKind::Syscall | FarKind::Interrupt)
    )
}

/// Whether a SIGTRAP is the program's own affair (INT3, `kill -TRAP`) and not a step's end.
fn is_real_trap(code: i32) -> bool {
    !matches!(
        code,
        libc::TRAP_TRACE | libc::TRAP_BRKPT | libc::TRAP_HWBKPT
    )
}

fn changes_mappings(syscall: u64) -> bool {
    [
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_pkey_mprotect,
        libc::SYS_shmat,
        libc::SYS_remap_file_pages,
        libc::SYS_personality,
    ]
    .contains(&(syscall as libc::c_long))
}
