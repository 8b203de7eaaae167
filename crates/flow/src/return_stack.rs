//! The return stack of return compression (SDM, "Return Compression").

use ptrail_pt::Ip;

/// How many calls the CPU remembers.
const DEPTH: usize = 64;

/// Return addresses of the last 64 calls; the 65th overwrites the oldest.
#[derive(Clone, Debug)]
pub(crate) struct ReturnStack {
    slots: [Ip; DEPTH],
    top: usize,
    len: usize,
}

impl ReturnStack {
    pub(crate) fn new() -> Self {
        Self {
            slots: [Ip(0); DEPTH],
            top: 0,
            len: 0,
        }
    }

    pub(crate) fn push(&mut self, ip: Ip) {
        self.slots[self.top] = ip;
        self.top = (self.top + 1) % DEPTH;
        self.len = (self.len + 1).min(DEPTH);
    }

    pub(crate) fn pop(&mut self) -> Option<Ip> {
        self.len = self.len.checked_sub(1)?;
        self.top = (self.top + DEPTH - 1) % DEPTH;
        Some(self.slots[self.top])
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_65th_call_drops_the_first() {
        let mut stack = ReturnStack::new();
        (1..=65).for_each(|i| stack.push(Ip(i)));
        let popped: Vec<_> = std::iter::from_fn(|| stack.pop()).collect();
        assert_eq!(popped, (2..=65).rev().map(Ip).collect::<Vec<_>>());
    }
}
