//! The encoding of each packet (SDM, "Trace Packets and Data Types", the packet definition
//! tables).
//!
//! [`decode`] looks at a window of 16 bytes, as long as the longest packet, and says what begins
//! there; how many of these bytes really belong to the stream is for the caller to check.
//!
//! A one-byte opcode has its low bits fixed; 0x02 leads to a second opcode byte, 0x02 0xc3 to a
//! third. In a block (BBP to BEP) `xxxxx100` is a BIP, elsewhere the same byte is a short TNT.

use crate::{IpBytes, IpPayload, Packet, word};

/// First bytes of one-byte opcodes.
pub(crate) mod first {
    pub(crate) const PAD: u8 = 0x00;
    pub(crate) const EXT: u8 = 0x02;
    pub(crate) const TIP: u8 = 0x0d;
    pub(crate) const TIP_PGE: u8 = 0x11;
    pub(crate) const TIP_PGD: u8 = 0x01;
    pub(crate) const FUP: u8 = 0x1d;
    pub(crate) const TSC: u8 = 0x19;
    pub(crate) const MTC: u8 = 0x59;
    pub(crate) const MODE: u8 = 0x99;
    pub(crate) const TRIG: u8 = 0xd9;
    /// Three bits: CYC of one byte, and longer.
    pub(crate) const CYC: u8 = 0x03;
    pub(crate) const CYC_MORE: u8 = 0x07;
    pub(crate) const BIP: u8 = 0x04;
}

/// Second bytes, behind 0x02.
pub(crate) mod second {
    pub(crate) const CBR: u8 = 0x03;
    pub(crate) const PTW: u8 = 0x12;
    pub(crate) const CFE: u8 = 0x13;
    pub(crate) const PWRE: u8 = 0x22;
    pub(crate) const PSB_END: u8 = 0x23;
    pub(crate) const BEP: u8 = 0x33;
    pub(crate) const PIP: u8 = 0x43;
    pub(crate) const EVD: u8 = 0x53;
    pub(crate) const EXSTOP: u8 = 0x62;
    pub(crate) const BBP: u8 = 0x63;
    pub(crate) const TMA: u8 = 0x73;
    pub(crate) const PSB: u8 = 0x82;
    pub(crate) const TRACE_STOP: u8 = 0x83;
    pub(crate) const PWRX: u8 = 0xa2;
    pub(crate) const TNT_LONG: u8 = 0xa3;
    pub(crate) const MWAIT: u8 = 0xc2;
    pub(crate) const THIRD: u8 = 0xc3;
    pub(crate) const VMCS: u8 = 0xc8;
    pub(crate) const OVF: u8 = 0xf3;
    /// The IP bit of PTW, EXSTOP and BEP.
    pub(crate) const IP: u8 = 0x80;
    /// PTW with an operand of 8 bytes.
    pub(crate) const PTW_WIDE: u8 = 0x32;
}

/// Third byte of MNT, behind 0x02 0xc3.
pub(crate) const MNT: u8 = 0x88;

/// Bit masks and positions inside payloads.
pub(crate) mod field {
    pub(crate) const MODE_TSX: u8 = 0x20;
    pub(crate) const MODE_LEAF: u8 = 0xe0;
    pub(crate) const CS_L: u8 = 1;
    pub(crate) const CS_D: u8 = 2;
    pub(crate) const IF: u8 = 4;
    pub(crate) const IN_TX: u8 = 1;
    pub(crate) const TX_ABORT: u8 = 2;
    /// HW is bit 7 of PWRE's first payload byte; libipt takes bit 3, perf and the SDM's table
    /// "PWRE Packet Definition" say 7.
    pub(crate) const PWRE_HW: u8 = 0x80;
    pub(crate) const TRIG_IP: u8 = 0x80;
    pub(crate) const TRIG_COUNT: u8 = 0x40;
    pub(crate) const TRIG_MULTIPLE: u8 = 0x20;
    pub(crate) const BBP_FOUR: u8 = 0x80;
    pub(crate) const CFE_IP: u8 = 0x80;
    /// Five bits: BIP id, BBP type, CFE type.
    pub(crate) const FIVE: u8 = 0x1f;
    /// EVD type has six bits (SDM table "EVD Packet Definition"; libipt takes five).
    pub(crate) const EVD_KIND: u8 = 0x3f;
    /// TMA payload bits that must be zero: byte 2 and all of bytes 3 and 4 above FC\[8\].
    pub(crate) const TMA_RESERVED: u64 = 0xfe_00ff_0000;
}

/// Whether BIP packets may come, and how long they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    None,
    Four,
    Eight,
}

