//! The packets that fit into a word, which are nearly all there are, read from one.
//!
//! Branches stand only where a trace makes them predictable: what kind a packet is, not how long
//! its address or its count.

use crate::opcode::{Quirks, field, first, second};
use crate::{ExecMode, IpBytes, IpPayload, Packet, Tnt};

/// Whether the byte is a short TNT: even, and neither PAD nor 0x02.
#[inline(always)]
pub(crate) fn is_short_tnt(byte: u8) -> bool {
    (2..0x80).contains(&byte.rotate_right(1))
}

/// Whether all eight bytes are short TNTs.
#[inline(always)]
pub(crate) fn are_short_tnts(word: u64) -> bool {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // At least 4: no carry leaves a byte, as 0x7c + 0x7c < 0x100.
    let large = ((word & 0x7c7c_7c7c_7c7c_7c7c) + 0x7c7c_7c7c_7c7c_7c7c) | word;
    large & !(word << 7) & HIGH == HIGH
}

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
    if is_short_tnt(byte) {
        return taker.take(Packet::Tnt(Tnt::from_short_payload(byte >> 1)), 1);
    }
    match KINDS[usize::from(byte)] {
        Kind::Pad if word != 0 => {
            let run = word.trailing_zeros() / 8;
            taker.take(Packet::Pad { run }, run as usize)
        }
        Kind::Tip => with_ip(word, Packet::Tip, taker),
        Kind::TipPge => with_ip(word, Packet::TipPge, taker),
        Kind::TipPgd => with_ip(word, Packet::TipPgd, taker),
        Kind::Fup => with_ip(word, Packet::Fup, taker),
        Kind::Cyc => taker.take(Packet::Cyc(word >> 3 & 0x1f), 1),
        Kind::LongCyc => long_cyc(word, quirks, taker),
        Kind::Mtc => taker.take(Packet::Mtc((word >> 8) as u8), 2),
        Kind::Tsc => taker.take(Packet::Tsc(word >> 8), 8),
        Kind::Mode => mode((word >> 8) as u8, taker),
        Kind::Extended => extended(word, taker),
        Kind::Pad | Kind::Other => taker.none(),
    }
}

/// What a first byte begins.
#[derive(Clone, Copy)]
enum Kind {
    Pad,
    Tip,
    TipPge,
    TipPgd,
    Fup,
    Cyc,
    LongCyc,
    Mtc,
    Tsc,
    Mode,
    Extended,
    /// A packet that is too long for a word, or none. (Short TNTs are asked for before.)
    Other,
}

static KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = kind(byte as u8);
        byte += 1;
    }
    kinds
};

const fn kind(byte: u8) -> Kind {
    let in_word = LENGTHS >> (4 * (byte >> 5)) & 0xf != 0;
    match (byte & 0x1f, byte) {
        (first::TIP, _) if in_word => Kind::Tip,
        (first::TIP_PGE, _) if in_word => Kind::TipPge,
        (first::TIP_PGD, _) if in_word => Kind::TipPgd,
        (first::FUP, _) if in_word => Kind::Fup,
        (_, first::PAD) => Kind::Pad,
        (_, first::MTC) => Kind::Mtc,
        (_, first::TSC) => Kind::Tsc,
        (_, first::MODE) => Kind::Mode,
        (_, first::EXT) => Kind::Extended,
        _ if byte & 7 == first::CYC => Kind::Cyc,
        _ if byte & 7 == first::CYC_MORE => Kind::LongCyc,
        _ => Kind::Other,
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
    let unused = 64 - 8 * len;
    let bytes = IP_BYTES[(word >> 5 & 7) as usize];
    let value = word << unused >> unused >> 8;
    taker.take(make(IpPayload { bytes, value }), len as usize)
}

/// A CYC of two bytes or more: 5 bits in the first byte, then 7 a byte above a bit that says
/// whether there are more.
#[inline(always)]
fn long_cyc<T: Take>(word: u64, quirks: Quirks, taker: T) -> T::Taken {
    if word & 0x100 == 0 {
        // Erratum SKD007: this may be an OVF.
        if quirks.skd007 && word >> 8 & 0xffff == 0xf302 {
            return taker.none();
        }
        return taker.take(Packet::Cyc(word >> 3 & 0x1f | word >> 4 & 0xfe0), 2);
    }
    let ends = !word & 0x0101_0101_0101_0000;
    if ends == 0 {
        return taker.none();
    }
    let last = ends.trailing_zeros();
    let sevens = (word & (0xff << last | ((1 << last) - 1))) >> 9 & 0x007f_7f7f_7f7f_7f7f;
    // Neighbours joined, three times.
    let joined = sevens & 0x007f_007f_007f_007f | (sevens & 0x7f00_7f00_7f00) >> 1;
    let joined = joined & 0x3fff_0000_3fff | (joined & 0x7f_0000_3fff_0000) >> 2;
    let joined = joined & 0x0fff_ffff | joined >> 32 << 28;
    taker.take(
        Packet::Cyc(word >> 3 & 0x1f | joined << 5),
        1 + (last / 8) as usize,
    )
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
        second::TMA if payload & field::TMA_RESERVED == 0 => {
            let (ctc, fast_counter) = (payload as u16, (payload >> 24) as u16);
            taker.take(Packet::Tma { ctc, fast_counter }, 7)
        }
        second::VMCS => taker.take(Packet::Vmcs((payload & 0xff_ffff_ffff) << 12), 7),
        second::PIP => {
            let (cr3, non_root) = (payload >> 1 << 5, payload & 1 != 0);
            taker.take(Packet::Pip { cr3, non_root }, 8)
        }
        _ => taker.none(),
    }
}
