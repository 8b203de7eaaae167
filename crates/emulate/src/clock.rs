//! The virtual clock and the virtual trace unit's constants.
//!
//! One instruction is one core cycle. Core clock and time-stamp counter both run at 2 GHz, so an
//! instruction takes 500 ps. While the program is in the kernel, real time passes, and at least
//! twice [`KERNEL_CROSSING`].

use std::time::Duration;

use ptrail_pt::{CpuId, PtConfig, TimeConv, Tsc, Vendor};

use crate::{Settings, Timing};

/// TSC ticks per nanosecond.
pub const TICKS_PER_NS: u64 = 2;
/// TSC ticks per tick of the crystal clock (25 MHz).
pub const TICKS_PER_CRYSTAL: u64 = 80;
/// An MTC packet every 2^3 crystal ticks: 320 ns.
pub const MTC_FREQ: u8 = 3;
/// Core clock in units of the bus clock (100 MHz), and so is the TSC.
pub const BUS_RATIO: u8 = 20;
/// The least time that a way into or out of the kernel takes: what the kernel changes (mappings,
/// say) then has a time of its own between the code before and the code behind.
pub const KERNEL_CROSSING: Duration = Duration::from_nanos(50);
/// What the clock means, for outputs.
pub const DESCRIPTION: &str =
    "virtual clock: every instruction takes 0.5 ns, a system call its real time (0.1 µs at least)";

/// A Skylake-like client CPU to which no trace erratum applies.
pub const CPU: CpuId = CpuId {
    vendor: Vendor::Intel,
    family: 6,
    model: 0x9e,
    stepping: 9,
};

/// How perf-clock nanoseconds follow from the TSC.
#[must_use]
pub const fn conversion() -> TimeConv {
    TimeConv {
        shift: 31,
        mult: 1 << 30,
        zero: 0,
        cycles: 0,
        mask: 0,
        cap_user_time_zero: true,
        cap_user_time_short: false,
    }
}

/// The settings of the virtual trace unit.
#[must_use]
pub fn pt_config(settings: &Settings) -> PtConfig {
    PtConfig {
        cpu: Some(CPU),
        tsc: true,
        mtc: settings.timing != Timing::Tsc,
        mtc_freq: MTC_FREQ,
        cyc: settings.timing == Timing::Cyc,
        no_return_compression: !settings.return_compression,
        psb_freq: settings.psb_freq,
        tsc_ctc_n: TICKS_PER_CRYSTAL as u32,
        tsc_ctc_d: 1,
        max_non_turbo_ratio: BUS_RATIO,
        ..PtConfig::default()
    }
}

/// The time of the recorded program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VirtualClock {
    tsc: u64,
}

impl VirtualClock {
    /// A clock that stands at the machine's monotonic time, so that virtual times lie near real
    /// ones. It falls behind, as stepping is slower than running.
    pub(crate) fn start() -> Self {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
            .map_or(Duration::ZERO, Duration::from);
        Self {
            tsc: now.as_nanos() as u64 * TICKS_PER_NS,
        }
    }

    pub(crate) fn tsc(&self) -> Tsc {
        Tsc(self.tsc)
    }

    /// Perf-clock nanoseconds.
    pub(crate) fn perf_time(&self) -> u64 {
        self.tsc / TICKS_PER_NS
    }

    /// Instructions execute.
    pub(crate) fn tick(&mut self, instructions: u64) {
        self.tsc += instructions;
    }

    /// Real time passes.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.tsc += time.as_nanos() as u64 * TICKS_PER_NS;
    }
}
