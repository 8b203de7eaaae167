//! Branch events written by hand, over functions that are nothing but names at addresses.

use ptrail_flow::{Edge, EdgeKind, OffCause, Sink as _};
use ptrail_image::{KERNEL, Timeline, TimelineBuilder};
use ptrail_pt::{Ip, Loss, LossCause, PerfTime, Picos, Time, TraceOffset};
use ptrail_stack::{Builder, Names, Summary};
use ptrail_trace::TrackId;

use crate::contract::Contract;

pub(crate) const PID: u32 = 7;

pub(crate) const MAIN: u64 = 0x1000;
pub(crate) const F: u64 = 0x2000;
pub(crate) const G: u64 = 0x3000;
pub(crate) const H: u64 = 0x4000;
pub(crate) const RESUME: u64 = 0x5000;
/// 16 bytes, right before [`SECOND`].
pub(crate) const FIRST: u64 = 0x6000;
pub(crate) const SECOND: u64 = 0x6010;
pub(crate) const HANDLER: u64 = 0x7000;
pub(crate) const RESTORER: u64 = 0x8000;
pub(crate) const THUNK: u64 = 0x9000;
/// A function that goes from one stack to another.
pub(crate) const SWITCH: u64 = 0xa000;
pub(crate) const SETJMP: u64 = 0xa800;
pub(crate) const MORESTACK: u64 = 0xc000;
pub(crate) const GOGO: u64 = 0xc800;
/// The kernel's.
pub(crate) const ENTRY: u64 = 0xffff_ffff_8100_0000;
pub(crate) const FAULT: u64 = 0xffff_ffff_8100_1000;
/// No function is known here.
pub(crate) const NOWHERE: u64 = 0xb000;

/// The functions' size in bytes, but for [`FIRST`] and [`SECOND`].
pub(crate) const SIZE: u64 = 0x100;

pub(crate) fn functions() -> Timeline {
    let mut builder = TimelineBuilder::new();
    let mut function = |name: &str, at: u64, size: u64| {
        let bytes = vec![0x90; size as usize];
        builder.code(PID, PerfTime(0), at, name, bytes);
    };
    for (name, at) in [
        ("main", MAIN),
        ("f", F),
        ("g", G),
        ("h", H),
        ("_Unwind_Resume", RESUME),
        ("handler", HANDLER),
        ("restorer", RESTORER),
        ("thunk", THUNK),
        ("switch", SWITCH),
        ("_setjmp", SETJMP),
        ("runtime.morestack.abi0", MORESTACK),
        ("gogo", GOGO),
    ] {
        function(name, at, SIZE);
    }
    function("first", FIRST, 0x10);
    function("second", SECOND, 0xf0);
    for (name, at) in [("entry", ENTRY), ("fault", FAULT)] {
        let bytes = vec![0x90; SIZE as usize];
        builder.code(KERNEL, PerfTime(0), at, name, bytes);
    }
    builder.build()
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Edge(Edge),
    Begin(u64),
    On(u64),
    Off(u64, u64, OffCause),
    /// From and to, nanoseconds.
    Loss(u64, u64, bool),
    /// Nanoseconds.
    Anchor(u64),
}

