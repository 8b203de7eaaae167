//! Which CPU tracer and program share.
//!
//! A step is five times as fast when both run on one CPU, so both are pinned. If that CPU turns out
//! to be busy with something else while another is idle, both move there.

use std::fs;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// How often the load is looked at; not the same for all recorders, so that two of them that share
/// a CPU don't both leave it.
const LOOK: Duration = Duration::from_secs(1);
/// A CPU is idle if it was so for at least this share (in 1/100) of the time.
const IDLE: u64 = 50;
/// We share ours if we got less than this share (in 1/100) of it while it was busy.
const OURS: u64 = 75;

/// Tracer and program, pinned to one CPU.
pub(crate) struct SharedCpu {
    /// What both could use before.
    all: CpuSet,
    /// What a process could use before that ran already.
    programs: Option<CpuSet>,
    current: usize,
    interval: Duration,
    looked: Instant,
    /// What it showed: idle and total time of each CPU, in clock ticks.
    load: Vec<(u64, u64)>,
    /// And the CPU time that tracer and program had used.
    used: Duration,
}

impl SharedCpu {
    /// Pins this thread, and so the children that it starts, to the CPU it runs on.
    pub(crate) fn pin() -> nix::Result<Self> {
        let this = Pid::from_raw(0);
        let all = sched_getaffinity(this)?;
        let current = sched_getcpu()?;
        sched_setaffinity(this, &only(current)?)?;
        let jitter = Duration::from_millis(u64::from(std::process::id() % 16) * 50);
        Ok(Self {
            all,
            programs: None,
            current,
            interval: LOOK + jitter,
            looked: Instant::now(),
            load: load(),
            used: Duration::ZERO,
        })
    }

    /// Pins a process that ran before; it gets back what it had by [`SharedCpu::unpin`].
    pub(crate) fn adopt(&mut self, program: Pid) -> nix::Result<()> {
        let had = sched_getaffinity(program)?;
        sched_setaffinity(program, &only(self.current)?)?;
        self.programs = Some(had);
        Ok(())
    }

    /// Moves this thread and `program` to an idle CPU if theirs has no idle time and there is one.
    pub(crate) fn balance(&mut self, program: Pid) {
        let wall = self.looked.elapsed();
        if wall < self.interval {
            return;
        }
        self.looked = Instant::now();
        let before = std::mem::replace(&mut self.load, load());
        let idle: Vec<_> = before
            .iter()
            .zip(&self.load)
            .map(|(before, now)| idle_share(*before, *now))
            .collect();
        let used = cpu_time("thread-self") + cpu_time(&program.to_string());
        let got = used.saturating_sub(std::mem::replace(&mut self.used, used));
        let own_idle = idle.get(self.current).copied().unwrap_or(100);
        if own_idle >= 100 - OURS || got.as_nanos() * 100 >= wall.as_nanos() * u128::from(OURS) {
            return;
        }
        let usable = (0..idle.len()).filter(|&cpu| self.all.is_set(cpu).unwrap_or(false));
        let Some(best) = usable
            .max_by_key(|&cpu| idle[cpu])
            .filter(|&best| idle[best] >= IDLE)
        else {
            return;
        };
        if let Ok(set) = only(best)
            && sched_setaffinity(program, &set).is_ok()
            && sched_setaffinity(Pid::from_raw(0), &set).is_ok()
        {
            self.current = best;
        }
    }

    /// Lets a process use all CPUs again.
    pub(crate) fn unpin(&self, process: Pid) {
        // It may be gone.
        let _ = sched_setaffinity(process, self.programs.as_ref().unwrap_or(&self.all));
    }
}

impl Drop for SharedCpu {
    fn drop(&mut self) {
        let _ = sched_setaffinity(Pid::from_raw(0), &self.all);
    }
}

fn only(cpu: usize) -> nix::Result<CpuSet> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(set)
}

/// Idle and total time of each CPU, from `/proc/stat`; empty if it can't be read.
fn load() -> Vec<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut load = Vec::new();
    for line in text.lines() {
        let Some((number, times)) = line
            .strip_prefix("cpu")
            .and_then(|rest| rest.split_once(' '))
        else {
            continue;
        };
        let Ok(number) = number.parse::<usize>() else {
            continue;
        };
        // user, nice, system, idle, iowait, irq, softirq, steal: proc(5).
        let times: Vec<u64> = times
            .split_whitespace()
            .take(8)
            .filter_map(|time| time.parse().ok())
            .collect();
        if number < CpuSet::count() && times.len() > 4 {
            load.resize(load.len().max(number + 1), (0, 0));
            load[number] = (times[3] + times[4], times.iter().sum());
        }
    }
    load
}

/// Share of idle time between two looks, in 1/100.
fn idle_share(before: (u64, u64), now: (u64, u64)) -> u64 {
    let total = now.1.saturating_sub(before.1);
    (now.0.saturating_sub(before.0) * 100)
        .checked_div(total)
        .unwrap_or(0)
}

/// CPU time that a thread has used; zero if the kernel does not say.
fn cpu_time(thread: &str) -> Duration {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap_or_default();
    Duration::from_nanos(
        text.split(' ')
            .next()
            .and_then(|time| time.parse().ok())
            .unwrap_or(0),
    )
}
