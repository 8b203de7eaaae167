//! The traced process: starting it, stepping it, reading its memory.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal};
use nix::unistd::{ForkResult, Pid, fork, pipe};
use ptrail_flow::Instruction;
use ptrail_pt::{ExecMode, Ip};

use crate::cpu::SharedCpu;
use crate::ptrace::{self, Stop};
use crate::{Error, Program, memory};

/// A process that is traced by this thread.
pub(crate) struct Tracee {
    pub(crate) pid: Pid,
    pub(crate) cpu: SharedCpu,
    /// It ran before ptrail came.
    attached: bool,
    /// SIGTRAP was blocked, and is to be again when ptrail goes.
    trap_was_blocked: Cell<bool>,
    instructions: HashMap<Ip, Instruction>,
}

impl Tracee {
    /// Starts the program, stopped before its first instruction (at its exec event).
    ///
    /// Tracer and program are pinned to one CPU: stepping is then five times as fast.
    pub(crate) fn start(program: &Program) -> Result<Self, Error> {
        let path = program.c_path();
        let args = program.c_args();
        let (go_read, go_write) = pipe().map_err(Error::system("make a pipe"))?;
        let (errno_read, errno_write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
            .map_err(Error::system("make a pipe"))?;
        let cpu = SharedCpu::pin().map_err(Error::system("pin to one CPU"))?;
        // SAFETY: the child calls only async-signal-safe functions: close, read, signal, execv, write,
        // _exit.
        match unsafe { fork() }.map_err(Error::system("fork"))? {
            ForkResult::Child => {
                drop((go_write, errno_read));
                let mut byte = [0];
                let _ = nix::unistd::read(&go_read, &mut byte);
                drop(go_read);
                // Rust programs ignore SIGPIPE; the program must not inherit that.
                // SAFETY: sets a default action, no handler.
                let _ = unsafe { nix::sys::signal::signal(Signal::SIGPIPE, SigHandler::SigDfl) };
                let errno = nix::unistd::execv(&path, &args)
                    .err()
                    .unwrap_or(Errno::UnknownErrno);
                let _ = nix::unistd::write(&errno_write, &(errno as i32).to_ne_bytes());
                // SAFETY: ends the child at once, without running the parent's exit handlers.
                unsafe { libc::_exit(127) }
            }
            ForkResult::Parent { child } => {
                drop((go_read, errno_write));
                let tracee = Self {
                    pid: child,
                    cpu,
                    attached: false,
                    trap_was_blocked: Cell::new(false),
                    instructions: HashMap::new(),
                };
                tracee.seize()?;
                drop(go_write);
                tracee.wait_for_exec(errno_read, program)?;
                Ok(tracee)
            }
        }
    }

    /// Stops a running process, of which the first thread is traced from now on.
    pub(crate) fn attach(pid: u32) -> Result<Self, Error> {
        let pid = Pid::from_raw(pid as i32);
        let mut cpu = SharedCpu::pin().map_err(Error::system("pin to one CPU"))?;
        ptrace::seize_running(pid).map_err(|source| match source.raw_os_error() {
            Some(libc::ESRCH) => Error::NoProcess { pid: pid.as_raw() },
            _ => Error::PtraceForbidden {
                source,
                cure: attach_cure(pid),
            },
        })?;
        cpu.adopt(pid)
            .map_err(Error::system("pin the process to one CPU"))?;
        let tracee = Self {
            pid,
            cpu,
            attached: true,
            trap_was_blocked: Cell::new(false),
            instructions: HashMap::new(),
        };
        tracee.interrupt()?;
        tracee.keep_trap_unblocked();
        Ok(tracee)
    }

    /// Whether it ran before ptrail came.
    pub(crate) fn is_attached(&self) -> bool {
        self.attached
    }

    /// How many threads the process has.
    pub(crate) fn thread_count(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.pid)).map_or(1, Iterator::count)
    }

    fn seize(&self) -> Result<(), Error> {
        ptrace::seize(self.pid).map_err(|source| {
            let _ = nix::sys::signal::kill(self.pid, Signal::SIGKILL);
            let _ = ptrace::wait(self.pid);
            Error::PtraceForbidden {
                source,
                cure: ptrace_cure(),
            }
        })
    }

    fn wait_for_exec(&self, errno_read: OwnedFd, program: &Program) -> Result<(), Error> {
        loop {
            match self.wait_on()? {
                Stop::Event {
                    event: libc::PTRACE_EVENT_EXEC,
                    ..
                } => return Ok(()),
                Stop::Event { .. } => self.resume(0)?,
                Stop::Signal(signal) => self.resume(signal)?,
                Stop::Exited(_) | Stop::Killed(_) => {
                    let mut bytes = [0; 4];
                    let source = match fs::File::from(errno_read).read_exact(&mut bytes) {
                        Ok(()) => io::Error::from_raw_os_error(i32::from_ne_bytes(bytes)),
                        Err(_) => io::Error::other("it was killed before it began"),
                    };
                    return Err(Error::Start {
                        path: program.path.clone(),
                        source,
                    });
                }
            }
        }
    }

    /// Lets it execute one instruction, or take a signal (0: none).
    pub(crate) fn step(&self, signal: i32) -> Result<(), Error> {
        ptrace::step(self.pid, signal).map_err(Error::io("single-step the program"))
    }

    /// Lets it run on, traced but not stepped.
    pub(crate) fn resume(&self, signal: i32) -> Result<(), Error> {
        ptrace::resume(self.pid, signal).map_err(Error::io("resume the program"))
    }

    /// Leaves it in its group stop (after SIGSTOP, SIGTSTP …) until it is continued.
    pub(crate) fn listen(&self) -> Result<(), Error> {
        ptrace::listen(self.pid).map_err(Error::io("leave the program stopped"))
    }

    /// Waits for its next stop or its end; `None` if a signal came to the tracer first.
    pub(crate) fn wait(&self) -> Result<Option<Stop>, Error> {
        ptrace::wait(self.pid).map_err(Error::io("wait for the program"))
    }

    /// Waits for its next stop or its end, whatever signals come to the tracer.
    pub(crate) fn wait_on(&self) -> Result<Stop, Error> {
        loop {
            if let Some(stop) = self.wait()? {
                return Ok(stop);
            }
        }
    }

    /// Puts an INT3 at an address; returns the code that it replaces.
    pub(crate) fn set_breakpoint(&self, address: u64) -> Result<i64, Error> {
        let place = address as nix::sys::ptrace::AddressType;
        let code = nix::sys::ptrace::read(self.pid, place)
            .map_err(Error::system("read the code where the window begins"))?;
        self.write(address, code & !0xff | 0xcc)?;
        Ok(code)
    }

    /// Takes it away again, and puts the program before it.
    pub(crate) fn take_breakpoint(&self, address: u64, code: i64) -> Result<(), Error> {
        self.write(address, code)?;
        let place = std::mem::offset_of!(libc::user, regs.rip) as nix::sys::ptrace::AddressType;
        nix::sys::ptrace::write_user(self.pid, place, address as i64)
            .map_err(Error::system("put the program where its window begins"))
    }

    fn write(&self, address: u64, word: i64) -> Result<(), Error> {
        nix::sys::ptrace::write(self.pid, address as nix::sys::ptrace::AddressType, word)
            .map_err(Error::system("write a breakpoint where the window begins"))
    }

    /// The name that the kernel has for the process.
    pub(crate) fn name(&self) -> String {
        fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default()
    }

    /// The instruction pointer; `None` if the process is gone.
    pub(crate) fn ip(&self) -> Option<Ip> {
        ptrace::register(self.pid, std::mem::offset_of!(libc::user, regs.rip)).map(Ip)
    }

    /// The stack pointer; `None` if the process is gone.
    pub(crate) fn sp(&self) -> Option<u64> {
        ptrace::register(self.pid, std::mem::offset_of!(libc::user, regs.rsp))
    }

    /// RAX: the system call's number before it, its result after it.
    pub(crate) fn rax(&self) -> Option<u64> {
        ptrace::register(self.pid, std::mem::offset_of!(libc::user, regs.rax))
    }

    /// What a function's first six integer arguments are at its entry (System V ABI).
    pub(crate) fn arguments(&self) -> Option<[u64; 6]> {
        let registers = nix::sys::ptrace::getregs(self.pid).ok()?;
        Some([
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.rcx,
            registers.r8,
            registers.r9,
        ])
    }

    /// Whether it stopped inside or right behind a system call (ORIG_RAX is not negative).
    pub(crate) fn in_syscall(&self) -> bool {
        ptrace::register(self.pid, std::mem::offset_of!(libc::user, regs.orig_rax))
            .is_some_and(|number| number as i64 >= 0)
    }

    /// `si_code` of the signal at which it stopped.
    pub(crate) fn signal_code(&self) -> i32 {
        ptrace::signal_code(self.pid)
    }

    /// Takes SIGTRAP out of the mask of blocked signals. A step ends with a SIGTRAP that the kernel
    /// forces, and if it is blocked, forcing it resets the program's handler (force_sig_info).
    pub(crate) fn keep_trap_unblocked(&self) {
        if ptrace::unblock(self.pid, libc::SIGTRAP) {
            self.trap_was_blocked.set(true);
        }
    }

    /// The new child process or thread that an event announces.
    pub(crate) fn new_child(&self) -> Option<Pid> {
        ptrace::event_message(self.pid).map(|child| Pid::from_raw(child as i32))
    }

    /// The instruction at `ip`; `None` if its bytes can't be read or are no instruction.
    pub(crate) fn instruction(&mut self, ip: Ip, may_change: bool) -> Option<Instruction> {
        if !may_change && let Some(&instruction) = self.instructions.get(&ip) {
            return Some(instruction);
        }
        let mut bytes = [0; 15];
        let len = self.read(ip.0, &mut bytes);
        let instruction = Instruction::decode(&bytes[..len], ip, ExecMode::Bits64)?;
        self.instructions.insert(ip, instruction);
        Some(instruction)
    }

    /// Forgets the code read so far: mappings changed.
    pub(crate) fn forget_code(&mut self) {
        self.instructions.clear();
    }

    /// Reads memory; returns how many bytes could be read.
    pub(crate) fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        memory::read(self.pid.as_raw() as u32, address, buffer)
    }

    /// Lets a new child process or thread of the program run on by itself, on all CPUs.
    pub(crate) fn release(&self, child: Pid) {
        // Its first stop may come before or after the event that announces it.
        while let Ok(None) = ptrace::wait(child) {}
        self.cpu.unpin(child);
        let _ = ptrace::detach(child, 0);
    }

    /// Ends tracing; the program runs on by itself, and takes `signal` (0: none) first. It must be
    /// stopped.
    pub(crate) fn detach(&self, signal: i32) -> Result<(), Error> {
        self.cpu.unpin(self.pid);
        if self.attached && self.trap_was_blocked.get() {
            ptrace::block(self.pid, libc::SIGTRAP);
        }
        ptrace::detach(self.pid, signal).map_err(Error::io("let go of the program"))
    }

    /// Stops the running program; returns how it stopped, or ended.
    pub(crate) fn interrupt(&self) -> Result<Stop, Error> {
        ptrace::interrupt(self.pid).map_err(Error::io("stop the program"))?;
        self.wait_on()
    }

    /// Whether a SIGTRAP waits to be delivered: the end of a step that nobody waited for.
    pub(crate) fn has_trap_pending(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
        let mask = pending
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or(0);
        mask & (1 << (libc::SIGTRAP - 1)) != 0
    }
}

