//! One thread's part of a recording: what it executes becomes packets and truth.

use ptrail_flow::{Class, FarKind, Instruction};
use ptrail_pt::Ip;

use crate::Error;
use crate::clock::{KERNEL_CROSSING, VirtualClock};
use crate::front::Front;
use crate::truth::Truth;

/// A thread, by its number in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ThreadId(pub(crate) usize);

pub(crate) struct Thread {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) front: Front,
    pub(crate) truth: Option<Truth>,
    /// The trace for a snapshot, of which only the end is wanted.
    pub(crate) kept: Vec<u8>,
    /// So many bytes of its trace were there at its last snapshot.
    pub(crate) snapshot_at: u64,
    /// Where it goes on, while tracing is on.
    pub(crate) next: Ip,
    /// For injected faults.
    pub(crate) faults: Faults,
    /// Tracing is on: the last packet of the flow was no TIP.PGD.
    pub(crate) on: bool,
    /// All its trace is written.
    pub(crate) ended: bool,
    pub(crate) instructions: u64,
}

/// How injected faults stand.
#[derive(Default)]
pub(crate) struct Faults {
    /// Bytes of trace at which the dice are thrown next.
    pub(crate) next: usize,
    /// Packets are lost until so many instructions have executed.
    pub(crate) until: u64,
    /// The loss under way is an overflow.
    pub(crate) overflow: bool,
    /// A bit of the next piece changes.
    pub(crate) corrupt: bool,
    /// Bytes written to the file.
    pub(crate) written: u64,
}

impl Thread {
    /// The instruction at `ip` executed; the next is at `next`.
    pub(crate) fn executed(
        &mut self,
        clock: &mut VirtualClock,
        ip: Ip,
        instruction: Instruction,
        next: Ip,
    ) -> Result<(), Error> {
        self.switch_on(clock, ip);
        self.count(clock, ip)?;
        let now = clock.tsc();
        let behind = ip.offset(u64::from(instruction.len));
        match instruction.class {
            Class::Plain | Class::MovCr3 | Class::Jump => {}
            Class::Conditional => self.front.conditional(next != behind, now),
            Class::Call if instruction.target == behind => {}
            Class::Call => self.front.call(behind),
            Class::CallIndirect => {
                self.front.call(behind);
                self.front.indirect(next, now);
            }
            Class::JumpIndirect => self.front.indirect(next, now),
            Class::Return => self.front.ret(next, now),
            Class::Far(FarKind::Syscall | FarKind::Interrupt) => {
                self.left(clock);
                return Ok(());
            }
            Class::Far(_) => self.front.far(next, now),
        }
        self.front.boundary(next, now);
        self.next = next;
        Ok(())
    }

    /// Instructions executed one behind the other, none of which leaves anything in the trace; the
    /// first is at `start`, the others so many bytes behind it.
    pub(crate) fn straight(
        &mut self,
        clock: &mut VirtualClock,
        start: Ip,
        offsets: &[u16],
    ) -> Result<(), Error> {
        if offsets.is_empty() {
            return Ok(());
        }
        self.switch_on(clock, start);
        if self.truth.is_some() {
            for &offset in offsets {
                self.count(clock, start.offset(u64::from(offset)))?;
            }
        } else {
            clock.tick(offsets.len() as u64);
            self.instructions += offsets.len() as u64;
        }
        self.front.passed(clock.tsc());
        Ok(())
    }

    /// A system call or software interrupt at `ip` executed; the program is in the kernel now.
    pub(crate) fn entered_kernel(&mut self, clock: &mut VirtualClock, ip: Ip) -> Result<(), Error> {
        self.switch_on(clock, ip);
        self.count(clock, ip)?;
        self.left(clock);
        Ok(())
    }

    fn left(&mut self, clock: &mut VirtualClock) {
        self.front.off(clock.tsc());
        self.on = false;
        clock.pass(KERNEL_CROSSING);
    }

    /// The program was interrupted before the instruction at `ip` (a fault, a signal).
    pub(crate) fn interrupted(&mut self, clock: &mut VirtualClock, ip: Ip) {
        if self.on {
            self.front.interrupted(ip, clock.tsc());
            self.on = false;
            clock.pass(KERNEL_CROSSING);
        }
    }

    /// A transaction ended in front of `from`; execution goes on at `to`.
    pub(crate) fn transaction_aborted(&mut self, clock: &VirtualClock, from: Ip, to: Ip) {
        self.front.transaction_aborted(from, to, clock.tsc());
        self.front.boundary(to, clock.tsc());
    }

    #[inline]
    fn switch_on(&mut self, clock: &mut VirtualClock, ip: Ip) {
        if !self.on {
            clock.pass(KERNEL_CROSSING);
            self.front.on(ip, clock.tsc());
            self.on = true;
        }
    }

    #[inline]
    fn count(&mut self, clock: &mut VirtualClock, ip: Ip) -> Result<(), Error> {
        clock.tick(1);
        self.instructions += 1;
        let now = clock.tsc();
        self.truth
            .as_mut()
            .map_or(Ok(()), |truth| truth.add(ip, now))
    }
}
