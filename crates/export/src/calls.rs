//! The calls of a recording added up by call path, for formats that are profiles, not timelines.
//!
//! Each thread has a tree: a node is a function reached along one path of callers, with the number
//! of its calls, the time and the instructions spent in it alone. Times are differences of
//! nanoseconds that were rounded down, so a tree's times add up to its spans', to the nanosecond.
//!
//! *Late callers* enclose what their part of the track has shown so far (see [`crate::parts`]), so
//! each part first has a tree of its own, whose nameless root takes the late caller's name when it
//! comes, and gets a new nameless root above it. Parts that can no longer change are merged.
//!
//! *Memory.* A node for each call path that occurred; at the very worst, a node for each call.

use std::collections::{HashMap, VecDeque};

use ptrail_pt::{PerfTime, Picos};
use ptrail_trace::{FunctionId, Opened, Span, SpanFlags};

use crate::text::nanos;

/// Parts whose late callers may still come; as many as timelines remember.
const REMEMBERED: usize = 16;

/// What is added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) calls: u64,
    /// Nanoseconds.
    pub(crate) time: u64,
    pub(crate) instructions: u64,
}

impl Sums {
    pub(crate) fn add(&mut self, other: Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.time = self.time.saturating_add(other.time);
        self.instructions = self.instructions.saturating_add(other.instructions);
    }
}

struct Node {
    /// Of the root: itself.
    parent: u32,
    /// Of the root: any.
    function: FunctionId,
    own: Sums,
}

/// A call tree below a nameless root.
struct Tree {
    nodes: Vec<Node>,
    by_path: HashMap<(u32, FunctionId), u32>,
    root: u32,
}

impl Tree {
    fn new() -> Self {
        let mut tree = Self {
            nodes: Vec::new(),
            by_path: HashMap::new(),
            root: 0,
        };
        tree.push(0, FunctionId(0));
        tree
    }

    fn push(&mut self, parent: u32, function: FunctionId) -> u32 {
        let number = self.nodes.len() as u32;
        self.nodes.push(Node {
            parent,
            function,
            own: Sums::default(),
        });
        number
    }

    fn child(&mut self, parent: u32, function: FunctionId) -> u32 {
        if let Some(&child) = self.by_path.get(&(parent, function)) {
            return child;
        }
        let child = self.push(parent, function);
        self.by_path.insert((parent, function), child);
        child
    }

    /// Puts a function between the root and everything.
    fn wrap(&mut self, function: FunctionId, own: Sums) {
        let (old, new) = (self.root, self.nodes.len() as u32);
        self.push(new, FunctionId(0));
        self.root = new;
        let wrapped = &mut self.nodes[old as usize];
        (wrapped.parent, wrapped.function, wrapped.own) = (new, function, own);
        self.by_path.insert((new, function), old);
    }

    /// Adds another tree's paths. Parents may have higher numbers than their children.
    fn merge(&mut self, other: Self) {
        if self.nodes.len() == 1 {
            *self = other;
            return;
        }
        let mut places = vec![None; other.nodes.len()];
        places[other.root as usize] = Some(self.root);
        let mut path = Vec::new();
        for number in 0..other.nodes.len() as u32 {
            let mut at = number;
            let mut place = loop {
                if let Some(place) = places[at as usize] {
                    break place;
                }
                path.push(at);
                at = other.nodes[at as usize].parent;
            };
            while let Some(at) = path.pop() {
                let node = &other.nodes[at as usize];
                place = self.child(place, node.function);
                places[at as usize] = Some(place);
                self.nodes[place as usize].own.add(node.own);
            }
        }
    }
}

/// A part of a track.
struct Part {
    tree: Tree,
    /// Time of the last event before it.
    earliest: Picos,
    /// Nanoseconds in its outermost calls.
    time: u64,
}

impl Part {
    fn new(earliest: Picos) -> Self {
        Self {
            tree: Tree::new(),
            earliest,
            time: 0,
        }
    }
}

/// An open function.
struct Frame {
    node: u32,
    /// Nanoseconds in what it called.
    inner: u64,
}

/// A call that can't be added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misuse {
    /// A span closes where none is open.
    NothingOpen,
    /// A late span comes while others are open.
    StillOpen,
}

/// The calls of one track.
pub(crate) struct Calls {
    merged: Tree,
    parts: VecDeque<Part>,
    open: Vec<Frame>,
    last: Picos,
    /// A loss came, so the next call is a part's first.
    lost: bool,
}

impl Calls {
    /// No call yet.
    pub(crate) fn new() -> Self {
        Self {
            merged: Tree::new(),
            parts: VecDeque::new(),
            open: Vec::new(),
            last: Picos(0),
            lost: false,
        }
    }

