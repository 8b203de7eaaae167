//! Which triggers there are, where they lie in the processes, and how often they were hit.
//!
//! The recorders tell a [`Watch`] of mappings, and when execution comes to one of its points or a call
//! that it waits for returns. It answers with a [`Hit`] when a snapshot is to be taken. While one is
//! under way (`--after`), and when all have been taken, hits are counted and no more.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use crate::calls::Call;
use crate::resolve::{Offset, resolve};
use crate::{Place, Trigger, TriggerSignal, Unresolved};

/// When to take snapshots, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Triggers {
    /// The triggers; any of them.
    pub triggers: Vec<Trigger>,
    /// Record on for so long after a hit.
    pub after: Duration,
    /// At most so many snapshots are taken.
    pub snapshots: NonZeroU32,
}

impl Triggers {
    /// The signals among them.
    #[must_use]
    pub fn signals(&self) -> Vec<TriggerSignal> {
        let signal = |trigger: &Trigger| match trigger {
            Trigger::Signal(signal) => Some(*signal),
            _ => None,
        };
        self.triggers.iter().filter_map(signal).collect()
    }
}

/// A file's executable mapping in a process.
#[derive(Clone, Copy, Debug)]
pub struct MappedFile<'a> {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// Path as the process has it; no absolute path if it is no file.
    pub path: &'a str,
    /// Where the file can be opened.
    pub file: &'a Path,
}

/// A trigger was hit, and a snapshot is to be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The trigger, by its number.
    pub trigger: usize,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The instruction before which it was hit.
    pub ip: u64,
    /// When, on the recorder's clock, nanoseconds.
    pub time: u64,
    /// How long the call took, nanoseconds; for triggers that wait for a return.
    pub took: Option<u64>,
    /// The first six integer arguments, where the recorder can see registers.
    pub arguments: Option<[u64; 6]>,
}

/// Where a thread is when it comes to a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The next instruction.
    pub ip: u64,
    /// Nanoseconds.
    pub time: u64,
}

/// What is counted of a trigger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How often the function was called, if its returns are awaited.
    pub calls: u64,
    /// Hits, whether a snapshot was taken or not.
    pub hits: u64,
}

/// A place where something is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    address: u64,
    trigger: usize,
    /// The entry of a function whose return is awaited.
    awaits_return: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Watch {
    request: Triggers,
    tallies: Vec<Tally>,
    /// Points of each process.
    processes: HashMap<u32, Vec<Point>>,
    /// The addresses of all points, ascending, each once.
    addresses: Vec<u64>,
    /// What triggers mean in a file, by its path.
    files: HashMap<String, Vec<(usize, Vec<Offset>)>>,
    /// Of each trigger that was found nowhere yet, why.
    unresolved: Vec<Option<Unresolved>>,
    under_way: bool,
    taken: Vec<Hit>,
}

impl Watch {
    /// Nothing is mapped yet.
    #[must_use]
    pub fn new(request: Triggers) -> Self {
        let unresolved = request
            .triggers
            .iter()
            .map(|trigger| trigger.is_in_code().then_some(Unresolved::NoFile))
            .collect();
        Self {
            tallies: vec![Tally::default(); request.triggers.len()],
            processes: HashMap::new(),
            addresses: Vec::new(),
            files: HashMap::new(),
            unresolved,
            under_way: false,
            taken: Vec::new(),
            request,
        }
    }

    // ---- where ----

    /// Executable code is mapped.
    pub fn mapped(&mut self, pid: u32, mapping: &MappedFile<'_>) {
        let holds = |address: u64| {
            address
                .checked_sub(mapping.address)
                .is_some_and(|offset| offset < mapping.len)
        };
        let points = self.processes.entry(pid).or_default();
        points.retain(|point| !holds(point.address));
        for (number, trigger) in self.request.triggers.iter().enumerate() {
            if let Trigger::Code(Place::Address(address)) = *trigger
                && holds(address)
            {
                self.unresolved[number] = None;
                points.push(Point {
                    address,
                    trigger: number,
                    awaits_return: false,
                });
            }
        }
        if mapping.path.starts_with('/') && !mapping.path.starts_with("//") {
            let triggers = &self.request.triggers;
            let unresolved = &mut self.unresolved;
            let found = self
                .files
                .entry(mapping.path.to_owned())
                .or_insert_with(|| resolve(triggers, mapping, unresolved));
            for (number, offsets) in found {
                for offset in offsets {
                    let address = mapping
                        .address
                        .wrapping_add(offset.offset.wrapping_sub(mapping.file_offset));
                    if offset.offset >= mapping.file_offset && holds(address) {
                        self.unresolved[*number] = None;
                        points.push(Point {
                            address,
                            trigger: *number,
                            awaits_return: offset.awaits_return,
                        });
                    }
                }
            }
        }
        self.list_addresses();
    }

