//! The clock: from timing packets to time (SDM, "Tracking Time").
//!
//! - **TSC** sets the time. It holds 56 bits; the rest comes from the time before it.
//! - **TMA**, behind it, says at which crystal clock (CTC) that was: the edge `ctc` was
//!   `fast_counter` ticks earlier. From then on CTC and TSC are tied: a crystal clock is n/d ticks.
//! - **MTC** holds 8 bits of the CTC at the moment it changed. The distance from the edge of the
//!   TMA, not from the last MTC, is converted, so that nothing adds up.
//! - **CYC** moves time on by core clocks since the last CYC. It stands right before the packet
//!   whose time it tells, so a TSC or MTC that directly follows happened at the same moment and
//!   corrects the sum.
//! - **CBR** gives the ticks per core clock, maximum non-turbo ratio / CBR, until enough core
//!   clocks between two MTCs (or TSCs, without MTC) have been seen to measure it.
//!
//! Time never goes backwards: a correction that would do so leaves time standing until the true
//! one has caught up, and is counted.
//!
//! ```
//! use ptrail_pt::{Clock, Packet, PerfTime, Picos, PtConfig};
//!
//! let config = PtConfig { cyc: true, max_non_turbo_ratio: 20, ..PtConfig::default() };
//! let mut clock = Clock::new(&config, None, PerfTime(0)); // a tick is a nanosecond
//! for packet in [Packet::Tsc(1_000), Packet::Cbr { ratio: 40, reserved: 0 }, Packet::Cyc(3)] {
//!     clock.eat(&packet);
//! }
//! assert_eq!(clock.now().unwrap().at, Picos(1_001_500)); // 3 core clocks of half a tick
//! ```

use crate::conversion::TICK_FRACTION;
use crate::crystal::Crystal;
use crate::ratio::Ratio;
use crate::{Errata, Packet, PerfTime, Picos, PtConfig, TimeConv, Tsc};

/// Ticks with [`FRACTION`] fraction bits.
pub(crate) type Ticks = u128;

/// Fraction bits of [`Ticks`]: sums of core clocks stay exact to 2^-32 tick each.
pub(crate) const FRACTION: u32 = 32;

const TICK: Ticks = 1 << FRACTION;

/// From this error on, some microseconds, the length of a CYC is not taken for what it seems.
const LONG: Ticks = 1 << (FRACTION + 12);

/// The last tick a [`Tsc`] can hold.
const MAX: Ticks = (u64::MAX as Ticks) << FRACTION;

/// Bits of the counter in a TSC packet.
const TSC_BITS: u32 = 56;

/// A moment and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// The moment of the last timing packet.
    pub at: Picos,
    /// How far the truth may lie from `at`, in either direction; [`u64::MAX`] if nothing is known.
    /// It covers the timing packets themselves; what happens between two of them is the caller's
    /// to bound, who sees both.
    pub error: Picos,
}

/// Keeps the time of one packet stream.
#[derive(Clone, Debug)]
pub struct Clock {
    conv: TimeConv,
    base: PerfTime,
    /// The time of the last timing packet as the packets tell it; it may lie before `shown`.
    raw: Option<Ticks>,
    /// The latest `raw` so far.
    shown: Ticks,
    /// How wrong `raw` may be; `None`: unknown.
    error: Option<Ticks>,
    clamps: u64,
    /// A TSC between the last TSC and its TMA.
    tsc_without_tma: Option<u64>,
    /// Where the bits come from that a TSC packet does not hold.
    tsc_hint: u64,
    crystal: Crystal,
    ratio: Ratio,
    /// The moment of the last CYC.
    cyc_at: Ticks,
    /// How wrong `cyc_at` may be.
    cyc_error: Ticks,
    /// Nothing happened since the last CYC, so it belongs to the next timing packet.
    cyc_fresh: bool,
    in_psb: bool,
    skl168: bool,
}

