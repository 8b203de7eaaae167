//! From packets to bytes: the lexer's counterpart.
//!
//! The encoder keeps the one piece of state that packets depend on, the last IP, so that addresses
//! come out compressed as a CPU would do it (SDM, "IP Compression").
//!
//! ```
//! use ptrail_pt::{Encoder, Ip};
//!
//! let mut encoder = Encoder::new();
//! encoder.tip_pge(Ip(0x5555_5555_5000));
//! encoder.tip(Ip(0x5555_5555_5010)); // only the low 16 bits differ
//! assert_eq!(encoder.take(), [0x71, 0, 0x50, 0x55, 0x55, 0x55, 0x55, 0x2d, 0x10, 0x50]);
//! ```

use crate::lexer::PSB;
use crate::opcode::{MNT, field, first, second};
use crate::{ExecMode, Ip, IpPayload, LastIp, Packet, Tnt, Tsc};

/// The status packets of a PSB+ (SDM, "PSB+"): state at the PSB, for a decoder that starts there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PsbPlus {
    /// Time-stamp counter.
    pub tsc: Option<Tsc>,
    /// Crystal clock and fast counter (9 bits) that belong to `tsc`.
    pub tma: Option<(u16, u16)>,
    /// Core:bus ratio.
    pub cbr: Option<u8>,
    /// CR3 (low 5 bits zero) and non-root mode.
    pub cr3: Option<(u64, bool)>,
    /// VMCS pointer (low 12 bits zero).
    pub vmcs: Option<u64>,
    /// Code width and RFLAGS.IF.
    pub mode_exec: Option<(ExecMode, bool)>,
    /// In a transaction, aborted.
    pub mode_tsx: Option<(bool, bool)>,
    /// Address of the next instruction; `None`: tracing is off at this PSB, then there is no FUP
    /// and no MODE packet either.
    pub ip: Option<Ip>,
}

/// Writes packets into a buffer of its own.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    out: Vec<u8>,
    last_ip: LastIp,
    taken: u64,
}

impl Encoder {
    /// An encoder at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes written since the last [`Encoder::take`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// Number of bytes written since the last [`Encoder::take`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing was written since the last [`Encoder::take`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Hands out the bytes so far. The last IP and [`Encoder::total`] stay.
    pub fn take(&mut self) -> Vec<u8> {
        self.taken += self.out.len() as u64;
        std::mem::take(&mut self.out)
    }

    /// Forgets all but the first `len` bytes since the last [`Encoder::take`]; `len` must lie between
    /// two packets. The last IP stays: write a whole address next.
    pub fn truncate(&mut self, len: usize) {
        self.out.truncate(len);
    }