impl Block {
    /// The state behind a packet. Timing and power packets may stand inside a block, any other
    /// ends it (as perf does; the SDM lists them at "BBP").
    #[inline]
    pub(crate) fn after(self, packet: &Packet) -> Self {
        match packet {
            Packet::Bbp {
                four_bytes: true, ..
            } => Self::Four,
            Packet::Bbp {
                four_bytes: false, ..
            } => Self::Eight,
            Packet::Pad { .. }
            | Packet::Bip { .. }
            | Packet::Tsc(_)
            | Packet::Tma { .. }
            | Packet::TmaInvalid(_)
            | Packet::Mtc(_)
            | Packet::Cyc(_)
            | Packet::Cbr { .. }
            | Packet::Mnt(_)
            | Packet::Exstop { .. }
            | Packet::Pwre { .. }
            | Packet::Pwrx { .. } => self,
            _ => Self::None,
        }
    }
}

/// No packet begins with these bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    /// How many bytes decided that; if they were not all there, the packet may have been cut.
    pub(crate) examined: usize,
}

type Decoded = Result<(Packet, usize), Refused>;

/// `len` bytes (at most 8) at `at`, little-endian.
#[inline(always)]
fn load(window: &[u8; 16], at: usize, len: usize) -> u64 {
    let all = u128::from_le_bytes(*window) >> (8 * at);
    (all as u64) & (u64::MAX >> (64 - 8 * len))
}

/// What a CPU's errata change about packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quirks {
    pub(crate) skd007: bool,
    pub(crate) skz84: bool,
}

/// The packet at the start of `body`, which is not empty, and its length; PSB is the caller's. If
/// there is none: whether one was cut off.
// Not inlined, so that the loop around it stays small.
#[inline(never)]
pub(crate) fn packet(body: &[u8], block: Block, quirks: Quirks) -> Result<(Packet, usize), bool> {
    let mut window = [0; 16];
    match body.first_chunk() {
        Some(whole) => window = *whole,
        None => window[..body.len()].copy_from_slice(body),
    }
    let decoded = match window[0] {
        first::PAD => {
            let run = pads(body);
            Ok((Packet::Pad { run: run as u32 }, run))
        }
        byte if block != Block::None && byte & 7 == first::BIP => Ok(bip(&window, block)),
        _ => {
            let word = load(&window, 0, 8);
            word::packet(word, quirks, Window(&window))
        }
    };
    match decoded.map(|(packet, len)| correct(packet, len, body, quirks)) {
        Ok((packet, len)) if len <= body.len() => Ok((packet, len)),
        Ok(_) => Err(true),
        Err(Refused { examined }) => Err(examined > body.len()),
    }
}

/// Decodes what is longer than a word.
struct Window<'a>(&'a [u8; 16]);

impl word::Take for Window<'_> {
    type Taken = Decoded;

    fn take(self, packet: Packet, len: usize) -> Decoded {
        Ok((packet, len))
    }

    fn none(self) -> Decoded {
        long(self.0)
    }
}

/// The length of the run of PADs at the start of `body`, at most `u32::MAX`.
#[inline]
pub(crate) fn pads(body: &[u8]) -> usize {
    let body = &body[..body.len().min(u32::MAX as usize)];
    let mut run = 0;
    while let Some(line) = body[run..].first_chunk::<64>()
        && *line == [0; 64]
    {
        run += 64;
    }
    while let Some(word) = body[run..].first_chunk() {
        let word = u64::from_le_bytes(*word);
        if word != 0 {
            return run + (word.trailing_zeros() / 8) as usize;
        }
        run += 8;
    }
    run + body[run..].iter().take_while(|byte| **byte == 0).count()
}

/// Applies the errata that change what a packet is.
fn correct(packet: Packet, len: usize, body: &[u8], quirks: Quirks) -> (Packet, usize) {
    match packet {
        Packet::TmaInvalid(_) if quirks.skz84 && len < body.len() => (packet, len + 1),
        // A two-byte CYC whose second byte begins an OVF, and the OVF's second byte. Two CYCs in a
        // row occur only when the counter wraps, and the first is then longer.
        Packet::Cyc(cycles)
            if quirks.skd007
                && len == 2
                && cycles >> 5 == 1
                && body.get(len) == Some(&second::OVF) =>
        {
            (Packet::Ovf, 3)
        }
        _ => (packet, len),
    }
}

fn bip(window: &[u8; 16], block: Block) -> (Packet, usize) {
    let four_bytes = block == Block::Four;
    let size = if four_bytes { 4 } else { 8 };
    let packet = Packet::Bip {
        id: window[0] >> 3,
        payload: load(window, 1, size),
        four_bytes,
    };
    (packet, 1 + size)
}

/// A packet that [`word::packet`] left.
fn long(window: &[u8; 16]) -> Decoded {
    let byte = window[0];
    match byte & 0x1f {
        first::TIP => full_ip(window, Packet::Tip),
        first::TIP_PGE => full_ip(window, Packet::TipPge),
        first::TIP_PGD => full_ip(window, Packet::TipPgd),
        first::FUP => full_ip(window, Packet::Fup),
        _ if byte & 7 == first::CYC_MORE => cyc(window),
        _ => match byte {
            first::EXT => extended(window),
            first::MODE => Err(Refused { examined: 2 }),
            first::TRIG => Ok(trig(window)),
            _ => Err(Refused { examined: 1 }),
        },
    }
}

