//! Nodes joined along the outcomes of their branches.

use ptrail_pt::Ip;

use super::{End, Graph, NodeId, Span};
use crate::return_stack::ReturnStack;
use crate::sink::{EdgeId, Edges, Step};

/// Most outcomes that a stretch uses.
pub(crate) const OUTCOMES: u8 = 16;

/// In a key: behind the outcomes comes the target of an indirect jump or call.
const TARGETED: u64 = 1 << 31;

/// Most calls from before a stretch that it may return to.
const GUARDS: usize = 2;

/// Most calls that a stretch may have open, with those of one node to come.
const OPEN_CALLS: usize = 32;

/// Slots of the table at first, and at last.
const SLOTS_MIN: usize = 1 << 12;
const SLOTS_MAX: usize = 1 << 18;

/// Most steps kept for stretches; beyond, all are put together anew.
const STEPS_MAX: usize = 1 << 22;

/// What a node and some outcomes lead to, and a target behind them.
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
    steps: Span,
    /// The calls that it leaves open.
    pub(crate) pushes: Span,
    /// How many outcomes it uses, the oldest first. If none: the node needs a closer look.
    pub(crate) used: u8,
    /// How many calls from before it returns from.
    pub(crate) pops: u8,
    /// Calls it holds at its highest, more than were there before.
    pub(crate) peak: u8,
    /// It ends with an indirect jump or call: to `target`, where it went the last time, which is
    /// where `end` starts.
    pub(crate) targeted: bool,
    /// The edge to `target` is reported: it is the step behind `steps`.
    edge: bool,
    target: Ip,
    /// The node that ends with the jump or call.
    from: NodeId,
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
        targeted: false,
        edge: false,
        target: Ip(0),
        from: NodeId::NONE,
    };

    /// The edges to report.
    #[inline]
    pub(crate) fn steps<'p>(&self, pool: &'p Stretches) -> &'p [Step] {
        let len = self.steps.len as usize + usize::from(self.edge);
        &pool.steps[self.steps.start as usize..][..len]
    }

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
    steps: Vec<Step>,
    pub(crate) pushes: Vec<NodeId>,
    /// Steps and open calls of the stretch that is being put together.
    joined: Vec<Step>,
    open: Vec<NodeId>,
}

impl Stretches {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            replaced: 0,
            steps: Vec::new(),
            pushes: Vec::new(),
            joined: Vec::new(),
            open: Vec::new(),
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
        } else if self.replaced > self.slots.len() / 8 && self.slots.len() < SLOTS_MAX {
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
        match known.filter(|stretch| stretch.fits(returns)) {
            Some(&stretch) => stretch,
            None => self.join(key, returns, compressed, edges),
        }
    }

    /// The same, up to the target `to` of an indirect jump or call behind the outcomes. If that is
    /// not what the code has, the stretch is not `targeted`.
    #[inline]
    pub(crate) fn targeted(
        &mut self,
        node: NodeId,
        word: u64,
        to: Ip,
        returns: &ReturnStack,
        compressed: bool,
        edges: &mut Edges,
    ) -> Stretch {
        let stretch = self.stretch(node, word | TARGETED, returns, compressed, edges);
        if !stretch.targeted || (stretch.target == to && stretch.end != NodeId::NONE) {
            return stretch;
        }
        self.retarget(stretch, to, edges)
    }

    fn retarget(&mut self, mut stretch: Stretch, to: Ip, edges: &mut Edges) -> Stretch {
        let (end, edge) = self.target(stretch.from, to, edges);
        (stretch.target, stretch.end, stretch.edge) = (to, end, edge.is_some());
        if let Some(edge) = edge {
            let place = stretch.steps.start + stretch.steps.len;
            self.stretches.steps[place as usize] = Step {
                edge,
                instructions: stretch.instructions,
            };
        }
        let slot = self.stretches.slot(stretch.key);
        self.stretches.slots[slot] = stretch;
        stretch
    }

    /// Puts a stretch together.
    #[cold]
    fn join(
        &mut self,
        key: u64,
        returns: &ReturnStack,
        compressed: bool,
        edges: &mut Edges,
    ) -> Stretch {
        let slot = self.stretches.slot(key);
        let known = self.stretches.slots.get(slot);
        // A return that goes here and there is left to the caller.
        let guards = match known.is_some_and(|known| known.key == key) {
            true => 0,
            false => GUARDS,
        };
        if self.stretches.steps.len().max(self.stretches.pushes.len()) > STEPS_MAX {
            self.stretches.forget();
        }
        let outcomes = (key & !TARGETED) as u32;
        let mut left = 31 - outcomes.leading_zeros();
        let mut stretch = Stretch {
            key,
            end: NodeId((key >> 32) as u32),
            ..Stretch::EMPTY
        };
        // Their memory is used again.
        let mut steps = std::mem::take(&mut self.stretches.joined);
        let mut open = std::mem::take(&mut self.stretches.open);
        steps.clear();
        open.clear();
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
        if left == 0 && key & TARGETED != 0 {
            let node = self.read(stretch.end, edges);
            let fits = open.len() + node.pushes.len as usize <= OPEN_CALLS;
            if fits && matches!(node.end, End::JumpIndirect | End::CallIndirect | End::Far) {
                let base = stretch.instructions;
                let later = |step: &Step| Step {
                    instructions: base + step.instructions,
                    ..*step
                };
                steps.extend(node.steps.of(&self.steps).iter().map(later));
                stretch.instructions += node.instructions;
                open.extend_from_slice(node.pushes.of(&self.pushes));
                if node.end == End::CallIndirect {
                    open.push(node.behind);
                }
                let peak = open.len().saturating_sub(usize::from(stretch.pops)) as u8;
                stretch.peak = stretch.peak.max(peak);
                (stretch.from, stretch.end) = (stretch.end, NodeId::NONE);
                stretch.targeted = true;
            }
        }
        stretch.steps = Span::add(&mut self.stretches.steps, &steps);
        if stretch.targeted {
            // Room for the step to the target.
            self.stretches.steps.push(Step {
                edge: EdgeId::FIRST,
                instructions: 0,
            });
        }
        stretch.pushes = Span::add(&mut self.stretches.pushes, &open);
        (self.stretches.joined, self.stretches.open) = (steps, open);
        self.stretches.put(stretch);
        stretch
    }
}