    /// Takes in a function that is entered.
    pub(crate) fn open(&mut self, opened: &Opened) {
        let unseen = self.open.is_empty() && opened.flags.contains(SpanFlags::INFERRED);
        if unseen || self.lost {
            self.start();
        }
        let part = Self::part(&mut self.parts, self.last);
        self.last = self.last.max(opened.begin);
        let parent = self.open.last().map_or(part.tree.root, |frame| frame.node);
        let node = part.tree.child(parent, opened.function);
        self.open.push(Frame { node, inner: 0 });
    }

    /// Takes in a loss. If it cuts the track, everything was closed before.
    pub(crate) fn lose(&mut self) {
        self.lost = self.open.is_empty();
    }

    /// Takes in a function that is left.
    pub(crate) fn span(&mut self, span: &Span) -> Result<(), Misuse> {
        self.last = self.last.max(span.end);
        let zero = PerfTime(0);
        let time = nanos(zero, span.end).saturating_sub(nanos(zero, span.begin));
        if span.flags.contains(SpanFlags::LATE) {
            return self.late(span, time);
        }
        let frame = self.open.pop().ok_or(Misuse::NothingOpen)?;
        let part = Self::part(&mut self.parts, self.last);
        match self.open.last_mut() {
            Some(caller) => caller.inner += time,
            None => part.time += time,
        }
        let own = &mut part.tree.nodes[frame.node as usize].own;
        own.add(sums(span, time.saturating_sub(frame.inner)));
        Ok(())
    }

    fn late(&mut self, span: &Span, time: u64) -> Result<(), Misuse> {
        if !self.open.is_empty() {
            return Err(Misuse::StillOpen);
        }
        if self.lost {
            self.start();
        }
        Self::part(&mut self.parts, self.last);
        let fits = |part: &Part| part.earliest <= span.begin;
        let first = self.parts.iter().rposition(fits).unwrap_or(0);
        let (mut inner, mut later) = (0, self.parts.split_off(first + 1));
        let part = &mut self.parts[first];
        for part in &later {
            inner += part.time;
        }
        inner += part.time;
        for later in later.drain(..) {
            part.tree.merge(later.tree);
        }
        let own = sums(span, time.saturating_sub(inner));
        part.tree.wrap(span.function, own);
        part.time = time;
        Ok(())
    }

    fn start(&mut self) {
        self.lost = false;
        if self.parts.len() == REMEMBERED {
            let oldest = self.parts.pop_front();
            oldest
                .into_iter()
                .for_each(|part| self.merged.merge(part.tree));
        }
        self.parts.push_back(Part::new(self.last));
    }

    /// The latest part, made if there is none.
    fn part(parts: &mut VecDeque<Part>, earliest: Picos) -> &mut Part {
        if parts.is_empty() {
            parts.push_back(Part::new(earliest));
        }
        let latest = parts.len() - 1;
        &mut parts[latest]
    }

    /// The calls of several tracks in one tree.
    pub(crate) fn finish(tracks: impl IntoIterator<Item = Self>) -> Paths {
        let mut tree = Tree::new();
        for track in tracks {
            tree.merge(track.merged);
            for part in track.parts {
                tree.merge(part.tree);
            }
        }
        Paths::of(tree)
    }
}

fn sums(span: &Span, time: u64) -> Sums {
    Sums {
        calls: 1,
        time,
        instructions: span.self_instructions,
    }
}

/// A step on the way through a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Into a function, called by the one that was entered last and not left yet: what was spent
    /// in it alone.
    Enter(FunctionId, Sums),
    /// Out of it again.
    Leave(FunctionId),
}

/// A finished tree.
pub(crate) struct Paths {
    tree: Tree,
    /// All nodes but the root, by parent, then by function.
    order: Vec<u32>,
}

impl Paths {
    fn of(tree: Tree) -> Self {
        let mut order: Vec<u32> = (0..tree.nodes.len() as u32)
            .filter(|&number| number != tree.root)
            .collect();
        order.sort_by_key(|&number| {
            let node = &tree.nodes[number as usize];
            (node.parent, node.function)
        });
        Self { tree, order }
    }

    fn children(&self, parent: u32) -> &[u32] {
        let parent_of = |number: &u32| self.tree.nodes[*number as usize].parent;
        let start = self
            .order
            .partition_point(|number| parent_of(number) < parent);
        let len = self.order[start..].partition_point(|number| parent_of(number) == parent);
        &self.order[start..start + len]
    }

