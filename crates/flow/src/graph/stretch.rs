//! Nodes joined along the outcomes of their branches.

use ptrail_pt::Ip;

use super::{End, Graph, NodeId, Span};
use crate::return_stack::{FEW, ReturnStack};
use crate::sink::{Edges, Step};

/// Most outcomes that a stretch uses.
pub(crate) const OUTCOMES: u8 = 16;

/// In a word: behind the outcomes comes the target of an indirect branch or of a return.
const TARGETED: u32 = 1 << 31;

/// In a word: the first return among the outcomes goes to a call from before the stretch, which the
/// key names.
const RETURNING: u32 = 1 << 30;

/// Most calls from before a stretch that it may return to without a word from the trace.
const GUARDS: usize = 2;

/// Most calls that a stretch may have open, with those of one node to come.
const OPEN_CALLS: usize = 32;

/// Pairs of slots of the table at first, and at last: twice what a core's second cache holds gains
/// nothing, and costs when it is first filled.
const PAIRS_MIN: usize = 1 << 11;
const PAIRS_MAX: usize = 1 << 14;

/// Most steps kept for stretches; beyond, all are put together anew.
const STEPS_MAX: usize = 1 << 22;

/// What a stretch comes of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The node in the upper half; in the lower the outcomes below a stop bit, the oldest next to
    /// it; and perhaps [`TARGETED`] or [`RETURNING`].
    path: u64,
    target: u64,
}

impl Key {
    /// Of no stretch.
    const NONE: Self = Self { path: 0, target: 0 };

    /// Of a node and outcomes, below a stop bit.
    #[inline]
    pub(crate) fn new(node: NodeId, word: u32) -> Self {
        Self {
            path: u64::from(node.0) << 32 | u64::from(word),
            target: 0,
        }
    }

    /// The same, and then the target of an indirect branch or of a return.
    #[inline]
    pub(crate) fn targeted(node: NodeId, word: u32, target: Ip) -> Self {
        Self {
            target: target.0,
            ..Self::new(node, word | TARGETED)
        }
    }

    /// The same node and outcomes; the first return among them goes to `to`.
    pub(crate) fn returning(self, to: NodeId) -> Self {
        Self {
            path: self.path | u64::from(RETURNING),
            target: to.0.into(),
        }
    }

    fn node(self) -> NodeId {
        NodeId((self.path >> 32) as u32)
    }

    fn outcomes(self) -> u32 {
        self.path as u32 & !(TARGETED | RETURNING)
    }

    fn is_targeted(self) -> bool {
        self.path as u32 & TARGETED != 0
    }

    fn is_returning(self) -> bool {
        self.path as u32 & RETURNING != 0
    }

    /// Node, outcomes and target are multiplied apart: the node is known last, and everything waits
    /// for it.
    #[inline]
    fn hash(self) -> usize {
        let node = (self.path >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = (self.path & 0xffff_ffff).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        let target = self.target.wrapping_mul(0xd6e8_feb8_6659_fd93);
        (word.wrapping_add(target).wrapping_add(node) >> 32) as usize
    }
}

/// What a node and some outcomes lead to, and a target behind them.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Stretch {
    key: Key,
    /// The calls that it returns to by itself, innermost first: it holds only where these are the
    /// innermost calls.
    guards: [NodeId; GUARDS],
    /// Where it leads.
    pub(crate) end: NodeId,
    pub(crate) instructions: u32,
    pub(crate) steps: Span,
    pushes: Pushes,
    /// How many outcomes it uses, the oldest first.
    pub(crate) used: u8,
    guarded: u8,
    /// How many calls from before it returns from.
    pops: u8,
    /// Calls it holds at its highest, more than were there before.
    peak: u8,
    /// It goes all the way that its key says. Otherwise, a node on it needs a closer look: the one
    /// at its end.
    pub(crate) whole: bool,
    /// It is not whole because of a return that goes here and there.
    pub(crate) returns: bool,
}

