//! From the blocks and events of one thread to what the recording wants to know.
//!
//! A block counts from its beginning; how it ended shows only with the address that follows. So one
//! block is always pending.

use std::time::Duration;

use ptrail_flow::{Class, FarKind};
use ptrail_pt::Ip;

use super::blocks::{Block, Blocks, Code};
use super::rings::{Area, long, text};
use super::shared::{EVENT, event};
use crate::Error;
use crate::interrupt::Guard;
use crate::maps::ExecMapping;
use crate::recording::Recording;
use crate::thread::ThreadId;

/// No block.
const NONE: u32 = u32::MAX;
/// Signals that an instruction causes.
const FAULTS: [i32; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];

pub(crate) struct Replay {
    ring: usize,
    thread: ThreadId,
    pid: u32,
    pub(crate) tid: u32,
    /// The block that executes now.
    pending: u32,
    /// The process may run another program by now, by itself.
    away: bool,
    /// The signal that kills the program, by the number that the program has for it.
    pub(crate) killed_by: Option<i32>,
}

/// Why a thread is not read further for now.
pub(crate) enum Pause {
    /// There is no more to read, or not before the next turn.
    End,
    /// The process runs another program, with this name.
    Exec(String),
}

/// A signal's delivery.
struct Signal {
    /// An instruction caused it.
    is_fault: bool,
    /// Where execution would have gone on.
    ip: Ip,
}

impl Replay {
    pub(crate) fn new(ring: usize, thread: ThreadId, pid: u32, tid: u32) -> Self {
        Self {
            ring,
            thread,
            pid,
            tid,
            pending: NONE,
            away: false,
            killed_by: None,
        }
    }

    /// Its number in the recording.
    pub(crate) fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Reads what there is, up to the next turn.
    pub(crate) fn read(
        &mut self,
        area: &Area,
        blocks: &mut Blocks,
        recording: &mut Recording,
        guard: &Guard,
    ) -> Result<Pause, Error> {
        let mut unread = area.unread(self.ring);
        let mut pause = Pause::End;
        while let Some(word) = unread.next() {
            if word & EVENT == 0 {
                self.block(word, area, blocks, recording)?;
                continue;
            }
            let tag = word >> 24 & 0x7f;
            if tag == event::TURN || recording.is_full() {
                unread.back(1);
                break;
            }
            let Some(words) = unread.take((word & 0xff_ffff) as usize) else {
                unread.back(1);
                break;
            };
            if tag == event::EXEC {
                self.enter_kernel(blocks, recording)?;
                pause = Pause::Exec(text(&words).ok_or(Error::QemuProtocol)?);
                break;
            }
            self.event(tag, &words, blocks, recording, guard)?;
        }
        unread.release();
        blocks.read_definitions(area);
        Ok(pause)
    }

    #[inline]
    fn block(
        &mut self,
        id: u32,
        area: &Area,
        blocks: &mut Blocks,
        recording: &mut Recording,
    ) -> Result<(), Error> {
        let found = blocks.find(area, id).map_err(|_| Error::QemuProtocol)?;
        let (next, unrecorded) = match found {
            Some(block) => (block.start, block.unrecorded.take()),
            None => return self.unreadable(blocks, recording),
        };
        if let Some(pending) = blocks.get(self.pending) {
            self.complete(pending, next, recording)?;
        }
        self.pending = id;
        if recording.starts_at() == Some(next.0) {
            recording.begin();
        }
        if let Some(code) = unrecorded {
            let Code {
                bytes,
                pages_at,
                pages,
            } = *code;
            recording.code_is(self.pid, next, &bytes, pages_at, &pages);
        }
        Ok(())
    }

    /// The pending block has executed, and execution goes on at `next`.
    #[inline]
    fn complete(&self, block: &Block, next: Ip, recording: &mut Recording) -> Result<(), Error> {
        let follows = match block.last.class {
            Class::Plain => next == block.end && !block.repeats,
            Class::Conditional => next == block.end || next == block.last.target,
            Class::Jump | Class::Call => next == block.last.target,
            _ => true,
        };
        if !follows {
            return self.complete_otherwise(block, next, recording);
        }
        recording.straight(self.thread, block.start, block.straight())?;
        recording.executed(self.thread, block.last_ip, block.last, next)
    }

