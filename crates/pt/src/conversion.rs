//! TSC ticks, perf clock, picoseconds, and how they convert.

/// A value of the time-stamp counter, in its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tsc(pub u64);

/// Perf clock (`CLOCK_MONOTONIC`-like `sched_clock` of `perf_event`), in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PerfTime(pub u64);

/// Picoseconds since the capture's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Picos(pub u64);

/// How TSC ticks become perf-clock nanoseconds: the fields of `PERF_RECORD_TIME_CONV`, which are
/// those of `struct perf_event_mmap_page` (`linux/perf_event.h`).
///
/// ns = zero + ticks · mult / 2^shift, modulo 2^64; `zero` is often negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeConv {
    /// `time_shift`; below 64, else it counts as 63.
    pub shift: u16,
    /// `time_mult`. Zero stands for no conversion: a tick is a nanosecond.
    pub mult: u32,
    /// `time_zero`: nanoseconds at tick 0.
    pub zero: u64,
    /// `time_cycles`, used with `cap_user_time_short`.
    pub cycles: u64,
    /// `time_mask`, used with `cap_user_time_short`.
    pub mask: u64,
    /// `zero` is valid.
    pub cap_user_time_zero: bool,
    /// The counter is shorter than 64 bits: `cycles` and `mask` extend it.
    pub cap_user_time_short: bool,
}

/// Fraction bits in which [`TimeConv::picos`] takes ticks: 64 + 16 bits times 32 (`mult`) times 10
/// (1000) still fit into a `u128`.
pub(crate) const TICK_FRACTION: u32 = 16;

const NANO: u128 = 1000;

impl TimeConv {
    /// Ticks that are nanoseconds.
    pub(crate) const IDENTITY: Self = Self {
        shift: 0,
        mult: 1,
        zero: 0,
        cycles: 0,
        mask: 0,
        cap_user_time_zero: true,
        cap_user_time_short: false,
    };

    fn scale(&self) -> (u32, u128) {
        if self.mult == 0 {
            (0, 1)
        } else {
            (u32::from(self.shift).min(63), self.mult.into())
        }
    }

    /// The perf time of a TSC value, rounded down, as the kernel's formula gives it.
    #[must_use]
    pub fn to_perf(&self, tsc: Tsc) -> PerfTime {
        let (shift, mult) = self.scale();
        let ns = (u128::from(self.extend(tsc.0)) * mult) >> shift;
        PerfTime(self.zero.wrapping_add(ns as u64))
    }

    /// The TSC value at a perf time, rounded down: the inverse of [`TimeConv::to_perf`] up to
    /// rounding.
    #[must_use]
    pub fn to_tsc(&self, time: PerfTime) -> Tsc {
        let (shift, mult) = self.scale();
        let ns = u128::from(time.0.wrapping_sub(self.zero));
        Tsc(((ns << shift) / mult) as u64)
    }

    /// Picoseconds from `base` to a tick count with [`TICK_FRACTION`] fraction bits; zero if it
    /// lies before the base.
    pub(crate) fn picos(&self, ticks: u128, base: PerfTime) -> Picos {
        let (shift, mult) = self.scale();
        let whole = (ticks >> TICK_FRACTION) as u64;
        let fraction = ticks & ((1 << TICK_FRACTION) - 1);
        let ticks = u128::from(self.extend(whole)) << TICK_FRACTION | fraction;
        let since_zero = (ticks * (mult * NANO)) >> (shift + TICK_FRACTION);
        // `zero` and `base` are nanoseconds modulo 2^64, and their difference is what counts.
        let from_base = self.zero.wrapping_sub(base.0) as i64;
        let picos = since_zero as i128 + i128::from(from_base) * NANO as i128;
        Picos(u64::try_from(picos.max(0)).unwrap_or(u64::MAX))
    }

    /// The length of a number of ticks with [`TICK_FRACTION`] fraction bits, rounded up.
    pub(crate) fn length(&self, ticks: u128) -> Picos {
        let (shift, mult) = self.scale();
        let ticks = ticks.min(u128::from(u64::MAX) << TICK_FRACTION);
        let product = ticks * (mult * NANO);
        let picos = (product >> (shift + TICK_FRACTION)) + 1;
        Picos(u64::try_from(picos).unwrap_or(u64::MAX))
    }

    fn extend(&self, tsc: u64) -> u64 {
        if self.cap_user_time_short {
            self.cycles
                .wrapping_add(tsc.wrapping_sub(self.cycles) & self.mask)
        } else {
            tsc
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As recorded on a Core m7-6Y75; `zero` is some 32 s before 2^64.
    const SKYLAKE: TimeConv = TimeConv {
        shift: 31,
        mult: 1_789_569_706,
        zero: 18_446_744_041_015_200_657,
        cycles: 0,
        mask: 0,
        cap_user_time_zero: true,
        cap_user_time_short: false,
    };

    #[test]
    fn a_negative_zero_wraps() {
        let tsc = Tsc(0xbc_4cd2_cfe8);
        let time = SKYLAKE.to_perf(tsc);
        // 808,742,735,848 ticks of 0.8333 ns are 673.952 s, less 32.694 s.
        assert_eq!(time.0 / 1_000_000, 641_257);
        assert!(tsc.0 - SKYLAKE.to_tsc(time).0 <= 2);
        let base = PerfTime(time.0 - 5);
        let picos = SKYLAKE.picos(u128::from(tsc.0) << TICK_FRACTION, base);
        assert_eq!(picos.0 / 1000, 5);
        assert_eq!(SKYLAKE.picos(0, base), Picos(0));
    }

    #[test]
    fn a_short_counter_is_extended() {
        let conv = TimeConv {
            shift: 0,
            mult: 1,
            cycles: 0x1_0000_0010,
            mask: 0xffff_ffff,
            cap_user_time_short: true,
            ..SKYLAKE
        };
        let ns = |tsc| conv.to_perf(Tsc(tsc)).0.wrapping_sub(conv.zero);
        assert_eq!(ns(0x20), 0x1_0000_0020);
        assert_eq!(ns(0x08), 0x2_0000_0008);
    }

    #[test]
    fn nonsense_does_not_overflow() {
        let conv = TimeConv {
            shift: u16::MAX,
            mult: u32::MAX,
            ..SKYLAKE
        };
        assert!(conv.to_tsc(PerfTime(u64::MAX)) > conv.to_tsc(PerfTime(conv.zero)));
        assert_eq!(conv.to_perf(Tsc(0)).0, conv.zero);
        let most = u128::from(u64::MAX) << TICK_FRACTION;
        let plain = TimeConv { shift: 0, ..conv };
        assert_eq!(plain.picos(most, PerfTime(0)), Picos(u64::MAX));
        assert_eq!(plain.length(u128::MAX), Picos(u64::MAX));
        let none = TimeConv { mult: 0, ..SKYLAKE };
        assert_eq!(none.to_tsc(none.to_perf(Tsc(7))), Tsc(7));
    }
}