/// An address of 8 bytes; the other forms left here are reserved.
fn full_ip(window: &[u8; 16], make: impl FnOnce(IpPayload) -> Packet) -> Decoded {
    match IpBytes::from_field(window[0] >> 5) {
        Some(IpBytes::Full) => {
            let value = load(window, 1, 8);
            let bytes = IpBytes::Full;
            Ok((make(IpPayload { bytes, value }), 9))
        }
        _ => Err(Refused { examined: 1 }),
    }
}

/// CYC: 5 bits in the first byte, then 7 a byte. 64 bits fit into 10 bytes (perf reads as many;
/// libipt stops at 9).
fn cyc(window: &[u8; 16]) -> Decoded {
    let mut value = u64::from(window[0] >> 3);
    for (i, byte) in window[1..10].iter().enumerate() {
        let (bits, shift) = (u64::from(byte >> 1), 5 + 7 * i as u32);
        if bits << shift >> shift != bits {
            break;
        }
        value |= bits << shift;
        if byte & 1 == 0 {
            return Ok((Packet::Cyc(value), i + 2));
        }
    }
    Err(Refused { examined: 10 })
}

fn trig(window: &[u8; 16]) -> (Packet, usize) {
    let flags = window[1];
    let counted = flags & field::TRIG_COUNT != 0;
    let packet = Packet::Trig {
        triggers: window[2],
        multiple: flags & field::TRIG_MULTIPLE != 0,
        instructions: counted.then(|| load(window, 3, 2) as u16),
        ip: flags & field::TRIG_IP != 0,
    };
    (packet, if counted { 5 } else { 3 })
}

/// What stands behind 0x02.
fn extended(window: &[u8; 16]) -> Decoded {
    match (window[1], window[2]) {
        // The payload is zero.
        (second::TNT_LONG, _) => Err(Refused { examined: 8 }),
        (second::PSB, _) => Err(cut_psb(window)),
        (second::TMA, _) => Ok((Packet::TmaInvalid(load(window, 2, 5)), 7)),
        (second::THIRD, MNT) => Ok((Packet::Mnt(load(window, 3, 8)), 11)),
        (second::THIRD, _) => Err(Refused { examined: 3 }),
        _ => with_ip(window).or_else(|_| event(window)),
    }
}

/// The packets with an IP bit in their second byte.
fn with_ip(window: &[u8; 16]) -> Decoded {
    let code = window[1];
    let ip = code & second::IP != 0;
    Ok(match code & !second::IP {
        second::PTW => {
            let payload = load(window, 2, 4);
            let wide = false;
            (Packet::Ptw { payload, wide, ip }, 6)
        }
        second::PTW_WIDE => {
            let payload = load(window, 2, 8);
            let wide = true;
            (Packet::Ptw { payload, wide, ip }, 10)
        }
        second::EXSTOP => (Packet::Exstop { ip }, 2),
        second::BEP => (Packet::Bep { ip }, 2),
        _ => return Err(Refused { examined: 2 }),
    })
}

/// Power, block and event trace packets.
fn event(window: &[u8; 16]) -> Decoded {
    let [_, code, a, b, ..] = *window;
    Ok(match code {
        second::MWAIT => {
            let packet = Packet::Mwait {
                hints: a,
                extensions: window[6] & 3,
            };
            (packet, 10)
        }
        second::PWRE => {
            let packet = Packet::Pwre {
                state: b >> 4,
                sub_state: b & 0xf,
                hardware: a & field::PWRE_HW != 0,
            };
            (packet, 4)
        }
        second::PWRX => {
            let packet = Packet::Pwrx {
                last: a >> 4,
                deepest: a & 0xf,
                wake_reason: b & 0xf,
            };
            (packet, 7)
        }
        second::BBP => {
            let packet = Packet::Bbp {
                four_bytes: a & field::BBP_FOUR != 0,
                kind: a & field::FIVE,
            };
            (packet, 3)
        }
        second::CFE => {
            let packet = Packet::Cfe {
                kind: a & field::FIVE,
                vector: b,
                ip: a & field::CFE_IP != 0,
            };
            (packet, 4)
        }
        second::EVD => {
            let packet = Packet::Evd {
                kind: a & field::EVD_KIND,
                payload: load(window, 3, 8),
            };
            (packet, 11)
        }
        _ => return Err(Refused { examined: 2 }),
    })
}

/// Whole PSBs are found before; what begins like one is cut off by whatever breaks the pattern.
fn cut_psb(window: &[u8; 16]) -> Refused {
    let good = window
        .iter()
        .zip(&crate::lexer::PSB)
        .take_while(|(a, b)| a == b)
        .count();
    Refused { examined: good + 1 }
}
