//! How long nothing ran: the time that passes on the recording's clock besides instructions.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use crate::api;
use crate::rings::control;

/// Threads of this process that are not in a system call.
static BUSY: AtomicI32 = AtomicI32::new(0);

pub(crate) fn thread_starts() {
    BUSY.fetch_add(1, Ordering::Relaxed);
    control().busy.fetch_add(1, Ordering::Relaxed);
}

/// A thread entered a system call.
pub(crate) fn entered() {
    BUSY.fetch_sub(1, Ordering::Relaxed);
    if control().busy.fetch_sub(1, Ordering::Relaxed) == 1 {
        control().idle_since.store(now(), Ordering::Relaxed);
    }
}

/// A thread comes back from a system call; how long nothing ran before.
pub(crate) fn left() -> Duration {
    BUSY.fetch_add(1, Ordering::Relaxed);
    if control().busy.fetch_add(1, Ordering::Relaxed) > 0 {
        return Duration::ZERO;
    }
    let since = control().idle_since.load(Ordering::Relaxed);
    Duration::from_nanos(now().saturating_sub(since))
}

/// The other threads of this process end.
pub(crate) fn others_end() {
    let busy = BUSY.swap(0, Ordering::Relaxed);
    control().busy.fetch_sub(busy, Ordering::Relaxed);
}

/// This is a child process: its only thread is in a system call.
pub(crate) fn forked() {
    BUSY.store(0, Ordering::Relaxed);
}

/// Nanoseconds of CLOCK_MONOTONIC, the same in all processes.
fn now() -> u64 {
    const CLOCK_MONOTONIC: i32 = 1;
    let mut time = [0_i64; 2];
    // SAFETY: a `struct timespec` is two 64-bit numbers.
    unsafe { api::clock_gettime(CLOCK_MONOTONIC, &raw mut time) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}