    /// The process begins another program: nothing is mapped any more.
    pub fn replaced(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.list_addresses();
    }

    /// A process was born as a copy of another one.
    pub fn forked(&mut self, pid: u32, parent: u32) {
        if let Some(points) = self.processes.get(&parent) {
            let points = points.clone();
            self.processes.insert(pid, points);
        }
    }

    fn list_addresses(&mut self) {
        let points = self.processes.values().flatten();
        self.addresses = points.map(|point| point.address).collect();
        self.addresses.sort_unstable();
        self.addresses.dedup();
    }

    /// The first point of any process from `first` on, up to and including `last`.
    #[inline]
    #[must_use]
    pub fn first_between(&self, first: u64, last: u64) -> Option<u64> {
        let at = self.addresses.partition_point(|&address| address < first);
        self.addresses
            .get(at)
            .copied()
            .filter(|&address| address <= last)
    }

    /// Whether any trigger waits for returns, so that calls must be followed.
    #[must_use]
    pub fn awaits_returns(&self) -> bool {
        self.request.triggers.iter().any(Trigger::awaits_return)
    }

    // ---- what happens ----

    /// Execution comes to `at.ip`. Returns the calls to wait for, and what a snapshot is to be taken
    /// for.
    pub fn reached(&mut self, at: Moment) -> (Vec<Call>, Option<Hit>) {
        let here = self.processes.get(&at.pid).into_iter().flatten();
        let here: Vec<Point> = here
            .filter(|point| point.address == at.ip)
            .copied()
            .collect();
        let (mut calls, mut hit) = (Vec::new(), None);
        for point in here {
            if point.awaits_return {
                self.tallies[point.trigger].calls += 1;
                calls.push(Call {
                    trigger: point.trigger,
                    function: point.address,
                    begin: at.time,
                });
            } else {
                let new = self.hit(point.trigger, at, None);
                hit = hit.or(new);
            }
        }
        (calls, hit)
    }

    /// A call that was waited for has returned to `at.ip`.
    pub fn returned(&mut self, call: Call, at: Moment) -> Option<Hit> {
        let took = at.time.saturating_sub(call.begin);
        let counts = match self.request.triggers.get(call.trigger)? {
            Trigger::Slow { longer_than, .. } => u128::from(took) > longer_than.as_nanos(),
            _ => true,
        };
        counts
            .then(|| self.hit(call.trigger, at, Some(took)))
            .flatten()
    }

    /// What is no place in the code has happened: all triggers of this kind are hit.
    pub fn happened(&mut self, trigger: &Trigger, at: Moment) -> Option<Hit> {
        let mut hit = None;
        for number in 0..self.request.triggers.len() {
            if self.request.triggers[number] == *trigger {
                let new = self.hit(number, at, None);
                hit = hit.or(new);
            }
        }
        hit
    }

    fn hit(&mut self, trigger: usize, at: Moment, took: Option<u64>) -> Option<Hit> {
        self.tallies[trigger].hits += 1;
        if self.under_way || self.is_done() {
            return None;
        }
        self.under_way = true;
        Some(Hit {
            trigger,
            pid: at.pid,
            tid: at.tid,
            ip: at.ip,
            time: at.time,
            took,
            arguments: None,
        })
    }

    /// The snapshot of a hit was taken.
    pub fn took(&mut self, hit: Hit) {
        self.under_way = false;
        self.taken.push(hit);
    }

    // ---- what was ----

    /// Record on for so long after a hit.
    #[must_use]
    pub fn after(&self) -> Duration {
        self.request.after
    }

    /// Whether as many snapshots were taken as may be.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.taken.len() >= self.request.snapshots.get() as usize
    }

    /// The triggers with their counts.
    pub fn triggers(&self) -> impl Iterator<Item = (&Trigger, Tally)> {
        self.request
            .triggers
            .iter()
            .zip(self.tallies.iter().copied())
    }

    /// The hits for which snapshots were taken, in their order.
    #[must_use]
    pub fn taken(&self) -> &[Hit] {
        &self.taken
    }

    /// The triggers that were found in no code so far, and why.
    pub fn unresolved(&self) -> impl Iterator<Item = (&Trigger, &Unresolved)> {
        let both = self.request.triggers.iter().zip(&self.unresolved);
        both.filter_map(|(trigger, why)| Some((trigger, why.as_ref()?)))
    }
}
