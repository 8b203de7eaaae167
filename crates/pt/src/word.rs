//! The packets that fit into a word, which are nearly all there are, read from one.
//!
//! Branches stand only where a trace makes them predictable: what kind a packet is, not how long
//! its address or its count.

use crate::opcode::{Quirks, field, first, second};
use crate::{ExecMode, IpBytes, IpPayload, Packet, Tnt};

/// What is done with a packet.
pub(crate) trait Take {
    /// What comes of it.
    type Taken;

    /// There is this packet, of so many bytes (at most 8).
    fn take(self, packet: Packet, len: usize) -> Self::Taken;

    /// There is none, or one that does not fit into a word.
    fn none(self) -> Self::Taken;
}

/// Calls `take` with the packet in the low bytes of `word` and its length (at most 8), or with
/// `None` if there is none, or one that [`crate::opcode`] must look at.
///
/// Every kind of packet calls `take` for itself, so that each is compiled with what the caller
/// does with it.
#[inline(always)]
pub(crate) fn packet<T: Take>(word: u64, quirks: Quirks, taker: T) -> T::Taken {
    let byte = word as u8;
    // A short TNT is even, and neither PAD nor 0x02.
    let half = byte.rotate_right(1);
    if (2..0x80).contains(&half) {
        return taker.take(Packet::Tnt(Tnt::from_short_payload(half)), 1);
    }
    match byte & 0x1f {
        first::PAD if word != 0 => {
            let run = word.trailing_zeros() / 8;
            taker.take(Packet::Pad { run }, run as usize)
        }
        first::TIP => with_ip(word, Packet::Tip, taker),
        first::TIP_PGE => with_ip(word, Packet::TipPge, taker),
        first::TIP_PGD => with_ip(word, Packet::TipPgd, taker),
        first::FUP => with_ip(word, Packet::Fup, taker),
        first::EXT => extended(word, taker),
        _ if byte & 7 == first::CYC => taker.take(Packet::Cyc(word >> 3 & 0x1f), 1),
        _ if byte & 7 == first::CYC_MORE => long_cyc(word, quirks, taker),
        _ => match byte {
            first::MTC => taker.take(Packet::Mtc((word >> 8) as u8), 2),
            first::TSC => taker.take(Packet::Tsc(word >> 8), 8),
            first::MODE => mode((word >> 8) as u8, taker),
            _ => taker.none(),
        },
    }
}

/// By IPBytes, four bits each: the packet's length, or 0 where it is more than a word or reserved.
const LENGTHS: u32 = 0x0007_7531;

const IP_BYTES: [IpBytes; 8] = [
    IpBytes::Suppressed,
    IpBytes::Update16,
    IpBytes::Update32,
    IpBytes::SignExtend48,
    IpBytes::Update48,
    IpBytes::Full,
    IpBytes::Full,
    IpBytes::Full,
];

#[inline(always)]
fn with_ip<T: Take>(word: u64, make: impl FnOnce(IpPayload) -> Packet, taker: T) -> T::Taken {
    let len = LENGTHS >> (word >> 3 & 0x1c) & 7;
    if len == 0 {
        return taker.none();
    }
    let unused = 64 - 8 * len;
    let bytes = IP_BYTES[(word >> 5 & 7) as usize];
    let value = word << unused >> unused >> 8;
    taker.take(make(IpPayload { bytes, value }), len as usize)
}

/// A CYC of two bytes or more: 5 bits in the first byte, then 7 a byte above a bit that says
/// whether there are more.
#[inline(always)]
fn long_cyc<T: Take>(word: u64, quirks: Quirks, taker: T) -> T::Taken {
    let ends = !word & 0x0101_0101_0101_0100;
    // Erratum SKD007: this may be an OVF.
    if ends == 0 || quirks.skd007 && word >> 8 & 0xffff == 0xf302 {
        return taker.none();
    }
    let last = ends.trailing_zeros();
    let sevens = (word & (0xff << last | ((1 << last) - 1))) >> 9 & 0x007f_7f7f_7f7f_7f7f;
    // Neighbours joined, three times.
    let joined = sevens & 0x007f_007f_007f_007f | (sevens & 0x7f00_7f00_7f00) >> 1;
    let joined = joined & 0x3fff_0000_3fff | (joined & 0x7f_0000_3fff_0000) >> 2;
    let joined = joined & 0x0fff_ffff | joined >> 32 << 28;
    taker.take(Packet::Cyc(word >> 3 & 0x1f | joined << 5), 1 + (last / 8) as usize)
}

/// MODE; its leaf is in the top three bits. CS.L and CS.D together are reserved.
#[inline(always)]
fn mode<T: Take>(byte: u8, taker: T) -> T::Taken {
    match byte & field::MODE_LEAF {
        0 => {
            let mode = match byte & (field::CS_L | field::CS_D) {
                0 => ExecMode::Bits16,
                field::CS_D => ExecMode::Bits32,
                field::CS_L => ExecMode::Bits64,
                _ => return taker.none(),
            };
            let interrupts = byte & field::IF != 0;
            taker.take(Packet::ModeExec { mode, interrupts }, 2)
        }
        field::MODE_TSX => {
            let (in_tx, abort) = (byte & field::IN_TX != 0, byte & field::TX_ABORT != 0);
            taker.take(Packet::ModeTsx { in_tx, abort }, 2)
        }
        _ => taker.none(),
    }
}

/// What stands behind 0x02 and tells flow, time or state.
#[inline(always)]
fn extended<T: Take>(word: u64, taker: T) -> T::Taken {
    let payload = word >> 16;
    match (word >> 8) as u8 {
        second::TNT_LONG if payload != 0 => {
            taker.take(Packet::Tnt(Tnt::from_long_payload(payload)), 8)
        }
        second::PSB_END => taker.take(Packet::PsbEnd, 2),
        second::OVF => taker.take(Packet::Ovf, 2),
        second::TRACE_STOP => taker.take(Packet::TraceStop, 2),
        second::CBR => {
            let (ratio, reserved) = (payload as u8, (payload >> 8) as u8);
            taker.take(Packet::Cbr { ratio, reserved }, 4)
        }
        second::TMA => taker.take(tma(payload & 0xff_ffff_ffff), 7),
        second::VMCS => taker.take(Packet::Vmcs((payload & 0xff_ffff_ffff) << 12), 7),
        second::PIP => {
            let (cr3, non_root) = (payload >> 1 << 5, payload & 1 != 0);
            taker.take(Packet::Pip { cr3, non_root }, 8)
        }
        _ => taker.none(),
    }
}

#[inline(always)]
fn tma(payload: u64) -> Packet {
    if payload & field::TMA_RESERVED != 0 {
        return Packet::TmaInvalid(payload);
    }
    Packet::Tma {
        ctc: payload as u16,
        fast_counter: (payload >> 24) as u16,
    }
}
