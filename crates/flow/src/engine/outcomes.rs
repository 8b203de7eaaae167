//! Branch outcomes that no branch has used yet.

use ptrail_pt::{Tnt, TraceOffset};

use crate::graph::OUTCOMES;

/// Most outcomes that may wait: more than any CPU holds back.
const MOST: u8 = 64;

/// A queue of outcomes, and which packets they came in.
pub(super) struct Outcomes {
    /// Oldest at bit `len - 1`; what is above has been used.
    bits: u64,
    len: u8,
    /// The last packets, by their number; a packet has one outcome at least.
    packets: [Source; MOST as usize],
    count: usize,
}

/// A TNT packet.
#[derive(Clone, Copy)]
struct Source {
    offset: TraceOffset,
    len: u32,
    outcomes: u32,
}

impl Outcomes {
    pub(super) fn new() -> Self {
        let none = Source {
            offset: TraceOffset(0),
            len: 0,
            outcomes: 0,
        };
        Self {
            bits: 0,
            len: 0,
            packets: [none; MOST as usize],
            count: 0,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> u8 {
        self.len
    }

    /// Appends those of a packet; `false`, and nothing done, if they are too many.
    #[inline]
    pub(super) fn push(&mut self, tnt: Tnt, offset: TraceOffset, len: u32) -> bool {
        let more = tnt.len();
        if self.len + more > MOST {
            return false;
        }
        self.bits = self.bits << more | tnt.bits();
        self.len += more;
        self.packets[self.count % MOST as usize] = Source {
            offset,
            len,
            outcomes: more.into(),
        };
        self.count = self.count.wrapping_add(usize::from(more > 0));
        true
    }

    /// The oldest, as many as a stretch takes, below a stop bit.
    #[inline]
    pub(super) fn front(&self) -> u32 {
        let count = self.len.min(OUTCOMES);
        let stop = 1 << count;
        (self.bits >> (self.len - count)) as u32 & (stop - 1) | stop
    }

    /// The oldest.
    #[inline]
    pub(super) fn first(&self) -> Option<bool> {
        let last = self.len.checked_sub(1)?;
        Some(self.bits >> last & 1 == 1)
    }

    /// Drops the oldest `count`.
    #[inline]
    pub(super) fn used(&mut self, count: u8) {
        self.len -= count;
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Offset of the packet that the oldest came in, and the bytes of it and the packets behind it.
    pub(super) fn unused(&self) -> Option<(TraceOffset, u64)> {
        let mut left = u32::from(self.len);
        let mut unused = None;
        for back in 1..=self.count.min(MOST as usize) {
            if left == 0 {
                break;
            }
            let packet = self.packets[(self.count - back) % MOST as usize];
            left = left.saturating_sub(packet.outcomes);
            let bytes = unused.map_or(0, |(_, bytes)| bytes);
            unused = Some((packet.offset, bytes + u64::from(packet.len)));
        }
        unused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packets_of_what_is_left() {
        let mut outcomes = Outcomes::new();
        assert_eq!(outcomes.unused(), None);
        assert!(outcomes.push(Tnt::short(0b10, 2), TraceOffset(5), 1));
        assert!(outcomes.push(Tnt::long(0b0, 7), TraceOffset(6), 8));
        assert!(outcomes.push(Tnt::short(0b1, 1), TraceOffset(20), 1));
        assert_eq!(outcomes.front(), 0b110_0000_0001);
        assert_eq!(outcomes.unused(), Some((TraceOffset(5), 10)));
        outcomes.used(1);
        assert_eq!(outcomes.first(), Some(false));
        assert_eq!(outcomes.unused(), Some((TraceOffset(5), 10)));
        outcomes.used(1);
        assert_eq!(outcomes.unused(), Some((TraceOffset(6), 9)));
        outcomes.used(7);
        assert_eq!(outcomes.unused(), Some((TraceOffset(20), 1)));
        outcomes.used(1);
        assert_eq!((outcomes.unused(), outcomes.first()), (None, None));
    }

    #[test]
    fn as_many_as_may_wait() {
        let mut outcomes = Outcomes::new();
        assert!(outcomes.push(Tnt::long(1, 47), TraceOffset(0), 8));
        assert!(outcomes.push(Tnt::long(1, 17), TraceOffset(8), 8));
        assert!(!outcomes.push(Tnt::short(1, 1), TraceOffset(16), 1));
        assert_eq!(outcomes.front(), 1 << OUTCOMES);
        outcomes.used(46);
        assert_eq!(outcomes.front(), 1 << 16 | 1 << 15);
    }
}
