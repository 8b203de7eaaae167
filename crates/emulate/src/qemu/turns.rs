//! The threads of all recorded processes, in the order in which they ran.

use std::time::Duration;

use ptrail_record::Trigger;

use super::blocks::Blocks;
use super::replay::{Pause, Replay};
use super::rings::{Area, Memory, long};
use super::shared::event;
use crate::Error;
use crate::interrupt::Guard;
use crate::recording::Recording;
use crate::thread::ThreadId;

/// What an exec takes: the old code and the new one have the same addresses, so that decoders must tell
/// them apart by time, and perf's may be off by half a microsecond.
const EXEC: Duration = Duration::from_micros(2);

pub(crate) struct Turns {
    pub(crate) memory: Memory,
    pub(crate) recording: Recording,
    /// By area.
    processes: Vec<Process>,
    /// The turn that is read, and whose it is, by process and virtual CPU.
    turn: u64,
    owner: Option<(usize, usize)>,
    running: Option<ThreadId>,
}

struct Process {
    area: Area,
    blocks: Blocks,
    /// Its process id; zero before its first turn.
    pid: u32,
    /// By virtual CPU.
    threads: Vec<Option<Replay>>,
}

impl Turns {
    pub(crate) fn new(memory: Memory, recording: Recording) -> Self {
        Self {
            memory,
            recording,
            processes: Vec::new(),
            turn: 0,
            owner: None,
            running: None,
        }
    }

    /// Whether anything has executed.
    pub(crate) fn has_begun(&self) -> bool {
        self.owner.is_some()
    }

    /// The signal that killed a process, as far as QEMU knew.
    pub(crate) fn killed_by(&self, pid: u32) -> Option<i32> {
        let process = self.processes.iter().find(|process| process.pid == pid)?;
        process
            .threads
            .iter()
            .flatten()
            .find_map(|thread| thread.killed_by)
    }

    /// Reads what there is; says whether there was anything.
    pub(crate) fn read(&mut self, guard: &Guard) -> Result<bool, Error> {
        let mut any = false;
        if let Some(owner) = self.owner {
            any |= self.read_ring(owner, guard)?;
        }
        loop {
            let next = match self.find(self.turn + 1)? {
                None => {
                    self.read_stragglers(guard)?;
                    self.find(self.turn + 1)?
                }
                next => next,
            };
            let Some(owner) = next else {
                return Ok(any);
            };
            if !self.begin_turn(owner)? {
                return Ok(any);
            }
            self.read_ring(owner, guard)?;
            any = true;
        }
    }

    /// A thread that loses the CPU just when it executes a block writes the block when it has the CPU
    /// again, before it begins a turn.
    fn read_stragglers(&mut self, guard: &Guard) -> Result<(), Error> {
        for number in 0..self.processes.len() {
            for vcpu in 0..self.processes[number].threads.len() {
                let area = &self.processes[number].area;
                if area.unread(vcpu + 1).len() > 0 && area.next_turn(vcpu + 1).is_none() {
                    self.read_ring((number, vcpu), guard)?;
                }
            }
        }
        Ok(())
    }

    /// Reads all that is left: nothing is written any more. A thread that was killed when its turn
    /// began may have left a gap.
    pub(crate) fn read_rest(&mut self, guard: &Guard) -> Result<(), Error> {
        loop {
            while self.read(guard)? {}
            let Some((turn, _)) = self.waiting()?.min_by_key(|&(turn, _)| turn) else {
                return Ok(());
            };
            if turn <= self.turn {
                return Ok(());
            }
            self.turn = turn - 1;
        }
    }

    /// Reads what a virtual CPU has written, up to its next turn; says whether there was anything.
    fn read_ring(&mut self, (number, vcpu): (usize, usize), guard: &Guard) -> Result<bool, Error> {
        let process = &mut self.processes[number];
        let before = process.area.unread(vcpu + 1).len();
        while let Some(replay) = &mut process.threads[vcpu] {
            let pause = replay.read(
                &process.area,
                &mut process.blocks,
                &mut self.recording,
                guard,
            )?;
            let Pause::Exec(name) = pause else {
                break;
            };
            for (other, thread) in process.threads.iter_mut().enumerate() {
                if other != vcpu
                    && let Some(mut thread) = thread.take()
                {
                    thread.finish(&process.blocks, &mut self.recording)?;
                }
            }
            self.recording.pass(EXEC / 2);
            self.recording.image_replaced(process.pid, &name)?;
            self.recording.pass(EXEC / 2);
        }
        Ok(process.area.unread(vcpu + 1).len() != before)
    }

