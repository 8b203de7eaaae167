//! Spans against the stack pointer.
//!
//! The recorder knows where the stack was before each instruction. From that alone, and from which
//! function each instruction belongs to, the call tree is built here a second time, by rules that know
//! no return addresses and no branches: a frame is gone when control goes elsewhere and the stack
//! pointer is above the slot of its return address.

use std::fmt;

use ptrail_image::{AddressSpace, FunctionId, Timeline};
use ptrail_perfdata::Capture;
use ptrail_pipeline::Session;
use ptrail_pt::{Ip, PerfTime};

use crate::recorded::Recorded;
use crate::spans::Spans;

/// Ticks of the recorder's clock are half a nanosecond.
const PICOS_PER_TICK: u64 = 500;
/// Longest instruction, bytes.
const LONGEST: u64 = 15;
/// A signal's frame on the stack is larger than that (its registers alone are), bytes.
const SIGNAL_FRAME: u64 = 256;

/// A call, as both sides tell it.
#[derive(Clone, PartialEq, Eq)]
struct Call {
    function: String,
    depth: i64,
    /// Executed instructions, in it and what it called; in it alone.
    instructions: (u64, u64),
    /// Picoseconds since the recording's base; where the kernel is between, nobody knows.
    begin: Option<u64>,
    end: Option<u64>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            function,
            depth,
            instructions,
            begin,
            end,
        } = self;
        write!(f, "@{depth} {function} {instructions:?} {begin:?}..{end:?}")
    }
}

impl Call {
    fn agrees(&self, other: &Self) -> bool {
        // Both round.
        let at = |a: Option<u64>, b: Option<u64>| {
            a.zip(b)
                .is_none_or(|(a, b)| a.abs_diff(b) <= PICOS_PER_TICK)
        };
        (&self.function, self.depth, self.instructions)
            == (&other.function, other.depth, other.instructions)
            && at(self.begin, other.begin)
            && at(self.end, other.end)
    }
}

/// What stands on the stack.
struct Frame {
    kind: Kind,
    /// Address of the return address.
    slot: u64,
    /// Instructions executed before it was entered.
    begin: usize,
    /// Instructions that its callees executed.
    called: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `None` where no function is known.
    Function(Option<FunctionId>),
    /// A call into the middle of the function that makes it.
    Inner,
    Signal,
}

/// What executed: address, time behind it, stack pointer before it.
struct Truth {
    ips: Vec<u64>,
    tsc: Vec<u64>,
    sp: Vec<u64>,
}

struct Tree<'t> {
    truth: Truth,
    timeline: &'t Timeline,
    space: AddressSpace<'t>,
    pid: u32,
    base: PerfTime,
    frames: Vec<Frame>,
    calls: Vec<Call>,
}