impl Clock {
    /// A clock for one stream.
    ///
    /// Its picoseconds count from `base`. Without `conv`, a TSC tick is taken for a nanosecond of
    /// perf time.
    #[must_use]
    pub fn new(config: &PtConfig, conv: Option<TimeConv>, base: PerfTime) -> Self {
        let conv = conv.unwrap_or(TimeConv::IDENTITY);
        // A base before tick 0 cannot be right, so nothing is concluded from it.
        let since_zero = base.0.wrapping_sub(conv.zero) as i64;
        let tsc_hint = if since_zero > 0 {
            conv.to_tsc(base).0
        } else {
            0
        };
        Self {
            conv,
            base,
            raw: None,
            shown: 0,
            error: None,
            clamps: 0,
            tsc_without_tma: None,
            tsc_hint,
            crystal: Crystal::new(config),
            ratio: Ratio::new(config),
            cyc_at: 0,
            cyc_error: 0,
            cyc_fresh: false,
            in_psb: false,
            skl168: config
                .cpu
                .and_then(Errata::of)
                .is_some_and(|errata| errata.skl168),
        }
    }

    /// Takes in the next packet of the stream. Every packet must be given, in order; those that do
    /// not bear on time are ignored.
    #[inline]
    pub fn eat(&mut self, packet: &Packet) {
        match *packet {
            Packet::Cyc(cycles) => self.cyc(cycles),
            Packet::Mtc(payload) => self.mtc(payload),
            Packet::Tsc(low) => self.tsc_packet(low),
            Packet::Tma { ctc, fast_counter } => self.tma(ctc, fast_counter),
            Packet::Cbr { ratio, .. } => self.ratio.cbr(ratio, self.in_psb),
            Packet::Pad { .. } | Packet::TmaInvalid(_) => {}
            Packet::Psb => self.psb(),
            Packet::PsbEnd => self.in_psb = false,
            Packet::Ovf => self.ovf(),
            Packet::Exstop { .. } | Packet::Pwrx { .. } => {
                // Core clocks stop in a sleep state, the others go on.
                self.ratio.interrupt();
                self.cyc_fresh = false;
            }
            // The status packets of a PSB+ tell states, not events.
            _ => self.cyc_fresh &= self.in_psb,
        }
    }

    /// Takes in a TNT, TIP, TIP.PGE, TIP.PGD or FUP: the same as [`Clock::eat`], faster.
    #[inline]
    pub fn eat_flow(&mut self) {
        self.cyc_fresh &= self.in_psb;
    }

