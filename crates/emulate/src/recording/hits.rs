//! Triggers that are hit, and the snapshots that are taken at hits.

use ptrail_flow::Instruction;
use ptrail_pt::Ip;
use ptrail_record::{Hit, Moment, Trigger};

use super::Recording;
use crate::thread::{Thread, ThreadId};
use crate::watcher::Watcher;
use crate::{End, Error};

impl Recording {
    /// Whether execution at `ip` may be a hit, so that the registers are worth a look.
    pub(crate) fn is_watched(&self, ip: Ip) -> bool {
        self.watcher
            .as_ref()
            .is_some_and(|watcher| watcher.is_at(ip))
    }

    /// What a function's first six integer arguments are, if the next instruction is its first.
    pub(crate) fn arguments_are(&mut self, arguments: Option<[u64; 6]>) {
        if let Some(watcher) = &mut self.watcher {
            watcher.arguments = arguments;
        }
    }

    /// The triggers that lie in no code so far.
    pub(crate) fn unresolved(&self) -> Option<Error> {
        let (trigger, why) = self.watcher.as_ref()?.watch.unresolved().next()?;
        Some(Error::Unresolved {
            trigger: trigger.to_string(),
            why: why.clone(),
        })
    }

    /// The thread is about to execute the instruction at `ip`.
    #[inline]
    pub(super) fn come_to(&mut self, thread: ThreadId, ip: Ip) -> Result<(), Error> {
        let at = self.moment(thread, ip);
        let Some(watcher) = &mut self.watcher else {
            return Ok(());
        };
        let hit = watcher.come_to(thread, at).or_else(|| watcher.due(at.time));
        hit.map_or(Ok(()), |hit| self.hit(thread, hit, ip))
    }

    /// After an instruction: a call begins, or calls return.
    #[inline]
    pub(super) fn follow_calls(
        &mut self,
        thread: ThreadId,
        ip: Ip,
        instruction: Instruction,
        next: Ip,
    ) -> Result<(), Error> {
        let at = self.moment(thread, next);
        let Some(watcher) = &mut self.watcher else {
            return Ok(());
        };
        let hit = watcher.follow(thread, ip, instruction, at);
        hit.map_or(Ok(()), |hit| self.hit(thread, hit, next))
    }

    /// Something else happened that may be a trigger; it is told of the thread that ran last.
    pub(crate) fn happened(&mut self, thread: ThreadId, trigger: &Trigger) -> Result<(), Error> {
        let next = self.threads[thread.0].next;
        let at = self.moment(thread, next);
        let hit = self
            .watcher
            .as_mut()
            .and_then(|watcher| watcher.watch.happened(trigger, at));
        hit.map_or(Ok(()), |hit| self.hit(thread, hit, next))
    }

    fn moment(&self, thread: ThreadId, ip: Ip) -> Moment {
        let Thread { pid, tid, .. } = self.threads[thread.0];
        Moment {
            pid,
            tid,
            ip: ip.0,
            time: self.clock.perf_time(),
        }
    }

    /// A snapshot is to be taken, now or later.
    fn hit(&mut self, thread: ThreadId, hit: Hit, ip: Ip) -> Result<(), Error> {
        let Some(watcher) = &mut self.watcher else {
            return Ok(());
        };
        if !watcher.delay(&hit, self.clock.perf_time()) {
            self.take_snapshot(thread, hit, ip)?;
        }
        Ok(())
    }

    /// Writes what each thread's ring holds; the thread that runs is about to execute `ip`.
    #[cold]
    fn take_snapshot(&mut self, running: ThreadId, hit: Hit, ip: Ip) -> Result<(), Error> {
        if self.snapshot_size.is_some() {
            for number in 0..self.threads.len() {
                let id = ThreadId(number);
                let next = if id == running {
                    ip
                } else {
                    self.threads[number].next
                };
                if !self.threads[number].ended {
                    self.interrupted(id, next);
                    let now = self.clock.tsc();
                    let front = &mut self.threads[number].front;
                    front.recovers(None, now, true);
                    front.finish(now);
                    self.write_pieces(id, 1)?;
                }
                self.write_snapshot(id)?;
            }
        }
        if let Some(watcher) = &mut self.watcher {
            watcher.watch.took(hit);
            if watcher.watch.is_done() {
                self.remaining = 0;
            }
        }
        Ok(())
    }

    /// At the end: the snapshot that is due, or of what has just happened; if there was none at all,
    /// one without a trigger.
    pub(super) fn last_snapshot(&mut self, end: Option<End>) -> Result<(), Error> {
        let Some(watcher) = &mut self.watcher else {
            return Ok(());
        };
        let last = ThreadId(0);
        if self.threads.is_empty() {
            return Ok(());
        }
        if let Some(hit) = watcher.due(u64::MAX) {
            let ip = Ip(hit.ip);
            self.take_snapshot(last, hit, ip)?;
        }
        let ended = match end {
            Some(End::Exited(_)) => Some(Trigger::Exit),
            Some(End::Killed(_)) => Some(Trigger::Crash),
            Some(End::GoesOn) | None => None,
        };
        if let Some(trigger) = ended {
            self.happened(last, &trigger)?;
        }
        let none = |watcher: &Watcher| watcher.watch.taken().is_empty();
        if self.watcher.as_ref().is_some_and(none) {
            if self.snapshot_size.is_some() {
                for number in 0..self.threads.len() {
                    self.write_snapshot(ThreadId(number))?;
                }
            }
            self.note("no trigger was hit: this is the end of the recording");
        }
        Ok(())
    }

    /// Writes what its ring holds, if it has changed; it begins anywhere within a packet.
    pub(super) fn write_snapshot(&mut self, thread: ThreadId) -> Result<(), Error> {
        let Thread {
            pid,
            tid,
            kept,
            faults,
            snapshot_at,
            ..
        } = &mut self.threads[thread.0];
        if std::mem::replace(snapshot_at, faults.written) == faults.written {
            return Ok(());
        }
        let size = self.snapshot_size.unwrap_or(0).min(kept.len());
        let last = &kept[kept.len() - size..];
        let time = self.clock.perf_time();
        self.writer
            .snapshot(*pid, *tid, time, faults.written, last)?;
        Ok(())
    }
}