    /// Number of bytes written since the start of the stream.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.taken + self.out.len() as u64
    }

    /// The IP compression state.
    #[must_use]
    pub fn last_ip(&self) -> LastIp {
        self.last_ip
    }

    /// Writes a TIP, compressed.
    pub fn tip(&mut self, ip: Ip) {
        let payload = self.last_ip.compress(ip);
        self.ip(first::TIP, payload);
    }

    /// Writes a TIP.PGE, compressed.
    pub fn tip_pge(&mut self, ip: Ip) {
        let payload = self.last_ip.compress(ip);
        self.ip(first::TIP_PGE, payload);
    }

    /// Writes a TIP.PGD, compressed; `None` suppresses the address.
    pub fn tip_pgd(&mut self, ip: Option<Ip>) {
        let payload = ip.map_or(IpPayload::SUPPRESSED, |ip| self.last_ip.compress(ip));
        self.ip(first::TIP_PGD, payload);
    }

    /// Writes a FUP, compressed.
    pub fn fup(&mut self, ip: Ip) {
        let payload = self.last_ip.compress(ip);
        self.ip(first::FUP, payload);
    }

    /// Writes PSB, the status packets and PSBEND, in the order in which Skylake writes them
    /// (MODE, FUP, PIP, VMCS, TSC, TMA, CBR); the SDM leaves the order open.
    ///
    /// The FUP carries the whole address, although IP compression starts from zero: perf resolves
    /// a shorter one against the last IP before the PSB.
    pub fn psb_plus(&mut self, status: &PsbPlus) {
        self.put(&Packet::Psb);
        if let Some(ip) = status.ip {
            if let Some((in_tx, abort)) = status.mode_tsx {
                self.put(&Packet::ModeTsx { in_tx, abort });
            }
            if let Some((mode, interrupts)) = status.mode_exec {
                self.put(&Packet::ModeExec { mode, interrupts });
            }
            self.put(&Packet::Fup(IpPayload::whole(ip)));
        }
        if let Some((cr3, non_root)) = status.cr3 {
            self.put(&Packet::Pip { cr3, non_root });
        }
        if let Some(vmcs) = status.vmcs {
            self.put(&Packet::Vmcs(vmcs));
        }
        if let Some(tsc) = status.tsc {
            self.put(&Packet::Tsc(tsc.0));
        }
        if let Some((ctc, fast_counter)) = status.tma {
            self.put(&Packet::Tma { ctc, fast_counter });
        }
        if let Some(ratio) = status.cbr {
            self.put(&Packet::Cbr { ratio, reserved: 0 });
        }
        self.put(&Packet::PsbEnd);
    }

    /// Writes a packet as it is given, in its shortest form; bits that its encoding has no room
    /// for are dropped. TIP, TIP.PGE, TIP.PGD and FUP update the last IP, PSB resets it.
    pub fn put(&mut self, packet: &Packet) {
        match *packet {
            Packet::Pad { run } => self.out.resize(self.out.len() + run as usize, 0),
            Packet::Psb => {
                self.last_ip.reset();
                self.out.extend_from_slice(&PSB);
            }
            Packet::Tnt(tnt) => self.tnt(tnt),
            Packet::Tip(payload) => self.ip_as_given(first::TIP, payload),
            Packet::TipPge(payload) => self.ip_as_given(first::TIP_PGE, payload),
            Packet::TipPgd(payload) => self.ip_as_given(first::TIP_PGD, payload),
            Packet::Fup(payload) => self.ip_as_given(first::FUP, payload),
            Packet::ModeExec { mode, interrupts } => {
                let width = match mode {
                    ExecMode::Bits16 => 0,
                    ExecMode::Bits32 => field::CS_D,
                    ExecMode::Bits64 => field::CS_L,
                };
                self.out
                    .extend([first::MODE, width | flag(interrupts, field::IF)]);
            }
            Packet::ModeTsx { in_tx, abort } => {
                let bits = flag(in_tx, field::IN_TX) | flag(abort, field::TX_ABORT);
                self.out.extend([first::MODE, field::MODE_TSX | bits]);
            }
            Packet::Tsc(tsc) => {
                self.out.push(first::TSC);
                self.number(tsc, 7);
            }
            Packet::Mtc(ctc) => self.out.extend([first::MTC, ctc]),
            Packet::Cyc(cycles) => self.cyc(cycles),
            Packet::Bip {
                id,
                payload,
                four_bytes,
            } => {
                self.out.push(id << 3 | first::BIP);
                self.number(payload, if four_bytes { 4 } else { 8 });
            }
            Packet::Trig {
                triggers,
                multiple,
                instructions,
                ip,
            } => {
                let flags = flag(ip, field::TRIG_IP)
                    | flag(multiple, field::TRIG_MULTIPLE)
                    | flag(instructions.is_some(), field::TRIG_COUNT);
                self.out.extend([first::TRIG, flags, triggers]);
                if let Some(count) = instructions {
                    self.number(count.into(), 2);
                }
            }
            _ => self.extended(packet),
        }
    }

    /// The packets behind 0x02.
    fn extended(&mut self, packet: &Packet) {
        self.out.push(first::EXT);
        match *packet {
            Packet::PsbEnd => self.out.push(second::PSB_END),
            Packet::TraceStop => self.out.push(second::TRACE_STOP),
            Packet::Ovf => self.out.push(second::OVF),
            Packet::Cbr { ratio, reserved } => self.out.extend([second::CBR, ratio, reserved]),
            Packet::Pip { cr3, non_root } => {
                self.coded(second::PIP, cr3 >> 5 << 1 | u64::from(non_root), 6);
            }
            Packet::Vmcs(pointer) => self.coded(second::VMCS, pointer >> 12, 5),
            Packet::Tma { ctc, fast_counter } => {
                let payload = u64::from(ctc) | u64::from(fast_counter & 0x1ff) << 24;
                self.coded(second::TMA, payload, 5);
            }
            Packet::TmaInvalid(payload) => self.coded(second::TMA, payload, 5),
            Packet::Mnt(payload) => {
                self.out.extend([second::THIRD, MNT]);
                self.number(payload, 8);
            }
            Packet::Ptw { payload, wide, ip } => {
                let (code, len) = if wide {
                    (second::PTW_WIDE, 8)
                } else {
                    (second::PTW, 4)
                };
                self.coded(code | flag(ip, second::IP), payload, len);
            }
            Packet::Exstop { ip } => self.out.push(second::EXSTOP | flag(ip, second::IP)),
            Packet::Bep { ip } => self.out.push(second::BEP | flag(ip, second::IP)),
            _ => self.event(packet),
        }
    }

    /// Power, block and event trace packets.
    fn event(&mut self, packet: &Packet) {
        match *packet {
            Packet::Mwait { hints, extensions } => {
                let payload = u64::from(hints) | u64::from(extensions & 3) << 32;
                self.coded(second::MWAIT, payload, 8);
            }
            Packet::Pwre {
                state,
                sub_state,
                hardware,
            } => {
                let states = state << 4 | sub_state & 0xf;
                self.out
                    .extend([second::PWRE, flag(hardware, field::PWRE_HW), states]);
            }
            Packet::Pwrx {
                last,
                deepest,
                wake_reason,
            } => {
                let states = u64::from(last << 4 | deepest & 0xf);
                self.coded(second::PWRX, states | u64::from(wake_reason & 0xf) << 8, 5);
            }
            Packet::Bbp { four_bytes, kind } => {
                let size = flag(four_bytes, field::BBP_FOUR);
                self.out.extend([second::BBP, size | kind & field::FIVE]);
            }
            Packet::Cfe { kind, vector, ip } => {
                let ip = flag(ip, field::CFE_IP);
                self.out
                    .extend([second::CFE, ip | kind & field::FIVE, vector]);
            }
            Packet::Evd { kind, payload } => {
                self.out.extend([second::EVD, kind & field::EVD_KIND]);
                self.number(payload, 8);
            }
            _ => unreachable!("`put` and `extended` write all other packets"),
        }
    }

    fn coded(&mut self, code: u8, payload: u64, len: usize) {
        self.out.push(code);
        self.number(payload, len);
    }

    fn number(&mut self, value: u64, len: usize) {
        self.out.extend_from_slice(&value.to_le_bytes()[..len]);
    }

    fn tnt(&mut self, tnt: Tnt) {
        if tnt.is_long() {
            self.out.extend([first::EXT, second::TNT_LONG]);
            self.number(tnt.payload(), 6);
        } else {
            self.out.push((tnt.payload() << 1) as u8);
        }
    }

    fn cyc(&mut self, cycles: u64) {
        let mut rest = cycles >> 5;
        let low = (cycles as u8) << 3 | first::CYC;
        self.out.push(low | flag(rest != 0, 4));
        while rest != 0 {
            let bits = (rest as u8) << 1;
            rest >>= 7;
            self.out.push(bits | u8::from(rest != 0));
        }
    }

    fn ip_as_given(&mut self, opcode: u8, payload: IpPayload) {
        self.last_ip.update(payload);
        self.ip(opcode, payload);
    }

    fn ip(&mut self, opcode: u8, payload: IpPayload) {
        self.out.push((payload.bytes as u8) << 5 | opcode);
        self.number(payload.value, payload.bytes.len());
    }
}