    #[cold]
    fn complete_otherwise(
        &self,
        block: &Block,
        next: Ip,
        recording: &mut Recording,
    ) -> Result<(), Error> {
        // The next iteration of a repeated instruction; or a block that changed its own code: QEMU
        // leaves it at the instruction that does so.
        if let Some(count) = block.position(next) {
            return recording.straight(self.thread, block.start, &block.offsets[..count]);
        }
        recording.straight(self.thread, block.start, block.straight())?;
        recording.executed(self.thread, block.last_ip, block.last, block.end)?;
        if next != block.end {
            // XBEGIN.
            recording.transaction_aborted(self.thread, block.end, next);
        }
        Ok(())
    }

    /// A block without a single instruction that can be read.
    #[cold]
    fn unreadable(&mut self, blocks: &Blocks, recording: &mut Recording) -> Result<(), Error> {
        recording.note("the program ran code that ptrail could not read");
        self.enter_kernel(blocks, recording)
    }

    fn event(
        &mut self,
        tag: u32,
        words: &[u32],
        blocks: &Blocks,
        recording: &mut Recording,
        guard: &Guard,
    ) -> Result<(), Error> {
        match (tag, words) {
            (event::SYSCALL, &[_number, low, high]) => {
                self.away = false;
                self.enter_kernel(blocks, recording)?;
                recording.pass(Duration::from_nanos(long(low, high)));
                Ok(())
            }
            (event::SIGNAL | event::KILLED, &[number, code, low, high]) => {
                let (number, code) = (number as i32, code as i32);
                guard.arrived(number);
                let killed = tag == event::KILLED;
                if killed {
                    self.killed_by = Some(number);
                }
                let signal = Signal {
                    is_fault: FAULTS.contains(&number) && (killed || code > 0),
                    ip: Ip(long(low, high)),
                };
                self.signal(&signal, blocks, recording)
            }
            (event::MAPPED, words) => {
                let mapping = mapping(words).ok_or(Error::QemuProtocol)?;
                self.enter_kernel(blocks, recording)?;
                recording.mapped(self.pid, mapping)
            }
            (event::NAMED, words) => {
                recording.renamed(self.thread, text(words).ok_or(Error::QemuProtocol)?)
            }
            (event::CHILD, _) => {
                recording.note("the program started a child process, which was not recorded");
                Ok(())
            }
            (event::EXEC_AWAY, _) => {
                self.away = true;
                Ok(())
            }
            _ => Err(Error::QemuProtocol),
        }
    }

    /// The pending block has ended in the kernel.
    fn enter_kernel(&mut self, blocks: &Blocks, recording: &mut Recording) -> Result<(), Error> {
        if let Some(block) = blocks.get(std::mem::replace(&mut self.pending, NONE)) {
            self.complete(block, block.end, recording)?;
        }
        Ok(())
    }

    fn signal(
        &mut self,
        signal: &Signal,
        blocks: &Blocks,
        recording: &mut Recording,
    ) -> Result<(), Error> {
        if let Some(block) = blocks.get(std::mem::replace(&mut self.pending, NONE)) {
            match block.position(signal.ip) {
                Some(count) if signal.is_fault => {
                    recording.straight(self.thread, block.start, &block.offsets[..count])?;
                }
                _ => self.complete(block, signal.ip, recording)?,
            }
        }
        recording.interrupted(self.thread, signal.ip);
        Ok(())
    }

    /// The thread, or the recording, ends: the pending block ended in the kernel, or nobody knows how.
    pub(crate) fn finish(
        &mut self,
        blocks: &Blocks,
        recording: &mut Recording,
    ) -> Result<(), Error> {
        if let Some(block) = blocks.get(std::mem::replace(&mut self.pending, NONE)) {
            recording.straight(self.thread, block.start, block.straight())?;
            if let Class::Far(FarKind::Syscall | FarKind::Interrupt) = block.last.class {
                recording.entered_kernel(self.thread, block.last_ip)?;
            } else {
                recording.interrupted(self.thread, block.last_ip);
            }
        }
        if std::mem::take(&mut self.away) {
            recording.note(
                "the program became another one (exec) that QEMU does not run, which was not recorded",
            );
        }
        recording.thread_ended(self.thread)
    }
}

/// The layout is that of [`event::MAPPED`].
fn mapping(words: &[u32]) -> Option<ExecMapping> {
    let (head, path) = words.split_at_checked(7)?;
    let path = text(path)?;
    Some(ExecMapping {
        address: long(head[0], head[1]),
        len: long(head[2], head[3]),
        file_offset: long(head[4], head[5]),
        writable: head[6] != 0,
        path: if path.is_empty() {
            "//anon".to_string()
        } else {
            path
        },
    })
}
