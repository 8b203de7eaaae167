//! The packets of Intel PT (SDM, "Trace Packets and Data Types"), by their SDM names.

use crate::IpPayload;

/// Position of a byte in a trace stream, counted from the start of that stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TraceOffset(pub u64);

/// Most conditional branches a short TNT packet holds.
pub const TNT_SHORT_MAX: u8 = 6;
/// Most conditional branches a long TNT packet holds.
pub const TNT_LONG_MAX: u8 = 47;

/// Outcomes of conditional branches and compressed returns, oldest first.
///
/// Held as in the packet, in one word: below the stop bit the outcomes, and the top bit for the
/// long form.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tnt(u64);

const TNT_LONG: u64 = 1 << 63;

impl Tnt {
    /// A short packet of `len` outcomes (1 to 6); the oldest is bit `len - 1`.
    ///
    /// # Panics
    /// If `len` is out of range.
    #[inline]
    #[must_use]
    pub const fn short(bits: u64, len: u8) -> Self {
        assert!(len >= 1 && len <= TNT_SHORT_MAX);
        Self((1 << len) | bits & ((1 << len) - 1))
    }

    /// A long packet of `len` outcomes (0 to 47); the oldest is bit `len - 1`.
    ///
    /// # Panics
    /// If `len` is out of range.
    #[inline]
    #[must_use]
    pub const fn long(bits: u64, len: u8) -> Self {
        assert!(len <= TNT_LONG_MAX);
        Self(TNT_LONG | (1 << len) | bits & ((1 << len) - 1))
    }

    /// From the payload of a short packet: 1 to 6 outcomes below a stop bit.
    #[inline]
    pub(crate) const fn from_short_payload(payload: u8) -> Self {
        debug_assert!(payload >= 2 && payload < 0x80);
        Self(payload as u64)
    }

    /// From the payload of a long packet, which has 48 bits and is not zero.
    #[inline]
    pub(crate) const fn from_long_payload(payload: u64) -> Self {
        debug_assert!(payload != 0 && payload >> 48 == 0);
        Self(TNT_LONG | payload)
    }

    /// The outcomes below a stop bit, as the packet holds them: cheaper than [`Tnt::bits`] and
    /// [`Tnt::len`].
    #[inline]
    #[must_use]
    pub const fn payload(self) -> u64 {
        self.0 & !TNT_LONG
    }

    /// The outcomes; bit `len - 1` is the oldest, bit 0 the newest.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.payload() ^ (1 << self.len())
    }

    /// How many outcomes there are.
    #[inline]
    #[must_use]
    pub const fn len(self) -> u8 {
        63 - self.payload().leading_zeros() as u8
    }

    /// Whether there is no outcome (a long packet may be empty).
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether it stands in the long form.
    #[inline]
    #[must_use]
    pub const fn is_long(self) -> bool {
        self.0 & TNT_LONG != 0
    }
}

impl std::fmt::Debug for Tnt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_long() { "TntLong(" } else { "Tnt(" })?;
        for i in (0..self.len()).rev() {
            f.write_str(if self.bits() >> i & 1 == 1 { "!" } else { "." })?;
        }
        f.write_str(")")
    }
}

/// Width of code: the CS.L and CS.D bits of MODE.Exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecMode {
    /// CS.L = 0, CS.D = 0.
    Bits16,
    /// CS.L = 0, CS.D = 1.
    Bits32,
    /// CS.L = 1 (and EFER.LMA), CS.D = 0.
    Bits64,
}