fn flag(on: bool, bit: u8) -> u8 {
    if on { bit } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psb_plus_has_the_order_of_the_cpu_and_a_whole_address() {
        let mut encoder = Encoder::new();
        encoder.tip(Ip(0x40_1000));
        encoder.take();
        encoder.psb_plus(&PsbPlus {
            tsc: Some(Tsc(0x0102_0304_0506_0708)),
            tma: Some((0x1234, 0x1ff)),
            cbr: Some(20),
            cr3: Some((0x1fea_1a00, true)),
            vmcs: Some(0xa000),
            mode_exec: Some((ExecMode::Bits64, true)),
            mode_tsx: Some((true, false)),
            ip: Some(Ip(0x40_1000)),
        });
        let status = [
            &[0x99, 0x21, 0x99, 0x05][..],
            &[0x7d, 0, 0x10, 0x40, 0, 0, 0],
            &[0x02, 0x43, 0xa1, 0xa1, 0xfe, 0x01, 0, 0],
            &[0x02, 0xc8, 0x0a, 0, 0, 0, 0],
            &[0x19, 8, 7, 6, 5, 4, 3, 2],
            &[0x02, 0x73, 0x34, 0x12, 0, 0xff, 1],
            &[0x02, 0x03, 20, 0],
            &[0x02, 0x23],
        ]
        .concat();
        assert_eq!(encoder.bytes()[16..], status);
        assert_eq!(encoder.last_ip().get(), Ip(0x40_1000));
        assert_eq!(encoder.total(), 4 + 1 + 16 + status.len() as u64);
    }

    #[test]
    fn psb_plus_without_an_address_has_no_mode_packets() {
        let mut encoder = Encoder::new();
        encoder.psb_plus(&PsbPlus {
            mode_exec: Some((ExecMode::Bits64, true)),
            mode_tsx: Some((true, false)),
            cbr: Some(20),
            ..PsbPlus::default()
        });
        assert_eq!(encoder.bytes()[16..], [0x02, 0x03, 20, 0, 0x02, 0x23]);
    }

    #[test]
    fn addresses_take_the_shortest_form() {
        let mut encoder = Encoder::new();
        let mut size = |ip| {
            let before = encoder.len();
            encoder.fup(Ip(ip));
            encoder.len() - before
        };
        assert_eq!(size(0x1234), 3);
        assert_eq!(size(0x12_3456), 5);
        assert_eq!(size(0x7fff_0012_3456), 7);
        assert_eq!(size(0xffff_ffff_8100_0000), 7);
        assert_eq!(size(0xffff_ffff_8100_0000), 3);
        assert_eq!(size(0x0123_4567_89ab_cdef), 9); // not canonical
        encoder.tip_pgd(None);
        assert_eq!(encoder.bytes().last(), Some(&0x01));
        assert_eq!(encoder.last_ip().get(), Ip(0x0123_4567_89ab_cdef));
    }
}
