//! The triggers of a recording: every instruction is looked at, so hits and calls are exact.

use std::path::{Path, PathBuf};

use ptrail_flow::{Class, Instruction};
use ptrail_perfdata::{SnapshotNote, TriggerNote};
use ptrail_pt::Ip;
use ptrail_record::{Calls, Hit, MappedFile, Moment, Trigger, Triggers, Watch};

use crate::Error;
use crate::maps::ExecMapping;
use crate::thread::ThreadId;

pub(crate) struct Watcher {
    pub(crate) watch: Watch,
    /// Of each thread, by its number; empty if no trigger waits for a return.
    calls: Vec<Calls>,
    follows_calls: bool,
    /// The snapshot of a hit that is to be taken later, and when.
    due: Option<(u64, Hit)>,
    /// Of the function at whose entry the program stands.
    pub(crate) arguments: Option<[u64; 6]>,
}

impl Watcher {
    pub(crate) fn new(triggers: Triggers) -> Result<Self, Error> {
        let unknown = |trigger: &&Trigger| {
            matches!(trigger, Trigger::Tracepoint { .. } | Trigger::Usdt { .. })
        };
        if let Some(trigger) = triggers.triggers.iter().find(unknown) {
            return Err(Error::NoSuchTrigger {
                trigger: trigger.to_string(),
            });
        }
        let watch = Watch::new(triggers);
        Ok(Self {
            follows_calls: watch.awaits_returns(),
            watch,
            calls: Vec::new(),
            due: None,
            arguments: None,
        })
    }

    pub(crate) fn mapped(&mut self, pid: u32, mapping: &ExecMapping) {
        let rooted = PathBuf::from(format!("/proc/{pid}/root{}", mapping.path));
        let file = if rooted.is_file() {
            &rooted
        } else {
            Path::new(&mapping.path)
        };
        self.watch.mapped(
            pid,
            &MappedFile {
                address: mapping.address,
                len: mapping.len,
                file_offset: mapping.file_offset,
                path: &mapping.path,
                file,
            },
        );
    }

    /// The thread begins another program: its calls are gone with the old one.
    pub(crate) fn forget_calls(&mut self, thread: ThreadId) {
        if let Some(calls) = self.calls.get_mut(thread.0) {
            *calls = Calls::default();
        }
    }

    /// Whether there is a point at `ip`.
    pub(crate) fn is_at(&self, ip: Ip) -> bool {
        self.watch.first_between(ip.0, ip.0).is_some()
    }

    /// The first of these instructions at which there is something to do; the first is at `start`,
    /// the others so many bytes behind it.
    #[inline]
    pub(crate) fn next_in(&self, start: Ip, offsets: &[u16]) -> Option<usize> {
        let &last = offsets.last()?;
        if self.due.is_some() {
            return Some(0);
        }
        let first = start.offset(u64::from(*offsets.first()?));
        let last = start.offset(u64::from(last));
        // A point inside of an instruction is never reached.
        let mut from = first.0;
        while let Some(address) = self.watch.first_between(from, last.0) {
            let offset = u16::try_from(address.wrapping_sub(start.0)).ok()?;
            if let Ok(place) = offsets.binary_search(&offset) {
                return Some(place);
            }
            from = address + 1;
        }
        None
    }

    #[inline]
    pub(crate) fn come_to(&mut self, thread: ThreadId, at: Moment) -> Option<Hit> {
        if !self.is_at(Ip(at.ip)) {
            return None;
        }
        let arguments = self.arguments.take();
        let (calls, hit) = self.watch.reached(at);
        for call in calls {
            self.calls_of(thread).wait_for(call);
        }
        hit.map(|hit| Hit { arguments, ..hit })
    }

    /// The instruction at `ip` has executed, and the thread goes on at `at.ip`.
    #[inline]
    pub(crate) fn follow(
        &mut self,
        thread: ThreadId,
        ip: Ip,
        instruction: Instruction,
        at: Moment,
    ) -> Option<Hit> {
        if !self.follows_calls {
            return None;
        }
        let behind = ip.offset(u64::from(instruction.len));
        match instruction.class {
            // To the next instruction: to read the instruction pointer.
            Class::Call if instruction.target == behind => None,
            Class::Call | Class::CallIndirect => {
                self.calls_of(thread).called(behind.0);
                None
            }
            Class::Return => {
                let mut hit = None;
                for call in self.calls_of(thread).returned(at.ip) {
                    let new = self.watch.returned(call, at);
                    hit = hit.or(new);
                }
                hit
            }
            _ => None,
        }
    }

    fn calls_of(&mut self, thread: ThreadId) -> &mut Calls {
        if self.calls.len() <= thread.0 {
            self.calls.resize_with(thread.0 + 1, Calls::default);
        }
        &mut self.calls[thread.0]
    }

    /// Puts off the snapshot of a hit, if more is to be recorded after it.
    pub(crate) fn delay(&mut self, hit: &Hit, now: u64) -> bool {
        let after = self.watch.after().as_nanos();
        if after == 0 || now.saturating_sub(hit.time) as u128 >= after {
            return false;
        }
        let until = u128::from(hit.time) + after;
        self.due = Some((u64::try_from(until).unwrap_or(u64::MAX), hit.clone()));
        true
    }

    /// The hit whose snapshot is to be taken by now.
    #[inline]
    pub(crate) fn due(&mut self, now: u64) -> Option<Hit> {
        self.due
            .take_if(|(until, _)| *until <= now)
            .map(|(_, hit)| hit)
    }

    // ---- for the capture ----

    pub(crate) fn trigger_notes(&self) -> Vec<TriggerNote> {
        let notes = self.watch.triggers().map(|(trigger, tally)| TriggerNote {
            trigger: trigger.to_string(),
            hits: tally.hits,
            calls: trigger.awaits_return().then_some(tally.calls),
        });
        notes.collect()
    }

    pub(crate) fn snapshot_notes(&self) -> Vec<SnapshotNote> {
        let notes = self.watch.taken().iter().map(|hit| SnapshotNote {
            trigger: hit.trigger as u64,
            pid: hit.pid,
            tid: hit.tid,
            ip: hit.ip,
            time: hit.time,
            took: hit.took,
            arguments: hit.arguments,
        });
        notes.collect()
    }

    /// What the user should know of the triggers, one sentence each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let unresolved = self.watch.unresolved();
        unresolved
            .map(|(trigger, why)| format!("the trigger {trigger} was never armed: {why}"))
            .collect()
    }
}