/// The calls that a stretch leaves open.
#[derive(Clone, Copy, Debug)]
struct Pushes {
    /// All of them, if they are so few.
    first: [NodeId; FEW],
    /// Where they are in the pool otherwise.
    start: u32,
    len: u8,
}

impl Stretch {
    const EMPTY: Self = Self {
        key: Key::NONE,
        guards: [NodeId::NONE; GUARDS],
        end: NodeId::NONE,
        instructions: 0,
        steps: Span { start: 0, len: 0 },
        pushes: Pushes {
            first: [NodeId::NONE; FEW],
            start: 0,
            len: 0,
        },
        used: 0,
        guarded: 0,
        pops: 0,
        peak: 0,
        whole: false,
        returns: false,
    };

    /// Whether it holds with these calls open.
    // Without branches: they would be hard to predict.
    #[inline]
    fn fits(&self, returns: &ReturnStack) -> bool {
        let [first, second] = self.guards;
        (self.guarded == 0)
            | (returns.len() >= usize::from(self.guarded))
                & (returns.innermost(0) == first)
                & ((self.guarded == 1) | (returns.innermost(1) == second))
    }
}

/// All stretches of a graph: a table where a new one takes the place of an old one.
pub(crate) struct Stretches {
    /// In pairs: two stretches of one key differ in the calls they return to.
    slots: Vec<[Stretch; 2]>,
    /// How many were replaced since the table has its size.
    replaced: usize,
    steps: Vec<Step>,
    pushes: Vec<NodeId>,
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

    /// The stretch of a key, if it is known and holds with these calls open.
    #[inline]
    pub(crate) fn find(&self, key: Key, returns: &ReturnStack) -> Option<&Stretch> {
        let pair = self.slots.get(self.pair(key))?;
        let holds = |known: &Stretch| (known.key == key) & known.fits(returns);
        if holds(&pair[0]) {
            return Some(&pair[0]);
        }
        holds(&pair[1]).then_some(&pair[1])
    }

    /// The steps from those of a stretch on.
    #[inline]
    pub(crate) fn steps(&self, stretch: &Stretch) -> &[Step] {
        stretch.steps.from(&self.steps)
    }

    /// Does to the open calls what a stretch does.
    #[inline]
    pub(crate) fn replay(&self, stretch: &Stretch, returns: &mut ReturnStack) {
        let Pushes { first, start, len } = stretch.pushes;
        let (peak, pops, count) = (stretch.peak.into(), stretch.pops.into(), usize::from(len));
        if count <= FEW {
            returns.replay_few(peak, pops, first, count);
        } else {
            returns.replay(peak, pops, &self.pushes[start as usize..][..count]);
        }
    }

    #[inline]
    fn pair(&self, key: Key) -> usize {
        key.hash() & self.slots.len().wrapping_sub(1)
    }

    /// How many stretches of a key are known.
    fn count(&self, key: Key) -> usize {
        let pair = self.slots.get(self.pair(key)).into_iter().flatten();
        pair.filter(|known| known.key == key).count()
    }

    fn put(&mut self, stretch: Stretch) {
        if self.slots.is_empty() {
            self.slots = vec![[Stretch::EMPTY; 2]; PAIRS_MIN];
        } else if self.replaced > self.slots.len() / 4 && self.slots.len() < PAIRS_MAX {
            self.grow();
        }
        let pair = self.pair(stretch.key);
        let [first, second] = &mut self.slots[pair];
        let old = std::mem::replace(first, stretch);
        if old.key != Key::NONE {
            let old = std::mem::replace(second, old);
            self.replaced += usize::from(old.key != Key::NONE);
        }
    }

    fn grow(&mut self) {
        let slots = vec![[Stretch::EMPTY; 2]; 2 * self.slots.len()];
        let old = std::mem::replace(&mut self.slots, slots);
        self.replaced = 0;
        // The second of a pair is the older one.
        for [first, second] in old {
            for stretch in [second, first] {
                if stretch.key != Key::NONE {
                    self.put(stretch);
                }
            }
        }
    }