    /// The moment of the last timing packet; `None` until a TSC has set the time.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Option<Time> {
        let raw = self.raw?;
        let at = self
            .conv
            .picos(self.shown >> (FRACTION - TICK_FRACTION), self.base);
        let error = self.error.map_or(Picos(u64::MAX), |error| {
            let all = error + (self.shown - raw.min(self.shown));
            self.conv.length(all >> (FRACTION - TICK_FRACTION))
        });
        Some(Time { at, error })
    }

    /// The latest time at which the stream may stand: a period after [`Clock::now`] there would be an
    /// MTC. `None` without MTCs.
    #[must_use]
    pub fn latest(&self) -> Option<Picos> {
        let now = self.now().filter(|_| self.crystal.ticks())?;
        let period = self.crystal.period() >> (FRACTION - TICK_FRACTION);
        let ahead = self.conv.length(period).0.saturating_add(now.error.0);
        Some(Picos(now.at.0.saturating_add(ahead)))
    }

    /// The same as [`Clock::now`], in whole ticks.
    #[must_use]
    pub fn tsc(&self) -> Option<Tsc> {
        self.raw.map(|_| Tsc((self.shown >> FRACTION) as u64))
    }

    /// How many corrections would have gone backwards.
    #[must_use]
    pub fn clamps(&self) -> u64 {
        self.clamps
    }

    fn tsc_packet(&mut self, low: u64) {
        let hint = self
            .raw
            .map_or(self.tsc_hint, |raw| (raw >> FRACTION) as u64);
        let tsc = nearest(low, TSC_BITS, hint);
        let at = Ticks::from(tsc) << FRACTION;
        // A TSC outside of a PSB+ often follows a loss of time (sleep, trace off).
        if !self.in_psb {
            self.ratio.interrupt();
        }
        // MTCs measure better: no other packet may come between them and their CYC.
        if self.cyc_fresh && !self.crystal.ticks() {
            self.ratio.anchor(at);
        }
        self.tsc_without_tma = Some(tsc);
        // If nothing is known of the core clocks, the next CYC counts from here at the earliest.
        let exact = self.cyc_fresh || self.error.is_none();
        self.anchor(at, TICK, exact);
    }

    fn tma(&mut self, ctc: u16, fast_counter: u16) {
        if let Some(tsc) = self.tsc_without_tma.take() {
            let edge = tsc.saturating_sub(fast_counter.into());
            self.crystal.align(ctc, Ticks::from(edge) << FRACTION);
        }
    }

    fn mtc(&mut self, payload: u8) {
        let Some(raw) = self.raw else { return };
        let Some(edge) = self.crystal.mtc(payload, raw) else {
            return;
        };
        if self.cyc_fresh {
            self.ratio.anchor(edge.at);
        }
        // Core clocks that were counted beyond the edge were too long.
        let exact = self.cyc_fresh || self.cyc_at > edge.at;
        // Otherwise a TSC set the later time, and an edge before it tells nothing new.
        if edge.at >= raw || exact {
            self.anchor(edge.at, TICK + edge.error, exact);
        }
    }

    /// Sets the time to what a packet says. `exact`: the last CYC was at that moment too.
    fn anchor(&mut self, at: Ticks, error: Ticks, exact: bool) {
        let at = at.min(MAX);
        // Less than a tick is rounding.
        if self.raw.is_some() && at + TICK <= self.shown {
            self.clamps += 1;
        }
        self.raw = Some(at);
        self.shown = self.shown.max(at);
        self.error = Some(error);
        if exact {
            self.cyc_at = at;
            self.cyc_error = error;
        }
        self.cyc_fresh = false;
    }

    fn cyc(&mut self, cycles: u64) {
        self.ratio.count(cycles);
        self.cyc_fresh = true;
        let Some(raw) = self.raw else { return };
        let (length, error) = sure_part(self.ratio.ticks(cycles));
        // It stands behind what set `raw`, so it was not earlier.
        let at = self.cyc_at.saturating_add(length).clamp(raw, MAX);
        self.cyc_at = at;
        self.cyc_error = self.cyc_error.saturating_add(error).min(MAX);
        self.raw = Some(at);
        self.shown = self.shown.max(at);
        self.error = self.error.map(|_| self.cyc_error + self.ratio.cycle());
    }

    fn psb(&mut self) {
        self.in_psb = true;
        if self.skl168 && !self.cyc_fresh {
            // A CYC may have been here; of its core clocks only the length is unknown.
            self.ratio.interrupt();
            self.cyc_fresh = true;
        }
    }

    fn ovf(&mut self) {
        // The CYC before an OVF counts the core clocks lost, but may have wrapped, and MTCs are
        // lost (SDM, "Internal Buffer Overflow"). TSC or MTC sets the time again.
        self.ratio.interrupt();
        self.error = None;
        self.in_psb = false;
        self.cyc_fresh = false;
    }
}

/// A length and how wrong it may be: of a long one, the part that is sure. Time never goes backwards,
/// so after a rest that was taken for too long it would stand still, whatever a TSC says behind it.
fn sure_part((length, error): (Ticks, Ticks)) -> (Ticks, Ticks) {
    if error < LONG {
        return (length, error);
    }
    let sure = length.saturating_sub(error);
    (sure, length.saturating_add(error) - sure)
}

/// The value nearest to `hint` whose low `bits` bits are `low`.
pub(crate) fn nearest(low: u64, bits: u32, hint: u64) -> u64 {
    let span = 1_u64 << bits;
    let near = hint & !(span - 1) | low & (span - 1);
    let ahead = near.wrapping_sub(hint) as i64;
    if ahead > (span / 2) as i64 {
        near.checked_sub(span).unwrap_or(near)
    } else if ahead < -((span / 2) as i64) {
        near.checked_add(span).unwrap_or(near)
    } else {
        near
    }
}
