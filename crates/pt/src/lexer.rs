//! From bytes to packets.
//!
//! Invariants:
//! - Lexed packets and bad stretches tile the input: the sum of [`Lexed::len`] and
//!   [`BadPacket::skipped`] is the number of bytes given, whatever they are.
//! - A PSB always wins: no packet reaches into a PSB. No legal sequence of packets holds the PSB
//!   pattern (SDM, "Decoder Synchronization (PSB+)"), so a packet that would do so was cut off.
//!   Hence a stream lexes the same whole or cut at its PSBs.
//! - Nothing is read out of range and nothing allocates.
//!
//! ```
//! use ptrail_pt::{Lexer, Packet, TraceOffset};
//!
//! let bytes = [0x59, 0x12, 0x00, 0x00, 0xc9, 0x42];
//! let mut lexer = Lexer::new(&bytes, TraceOffset(1000));
//! let mtc = lexer.next().unwrap().unwrap();
//! assert_eq!((mtc.offset, mtc.packet), (TraceOffset(1000), Packet::Mtc(0x12)));
//! assert_eq!(lexer.next().unwrap().unwrap().packet, Packet::Pad { run: 2 });
//! let bad = lexer.next().unwrap().unwrap_err(); // 0xc9 is no opcode
//! assert_eq!((bad.offset, bad.skipped), (TraceOffset(1004), 2));
//! assert!(lexer.next().is_none());
//! ```

mod drain;

pub use drain::PacketSink;

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::opcode::{self, Block, Quirks};
use crate::{CpuId, Errata, Packet, TraceOffset, word};

/// The bytes of a PSB packet.
pub(crate) const PSB: [u8; 16] = [
    2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82,
];

static PSB_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(&PSB));

/// Position of the first PSB that begins at or after `from`.
///
/// A payload may end like a PSB and stand right before one, and a PSB that was cut off looks the
/// same. So of a run of the pattern the last 16 bytes are a PSB, and the 16 before them, and so on;
/// what is left over at its beginning is not. (If the data ends with the run, this is a guess.)
#[must_use]
pub fn find_psb(data: &[u8], from: usize) -> Option<usize> {
    let (before, rest) = data.split_at_checked(from)?;
    // Behind a PSB the place in the run is known. It also keeps a walk along a run linear.
    if rest.starts_with(&PSB) && before.ends_with(&PSB) {
        return Some(from);
    }
    let start = from + PSB_FINDER.find(rest)?;
    let pairs = data[start..]
        .chunks_exact(2)
        .take_while(|pair| *pair == &PSB[..2])
        .count();
    Some(start + 2 * (pairs % 8))
}

/// A packet and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lexed {
    /// Offset of its first byte in the stream.
    pub offset: TraceOffset,
    /// Its size in bytes, at least 1.
    pub len: u32,
    /// The packet.
    pub packet: Packet,
}

/// Bytes that are no packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no packet at offset {:#x}, {skipped} bytes skipped{}", offset.0,
        if *.truncated { " (a packet was cut off)" } else { "" })]
pub struct BadPacket {
    /// Offset of the byte that should have begun a packet.
    pub offset: TraceOffset,
    /// Bytes from there to the next PSB, or to the end of the data; at least 1.
    pub skipped: u64,
    /// A packet begins here, but the data ended, or a PSB began, inside it. At the end of the
    /// data that means: come back at `offset` when there is more.
    pub truncated: bool,
}

type Item = Option<Result<Lexed, BadPacket>>;

/// Iterates over the packets of a byte slice.
///
/// It starts in any place where a packet starts; use [`Lexer::seek_psb`] to find one. Where bytes
/// are no packet it gives one [`BadPacket`] and goes on at the next PSB. [`Lexer::drain`] gives the
/// same, faster.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    /// From the position to the next PSB, or to the end of the data: packets end there at the
    /// latest.
    body: &'a [u8],
    /// Takes the place of `body` in a block (BBP to BEP), where some bytes have other meanings;
    /// `body` is empty then.
    blocked: &'a [u8],
    /// What is behind `body`: a PSB first, or nothing.
    tail: &'a [u8],
    /// Stream offset of the end of `body` or `blocked`.
    end: u64,
    block: Block,
    quirks: Quirks,
}