/// Why a process that is there can't be traced, and what to do.
fn attach_cure(pid: Pid) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    if let Some(tracer) = tracer.map(str::trim).filter(|&tracer| tracer != "0") {
        return format!("Process {tracer} traces it already (a debugger?)");
    }
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if yama.trim() == "1" && !nix::unistd::geteuid().is_root() {
        return "Processes may trace only their own children here (kernel.yama.ptrace_scope is 1): run ptrail \
                as root, or `sudo sysctl kernel.yama.ptrace_scope=0`"
            .into();
    }
    if !nix::unistd::geteuid().is_root() {
        return "It may be another user's: run ptrail as that user or as root".into();
    }
    ptrace_cure()
}

/// What forbids ptrace here, as far as it can be told, and what to do.
fn ptrace_cure() -> String {
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if yama.trim() == "3" {
        return "Tracing is switched off for good on this machine (kernel.yama.ptrace_scope is 3); it takes a \
                reboot with a lower value to change that"
            .into();
    }
    if yama.trim() == "2" && !nix::unistd::geteuid().is_root() {
        return "Only root may trace here (kernel.yama.ptrace_scope is 2): run ptrail as root, or \
                `sudo sysctl kernel.yama.ptrace_scope=1`"
            .into();
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |key: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .map(str::trim)
            .unwrap_or("0")
            .to_string()
    };
    if value("TracerPid:") != "0" {
        return "ptrail itself is being traced (by strace or a debugger?), and a program can have only one \
                tracer of its own"
            .into();
    }
    if value("Seccomp:") == "2" {
        return "A seccomp filter forbids it, as containers often have one: start the container with \
                `--cap-add SYS_PTRACE` (Docker, Podman), or run ptrail outside it"
            .into();
    }
    "A security module (SELinux, AppArmor) may forbid it: look in the kernel's log with `dmesg | tail`".into()
}