    fn keep(&mut self, open: &[NodeId]) -> Pushes {
        let mut first = [NodeId::NONE; FEW];
        for (slot, call) in first.iter_mut().zip(open) {
            *slot = *call;
        }
        let rest = if open.len() > FEW { open } else { &[] };
        Pushes {
            first,
            start: Span::add(&mut self.pushes, rest).start,
            len: open.len() as u8,
        }
    }

    fn forget(&mut self) {
        self.slots.fill([Stretch::EMPTY; 2]);
        self.steps.clear();
        self.pushes.clear();
    }
}

impl Graph<'_> {
    /// Puts a stretch together. `compressed`: a return may be among its outcomes.
    #[cold]
    pub(crate) fn join(
        &mut self,
        key: Key,
        returns: &ReturnStack,
        compressed: bool,
        edges: &mut Edges,
    ) -> Stretch {
        // A return that goes here and there is left to the caller, who may name where it goes.
        let guards = match self.stretches.count(key) {
            0 | 1 => GUARDS,
            _ => usize::from(key.is_returning()),
        };
        if self.stretches.steps.len().max(self.stretches.pushes.len()) > STEPS_MAX {
            self.stretches.forget();
        }
        let outcomes = key.outcomes();
        let mut left = 31 - outcomes.leading_zeros();
        let mut stretch = Stretch {
            key,
            end: key.node(),
            ..Stretch::EMPTY
        };
        // Their memory is used again.
        let mut steps = std::mem::take(&mut self.stretches.joined);
        let mut open = std::mem::take(&mut self.stretches.open);
        steps.clear();
        open.clear();
        while left > 0 || key.is_targeted() {
            let id = stretch.end;
            let node = self.read(id, edges);
            let taken = left > 0 && outcomes >> (left - 1) & 1 == 1;
            let calls = open.len();
            if calls + node.pushes.len as usize > OPEN_CALLS {
                break;
            }
            open.extend_from_slice(node.pushes.of(&self.pushes));
            let highest = open.len();
            let (to, edge) = match node.end {
                End::Conditional if left == 0 => {
                    open.truncate(calls);
                    break;
                }
                End::Conditional if taken => (node.target, node.edge),
                End::Conditional => (node.behind, None),
                End::Return if compressed && taken => {
                    let pops = usize::from(stretch.guarded);
                    let to = open.pop().or_else(|| {
                        let to = returns.peek(pops).filter(|_| pops < guards)?;
                        stretch.guards[pops] = to;
                        stretch.guarded += 1;
                        stretch.pops += 1;
                        Some(to)
                    });
                    let Some(to) = to else {
                        stretch.returns = true;
                        break;
                    };
                    self.target(id, self.start(to), edges)
                }
                End::Return | End::JumpIndirect | End::CallIndirect | End::Far | End::FarReturn
                    if left == 0 =>
                {
                    match node.end {
                        End::CallIndirect => open.push(node.behind),
                        // The CPU's stack moves although the return was not compressed.
                        End::Return if open.pop().is_none() => stretch.pops += 1,
                        _ => {}
                    }
                    stretch.whole = true;
                    self.target(id, Ip(key.target), edges)
                }
                _ => {
                    open.truncate(calls);
                    break;
                }
            };
            let peak = highest.max(open.len());
            let peak = peak.saturating_sub(usize::from(stretch.pops)) as u8;
            stretch.peak = stretch.peak.max(peak);
            let base = stretch.instructions;
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
            if stretch.whole {
                break;
            }
            stretch.used += 1;
            left -= 1;
        }
        stretch.whole |= left == 0 && !key.is_targeted();
        stretch.steps = Span::add(&mut self.stretches.steps, &steps);
        stretch.pushes = self.stretches.keep(&open);
        (self.stretches.joined, self.stretches.open) = (steps, open);
        self.stretches.put(stretch);
        stretch
    }
}