/// Events with instruction counts from the start of the stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) events: Vec<(u64, Event)>,
    pub(crate) count: u64,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn push(&mut self, event: Event) -> &mut Self {
        self.events.push((self.count, event));
        self
    }

    /// Instructions without events.
    pub(crate) fn run(&mut self, instructions: u64) -> &mut Self {
        self.count += instructions;
        self
    }

    /// It is so many nanoseconds late.
    pub(crate) fn at(&mut self, ns: u64) -> &mut Self {
        self.push(Event::Anchor(ns))
    }

    pub(crate) fn edge(&mut self, kind: EdgeKind, from: u64, to: u64) -> &mut Self {
        let asynchronous = matches!(kind, EdgeKind::Async | EdgeKind::TsxAbort);
        let len = match kind {
            EdgeKind::Call => 5,
            EdgeKind::Async | EdgeKind::TsxAbort => 0,
            EdgeKind::Return => 1,
            _ => 2,
        };
        self.count += u64::from(!asynchronous);
        self.push(Event::Edge(Edge {
            kind,
            from: Ip(from),
            to: Ip(to),
            next: Ip(from + len),
        }))
    }

    pub(crate) fn begin(&mut self, ip: u64) -> &mut Self {
        self.push(Event::Begin(ip))
    }

    /// A five-byte call.
    pub(crate) fn call(&mut self, from: u64, to: u64) -> &mut Self {
        self.edge(EdgeKind::Call, from, to)
    }

    pub(crate) fn ret(&mut self, from: u64, to: u64) -> &mut Self {
        self.edge(EdgeKind::Return, from, to)
    }

    /// An indirect jump.
    pub(crate) fn jump(&mut self, from: u64, to: u64) -> &mut Self {
        self.edge(EdgeKind::JumpIndirect, from, to)
    }

    /// A two-byte system call.
    pub(crate) fn syscall(&mut self, ip: u64) -> &mut Self {
        self.run(1).push(Event::Off(ip, ip + 2, OffCause::Syscall))
    }

    pub(crate) fn interrupt(&mut self, ip: u64) -> &mut Self {
        self.push(Event::Off(ip, ip, OffCause::Async))
    }

    pub(crate) fn on(&mut self, ip: u64) -> &mut Self {
        self.push(Event::On(ip))
    }

    pub(crate) fn loss(&mut self, from: u64, to: u64) -> &mut Self {
        self.push(Event::Loss(from, to, true))
    }

    /// The spans, with the process's execs at these nanoseconds.
    pub(crate) fn play_with(&self, execs: &[u64], cuts: &[usize]) -> (Contract, Summary) {
        play(&functions(), self, execs, cuts)
    }

    pub(crate) fn play(&self) -> Contract {
        self.play_with(&[], &[]).0
    }

    /// Plays and compares with the spans in the order in which they end.
    #[track_caller]
    pub(crate) fn check(&self, lines: &[&str]) -> Contract {
        let contract = self.play();
        assert_eq!(contract.lines(), lines);
        contract
    }
}

/// Plays a script; before the events with these numbers a segment ends.
pub(crate) fn play(
    timeline: &Timeline,
    script: &Script,
    execs: &[u64],
    cuts: &[usize],
) -> (Contract, Summary) {
    let mut contract = Contract::new();
    let execs = execs.iter().map(|ns| Picos(ns * 1000)).collect();
    let mut names = Names::new(timeline);
    let mut builder = Builder::new(
        &mut names,
        PID,
        PerfTime(0),
        execs,
        TrackId(0),
        &mut contract,
    );
    let mut before = 0;
    for (number, (count, event)) in script.events.iter().enumerate() {
        if cuts.contains(&number) {
            builder.end_segment(count - before).unwrap();
            before = *count;
        }
        feed(&mut builder, event, count - before);
    }
    builder.end_segment(script.count - before).unwrap();
    let summary = builder.finish().unwrap();
    contract.check_end();
    assert_eq!(summary.spans, contract.spans.len() as u64);
    assert_eq!(summary.instructions, script.count);
    (contract, summary)
}

fn feed(builder: &mut Builder<'_, '_>, event: &Event, count: u64) {
    match *event {
        Event::Edge(edge) => builder.edge(&edge, count),
        Event::Begin(ip) => builder.begin(Ip(ip), count),
        Event::On(ip) => builder.on(Ip(ip), count),
        Event::Off(ip, next, cause) => builder.off(Ip(ip), Ip(next), cause, count),
        Event::Loss(from, to, broken) => builder.loss(loss(from, to), broken, count),
        Event::Anchor(ns) => builder.anchor(
            count,
            Time {
                at: Picos(ns.saturating_mul(1000)),
                error: Picos(0),
            },
        ),
    }
}

fn loss(from: u64, to: u64) -> Loss {
    Loss {
        cause: LossCause::Overflow,
        bytes: 0,
        offset: TraceOffset(0),
        begin: Picos(from.saturating_mul(1000)),
        end: Picos(to.saturating_mul(1000)),
        ip: None,
        reason: "for a test".into(),
    }
}