/// One packet. Fields carry the payload as the SDM defines it, zero-extended.
// A tag of a whole word: three words that are written and copied as words. With a byte for a tag,
// copies straddle what was just written, and each packet waits for its own stores (four times
// slower).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u64)]
pub enum Packet {
    /// Padding; the lexer joins a run of them into one, `run` bytes long (at least 1).
    Pad {
        /// Number of PAD bytes.
        run: u32,
    },
    /// Packet stream boundary: a fresh start for the decoder.
    Psb,
    /// End of the status packets that follow PSB (or OVF).
    PsbEnd,
    /// Conditional branch outcomes.
    Tnt(Tnt),
    /// Target of an indirect branch, return, interrupt or far transfer.
    Tip(IpPayload),
    /// Packet generation enabled; first traced address.
    TipPge(IpPayload),
    /// Packet generation disabled; the address is often suppressed.
    TipPgd(IpPayload),
    /// Flow update: an address that the flow does not tell.
    ///
    /// What it belongs to stands before it (SDM, "Flow Update (FUP) Packet"): a BEP, CFE, EXSTOP,
    /// MWAIT, PTW or TRIG whose IP bit is set takes the next FUP; so do a MODE.TSX, an OVF (where
    /// tracing goes on) and a PSB (the current address). Any other FUP is the source of an
    /// asynchronous event whose target is the TIP or TIP.PGD behind it.
    Fup(IpPayload),
    /// Paging information: CR3 changed.
    Pip {
        /// CR3 with the low 5 bits zero.
        cr3: u64,
        /// Non-root (VMX guest) mode.
        non_root: bool,
    },
    /// Execution mode changed.
    ModeExec {
        /// Code width.
        mode: ExecMode,
        /// RFLAGS.IF (valid with event trace).
        interrupts: bool,
    },
    /// Transactional state changed.
    ModeTsx {
        /// A transaction is running.
        in_tx: bool,
        /// A transaction was aborted.
        abort: bool,
    },
    /// Tracing stopped by a TraceStop region.
    TraceStop,
    /// Core:bus ratio: core clock in units of the bus clock.
    Cbr {
        /// The ratio.
        ratio: u8,
        /// The reserved byte behind it, kept so that a stream can be written back.
        reserved: u8,
    },
    /// The low 7 bytes of the time-stamp counter.
    Tsc(u64),
    /// Alignment of TSC and crystal clock.
    Tma {
        /// Low 16 bits of the crystal clock (always-running timer).
        ctc: u16,
        /// 9 bits: TSC ticks since that crystal clock edge.
        fast_counter: u16,
    },
    /// Mini time counter: 8 bits of the crystal clock.
    Mtc(u8),
    /// Core clock cycles since the last CYC.
    Cyc(u64),
    /// VMCS pointer with the low 12 bits zero.
    Vmcs(u64),
    /// Internal buffer overflow: packets were lost.
    Ovf,
    /// Maintenance (model specific).
    Mnt(u64),
    /// PTWRITE operand.
    Ptw {
        /// The operand, zero-extended.
        payload: u64,
        /// It is 8 bytes, not 4.
        wide: bool,
        /// A FUP with the instruction's address follows.
        ip: bool,
    },
    /// Execution stopped (sleep state).
    Exstop {
        /// A FUP with the address follows.
        ip: bool,
    },
    /// MWAIT executed.
    Mwait {
        /// Hints (EAX bits 7:0).
        hints: u8,
        /// Extensions (ECX bits 1:0).
        extensions: u8,
    },
    /// Power state entry.
    Pwre {
        /// Resolved thread C-state.
        state: u8,
        /// Resolved thread C sub-state.
        sub_state: u8,
        /// Entered by hardware, not by MWAIT.
        hardware: bool,
    },
    /// Power state exit.
    Pwrx {
        /// Last core C-state.
        last: u8,
        /// Deepest core C-state.
        deepest: u8,
        /// Wake reason bits 3:0.
        wake_reason: u8,
    },
    /// Begin of a block of BIP packets.
    Bbp {
        /// SZ bit: items are 4 bytes (else 8).
        four_bytes: bool,
        /// Block type, 5 bits.
        kind: u8,
    },
    /// Item of a block.
    Bip {
        /// The item, zero-extended.
        payload: u64,
        /// Item identifier, 5 bits.
        id: u8,
        /// It is 4 bytes long (else 8), as the BBP before it says.
        four_bytes: bool,
    },
    /// End of a block of BIP packets.
    Bep {
        /// A FUP with the address follows.
        ip: bool,
    },
    /// Control flow event (event trace).
    Cfe {
        /// Event type, 5 bits.
        kind: u8,
        /// Vector or similar.
        vector: u8,
        /// A FUP with the address follows.
        ip: bool,
    },
    /// Event data (event trace).
    Evd {
        /// Data type, 6 bits.
        kind: u8,
        /// The data.
        payload: u64,
    },
    /// Trigger: a trigger input fired (trigger tracing).
    Trig {
        /// Trigger bit vector: which inputs fired.
        triggers: u8,
        /// More than one fired since the last such packet.
        multiple: bool,
        /// Instructions retired between the last packet that fixes the flow and the trigger, if
        /// the packet says.
        instructions: Option<u16>,
        /// A FUP with the address follows.
        ip: bool,
    },
    /// A TMA whose reserved bits are set: erratum SKZ84 (TSC scaling or offsetting by a
    /// hypervisor spoils it). It tells nothing; the 5 payload bytes are kept so that the stream
    /// can be written back.
    TmaInvalid(u64),
}
