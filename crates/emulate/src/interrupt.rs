//! Ctrl-C and SIGTERM while recording.
//!
//! The terminal sends SIGINT to the recorded program and to ptrail alike; a SIGINT or SIGTERM sent
//! to ptrail alone is passed on, so that either way the program gets it once. If it has not ended
//! [`GRACE`] later, the recording is stopped.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::Error;

/// How long an interrupted program may take to end before its recording is stopped.
const GRACE: Duration = Duration::from_secs(2);

static CHILD: AtomicI32 = AtomicI32::new(0);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static STOP: AtomicBool = AtomicBool::new(false);

/// Signal handlers for the time of a recording; dropping it restores the old ones.
pub(crate) struct Guard {
    old: Vec<(Signal, SigAction)>,
}

impl Guard {
    pub(crate) fn install(child: nix::unistd::Pid) -> Result<Self, Error> {
        CHILD.store(child.as_raw(), Ordering::SeqCst);
        INTERRUPTED.store(false, Ordering::SeqCst);
        STOP.store(false, Ordering::SeqCst);
        let mut guard = Self { old: Vec::new() };
        let pass_on = SigHandler::SigAction(pass_on);
        for (signal, handler) in [
            (Signal::SIGINT, pass_on),
            (Signal::SIGTERM, pass_on),
            // The terminal's own affair between it and the program.
            (Signal::SIGQUIT, SigHandler::SigIgn),
            (Signal::SIGALRM, SigHandler::Handler(time_is_up)),
        ] {
            // Without SA_RESTART, so that a wait ends when a signal comes.
            let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
            // SAFETY: the handlers only use atomics, kill(2) and setitimer(2).
            let old = unsafe { sigaction(signal, &action) }.map_err(Error::system("sigaction"))?;
            guard.old.push((signal, old));
        }
        Ok(guard)
    }

    /// Whether SIGINT or SIGTERM came.
    pub(crate) fn interrupted(&self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed)
    }

    /// Whether the recording is to be stopped now.
    pub(crate) fn must_stop(&self) -> bool {
        STOP.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        set_timer(Duration::ZERO, Duration::ZERO);
        for (signal, action) in self.old.drain(..) {
            // SAFETY: puts back what was there before.
            let _ = unsafe { sigaction(signal, &action) };
        }
    }
}

extern "C" fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    if INTERRUPTED.swap(true, Ordering::SeqCst) {
        STOP.store(true, Ordering::SeqCst);
    }
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let from_terminal = unsafe { (*info).si_code } == libc::SI_KERNEL;
    if !from_terminal {
        // SAFETY: kill(2) is async-signal-safe; at worst the child is gone and it fails.
        unsafe { libc::kill(CHILD.load(Ordering::SeqCst), signal) };
    }
    // Again and again, in case it comes just before a wait begins.
    set_timer(GRACE, Duration::from_millis(200));
}

extern "C" fn time_is_up(_signal: libc::c_int) {
    STOP.store(true, Ordering::SeqCst);
}

fn set_timer(first: Duration, interval: Duration) {
    let timeval = |time: Duration| libc::timeval {
        tv_sec: time.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(time.subsec_micros()),
    };
    let timer = libc::itimerval { it_value: timeval(first), it_interval: timeval(interval) };
    // SAFETY: a plain system call with a valid structure; async-signal-safe on Linux.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}