impl<'a> Lexer<'a> {
    /// A lexer at the first byte of `data`, which is at `base` in its stream.
    #[must_use]
    pub fn new(data: &'a [u8], base: TraceOffset) -> Self {
        let end = find_psb(data, 0).unwrap_or(data.len());
        let (body, tail) = data.split_at(end);
        Self {
            body,
            blocked: &[],
            tail,
            end: base.0 + end as u64,
            block: Block::None,
            quirks: Quirks::default(),
        }
    }

    /// Reads as this CPU's errata demand; without, or with `None`, as the SDM says.
    #[must_use]
    pub fn for_cpu(mut self, cpu: Option<CpuId>) -> Self {
        let errata = cpu.and_then(Errata::of).unwrap_or_default();
        self.quirks = Quirks {
            skd007: errata.skd007,
            skz84: errata.skz84,
        };
        self
    }

    /// Offset of the next packet in the stream.
    #[inline(always)]
    #[must_use]
    pub fn offset(&self) -> TraceOffset {
        TraceOffset(self.end - (self.body.len() + self.blocked.len()) as u64)
    }

    /// Goes to the next PSB at or after the position and returns the number of bytes skipped;
    /// `None`, without moving, if there is none.
    pub fn seek_psb(&mut self) -> Option<u64> {
        (!self.tail.is_empty()).then(|| self.skip())
    }

    #[inline(always)]
    fn skip(&mut self) -> u64 {
        let skipped = self.body.len() + self.blocked.len();
        (self.body, self.blocked, self.block) = (&[], &[], Block::None);
        skipped as u64
    }

    /// Goes on by `len` bytes of `body`; the offset at which they began.
    #[inline(always)]
    fn advance(&mut self, len: usize) -> TraceOffset {
        let offset = TraceOffset(self.end - self.body.len() as u64);
        self.body = &self.body[len..];
        offset
    }

    #[inline(always)]
    fn step(&mut self, packet: Packet, len: usize) -> Item {
        let offset = self.advance(len);
        Some(Ok(Lexed {
            offset,
            len: len as u32,
            packet,
        }))
    }

    /// The next packet if it is not among those of [`word::packet`], or stands less than a word
    /// before the end of `body`, or in a block.
    #[inline(always)]
    fn take_other(&mut self) -> Item {
        if self.block != Block::None {
            self.body = std::mem::take(&mut self.blocked);
        }
        if self.body.is_empty() {
            return self.take_psb();
        }
        match opcode::packet(self.body, self.block, self.quirks) {
            Ok((packet, len)) => {
                let lexed = self.step(packet, len);
                self.block = self.block.after(&packet);
                if self.block != Block::None {
                    self.blocked = std::mem::take(&mut self.body);
                }
                lexed
            }
            Err(truncated) => Some(Err(BadPacket {
                offset: self.offset(),
                skipped: self.skip(),
                truncated,
            })),
        }
    }

    #[inline(always)]
    fn take_psb(&mut self) -> Item {
        if self.tail.is_empty() {
            return None;
        }
        let end = find_psb(self.tail, PSB.len()).unwrap_or(self.tail.len());
        (self.body, self.tail) = self.tail.split_at(end);
        self.end += end as u64;
        self.block = Block::None;
        self.step(Packet::Psb, PSB.len())
    }
}

impl word::Take for &mut Lexer<'_> {
    type Taken = Item;

    #[inline(always)]
    fn take(self, packet: Packet, len: usize) -> Item {
        self.step(packet, len)
    }

    #[inline(always)]
    fn none(self) -> Item {
        self.take_other()
    }
}

impl Iterator for Lexer<'_> {
    type Item = Result<Lexed, BadPacket>;

    // Inlined, and the state never lent to a function that is not: then it stays in registers, and
    // a loop's `match` on the packet merges with the one that made it.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let Some(window) = self.body.first_chunk() else {
            return self.take_other();
        };
        word::packet(u64::from_le_bytes(*window), self.quirks, self)
    }
}

