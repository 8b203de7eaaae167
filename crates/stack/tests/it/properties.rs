//! Random streams: against a naive stack, cut into segments, started late, and nonsense.

use proptest::prelude::*;
use proptest::sample::Index;
use ptrail_flow::{Edge, EdgeKind, OffCause};
use ptrail_pt::Ip;

use crate::contract::Contract;
use crate::script::{ENTRY, Event, F, G, H, MAIN, NOWHERE, Script, THUNK};

const FUNCTIONS: [(&str, u64); 4] = [("main", MAIN), ("f", F), ("g", G), ("h", H)];

#[derive(Clone, Copy, Debug)]
enum Step {
    Call { site: u8, to: u8 },
    Return,
    TailCall { to: u8 },
    Loop,
    Syscall,
    Run(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..8u8, 0..4u8).prop_map(|(site, to)| Step::Call { site, to }),
        4 => Just(Step::Return),
        1 => (0..4u8).prop_map(|to| Step::TailCall { to }),
        1 => Just(Step::Loop),
        1 => Just(Step::Syscall),
        2 => (1..20u8).prop_map(Step::Run),
    ]
}

/// A frame of the naive stack: function, return address, begin in nanoseconds and instructions.
#[derive(Clone, Copy, Debug)]
struct Open {
    function: usize,
    return_to: u64,
    begin: (u64, u64),
    number: usize,
}

/// A span of the naive stack, in the order of the ends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Naive {
    name: &'static str,
    begin: u64,
    end: u64,
    depth: i64,
    instructions: u64,
    /// Numbers of the events that began and ended it.
    events: (usize, usize),
}

struct Walk {
    script: Script,
    spans: Vec<Naive>,
    /// Where execution stands before each event.
    places: Vec<u64>,
    /// Functions open before each event, outermost first, by the number of their first event.
    open: Vec<Vec<usize>>,
    stack: Vec<Open>,
    ns: u64,
    /// Whether each event has a time of its own.
    exact: bool,
}

impl Walk {
    /// Walks, then returns to the outermost function.
    fn new(steps: &[Step], exact: bool) -> Self {
        let mut walk = Self {
            script: Script::new(),
            spans: Vec::new(),
            places: Vec::new(),
            open: Vec::new(),
            stack: vec![Open {
                function: 0,
                return_to: 0,
                begin: (0, 0),
                number: 0,
            }],
            ns: 0,
            exact,
        };
        walk.script.at(0).begin(MAIN);
        walk.sync();
        steps.iter().for_each(|&step| walk.step(step));
        while walk.stack.len() > 1 {
            walk.step(Step::Return);
        }
        if !exact {
            walk.ns += 7;
            walk.script.at(walk.ns);
        }
        walk.sync();
        walk.close(0, walk.ns);
        walk
    }

    fn sync(&mut self) {
        let place = FUNCTIONS[self.stack.last().unwrap().function].1 + 0xf0;
        let open: Vec<usize> = self.stack.iter().map(|frame| frame.number).collect();
        // Also of the event to come.
        while self.places.len() <= self.script.events.len() {
            self.places.push(place);
            self.open.push(open.clone());
        }
    }

    fn close(&mut self, depth: usize, at: u64) {
        let frame = self.stack.pop().unwrap();
        self.spans.push(Naive {
            name: FUNCTIONS[frame.function].0,
            begin: frame.begin.0,
            end: at,
            depth: depth as i64,
            instructions: self.script.count - frame.begin.1,
            events: (frame.number, self.script.events.len()),
        });
    }

