//! The loss ledger: what of the trace could not be decoded, why, and how much.
//!
//! Invariant, asserted in every run: bytes decoded + bytes lost = bytes of AUX data.

use crate::{Ip, Picos, TraceOffset};

/// Why a part of the trace is missing or uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// The CPU's internal buffer overflowed (OVF packet).
    Overflow,
    /// The kernel marked AUX data as truncated.
    AuxTruncated,
    /// Another user of the trace unit collided with ours.
    AuxCollision,
    /// A hole between two AUX buffers.
    AuxGap,
    /// perf lost sideband records, so maps or switches may be missing.
    SidebandLost,
    /// No code bytes known at an address the trace went through.
    NoCode,
    /// Bytes that are no packet.
    BadPacket,
    /// Packets and code do not fit together.
    Desync,
    /// Bytes before the first PSB.
    BeforeFirstPsb,
    /// No record tells which thread ran on the CPU.
    Unattributed,
    /// Decoded, but by a guess.
    Guessed,
}

impl LossCause {
    /// The cause's name in outputs, such as `no-code`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::AuxTruncated => "aux-truncated",
            Self::AuxCollision => "aux-collision",
            Self::AuxGap => "aux-gap",
            Self::SidebandLost => "sideband-lost",
            Self::NoCode => "no-code",
            Self::BadPacket => "bad-packet",
            Self::Desync => "desync",
            Self::BeforeFirstPsb => "before-first-psb",
            Self::Unattributed => "unattributed",
            Self::Guessed => "guessed",
        }
    }
}

/// One loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub cause: LossCause,
    /// Trace bytes that were not decoded; 0 if none are missing (an overflow, say).
    pub bytes: u64,
    /// Where in the stream it begins.
    pub offset: TraceOffset,
    /// When it begins.
    pub begin: Picos,
    /// When decoding went on, at or after `begin`.
    pub end: Picos,
    /// The last address reached, if one is known.
    pub ip: Option<Ip>,
    /// One sentence for people: what happened and what to do.
    pub reason: String,
}

/// All losses of a decode, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    losses: Vec<Loss>,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Enters a loss.
    pub fn add(&mut self, loss: Loss) {
        self.losses.push(loss);
    }

    /// Takes over all entries of another ledger, behind its own.
    pub fn append(&mut self, mut other: Self) {
        self.losses.append(&mut other.losses);
    }

    /// The entries.
    #[must_use]
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Whether nothing was lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.losses.is_empty()
    }

    /// Sum of the bytes lost.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.losses.iter().map(|loss| loss.bytes).sum()
    }

    /// Count, bytes and picoseconds per cause, in the order of [`LossCause`].
    #[must_use]
    pub fn by_cause(&self) -> Vec<(LossCause, u64, u64, u64)> {
        let mut sums = std::collections::BTreeMap::<LossCause, (u64, u64, u64)>::new();
        for loss in &self.losses {
            let sum = sums.entry(loss.cause).or_default();
            sum.0 += 1;
            sum.1 += loss.bytes;
            sum.2 += loss.end.0.saturating_sub(loss.begin.0);
        }
        sums.into_iter()
            .map(|(cause, (n, bytes, ps))| (cause, n, bytes, ps))
            .collect()
    }
}