    /// Where a turn begins, if that is written already.
    fn find(&mut self, turn: u64) -> Result<Option<(usize, usize)>, Error> {
        let mut waiting = self.waiting()?;
        Ok(waiting
            .find(|&(next, _)| next == turn)
            .map(|(_, owner)| owner))
    }

    /// The turns that begin with what is to be read next, and whose they are.
    fn waiting(&mut self) -> Result<impl Iterator<Item = (u64, (usize, usize))>, Error> {
        for number in self.processes.len()..self.memory.areas() {
            self.processes.push(Process {
                area: self.memory.area(number)?,
                blocks: Blocks::default(),
                pid: 0,
                threads: Vec::new(),
            });
        }
        Ok(self
            .processes
            .iter()
            .enumerate()
            .flat_map(|(number, process)| {
                (0..process.area.vcpus()).filter_map(move |vcpu| {
                    Some((process.area.next_turn(vcpu + 1)?, (number, vcpu)))
                })
            }))
    }

    /// Begins the turn that is to be read next of a virtual CPU; false if its beginning is not all
    /// written yet.
    fn begin_turn(&mut self, owner: (usize, usize)) -> Result<bool, Error> {
        let (number, vcpu) = owner;
        let mut unread = self.processes[number].area.unread(vcpu + 1);
        unread.next();
        let Some([low, high, pid, tid]) = unread.take_array() else {
            return Ok(false);
        };
        let mut parent = None;
        if number > 0 && self.processes[number].pid == 0 {
            // The child's first event; its words follow.
            let Some([head, of, blocks]) = unread.take_array() else {
                return Ok(false);
            };
            if head >> 24 & 0x7f != event::BORN {
                return Err(Error::QemuProtocol);
            }
            parent = Some((of, blocks));
        }
        unread.release();
        if let Some((parent, blocks)) = parent {
            self.born(number, pid, parent, blocks)?;
        }
        self.processes[number].pid = pid;
        self.turn = long(low, high);
        self.owner = Some(owner);
        let thread = self.thread(owner, tid)?;
        self.recording
            .switched(self.running.replace(thread), thread)?;
        Ok(true)
    }

    fn born(&mut self, number: usize, pid: u32, parent: u32, blocks: u32) -> Result<(), Error> {
        if let Some(parent) = self
            .processes
            .iter_mut()
            .find(|process| process.pid == parent)
        {
            parent.blocks.read_definitions(&parent.area);
            self.processes[number].blocks = parent.blocks.first(blocks);
        }
        self.recording.forked(pid, parent)
    }

    /// The thread that a virtual CPU is now.
    fn thread(&mut self, (number, vcpu): (usize, usize), tid: u32) -> Result<ThreadId, Error> {
        let process = &mut self.processes[number];
        if process.threads.len() <= vcpu {
            process.threads.resize_with(vcpu + 1, || None);
        }
        let place = &mut process.threads[vcpu];
        if let Some(known) = place.as_ref().filter(|thread| thread.tid == tid) {
            return Ok(known.thread());
        }
        if let Some(mut ended) = place.take() {
            ended.finish(&process.blocks, &mut self.recording)?;
        }
        let thread = self.recording.thread(process.pid, tid)?;
        *place = Some(Replay::new(vcpu + 1, thread, process.pid, tid));
        Ok(thread)
    }

    /// Something happened that may be a trigger.
    pub(crate) fn happened(&mut self, trigger: &Trigger) -> Result<(), Error> {
        match self.running {
            Some(thread) => self.recording.happened(thread, trigger),
            None => Ok(()),
        }
    }

    /// The recording ends.
    pub(crate) fn finish(mut self) -> Result<Recording, Error> {
        for process in &mut self.processes {
            for thread in process.threads.iter_mut().flatten() {
                thread.finish(&process.blocks, &mut self.recording)?;
            }
        }
        Ok(self.recording)
    }
}