    fn step(&mut self, step: Step) {
        let top = *self.stack.last().unwrap();
        let here = FUNCTIONS[top.function].1;
        let depth = self.stack.len() - 1;
        self.ns += u64::from(self.exact);
        let enter = |to: u8, return_to, walk: &mut Self| {
            let function = usize::from(to);
            walk.stack.push(Open {
                function,
                return_to,
                begin: (walk.ns, walk.script.count),
                number: walk.script.events.len(),
            });
        };
        match step {
            Step::Call { site, to } => {
                let from = here + 0x10 + u64::from(site) * 0x10;
                self.script.call(from, FUNCTIONS[usize::from(to)].1);
                enter(to, from + 5, self);
            }
            Step::Return if depth > 0 => {
                self.script.ret(here + 0xf0, top.return_to);
                self.close(depth, self.ns);
            }
            Step::TailCall { to } if usize::from(to) != top.function => {
                self.script.jump(here + 0xe0, FUNCTIONS[usize::from(to)].1);
                self.close(depth, self.ns);
                enter(to, top.return_to, self);
            }
            Step::Loop => {
                self.script.jump(here + 0x50, here + 0x30);
            }
            Step::Syscall => {
                self.script.syscall(here + 0x60).at(self.ns);
                self.spans.push(Naive {
                    name: "[syscall]",
                    begin: self.ns,
                    end: self.ns + 5,
                    depth: depth as i64 + 1,
                    instructions: 0,
                    events: (self.script.events.len(), self.script.events.len() + 2),
                });
                self.ns += 5;
                self.script.at(self.ns).on(here + 0x62);
            }
            Step::Run(instructions) => {
                self.script.run(instructions.into());
            }
            Step::Return | Step::TailCall { .. } => {}
        }
        if self.exact {
            self.script.at(self.ns);
        }
        self.sync();
    }
}

/// Name, times, depth and instructions; without times if they were spread.
fn naive(span: &Naive, exact: bool) -> (String, u64, u64, i64, u64) {
    let (begin, end) = if exact {
        (span.begin, span.end)
    } else {
        (0, 0)
    };
    (span.name.into(), begin, end, span.depth, span.instructions)
}

fn built(contract: &Contract, exact: bool) -> Vec<(String, u64, u64, i64, u64)> {
    let spans = contract.spans.iter();
    spans
        .map(|span| {
            let (begin, end) = (span.begin.0 / 1000, span.end.0 / 1000);
            let (begin, end) = if exact { (begin, end) } else { (0, 0) };
            let name = contract.name(span.function).to_owned();
            (name, begin, end, span.depth.into(), span.instructions)
        })
        .collect()
}

/// What the builder must find if it hears the events from number `from` on only.
fn started_late(walk: &Walk, from: usize) -> Vec<(String, u64, u64, i64, u64)> {
    let open = &walk.open[from];
    let before = walk.script.events[from - 1].0;
    let start = walk.spans.iter().filter(|span| span.events.1 > from);
    let start_ns = late_start(walk, from);
    start
        .map(|span| {
            let mut span = span.clone();
            span.depth -= open.len() as i64 - 1;
            if span.events.0 < from {
                span.begin = start_ns;
                let gone = before - begin_count(walk, &span);
                span.instructions -= gone;
            }
            naive(&span, true)
        })
        .collect()
}

fn begin_count(walk: &Walk, span: &Naive) -> u64 {
    // Events are numbered behind the one that began the span, whose count is the span's.
    walk.script.events[span.events.0.max(1) - 1].0
}

fn late_start(walk: &Walk, from: usize) -> u64 {
    let anchors = walk.script.events[..from].iter().rev();
    let mut times = anchors.filter_map(|(_, event)| match event {
        Event::Anchor(ns) => Some(*ns),
        _ => None,
    });
    times.next().unwrap_or(0)
}

fn ip() -> impl Strategy<Value = u64> {
    let function = prop::sample::select(vec![MAIN, F, G, H, THUNK, ENTRY, NOWHERE]);
    let offset =
        prop_oneof![2 => Just(0u64), 3 => (0..16u64).prop_map(|n| n * 5), 1 => 0..0x110u64];
    prop_oneof![
        20 => (function, offset).prop_map(|(function, offset)| function + offset),
        1 => any::<u64>(),
    ]
}

