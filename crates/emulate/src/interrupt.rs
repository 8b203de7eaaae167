//! Ctrl-C and SIGTERM while recording.
//!
//! The program gets the signal once, whoever sent it: a terminal, or a `kill` of the process group,
//! reaches program and ptrail alike; a `kill` of ptrail alone is passed on. Which of these it was
//! shows within [`PATIENCE`]. If the program has not ended [`GRACE`] after that, the recording is
//! stopped.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;

use ptrail_record::TriggerSignal;

use crate::Error;
use crate::request::Early;

/// How long the program may take to get the signal by itself before it is passed on.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long an interrupted program may take to end before its recording is stopped.
const GRACE: Duration = Duration::from_secs(2);
/// From then on it is said again and again, in case it is said just before a wait begins.
const AGAIN: Duration = Duration::from_millis(200);

/// In place of a child: no signal is passed on.
const NOBODY: i32 = 0;

static CHILD: AtomicI32 = AtomicI32::new(0);
/// The signal that came, 0 if none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// The program has got it.
static ARRIVED: AtomicBool = AtomicBool::new(false);
/// It was looked into whether the program has got it.
static PASSED_ON: AtomicBool = AtomicBool::new(false);
static STOP: AtomicBool = AtomicBool::new(false);
/// The recording's time is up.
static TIME_UP: AtomicBool = AtomicBool::new(false);
/// There is a recording, and SIGALRM has its handler.
static HAS_GUARD: Mutex<bool> = Mutex::new(false);
/// What the recording was to last for has ended.
static OCCASION_ENDED: AtomicBool = AtomicBool::new(false);
/// Signals that ask for a snapshot and came, one bit each.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Signal handlers for the time of a recording; dropping it restores the old ones.
pub(crate) struct Guard {
    old: Vec<(Signal, SigAction)>,
    /// The thread that waits for the recording's time to be up; it ends when the sender is dropped.
    clock: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Guard {
    pub(crate) fn install(child: nix::unistd::Pid) -> Result<Self, Error> {
        CHILD.store(child.as_raw(), Ordering::SeqCst);
        SIGNAL.store(0, Ordering::SeqCst);
        ARRIVED.store(false, Ordering::SeqCst);
        PASSED_ON.store(false, Ordering::SeqCst);
        STOP.store(false, Ordering::SeqCst);
        TIME_UP.store(false, Ordering::SeqCst);
        OCCASION_ENDED.store(false, Ordering::SeqCst);
        let mut guard = Self {
            old: Vec::new(),
            clock: None,
        };
        for (signal, handler) in [
            (Signal::SIGINT, SigHandler::Handler(came)),
            (Signal::SIGTERM, SigHandler::Handler(came)),
            // The terminal's own affair between it and the program.
            (Signal::SIGQUIT, SigHandler::SigIgn),
            (Signal::SIGALRM, SigHandler::Handler(time_is_up)),
        ] {
            // Without SA_RESTART, so that a wait ends when a signal comes.
            let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
            // SAFETY: the handlers only use atomics, kill(2) and setitimer(2).
            let old =
                unsafe { sigaction(signal, &action) }.map_err(Error::system("catch signals"))?;
            guard.old.push((signal, old));
        }
        *HAS_GUARD.lock().unwrap_or_else(PoisonError::into_inner) = true;
        Ok(guard)
    }

    /// For a process that ran before: a signal ends the recording, and is not passed on.
    pub(crate) fn install_to_stop() -> Result<Self, Error> {
        Self::install(nix::unistd::Pid::from_raw(NOBODY))
    }

    /// The recording ends after so long.
    pub(crate) fn stop_after(&mut self, time: Duration) {
        let (clock, dropped) = channel();
        let thread = std::thread::spawn(move || {
            // Signals are for the thread that waits for the program.
            let _ = SigSet::all().thread_block();
            if dropped.recv_timeout(time) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            TIME_UP.store(true, Ordering::SeqCst);
            STOP.store(true, Ordering::SeqCst);
            // Said again and again, in case it is said just before a wait begins.
            while dropped.recv_timeout(AGAIN / 20) == Err(RecvTimeoutError::Timeout) {
                let _ = kill(Pid::this(), Signal::SIGALRM);
            }
        });
        self.clock = Some((clock, thread));
    }

    /// Why the recording is to be stopped, if it is and that was no signal.
    pub(crate) fn early(&self) -> Option<Early> {
        if TIME_UP.load(Ordering::Relaxed) {
            Some(Early::TimeUp)
        } else if OCCASION_ENDED.load(Ordering::Relaxed) {
            Some(Early::OccasionEnded)
        } else {
            None
        }
    }

    /// These signals ask for a snapshot.
    pub(crate) fn answer(&mut self, signals: &[TriggerSignal]) -> Result<(), Error> {
        ASKED.store(0, Ordering::SeqCst);
        for &signal in signals {
            let handler = SigHandler::Handler(asked);
            let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
            let signal = number(signal);
            // SAFETY: the handler only uses an atomic.
            let old =
                unsafe { sigaction(signal, &action) }.map_err(Error::system("catch signals"))?;
            self.old.push((signal, old));
        }
        Ok(())
    }

    /// A signal that asks for a snapshot and came; each is told once.
    pub(crate) fn asked(&self) -> Option<TriggerSignal> {
        let came = ASKED.load(Ordering::Relaxed);
        let signal = TriggerSignal::ALL
            .into_iter()
            .find(|&signal| came & bit(number(signal) as i32) != 0)?;
        if ASKED.fetch_and(!bit(number(signal) as i32), Ordering::SeqCst)
            == bit(number(signal) as i32)
            && SIGNAL.load(Ordering::SeqCst) == 0
        {
            set_timer(Duration::ZERO, Duration::ZERO);
            // One that came just now has lost its timer.
            if SIGNAL.load(Ordering::SeqCst) != 0 {
                set_timer(PATIENCE, AGAIN);
            }
        }
        Some(signal)
    }

    /// Whether SIGINT or SIGTERM came.
    pub(crate) fn interrupted(&self) -> bool {
        SIGNAL.load(Ordering::Relaxed) != 0
    }

    /// The program is about to get this signal.
    pub(crate) fn arrived(&self, signal: i32) {
        if matches!(signal, libc::SIGINT | libc::SIGTERM) {
            ARRIVED.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the recording is to be stopped now.
    pub(crate) fn must_stop(&self) -> bool {
        STOP.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Nobody may send SIGALRM when its handler is gone.
        if let Some((sender, thread)) = self.clock.take() {
            drop(sender);
            let _ = thread.join();
        }
        *HAS_GUARD.lock().unwrap_or_else(PoisonError::into_inner) = false;
        set_timer(Duration::ZERO, Duration::ZERO);
        for (signal, action) in self.old.drain(..) {
            // SAFETY: puts back what was there before.
            let _ = unsafe { sigaction(signal, &action) };
        }
    }
}

/// Ends the recording that is under way in this process: what it was to last for, such as a command, has
/// ended. May be called by any thread.
pub fn occasion_ended() {
    let has_guard = HAS_GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    if *has_guard {
        OCCASION_ENDED.store(true, Ordering::SeqCst);
        STOP.store(true, Ordering::SeqCst);
        // A wait may be about to begin.
        set_timer(AGAIN / 20, AGAIN / 20);
    }
}

fn number(signal: TriggerSignal) -> Signal {
    match signal {
        TriggerSignal::Usr1 => Signal::SIGUSR1,
        TriggerSignal::Usr2 => Signal::SIGUSR2,
        TriggerSignal::Hup => Signal::SIGHUP,
    }
}

const fn bit(signal: libc::c_int) -> u64 {
    1 << signal
}

extern "C" fn asked(signal: libc::c_int) {
    ASKED.fetch_or(bit(signal), Ordering::SeqCst);
    // It may have come just before a wait begins: said again and again until it is answered.
    if SIGNAL.load(Ordering::SeqCst) == 0 {
        set_timer(AGAIN, AGAIN);
    }
}

extern "C" fn came(signal: libc::c_int) {
    if SIGNAL.swap(signal, Ordering::SeqCst) != 0 || CHILD.load(Ordering::SeqCst) == NOBODY {
        STOP.store(true, Ordering::SeqCst);
    }
    set_timer(PATIENCE, AGAIN);
}

extern "C" fn time_is_up(_signal: libc::c_int) {
    if SIGNAL.load(Ordering::SeqCst) == 0 {
        return;
    }
    if PASSED_ON.swap(true, Ordering::SeqCst) || CHILD.load(Ordering::SeqCst) == NOBODY {
        STOP.store(true, Ordering::SeqCst);
        return;
    }
    if !ARRIVED.load(Ordering::SeqCst) {
        // SAFETY: kill(2) is async-signal-safe; at worst the child is gone and it fails.
        unsafe { libc::kill(CHILD.load(Ordering::SeqCst), SIGNAL.load(Ordering::SeqCst)) };
    }
    set_timer(GRACE, AGAIN);
}

fn set_timer(first: Duration, interval: Duration) {
    let timeval = |time: Duration| libc::timeval {
        tv_sec: time.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(time.subsec_micros()),
    };
    let timer = libc::itimerval {
        it_value: timeval(first),
        it_interval: timeval(interval),
    };
    // SAFETY: a plain system call with a valid structure; async-signal-safe on Linux.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}