impl std::iter::FusedIterator for Lexer<'_> {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{Encoder, Ip, Vendor};

    fn packets(lexer: Lexer<'_>) -> Vec<Packet> {
        lexer.map(|lexed| lexed.unwrap().packet).collect()
    }

    #[test]
    fn a_payload_that_ends_like_a_psb_does_not_hide_the_psb_behind_it() {
        let mut encoder = Encoder::new();
        encoder.put(&Packet::Psb);
        encoder.tip(Ip(0x8202_8202_0000));
        let psb = encoder.len();
        encoder.put(&Packet::Psb);
        encoder.put(&Packet::PsbEnd);
        assert_eq!(find_psb(encoder.bytes(), 1), Some(psb));
        assert_eq!(
            packets(Lexer::new(encoder.bytes(), TraceOffset(0))).len(),
            4
        );
    }

    #[test]
    fn a_psb_ends_a_packet_that_was_cut_off() {
        let bytes = [&[2, 0xc3, 0x88, 1][..], &PSB].concat();
        let mut lexer = Lexer::new(&bytes, TraceOffset(7));
        let bad = BadPacket {
            offset: TraceOffset(7),
            skipped: 4,
            truncated: true,
        };
        assert_eq!(lexer.next(), Some(Err(bad)));
        assert_eq!(lexer.next().unwrap().unwrap().offset, TraceOffset(11));
        assert_eq!(lexer.next(), None);
    }

    #[test]
    fn every_prefix_of_a_packet_is_truncated_and_not_unknown() {
        let mut encoder = Encoder::new();
        encoder.put(&Packet::Psb);
        encoder.put(&Packet::Mnt(u64::MAX));
        encoder.put(&Packet::Cyc(u64::MAX));
        let bytes = encoder.take();
        for (begin, end) in [(0, 16), (16, 27), (27, 37)] {
            for cut in begin + 1..end {
                let lexer = Lexer::new(&bytes[begin..cut], TraceOffset(0));
                let bad = lexer.last().unwrap().unwrap_err();
                assert!(bad.truncated, "{:x?}", &bytes[begin..cut]);
            }
        }
    }

    #[test]
    fn seek_psb_says_how_far_it_went() {
        let bytes = [&[0xc9, 0xc9, 0xc9][..], &PSB, &[0x59, 1]].concat();
        let mut lexer = Lexer::new(&bytes, TraceOffset(0));
        assert_eq!(lexer.seek_psb(), Some(3));
        assert_eq!(lexer.seek_psb(), Some(0));
        assert_eq!(lexer.next().unwrap().unwrap().packet, Packet::Psb);
        assert_eq!(lexer.seek_psb(), None);
        assert_eq!(lexer.offset(), TraceOffset(19));
        assert_eq!(lexer.next().unwrap().unwrap().packet, Packet::Mtc(1));
    }

    #[test]
    fn an_ovf_inside_a_cyc_is_found_on_skylake_only() {
        let bytes = [0xf7, 0x02, 0xf3];
        let lexer = Lexer::new(&bytes, TraceOffset(0));
        assert_eq!(
            packets(lexer.clone()),
            [Packet::Cyc(0x3e), Packet::Cyc(0x1e)]
        );
        let skylake = CpuId {
            vendor: Vendor::Intel,
            family: 6,
            model: 0x5e,
            stepping: 3,
        };
        assert_eq!(packets(lexer.for_cpu(Some(skylake))), [Packet::Ovf]);
    }

    #[test]
    fn a_long_run_of_psbs_takes_linear_time() {
        let bytes = PSB.repeat(1 << 16);
        let mut at = 0;
        while let Some(next) = find_psb(&bytes, at) {
            assert_eq!(next, at);
            at += PSB.len();
        }
        assert_eq!(at, bytes.len());
        assert_eq!(Lexer::new(&bytes, TraceOffset(0)).count(), 1 << 16);
    }
}
