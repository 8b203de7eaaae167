//! TSC ticks per core clock.
//!
//! First from CBR: core clock = CBR · bus clock and TSC = maximum non-turbo ratio · bus clock (SDM,
//! "Tracking Time": P1 / CBR). Then measured, between two edges that a CYC stands right before.

use crate::PtConfig;
use crate::clock::{FRACTION, Ticks};

/// Core clocks that make a measurement: a clock more or less is then a tenth of a percent.
const MEASURE_CYCLES: u64 = 1 << 10;
/// Core clocks after which a measurement begins to forget, so that it follows slow changes.
const FORGET_CYCLES: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Ratio {
    /// P1, the TSC's ratio to the bus clock; 0 if unknown.
    max_non_turbo: u64,
    cbr: u8,
    /// Ticks per core clock.
    ratio: Ticks,
    quality: Quality,
    /// Where the measurement goes on, and the core clocks since then.
    anchor: Option<Ticks>,
    pending: u64,
    /// The measurement so far.
    ticks: Ticks,
    cycles: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quality {
    /// Core clocks are taken for ticks.
    Unknown,
    Nominal,
    Measured,
}

impl Ratio {
    pub(crate) fn new(config: &PtConfig) -> Self {
        Self {
            max_non_turbo: config.max_non_turbo_ratio.into(),
            cbr: 0,
            ratio: 1 << FRACTION,
            quality: Quality::Unknown,
            anchor: None,
            pending: 0,
            ticks: 0,
            cycles: 0,
        }
    }

    /// A CBR packet. In a PSB+ it repeats the state, elsewhere the frequency changed.
    pub(crate) fn cbr(&mut self, cbr: u8, in_psb: bool) {
        if cbr == 0 || in_psb && cbr == self.cbr {
            return;
        }
        self.cbr = cbr;
        self.interrupt();
        (self.ticks, self.cycles) = (0, 0);
        if self.max_non_turbo == 0 {
            (self.ratio, self.quality) = (1 << FRACTION, Quality::Unknown);
        } else {
            self.ratio = (Ticks::from(self.max_non_turbo) << FRACTION) / Ticks::from(cbr);
            self.quality = Quality::Nominal;
        }
    }

    /// A CYC packet.
    pub(crate) fn count(&mut self, cycles: u64) {
        self.pending = self.pending.saturating_add(cycles);
    }

    /// Ticks that so many core clocks take, and how wrong that may be.
    pub(crate) fn ticks(&self, cycles: u64) -> (Ticks, Ticks) {
        let ticks = Ticks::from(cycles).saturating_mul(self.ratio);
        let error = match self.quality {
            // Real ratios lie between a quarter and four.
            Quality::Unknown => ticks.saturating_mul(3),
            Quality::Nominal => ticks >> 6,
            Quality::Measured => ticks >> 8,
        };
        (ticks, error)
    }

    /// The length of a core clock.
    pub(crate) fn cycle(&self) -> Ticks {
        self.ratio
    }

    /// Core clocks were lost or stood still: nothing can be measured across this point.
    pub(crate) fn interrupt(&mut self) {
        self.anchor = None;
        self.pending = 0;
    }

    /// The last CYC was at `at`.
    pub(crate) fn anchor(&mut self, at: Ticks) {
        let ticks = self.anchor.and_then(|anchor| at.checked_sub(anchor));
        if let Some(ticks) = ticks.filter(|ticks| self.is_plausible(*ticks)) {
            self.ticks = self.ticks.saturating_add(ticks);
            self.cycles = self.cycles.saturating_add(self.pending);
            if self.cycles >= MEASURE_CYCLES {
                self.ratio = self.ticks / Ticks::from(self.cycles);
                self.quality = Quality::Measured;
            }
            if self.cycles >= FORGET_CYCLES {
                self.ticks /= 2;
                self.cycles /= 2;
            }
        }
        self.anchor = Some(at);
        self.pending = 0;
    }

    /// Whether the core clocks since the anchor can have taken so long: no core runs at less than
    /// an eighth of the TSC's rate, or more than eight times as fast, unless it slept.
    fn is_plausible(&self, ticks: Ticks) -> bool {
        let cycles = Ticks::from(self.pending) << FRACTION;
        ticks <= cycles * 8 && cycles <= ticks.saturating_mul(8)
    }
}
