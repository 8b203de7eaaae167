//! Who ran on a CPU when, by its context switch records.

use ptrail_perfdata::{Capture, Record, Sideband};
use ptrail_pt::{PerfTime, Picos};

/// A thread with its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Thread {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
}

/// What a CPU did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    Thread(Thread),
    /// The kernel's idle task, which has no user code.
    Idle,
    /// No record tells.
    Unknown,
}

/// One CPU's switches.
pub(crate) struct Schedule {
    /// From each time on, in order; the first one holds before, too.
    turns: Vec<(Picos, Running)>,
}

impl Schedule {
    pub(crate) fn of(capture: &Capture, cpu: u32, base: PerfTime) -> Self {
        let mut turns: Vec<(Picos, Running)> = Vec::new();
        let of_cpu = capture.sideband.iter().filter(|e| e.cpu == Some(cpu));
        for entry in of_cpu {
            let Some(time) = entry.time else { continue };
            let at = Picos(time.saturating_sub(base.0).saturating_mul(1000));
            let Some((before, now)) = turn(entry) else {
                continue;
            };
            if turns.is_empty() {
                turns.push((Picos(0), before));
            }
            if turns.last().is_none_or(|&(_, last)| last != now) {
                turns.push((at, now));
            }
        }
        Self { turns }
    }

    #[cfg(test)]
    pub(crate) fn new(turns: Vec<(Picos, Running)>) -> Self {
        Self { turns }
    }

    /// What ran at a time, and since when.
    pub(crate) fn at(&self, time: Picos) -> (Picos, Running) {
        let later = self.turns.partition_point(|&(begin, _)| begin <= time);
        match later.checked_sub(1) {
            Some(index) => self.turns[index],
            None => (Picos(0), Running::Unknown),
        }
    }

    /// The first thread that ran user code between two times, and since when: the one that was
    /// running at the first time, or, if that was none, the next one.
    pub(crate) fn user_between(&self, from: Picos, to: Picos) -> Option<(Picos, Thread)> {
        let first = self.turns.partition_point(|&(begin, _)| begin <= from);
        let candidates = self.turns[first.saturating_sub(1)..].iter();
        let mut in_time = candidates.take_while(|&&(begin, _)| begin <= to.max(from));
        in_time.find_map(|&(begin, running)| match running {
            Running::Thread(thread) => Some((begin, thread)),
            _ => None,
        })
    }
}

/// What ran before a record and from it on; `None` if the record says nothing about that.
fn turn(entry: &Sideband) -> Option<(Running, Running)> {
    let ids = entry.pid.zip(entry.tid);
    let this = ids.map_or(Running::Unknown, running);
    match entry.record {
        Record::Switch { out, other, .. } => {
            let other = other.map_or(Running::Unknown, running);
            Some(if out { (this, other) } else { (other, this) })
        }
        Record::ItraceStart => Some((this, this)),
        _ => None,
    }
}

fn running((pid, tid): (u32, u32)) -> Running {
    match tid {
        0 => Running::Idle,
        _ => Running::Thread(Thread { pid, tid }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32) -> Running {
        Running::Thread(Thread { pid: 1, tid })
    }

    fn schedule() -> Schedule {
        let turns = [(0, thread(5)), (10, Running::Idle), (20, thread(6))];
        Schedule::new(turns.map(|(at, running)| (Picos(at), running)).to_vec())
    }

    #[test]
    fn who_ran_when() {
        let schedule = schedule();
        for (time, expected) in [(0, thread(5)), (9, thread(5)), (10, Running::Idle)] {
            assert_eq!(schedule.at(Picos(time)).1, expected);
        }
        assert_eq!(schedule.at(Picos(999)), (Picos(20), thread(6)));
        let empty = Schedule { turns: Vec::new() };
        assert_eq!(empty.at(Picos(3)).1, Running::Unknown);
    }

    #[test]
    fn user_code_is_never_the_idle_tasks() {
        let user = |from, to| {
            let found = schedule().user_between(Picos(from), Picos(to));
            found.map(|(_, thread)| thread.tid)
        };
        assert_eq!(user(3, 30), Some(5));
        assert_eq!(user(12, 30), Some(6));
        assert_eq!(user(12, 15), None);
        assert_eq!(user(12, 3), None);
    }
}
