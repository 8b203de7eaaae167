//! The packets that most of a trace consists of, read from one word.

use crate::opcode::{Quirks, first, second};
use crate::{Packet, Tnt};

/// The packet in the low bytes of `word` and its length, if it is one of the frequent ones and
/// whole.
#[inline(always)]
pub(crate) fn frequent(word: u64, quirks: Quirks) -> Option<(Packet, usize)> {
    let byte = word as u8;
    match byte & 0x1f {
        first::EXT if (word >> 8) as u8 == second::TNT_LONG && word >> 16 != 0 => {
            Some((Packet::Tnt(Tnt::from_long_payload(word >> 16)), 8))
        }
        _ if byte & 3 == first::CYC => cyc(word, quirks),
        _ if byte == first::MTC => Some((Packet::Mtc((word >> 8) as u8), 2)),
        _ if byte == first::TSC => Some((Packet::Tsc(word >> 8), 8)),
        _ => None,
    }
}

/// CYC of up to three bytes.
#[inline(always)]
fn cyc(word: u64, quirks: Quirks) -> Option<(Packet, usize)> {
    if word & 4 == 0 {
        return Some((Packet::Cyc(word >> 3 & 0x1f), 1));
    }
    if word & 0x100 != 0 || quirks.skd007 {
        return None;
    }
    Some((Packet::Cyc(word >> 3 & 0x1f | word >> 4 & 0xfe0), 2))
}
