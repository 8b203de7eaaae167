//! Nodes joined along the outcomes of their branches.

use super::{End, Graph, NodeId, Span};
use crate::return_stack::ReturnStack;
use crate::sink::{Edges, Step};

/// Most outcomes that a stretch uses.
pub(crate) const OUTCOMES: u8 = 16;

/// Most calls from before a stretch that it may return to.
const GUARDS: usize = 2;

/// Most calls that a stretch may have open, with those of one node to come.
const OPEN_CALLS: usize = 32;

/// Slots of the table at first, and at last.
const SLOTS_MIN: usize = 1 << 12;
const SLOTS_MAX: usize = 1 << 18;

/// Most steps kept for stretches; beyond, all are put together anew.
const STEPS_MAX: usize = 1 << 22;

/// What a node and some outcomes lead to.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Stretch {
    key: u64,
    /// The calls that it returns to, innermost first: it holds only where these are the innermost
    /// calls.
    guards: [NodeId; GUARDS],
    /// Where it leads.
    pub(crate) end: NodeId,
    pub(crate) instructions: u32,
    pub(crate) steps: Span,
    /// The calls that it leaves open.
    pub(crate) pushes: Span,
    /// How many outcomes it uses, the oldest first. If none: the node needs a closer look.
    pub(crate) used: u8,
    /// How many calls from before it returns from.
    pub(crate) pops: u8,
    /// Calls it holds at its highest, more than were there before.
    pub(crate) peak: u8,
}

impl Stretch {
    const EMPTY: Self = Self {
        key: 0,
        guards: [NodeId::NONE; GUARDS],
        end: NodeId::NONE,
        instructions: 0,
        steps: Span { start: 0, len: 0 },
        pushes: Span { start: 0, len: 0 },
        used: 0,
        pops: 0,
        peak: 0,
    };

    /// Whether it holds with these calls open.
    #[inline]
    fn fits(&self, returns: &ReturnStack) -> bool {
        match self.pops {
            0 => true,
            1 => returns.peek(0) == Some(self.guards[0]),
            _ => returns.peek(0) == Some(self.guards[0]) && returns.peek(1) == Some(self.guards[1]),
        }
    }
}

/// All stretches of a graph: a table where a new one takes the place of an old one.
pub(crate) struct Stretches {
    slots: Vec<Stretch>,
    /// How many were replaced since the table has its size.
    replaced: usize,
    pub(crate) steps: Vec<Step>,
    pub(crate) pushes: Vec<NodeId>,
}

impl Stretches {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            replaced: 0,
            steps: Vec::new(),
            pushes: Vec::new(),
        }
    }

    #[inline]
    fn slot(&self, key: u64) -> usize {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & self.slots.len().wrapping_sub(1)
    }

    fn put(&mut self, stretch: Stretch) {
        if self.slots.is_empty() {
            self.slots = vec![Stretch::EMPTY; SLOTS_MIN];
        } else if self.replaced > self.slots.len() / 4 && self.slots.len() < SLOTS_MAX {
            self.grow();
        }
        let slot = self.slot(stretch.key);
        let old = std::mem::replace(&mut self.slots[slot], stretch);
        self.replaced += usize::from(old.key != 0 && old.key != stretch.key);
    }

    fn grow(&mut self) {
        let slots = vec![Stretch::EMPTY; 2 * self.slots.len()];
        let old = std::mem::replace(&mut self.slots, slots);
        self.replaced = 0;
        for stretch in old.into_iter().filter(|stretch| stretch.key != 0) {
            let slot = self.slot(stretch.key);
            self.slots[slot] = stretch;
        }
    }

    fn forget(&mut self) {
        self.slots.fill(Stretch::EMPTY);
        self.steps.clear();
        self.pushes.clear();
    }
}

impl Graph<'_> {
    /// What `node` and outcomes lead to. `word` holds the outcomes below a stop bit, the oldest
    /// next to it. `compressed`: a return may be among them.
    #[inline]
    pub(crate) fn stretch(
        &mut self,
        node: NodeId,
        word: u64,
        returns: &ReturnStack,
        compressed: bool,
        edges: &mut Edges,
    ) -> Stretch {
        let key = u64::from(node.0) << 32 | word;
        let slot = self.stretches.slot(key);
        let known = self.stretches.slots.get(slot);
        let known = known.filter(|stretch| stretch.key == key);
        if let Some(&stretch) = known.filter(|stretch| stretch.fits(returns)) {
            return stretch;
        }
        // A return that goes here and there is left to the caller.
        let guards = if known.is_some() { 0 } else { GUARDS };
        let stretch = self.join(key, guards, returns, compressed, edges);
        self.stretches.put(stretch);
        stretch
    }

    #[cold]
    fn join(
        &mut self,
        key: u64,
        guards: usize,
        returns: &ReturnStack,
        compressed: bool,
        edges: &mut Edges,
    ) -> Stretch {
        if self.stretches.steps.len().max(self.stretches.pushes.len()) > STEPS_MAX {
            self.stretches.forget();
        }
        let outcomes = key as u32;
        let mut left = 31 - outcomes.leading_zeros();
        let mut stretch = Stretch {
            key,
            end: NodeId((key >> 32) as u32),
            ..Stretch::EMPTY
        };
        let (mut steps, mut open) = (Vec::new(), Vec::new());
        while left > 0 {
            let id = stretch.end;
            let node = self.read(id, edges);
            let taken = outcomes >> (left - 1) & 1 == 1;
            let (base, calls) = (stretch.instructions, open.len());
            if calls + node.pushes.len as usize > OPEN_CALLS {
                break;
            }
            open.extend_from_slice(node.pushes.of(&self.pushes));
            let highest = open.len();
            let (to, edge) = match node.end {
                End::Conditional if taken => (node.target, node.edge),
                End::Conditional => (node.behind, None),
                End::Return if compressed && taken => {
                    let pops = usize::from(stretch.pops);
                    let to = open.pop().or_else(|| {
                        let to = returns.peek(pops).filter(|_| pops < guards)?;
                        stretch.guards[pops] = to;
                        stretch.pops += 1;
                        Some(to)
                    });
                    let Some(to) = to else { break };
                    self.target(id, self.start(to), edges)
                }
                _ => {
                    open.truncate(calls);
                    break;
                }
            };
            let peak = highest.saturating_sub(usize::from(stretch.pops)) as u8;
            stretch.peak = stretch.peak.max(peak);
            let later = |step: &Step| Step {
                instructions: base + step.instructions,
                ..*step
            };
            steps.extend(node.steps.of(&self.steps).iter().map(later));
            stretch.instructions += node.instructions;
            steps.extend(edge.map(|edge| Step {
                edge,
                instructions: stretch.instructions,
            }));
            stretch.end = to;
            stretch.used += 1;
            left -= 1;
        }
        stretch.steps = Span::add(&mut self.stretches.steps, &steps);
        stretch.pushes = Span::add(&mut self.stretches.pushes, &open);
        stretch
    }
}
