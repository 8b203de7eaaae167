//! How a trace was made: the CPU and the settings of its trace unit that a decoder must know.

use crate::Ip;

/// CPU vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Vendor {
    /// Not known, or not Intel.
    #[default]
    Unknown,
    /// GenuineIntel.
    Intel,
}

/// CPU identity, which decides the errata that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct CpuId {
    /// Vendor.
    pub vendor: Vendor,
    /// Display family.
    pub family: u16,
    /// Display model.
    pub model: u8,
    /// Stepping.
    pub stepping: u8,
}

/// Settings of the trace unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PtConfig {
    /// The CPU; `None` if the capture does not say.
    pub cpu: Option<CpuId>,
    /// TSC packets are on.
    pub tsc: bool,
    /// MTC packets are on.
    pub mtc: bool,
    /// MTC period: an MTC every 2^n crystal clocks (IA32_RTIT_CTL.MTCFreq, 0 to 15).
    pub mtc_freq: u8,
    /// CYC packets are on.
    pub cyc: bool,
    /// Return compression is off (IA32_RTIT_CTL.DisRETC).
    pub no_return_compression: bool,
    /// PSB period: a PSB about every 2^(n + 11) bytes (IA32_RTIT_CTL.PSBFreq, 0 to 15).
    pub psb_freq: u8,
    /// TSC ticks per crystal clock, numerator: CPUID 0x15 EBX. 0 if unknown.
    pub tsc_ctc_n: u32,
    /// TSC ticks per crystal clock, denominator: CPUID 0x15 EAX. 0 if unknown.
    pub tsc_ctc_d: u32,
    /// The address ranges outside of which nothing was traced (IA32_RTIT_ADDRn_A and _B with
    /// ADDRn_CFG = 1), first and last address each; all `None` without such filters.
    pub filters: [Option<(Ip, Ip)>; 4],
    /// TSC ticks per bus clock (MSR_PLATFORM_INFO bits 15:8, the maximum non-turbo ratio).
    /// 0 if unknown.
    pub max_non_turbo_ratio: u8,
}

impl PtConfig {
    /// Whether address filters keep code at `ip` out of the trace.
    #[must_use]
    pub fn filters_out(&self, ip: Ip) -> bool {
        let mut ranges = self.filters.iter().flatten().peekable();
        ranges.peek().is_some() && ranges.all(|&(first, last)| ip < first || last < ip)
    }
}