    /// Goes through the tree, callers first. Not by recursion: some trees are deep.
    pub(crate) fn walk<E>(&self, mut step: impl FnMut(Step) -> Result<(), E>) -> Result<(), E> {
        let mut rest: Vec<(u32, bool)> = Vec::new();
        let push = |rest: &mut Vec<(u32, bool)>, parent| {
            rest.extend(
                self.children(parent)
                    .iter()
                    .rev()
                    .map(|&child| (child, true)),
            );
        };
        push(&mut rest, self.tree.root);
        while let Some((number, enters)) = rest.pop() {
            let node = &self.tree.nodes[number as usize];
            if enters {
                step(Step::Enter(node.function, node.own))?;
                rest.push((number, false));
                push(&mut rest, number);
            } else {
                step(Step::Leave(node.function))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use ptrail_trace::TrackId;

    use super::*;

    fn open(calls: &mut Calls, function: u32, begin: u64, flags: SpanFlags) {
        calls.open(&Opened {
            track: TrackId(0),
            function: FunctionId(function),
            begin: Picos(begin),
            call_site: None,
            flags,
        });
    }

    fn close(
        calls: &mut Calls,
        function: u32,
        begin: u64,
        end: u64,
        flags: SpanFlags,
    ) -> Result<(), Misuse> {
        calls.span(&Span {
            track: TrackId(0),
            function: FunctionId(function),
            begin: Picos(begin),
            end: Picos(end),
            depth: 0,
            call_site: None,
            instructions: 0,
            self_instructions: 1,
            flags,
        })
    }

    /// Each path with calls and time, as `1>2: 3 calls, 4 ns`.
    fn paths(calls: Vec<Calls>) -> Vec<String> {
        let (mut lines, mut path) = (Vec::new(), Vec::<String>::new());
        let walked = Calls::finish(calls).walk(|step| {
            match step {
                Step::Enter(function, own) => {
                    path.push(function.0.to_string());
                    let Sums { calls, time, .. } = own;
                    lines.push(format!("{}: {calls} calls, {time} ns", path.join(">")));
                }
                Step::Leave(_) => {
                    path.pop();
                }
            }
            Ok::<_, Infallible>(())
        });
        let Ok(()) = walked;
        lines
    }

    const NONE: SpanFlags = SpanFlags::empty();
    const LATE: SpanFlags = SpanFlags::INFERRED.union(SpanFlags::LATE);

    #[test]
    fn a_late_caller_takes_in_all_parts_since_its_begin() {
        let mut calls = Calls::new();
        open(&mut calls, 1, 0, SpanFlags::INFERRED);
        close(&mut calls, 1, 0, 10_000, NONE).unwrap();
        // A function with an unseen call in the middle: a part of its own.
        open(&mut calls, 1, 20_000, SpanFlags::INFERRED);
        open(&mut calls, 2, 21_000, NONE);
        close(&mut calls, 2, 21_000, 24_000, NONE).unwrap();
        close(&mut calls, 1, 20_000, 30_000, NONE).unwrap();
        close(&mut calls, 3, 20_000, 31_000, LATE).unwrap();
        assert_eq!(calls.parts.len(), 2);
        close(&mut calls, 4, 0, 40_000, LATE).unwrap();
        assert_eq!(calls.parts.len(), 1);
        // The same function again, above and below.
        open(&mut calls, 4, 41_000, NONE);
        close(&mut calls, 4, 41_000, 43_000, NONE).unwrap();
        close(&mut calls, 4, 0, 50_000, LATE).unwrap();
        assert_eq!(
            paths(vec![calls]),
            [
                "4: 1 calls, 8 ns",
                "4>4: 2 calls, 21 ns",
                "4>4>1: 1 calls, 10 ns",
                "4>4>3: 1 calls, 1 ns",
                "4>4>3>1: 1 calls, 7 ns",
                "4>4>3>1>2: 1 calls, 3 ns",
            ]
        );
    }

    #[test]
    fn parts_and_tracks_add_up() {
        let track = || {
            let mut calls = Calls::new();
            for part in 0..100 {
                let begin = part * 10_000;
                open(&mut calls, 1, begin, SpanFlags::INFERRED);
                close(&mut calls, 1, begin, begin + 2_000, NONE).unwrap();
                close(&mut calls, 2, begin, begin + 5_000, LATE).unwrap();
            }
            assert_eq!(calls.parts.len(), REMEMBERED);
            calls
        };
        assert_eq!(
            paths(vec![track(), track()]),
            ["2: 200 calls, 600 ns", "2>1: 200 calls, 400 ns"]
        );
    }

    #[test]
    fn streams_that_do_not_nest_are_refused() {
        let mut calls = Calls::new();
        assert_eq!(close(&mut calls, 1, 0, 5, NONE), Err(Misuse::NothingOpen));
        open(&mut calls, 1, 5, NONE);
        assert_eq!(close(&mut calls, 2, 0, 6, LATE), Err(Misuse::StillOpen));
    }
}