fn nonsense() -> impl Strategy<Value = Event> {
    let kind = prop::sample::select(vec![
        EdgeKind::Conditional,
        EdgeKind::Jump,
        EdgeKind::JumpIndirect,
        EdgeKind::Call,
        EdgeKind::Call,
        EdgeKind::Return,
        EdgeKind::Return,
        EdgeKind::Far,
        EdgeKind::FarReturn,
        EdgeKind::Async,
        EdgeKind::TsxAbort,
    ]);
    let cause = prop::sample::select(vec![
        OffCause::Syscall,
        OffCause::FarTransfer,
        OffCause::Async,
        OffCause::Filter,
    ]);
    let ns = prop_oneof![9 => 0..3000u64, 1 => any::<u64>()];
    prop_oneof![
        10 => (kind, ip(), ip()).prop_map(|(kind, from, to)| {
            let next = Ip(from.wrapping_add(5));
            Event::Edge(Edge { kind, from: Ip(from), to: Ip(to), next })
        }),
        1 => ip().prop_map(Event::Begin),
        2 => ip().prop_map(Event::On),
        2 => (ip(), ip(), cause).prop_map(|(ip, next, cause)| Event::Off(ip, next, cause)),
        1 => (ns.clone(), ns.clone()).prop_map(|(from, to)| Event::Loss(from, to, true)),
        4 => ns.prop_map(Event::Anchor),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn well_nested_calls_are_those_of_a_naive_stack(
        steps in prop::collection::vec(step(), 0..200),
        exact in any::<bool>(),
    ) {
        let walk = Walk::new(&steps, exact);
        let expected: Vec<_> = walk.spans.iter().map(|span| naive(span, exact)).collect();
        prop_assert_eq!(built(&walk.script.play(), exact), expected);
    }

    #[test]
    fn segments_make_no_difference(
        steps in prop::collection::vec(step(), 0..200),
        exact in any::<bool>(),
        cuts in prop::collection::vec(any::<Index>(), 0..10),
    ) {
        let walk = Walk::new(&steps, exact);
        let (whole, summary) = walk.script.play_with(&[], &[]);
        // A segment that begins with tracing on says where; it need not be right here, since the
        // path is known.
        let cuts: Vec<_> = cuts.iter().map(|cut| cut.index(walk.places.len())).collect();
        let mut script = Script { events: Vec::new(), count: walk.script.count };
        let mut at = Vec::new();
        for (number, event) in walk.script.events.iter().enumerate() {
            if number > 1 && cuts.contains(&number) {
                at.push(script.events.len());
                script.events.push((event.0, Event::Begin(walk.places[number])));
            }
            script.events.push(event.clone());
        }
        let (cut, cut_summary) = script.play_with(&[], &at);
        prop_assert_eq!(&cut.spans, &whole.spans);
        prop_assert_eq!(&cut.opens, &whole.opens);
        prop_assert_eq!(cut_summary, summary);
    }

    #[test]
    fn a_late_start_gives_the_rest_and_finds_all_callers(
        steps in prop::collection::vec(step(), 0..200),
        from in any::<Index>(),
    ) {
        let walk = Walk::new(&steps, true);
        // Right behind an anchor, with tracing on.
        let starts: Vec<_> = (2..walk.script.events.len())
            .filter(|&number| {
                let anchor = |n: usize| matches!(walk.script.events[n].1, Event::Anchor(_));
                let off = |n: usize| matches!(walk.script.events[n].1, Event::Off(..));
                anchor(number - 1) && !off(number - 2) && !matches!(walk.script.events[number].1, Event::On(_))
            })
            .collect();
        prop_assume!(!starts.is_empty());
        let from = *from.get(&starts);
        let mut script = Script { events: Vec::new(), count: 0 };
        let before = walk.script.events[from - 1].0;
        // A place in the middle, so that the start is not taken for a first instruction.
        script.begin(walk.places[from]).at(late_start(&walk, from));
        script.events.extend(walk.script.events[from..].iter().map(|(count, event)| (count - before, event.clone())));
        script.count = walk.script.count - before;
        prop_assert_eq!(built(&script.play(), true), started_late(&walk, from));
    }

    #[test]
    fn nonsense_keeps_the_contract(
        events in prop::collection::vec((0..5u64, nonsense()), 0..200),
        mut execs in prop::collection::vec(0..3000u64, 0..3),
        cuts in prop::collection::vec(0..200usize, 0..5),
    ) {
        execs.sort_unstable();
        let mut script = Script::new();
        for (instructions, event) in events {
            script.run(instructions).push(event);
        }
        script.play_with(&execs, &cuts);
    }
}
