//! The return stack of return compression (SDM, "Return Compression").

use crate::graph::NodeId;

/// How many calls the CPU remembers.
pub(crate) const DEPTH: usize = 64;

/// So many calls are pushed at once without looking.
pub(crate) const FEW: usize = 2;

/// More than [`DEPTH`] and [`FEW`] together, so that pushing a few does not overwrite what counts.
const SLOTS: usize = 2 * DEPTH;

/// Where the last 64 calls return to; the 65th makes the oldest forgotten.
#[derive(Clone, Debug)]
pub(crate) struct ReturnStack {
    slots: [NodeId; SLOTS],
    /// Counts pushes less pops; the innermost call is in the slot before.
    top: usize,
    len: usize,
}

impl ReturnStack {
    pub(crate) fn new() -> Self {
        Self {
            slots: [NodeId::NONE; SLOTS],
            top: 0,
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, to: NodeId) {
        self.slots[self.top % SLOTS] = to;
        self.top = self.top.wrapping_add(1);
        self.len = (self.len + 1).min(DEPTH);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<NodeId> {
        self.len = self.len.checked_sub(1)?;
        self.top = self.top.wrapping_sub(1);
        Some(self.slots[self.top % SLOTS])
    }

    /// How many calls are remembered.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The innermost call (`below` 0), the one around it (1), and so on.
    #[inline]
    pub(crate) fn peek(&self, below: usize) -> Option<NodeId> {
        (below < self.len).then(|| self.innermost(below))
    }

    /// The same, or anything if there is no such call.
    #[inline]
    pub(crate) fn innermost(&self, below: usize) -> NodeId {
        self.slots[self.top.wrapping_sub(1 + below) % SLOTS]
    }

    /// Does at once what a run of calls and returns did: at its highest it held `peak` calls more
    /// than before, it returned from `pops` of those that were there, and `pushes` are left.
    #[inline]
    pub(crate) fn replay(&mut self, peak: usize, pops: usize, pushes: &[NodeId]) {
        self.unwind(peak, pops);
        for &to in pushes {
            self.slots[self.top % SLOTS] = to;
            self.top = self.top.wrapping_add(1);
        }
        self.len = (self.len + pushes.len()).min(DEPTH);
    }

    /// The same, with the first `count` of `pushes`.
    #[inline]
    pub(crate) fn replay_few(
        &mut self,
        peak: usize,
        pops: usize,
        pushes: [NodeId; FEW],
        count: usize,
    ) {
        self.unwind(peak, pops);
        for (above, to) in pushes.into_iter().enumerate() {
            self.slots[self.top.wrapping_add(above) % SLOTS] = to;
        }
        self.top = self.top.wrapping_add(count);
        self.len = (self.len + count).min(DEPTH);
    }

    #[inline]
    fn unwind(&mut self, peak: usize, pops: usize) {
        let rest = DEPTH.saturating_sub(peak);
        self.len = self.len.min(rest).saturating_sub(pops);
        self.top = self.top.wrapping_sub(pops);
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Renames what it holds.
    pub(crate) fn rename(&mut self, mut rename: impl FnMut(NodeId) -> NodeId) {
        for below in 0..self.len {
            let slot = &mut self.slots[self.top.wrapping_sub(1 + below) % SLOTS];
            *slot = rename(*slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(mut stack: ReturnStack) -> Vec<NodeId> {
        std::iter::from_fn(|| stack.pop()).collect()
    }

    #[test]
    fn the_65th_call_drops_the_first() {
        let mut stack = ReturnStack::new();
        (1..=65).for_each(|i| stack.push(NodeId(i)));
        assert_eq!(all(stack), (2..=65).rev().map(NodeId).collect::<Vec<_>>());
    }

    proptest! {
        /// Calls (some) and returns (`None`), one by one or at once.
        #[test]
        fn a_run_at_once_is_the_run_one_by_one(
            before in prop::collection::vec(1..1000_u32, 0..80),
            run in prop::collection::vec(prop::option::weighted(0.6, 1000..2000_u32), 0..60),
        ) {
            let mut one_by_one = ReturnStack::new();
            before.iter().for_each(|&i| one_by_one.push(NodeId(i)));
            let mut at_once = one_by_one.clone();
            let (mut local, mut pops, mut peak) = (Vec::new(), 0, 0);
            for call in run {
                match call {
                    Some(to) => {
                        one_by_one.push(NodeId(to));
                        local.push(NodeId(to));
                        peak = peak.max(local.len().saturating_sub(pops));
                    }
                    None if local.pop().is_some() => {
                        prop_assert!(one_by_one.pop().is_some());
                    }
                    // A run may return from what is still remembered only.
                    None => match one_by_one.pop() {
                        Some(_) => pops += 1,
                        None => break,
                    },
                }
            }
            let mut few = at_once.clone();
            at_once.replay(peak, pops, &local);
            let expected = all(one_by_one);
            prop_assert_eq!(all(at_once), &expected[..]);
            if local.len() <= FEW {
                let mut pushes = [NodeId(7); FEW];
                pushes[..local.len()].copy_from_slice(&local);
                few.replay_few(peak, pops, pushes, local.len());
                prop_assert_eq!(all(few), expected);
            }
        }
    }
}
