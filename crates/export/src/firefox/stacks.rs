//! The call paths of a thread, numbered while their outermost callers may still be unknown.
//!
//! Each part between losses begins with a nameless node, on which its calls stand. A late caller gives
//! that node its name and stands on a nameless one itself. Numbers never change; nodes that stay
//! nameless are passed over in the end.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write as _,
};

use ptrail_pt::Picos;
use ptrail_trace::{FunctionId, Opened, Span, SpanFlags};

/// Parts whose late callers may still come; as many as timelines remember.
const REMEMBERED: usize = 16;

#[derive(Clone, Copy)]
struct Node {
    parent: Option<u32>,
    function: Option<FunctionId>,
}

struct Part {
    root: u32,
    /// Time of the last event before it.
    earliest: Picos,
    /// A call was seen in it.
    used: bool,
}

#[derive(Default)]
pub(super) struct Stacks {
    nodes: Vec<Node>,
    by_path: HashMap<(u32, FunctionId), u32>,
    parts: VecDeque<Part>,
    open: Vec<u32>,
    last: Picos,
    lost: bool,
}

impl Stacks {
    fn push(&mut self, parent: Option<u32>, function: Option<FunctionId>) -> u32 {
        let number = self.nodes.len() as u32;
        self.nodes.push(Node { parent, function });
        number
    }

    fn part(&mut self, starts: bool) -> u32 {
        let starts = starts && self.parts.back().is_some_and(|part| part.used);
        if starts || self.lost || self.parts.is_empty() {
            self.lost = false;
            if self.parts.len() == REMEMBERED {
                self.parts.pop_front();
            }
            let root = self.push(None, None);
            let earliest = self.last;
            self.parts.push_back(Part {
                root,
                earliest,
                used: false,
            });
        }
        self.parts.back().map_or(0, |part| part.root)
    }

    fn use_part(&mut self) {
        if let Some(part) = self.parts.back_mut() {
            part.used = true;
        }
    }

    /// The node of what is open, or of what will be known to enclose this time.
    pub(super) fn current(&mut self) -> u32 {
        let root = self.part(false);
        self.open.last().copied().unwrap_or(root)
    }

    pub(super) fn open(&mut self, opened: &Opened) {
        let unseen = self.open.is_empty() && opened.flags.contains(SpanFlags::INFERRED);
        let root = self.part(unseen);
        self.use_part();
        self.last = self.last.max(opened.begin);
        let parent = self.open.last().copied().unwrap_or(root);
        let path = (parent, opened.function);
        let node = match self.by_path.get(&path) {
            Some(&node) => node,
            None => {
                let node = self.push(Some(parent), Some(opened.function));
                self.by_path.insert(path, node);
                node
            }
        };
        self.open.push(node);
    }

    /// Whether something was open.
    pub(super) fn close(&mut self, span: &Span) -> bool {
        self.last = self.last.max(span.end);
        self.open.pop().is_some()
    }

    pub(super) fn late(&mut self, span: &Span) {
        self.part(false);
        self.use_part();
        self.last = self.last.max(span.end);
        let fits = |part: &Part| part.earliest <= span.begin;
        let first = self.parts.iter().rposition(fits).unwrap_or(0);
        let around = self.push(None, None);
        let within = self.parts.split_off((first + 1).min(self.parts.len()));
        if let Some(part) = self.parts.back_mut() {
            let named = std::mem::replace(&mut part.root, around);
            self.nodes[named as usize] = Node {
                parent: Some(around),
                function: Some(span.function),
            };
            self.by_path.insert((around, span.function), named);
            for part in within {
                self.nodes[part.root as usize].parent = Some(named);
            }
        }
    }

    /// A loss; the result is whether it ends the part. If it does, everything was closed before.
    pub(super) fn lose(&mut self) -> bool {
        self.lost = self.open.is_empty();
        self.lost
    }

    /// The nodes in an order in which callers come first.
    pub(super) fn order(&self) -> Order {
        let mut order = Order {
            places: vec![Place::Unknown; self.nodes.len()],
            rows: Vec::new(),
        };
        let mut path = Vec::new();
        for number in 0..self.nodes.len() as u32 {
            let mut at = Some(number);
            let mut prefix = loop {
                let Some(node) = at else { break None };
                match order.places[node as usize] {
                    Place::Row(row) => break row,
                    Place::Unknown => {
                        path.push(node);
                        at = self.nodes[node as usize].parent;
                    }
                }
            };
            while let Some(node) = path.pop() {
                if let Some(function) = self.nodes[node as usize].function {
                    order.rows.push((prefix, function));
                    prefix = Some(order.rows.len() as u32 - 1);
                }
                order.places[node as usize] = Place::Row(prefix);
            }
        }
        order
    }
}

#[derive(Clone, Copy)]
enum Place {
    Unknown,
    /// The row of the innermost named node; `None` if there is none.
    Row(Option<u32>),
}

/// The stack table.
pub(super) struct Order {
    places: Vec<Place>,
    rows: Vec<(Option<u32>, FunctionId)>,
}

impl Order {
    /// The row of a node.
    pub(super) fn place(&self, node: u32) -> Option<u32> {
        match self.places.get(node as usize) {
            Some(&Place::Row(row)) => row,
            _ => None,
        }
    }

    /// The table as a member of the thread.
    pub(super) fn json(&self, mut frame: impl FnMut(FunctionId) -> u32) -> String {
        let (mut prefixes, mut frames) = (String::new(), String::new());
        let mut comma = "";
        for &(prefix, function) in &self.rows {
            let _ = match prefix {
                Some(row) => write!(prefixes, "{comma}{row}"),
                None => write!(prefixes, "{comma}null"),
            };
            let _ = write!(frames, "{comma}{}", frame(function));
            comma = ",";
        }
        format!(
            "\"stackTable\":{{\"length\":{},\"prefix\":[{prefixes}],\"frame\":[{frames}]}}",
            self.rows.len()
        )
    }
}
