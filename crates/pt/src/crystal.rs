//! The crystal clock (CTC): where its edges lie on the TSC's time line.
//!
//! An MTC holds bits `mtc_freq + 7 … mtc_freq` of the CTC (SDM, "Mini Time Counter (MTC) Packet");
//! those below are zero at that moment. A TMA holds bits 15:0. With MTC periods above 2^8 a TMA
//! lacks bits that an MTC has; they come from the first MTC behind it.

use crate::PtConfig;
use crate::clock::{FRACTION, Ticks};

/// Crystal clocks (about 12 hours) beyond which a tie is renewed, or given up; keeps
/// [`Crystal::length`] within range.
const FAR: u64 = 1 << 40;

/// An edge that an MTC told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// When it was.
    pub(crate) at: Ticks,
    /// How well the crystal is tied to the TSC.
    pub(crate) error: Ticks,
}

/// The tie between crystal clock and TSC.
#[derive(Clone, Copy, Debug)]
struct Tie {
    /// Count at the tie, and the time of its edge.
    count: u64,
    at: Ticks,
    error: Ticks,
    /// The latest count seen; only its low `bits` bits are true.
    last: u64,
    bits: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Crystal {
    freq: u32,
    n: u64,
    d: u64,
    enabled: bool,
    tie: Option<Tie>,
}

impl Crystal {
    pub(crate) fn new(config: &PtConfig) -> Self {
        Self {
            freq: u32::from(config.mtc_freq.min(15)),
            n: config.tsc_ctc_n.into(),
            d: config.tsc_ctc_d.into(),
            enabled: config.mtc && config.tsc_ctc_n != 0 && config.tsc_ctc_d != 0,
            tie: None,
        }
    }

    /// Whether MTCs move time on.
    pub(crate) fn ticks(&self) -> bool {
        self.enabled && self.tie.is_some()
    }

    /// From one MTC to the next.
    pub(crate) fn period(&self) -> Ticks {
        self.length(1 << self.freq)
    }

    /// A TMA: the edge `ctc` was at `at`.
    pub(crate) fn align(&mut self, ctc: u16, at: Ticks) {
        let count = ctc.into();
        self.tie = Some(Tie {
            count,
            at,
            error: 0,
            last: count,
            bits: 16,
        });
    }

    /// An MTC at a time not much before `now`. `None` if it can't be placed: the ratio of the
    /// clocks is unknown.
    pub(crate) fn mtc(&mut self, payload: u8, now: Ticks) -> Option<Edge> {
        if !self.enabled {
            return None;
        }
        let top = self.freq + 8;
        let low = u64::from(payload) << self.freq;
        if let Some(mut tie) = self.tie
            && let Some(count) = self.extend(&tie, low, now)
        {
            let edge = Edge {
                at: self.place(&tie, count),
                error: tie.error,
            };
            // From here on the count's low bits are the MTC's, and the edge stays where it is.
            let shift = low.wrapping_sub(count) & ((1 << top) - 1);
            tie.count += shift;
            tie.last = count + shift;
            tie.bits = top;
            if tie.last - tie.count > FAR {
                (tie.count, tie.at) = (tie.last, edge.at);
            }
            self.tie = Some(tie);
            return Some(edge);
        }
        // Without a TMA the first MTC ties the clocks: its edge was between the last TSC and now,
        // at most a period off.
        let error = self.period();
        self.tie = Some(Tie {
            count: low,
            at: now,
            error,
            last: low,
            bits: top,
        });
        Some(Edge { at: now, error })
    }

    /// The count whose known bits are those of `low`: the next after the last one, or, if more
    /// MTCs were lost than their 8 bits can count, the next that is not well before `now`. `None`
    /// if it is absurdly far away.
    fn extend(&self, tie: &Tie, low: u64, now: Ticks) -> Option<u64> {
        let known = tie.bits.min(self.freq + 8);
        let count = tie.last + (low.wrapping_sub(tie.last) & ((1 << known) - 1));
        let late = now.saturating_sub(self.period());
        let behind = late.saturating_sub(self.place(tie, count));
        let wraps = behind.div_ceil(self.length(1 << known));
        (wraps < Ticks::from(FAR >> known)).then(|| count + ((wraps as u64) << known))
    }

    fn place(&self, tie: &Tie, count: u64) -> Ticks {
        tie.at.saturating_add(self.length(count - tie.count))
    }

    /// The length of a number of crystal clocks.
    fn length(&self, count: u64) -> Ticks {
        ((Ticks::from(count) * Ticks::from(self.n)) << FRACTION) / Ticks::from(self.d)
    }
}
