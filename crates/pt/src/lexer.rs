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

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::opcode::{Block, Refused, decode, second, short_tnt};
use crate::{CpuId, Errata, Packet, TraceOffset};

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

/// Iterates over the packets of a byte slice.
///
/// It starts in any place where a packet starts; use [`Lexer::seek_psb`] to find one. Where bytes
/// are no packet it gives one [`BadPacket`] and goes on at the next PSB.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    data: &'a [u8],
    base: u64,
    pos: usize,
    /// Where the next PSB begins, or the end of the data: packets end here at the latest.
    limit: usize,
    block: Block,
    errata: Errata,
}

impl<'a> Lexer<'a> {
    /// A lexer at the first byte of `data`, which is at `base` in its stream.
    #[must_use]
    pub fn new(data: &'a [u8], base: TraceOffset) -> Self {
        let limit = find_psb(data, 0).unwrap_or(data.len());
        Self {
            data,
            base: base.0,
            pos: 0,
            limit,
            block: Block::None,
            errata: Errata::default(),
        }
    }

    /// Reads as this CPU's errata demand; without, or with `None`, as the SDM says.
    #[must_use]
    pub fn for_cpu(mut self, cpu: Option<CpuId>) -> Self {
        self.errata = cpu.and_then(Errata::of).unwrap_or_default();
        self
    }

    /// Offset of the next packet in the stream.
    #[must_use]
    pub fn offset(&self) -> TraceOffset {
        TraceOffset(self.base + self.pos as u64)
    }

    /// Goes to the next PSB at or after the position and returns the number of bytes skipped;
    /// `None`, without moving, if there is none.
    pub fn seek_psb(&mut self) -> Option<u64> {
        (self.limit < self.data.len()).then(|| self.skip_to_limit())
    }

    fn skip_to_limit(&mut self) -> u64 {
        let skipped = self.limit - self.pos;
        self.pos = self.limit;
        self.block = Block::None;
        skipped as u64
    }

    #[inline]
    fn take(&mut self, packet: Packet, len: usize) -> Lexed {
        let offset = self.offset();
        self.pos += len;
        Lexed {
            offset,
            len: len as u32,
            packet,
        }
    }

    fn take_psb(&mut self) -> Lexed {
        let end = self.pos + PSB.len();
        self.limit = find_psb(self.data, end).unwrap_or(self.data.len());
        self.block = Block::None;
        self.take(Packet::Psb, PSB.len())
    }

    fn take_pads(&mut self) -> Lexed {
        let longest = (self.limit - self.pos).min(u32::MAX as usize);
        let bytes = &self.data[self.pos..self.pos + longest];
        let words = bytes
            .chunks_exact(8)
            .take_while(|word| *word == [0; 8])
            .count();
        let tail = bytes[words * 8..]
            .iter()
            .take_while(|byte| **byte == 0)
            .count();
        let run = words * 8 + tail;
        self.take(Packet::Pad { run: run as u32 }, run)
    }

    // Apart from `next`, so that a run of short TNTs stays in a small loop.
    #[inline(never)]
    fn take_other(&mut self) -> Result<Lexed, BadPacket> {
        let rest = &self.data[self.pos..];
        let room = self.limit - self.pos;
        let decoded = match rest.first_chunk::<16>() {
            Some(window) => decode(window, self.block),
            None => {
                let mut window = [0; 16];
                window[..rest.len()].copy_from_slice(rest);
                decode(&window, self.block)
            }
        };
        let decoded = decoded.map(|(packet, len)| self.correct(packet, len, room));
        match decoded {
            Ok((packet, len)) if len <= room => {
                self.block = self.block.after(&packet);
                Ok(self.take(packet, len))
            }
            Ok(_) => Err(self.bad(true)),
            Err(Refused { examined }) => Err(self.bad(examined > room)),
        }
    }

    /// Applies the errata that change what a packet is.
    #[inline]
    fn correct(&self, packet: Packet, len: usize, room: usize) -> (Packet, usize) {
        match packet {
            Packet::TmaInvalid(_) if self.errata.skz84 && len < room => (packet, len + 1),
            // A two-byte CYC whose second byte begins an OVF, and the OVF's second byte. Two CYCs
            // in a row occur only when the counter wraps, and the first is then longer.
            Packet::Cyc(cycles)
                if self.errata.skd007
                    && len == 2
                    && cycles >> 5 == 1
                    && len < room
                    && self.data[self.pos + len] == second::OVF =>
            {
                (Packet::Ovf, 3)
            }
            _ => (packet, len),
        }
    }

    #[cold]
    fn bad(&mut self, truncated: bool) -> BadPacket {
        let offset = self.offset();
        BadPacket {
            offset,
            skipped: self.skip_to_limit(),
            truncated,
        }
    }
}

impl Iterator for Lexer<'_> {
    type Item = Result<Lexed, BadPacket>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let byte = *self.data.get(self.pos)?;
        if self.pos == self.limit {
            return Some(Ok(self.take_psb()));
        }
        if self.block == Block::None
            && let Some(tnt) = short_tnt(byte)
        {
            return Some(Ok(self.take(Packet::Tnt(tnt), 1)));
        }
        if byte == 0 {
            return Some(Ok(self.take_pads()));
        }
        Some(self.take_other())
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
