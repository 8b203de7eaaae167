//! The ptrace requests that the recorder makes, with signals as plain numbers: real-time signals
//! have no names.

use std::ffi::c_void;
use std::io;
use std::ptr;

use nix::libc;
use nix::unistd::Pid;

/// How a traced process stopped, or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It ended by exit, with this status.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
    /// It is about to get this signal (SIGTRAP: often the end of a step).
    Signal(i32),
    /// A `PTRACE_EVENT_…`, with the signal that comes with it.
    Event { event: i32, signal: i32 },
}

impl Stop {
    fn from_status(status: i32) -> Self {
        if libc::WIFEXITED(status) {
            Self::Exited(libc::WEXITSTATUS(status))
        } else if libc::WIFSIGNALED(status) {
            Self::Killed(libc::WTERMSIG(status))
        } else {
            match (status >> 16, libc::WSTOPSIG(status)) {
                (0, signal) => Self::Signal(signal),
                (event, signal) => Self::Event { event, signal },
            }
        }
    }

    /// Whether the process is gone.
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Self::Exited(_) | Self::Killed(_))
    }
}

/// What to trace besides signals.
const OPTIONS: i32 = libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_EXITKILL;

/// A request whose data is a number.
fn request(request: libc::c_uint, pid: Pid, data: usize) -> io::Result<()> {
    // SAFETY: all callers' requests take no address, and data that is a number, not a pointer.
    let result = unsafe { libc::ptrace(request, pid.as_raw(), ptr::null_mut::<c_void>(), data) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Like [`request`]; a process that was killed meanwhile is no error: the next wait tells.
fn request_if_there(number: libc::c_uint, pid: Pid, data: usize) -> io::Result<()> {
    match request(number, pid, data) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        result => result,
    }
}

/// Begins to trace a process, which runs on.
pub(crate) fn seize(pid: Pid) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, pid, OPTIONS as usize)
}

/// Begins to trace a thread that ran before; it goes on if the tracer dies.
pub(crate) fn seize_running(pid: Pid) -> io::Result<()> {
    let options = OPTIONS & !libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SEIZE, pid, options as usize)
}

/// Lets it execute one instruction, or take a signal (0: none).
pub(crate) fn step(pid: Pid, signal: i32) -> io::Result<()> {
    request_if_there(libc::PTRACE_SINGLESTEP, pid, signal as usize)
}

/// Lets it run on, traced but not stepped.
pub(crate) fn resume(pid: Pid, signal: i32) -> io::Result<()> {
    request_if_there(libc::PTRACE_CONT, pid, signal as usize)
}

/// Leaves it in its group stop (after SIGSTOP, SIGTSTP …) until it is continued.
pub(crate) fn listen(pid: Pid) -> io::Result<()> {
    request_if_there(libc::PTRACE_LISTEN, pid, 0)
}

/// Ends tracing; it must be stopped, and runs on by itself.
pub(crate) fn detach(pid: Pid, signal: i32) -> io::Result<()> {
    request_if_there(libc::PTRACE_DETACH, pid, signal as usize)
}

/// Makes it stop, with `PTRACE_EVENT_STOP` if nothing else stops it first.
pub(crate) fn interrupt(pid: Pid) -> io::Result<()> {
    request_if_there(libc::PTRACE_INTERRUPT, pid, 0)
}

/// Waits for its next stop or its end; `None` if a signal came to the tracer first.
pub(crate) fn wait(pid: Pid) -> io::Result<Option<Stop>> {
    wait_with(pid, 0)
}

/// Its stop or end if there is one already.
pub(crate) fn poll(pid: Pid) -> io::Result<Option<Stop>> {
    wait_with(pid, libc::WNOHANG)
}

fn wait_with(pid: Pid, options: i32) -> io::Result<Option<Stop>> {
    let mut status = 0;
    // SAFETY: waitpid writes the status to a valid place.
    let result = unsafe { libc::waitpid(pid.as_raw(), &raw mut status, libc::__WALL | options) };
    if result == 0 {
        return Ok(None);
    }
    if result != -1 {
        return Ok(Some(Stop::from_status(status)));
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        error => Err(error),
    }
}

/// A register, by its offset in `struct user`; `None` if the process is gone.
pub(crate) fn register(pid: Pid, offset: usize) -> Option<u64> {
    let address = offset as nix::sys::ptrace::AddressType;
    nix::sys::ptrace::read_user(pid, address)
        .ok()
        .map(|value| value as u64)
}

/// `si_code` of the signal at which it stopped; 0 if the process is gone.
pub(crate) fn signal_code(pid: Pid) -> i32 {
    // SAFETY: all zeros is a valid siginfo_t, and the kernel writes one.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::ptrace(
            libc::PTRACE_GETSIGINFO,
            pid.as_raw(),
            ptr::null_mut::<c_void>(),
            &raw mut info,
        );
        info.si_code
    }
}

/// The number that comes with an event, such as a new child's process id.
pub(crate) fn event_message(pid: Pid) -> Option<i64> {
    nix::sys::ptrace::getevent(pid).ok()
}

/// Takes a signal out of the mask of blocked ones; says whether it was in.
pub(crate) fn unblock(pid: Pid, signal: i32) -> bool {
    change_mask(pid, |mask| mask & !(1 << (signal - 1)))
}

/// Puts a signal into the mask of blocked ones.
pub(crate) fn block(pid: Pid, signal: i32) -> bool {
    change_mask(pid, |mask| mask | 1 << (signal - 1))
}

/// Changes the mask of blocked signals; says whether it is another one now.
fn change_mask(pid: Pid, change: impl FnOnce(u64) -> u64) -> bool {
    const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
    const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;
    let size = size_of::<u64>();
    let mut mask = 0_u64;
    // SAFETY: the kernel's mask has 8 bytes; it is read into, and written from, 8 bytes.
    unsafe {
        if libc::ptrace(PTRACE_GETSIGMASK, pid.as_raw(), size, &raw mut mask) != 0 {
            return false;
        }
        let changed = change(mask);
        changed != mask
            && libc::ptrace(PTRACE_SETSIGMASK, pid.as_raw(), size, &raw const changed) == 0
    }
}