impl Tree<'_> {
    fn build(mut self) -> Vec<Call> {
        for number in 0..self.truth.ips.len() {
            self.execute(number);
        }
        let end = self.truth.ips.len();
        self.leave(0, end);
        self.calls
    }

    /// The function at an address and its first instruction.
    fn function(&self, ip: u64) -> (Option<FunctionId>, Option<u64>) {
        let hit = self.space.function(Ip(ip));
        (hit.map(|hit| hit.id), hit.map(|hit| hit.entry.0))
    }

    fn place(&self, number: usize) -> (u64, u64) {
        (self.truth.ips[number], self.truth.sp[number])
    }

    /// Whether the kernel ran right before the instruction.
    fn behind_kernel(&self, number: usize) -> bool {
        self.truth.tsc[number] - self.truth.tsc[number - 1] > 1
    }

    fn execute(&mut self, number: usize) {
        let now = PerfTime(self.truth.tsc[number] * PICOS_PER_TICK / 1000);
        if self.space.changes_at().is_some_and(|change| now >= change) {
            self.space = self.timeline.space(self.pid, now);
        }
        let (ip, sp) = self.place(number);
        let (function, entry) = self.function(ip);
        if number == 0 {
            return self.enter(Kind::Function(function), sp, number);
        }
        let from = self.place(number - 1);
        let signal = |frame: &&Frame| frame.kind == Kind::Signal;
        let signal = self.frames.iter().rev().find(signal);
        let signal_is_over = signal.is_some_and(|frame| frame.slot < sp);
        if !self.behind_kernel(number) || entry != Some(ip) || signal_is_over {
            return self.go(from, (ip, sp), number);
        }
        if self.name(function) == "_start" {
            self.leave(0, number);
            return self.enter(Kind::Function(function), sp, number);
        }
        // A signal. Where it came shows when its handler returns.
        if let Some(interrupted) = self.resumed(number) {
            self.go(from, interrupted, number);
        }
        self.enter(Kind::Signal, sp + SIGNAL_FRAME, number);
        self.enter(Kind::Function(function), sp, number);
    }

    /// Where execution goes on when the signal is over whose handler begins with an instruction.
    fn resumed(&self, handler: usize) -> Option<(u64, u64)> {
        let sp = self.truth.sp[handler];
        let is_over = |&number: &usize| {
            let restorer = self.function(self.truth.ips[number - 1]).0;
            self.truth.sp[number] > sp
                && self.behind_kernel(number)
                && self.name(restorer) == "__restore_rt"
        };
        let over = (handler + 1..self.truth.ips.len()).find(is_over)?;
        Some(self.place(over))
    }

    /// Control goes from one address to another, each with the stack pointer there.
    fn go(&mut self, (from, from_sp): (u64, u64), (ip, sp): (u64, u64), number: usize) {
        let (function, entry) = self.function(ip);
        let is_entry = entry == Some(ip);
        let straight = from < ip && ip - from <= LONGEST;
        let top = self.frames.last().map(|frame| frame.kind);
        if straight && top == Some(Kind::Function(function)) {
            return;
        }
        if sp.wrapping_add(8) == from_sp && (is_entry || !straight) {
            let inner = entry.is_some() && !is_entry && self.runs(function);
            let kind = Kind::Function(function);
            return self.enter(if inner { Kind::Inner } else { kind }, sp, number);
        }
        let gone = self.frames.iter().rposition(|frame| frame.slot >= sp);
        self.leave(gone.map_or(0, |last| last + 1), number);
        if self.runs(function) {
            return;
        }
        let slot = self.frames.last().map_or(sp, |frame| frame.slot);
        let waits = |frame: &Frame| frame.kind == Kind::Signal;
        if !self.frames.last().is_none_or(waits) {
            // A tail call, or what works like one.
            let real = self
                .frames
                .iter()
                .rposition(|frame| frame.kind != Kind::Inner);
            self.leave(real.unwrap_or(0), number);
        }
        self.enter(Kind::Function(function), slot, number);
    }

    /// Whether this is the function that runs.
    fn runs(&self, function: Option<FunctionId>) -> bool {
        let real = self
            .frames
            .iter()
            .rev()
            .find(|frame| frame.kind != Kind::Inner);
        real.is_some_and(|frame| frame.kind == Kind::Function(function))
    }

    fn name(&self, function: Option<FunctionId>) -> String {
        let name = function.map(|id| self.timeline.function(id).name.into_owned());
        name.unwrap_or_else(|| "[unknown]".to_owned())
    }

    fn enter(&mut self, kind: Kind, slot: u64, begin: usize) {
        self.frames.push(Frame {
            kind,
            slot,
            begin,
            called: 0,
        });
    }

    /// Leaves frames until so many are left.
    fn leave(&mut self, len: usize, end: usize) {
        while self.frames.len() > len {
            let Some(frame) = self.frames.pop() else {
                return;
            };
            let instructions = (end - frame.begin) as u64;
            let called = if frame.kind == Kind::Inner {
                frame.called
            } else {
                instructions
            };
            if let Some(parent) = self.frames.last_mut() {
                parent.called += called;
            }
            let depth = self
                .frames
                .iter()
                .filter(|frame| frame.kind != Kind::Inner)
                .count() as i64;
            let function = match frame.kind {
                Kind::Inner => continue,
                Kind::Signal => "[signal]".to_owned(),
                Kind::Function(function) => self.name(function),
            };
            self.calls.push(Call {
                function,
                depth,
                instructions: (instructions, instructions - frame.called),
                begin: self.time(frame.begin),
                end: self.time(end),
            });
        }
    }

    /// When so many instructions had executed, if it was not the kernel that ran then.
    fn time(&self, instructions: usize) -> Option<u64> {
        let before = *self.truth.tsc.get(instructions.checked_sub(1)?)?;
        let behind = *self.truth.tsc.get(instructions)?;
        (behind - before == 1).then(|| before * PICOS_PER_TICK - self.base.0 * 1000)
    }
}

/// The first deviation of the spans of a recording's first thread from the stack pointer's tree; none
/// too if the engine does not tell of the stack.
pub(crate) fn fault(recorded: &Recorded, spans: &Spans) -> Option<String> {
    let truth = Truth {
        ips: recorded.truth.clone(),
        tsc: recorded.words("tsc"),
        sp: recorded.words("sp"),
    };
    if truth.sp.is_empty() {
        return None;
    }
    assert_eq!(truth.sp.len(), truth.ips.len());
    let capture = Capture::open(&recorded.capture()).unwrap();
    let session = Session::new(&capture).unwrap();
    let (pid, base) = (session.streams()[0].pid, session.base());
    let timeline = session.timeline();
    let space = timeline.space(pid, base);
    let tree = Tree {
        truth,
        timeline,
        space,
        pid,
        base,
        frames: Vec::new(),
        calls: Vec::new(),
    };
    let expected = tree.build();
    let found: Vec<_> = spans
        .all
        .iter()
        .filter(|span| !span.has("gap"))
        .map(|span| Call {
            function: span.function.clone(),
            depth: span.depth,
            instructions: (span.instructions, span.self_instructions),
            begin: Some(span.begin),
            end: Some(span.end),
        })
        .collect();
    let first = expected
        .iter()
        .zip(&found)
        .position(|(truth, span)| !truth.agrees(span));
    let first =
        first.or((expected.len() != found.len()).then_some(expected.len().min(found.len())))?;
    let around = |calls: &[Call]| {
        format!(
            "{:?}",
            &calls[first.min(calls.len())..calls.len().min(first + 3)]
        )
    };
    Some(format!(
        "span {first} of {} ({} by the stack pointer): {} by the stack pointer {}",
        found.len(),
        expected.len(),
        around(&found),
        around(&expected)
    ))
}
