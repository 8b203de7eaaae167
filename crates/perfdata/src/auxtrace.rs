//! What perf says about the trace unit: `AUXTRACE_INFO`, `TIME_CONV`, `AUXTRACE` and the event's
//! configuration word, in both directions.
//!
//! `PERF_RECORD_AUXTRACE_INFO` (type 70) holds a `u32` kind (1 is Intel PT), a `u32` of zeros, then
//! `u64` words (`tools/perf/util/intel-pt.h`, `INTEL_PT_PMU_TYPE` and following):
//!
//! | word | meaning |
//! | --- | --- |
//! | 0 | PMU type: the event attribute with this type is Intel PT's |
//! | 1–4 | `time_shift`, `time_mult`, `time_zero`, whether `time_zero` is valid |
//! | 5, 6 | bits of the event's `config` that mean TSC on, return compression off |
//! | 7–9 | how context switches were recorded, snapshot mode, one buffer a CPU |
//! | 10, 11 | bits of `config` that mean MTC on, and the MTC period's field |
//! | 12, 13 | TSC ticks per crystal clock, numerator and denominator |
//! | 14, 15 | bit of `config` that means CYC on, maximum non-turbo ratio |
//! | 16 | length of an address filter text that follows; then whether event trace is on |
//!
//! Old perfs wrote fewer words; what is missing counts as zero.

use ptrail_pt::{CpuId, PtConfig, TimeConv, Vendor};

use crate::wire::{Builder, Bytes};

/// PMU type of `intel_pt` in files written here. The kernel numbers PMUs as they register; 8 is
/// what most machines have.
pub(crate) const PMU_TYPE: u32 = 8;

const KIND_INTEL_PT: u32 = 1;

// Bits of the event's config, which are those of IA32_RTIT_CTL
// (`/sys/bus/event_source/devices/intel_pt/format/*`).
const BIT_PT: u64 = 1 << 0;
const BIT_CYC: u64 = 1 << 1;
const BIT_MTC: u64 = 1 << 9;
const BIT_TSC: u64 = 1 << 10;
const BIT_NORETCOMP: u64 = 1 << 11;
const BIT_BRANCH: u64 = 1 << 13;
const BITS_MTC_PERIOD: u64 = 0xf << 14;
const BITS_PSB_PERIOD: u64 = 0xf << 24;

/// `PERF_RECORD_AUXTRACE_INFO` of Intel PT, as far as a decoder needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AuxtraceInfo {
    pub(crate) pmu_type: u32,
    clock: Option<TimeConv>,
    tsc_bit: u64,
    noretcomp_bit: u64,
    mtc_bit: u64,
    mtc_period_bits: u64,
    tsc_ctc_n: u32,
    tsc_ctc_d: u32,
    cyc_bit: u64,
    max_non_turbo_ratio: u8,
    /// The trace data are looks at a ring, which may hold the same again.
    pub(crate) snapshots: bool,
}

impl AuxtraceInfo {
    /// From the record's body; `None` if it describes another trace unit or is cut short.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let mut body = Bytes(body);
        if body.u32()? != KIND_INTEL_PT {
            return None;
        }
        body.u32()?;
        let pmu_type = u32::try_from(body.u64()?).ok()?;
        let mut word = || body.u64().unwrap_or(0);
        let (shift, mult, zero, cap_zero) = (word(), word(), word(), word());
        let (tsc_bit, noretcomp_bit) = (word(), word());
        let (_switches, snapshots, _per_cpu) = (word(), word(), word());
        let (mtc_bit, mtc_period_bits) = (word(), word());
        let (n, d) = (word(), word());
        let (cyc_bit, ratio) = (word(), word());
        Some(AuxtraceInfo {
            pmu_type,
            clock: if cap_zero == 0 {
                None
            } else {
                conversion(shift, mult, zero)
            },
            tsc_bit,
            noretcomp_bit,
            mtc_bit,
            mtc_period_bits,
            tsc_ctc_n: u32::try_from(n).unwrap_or(0),
            tsc_ctc_d: u32::try_from(d).unwrap_or(0),
            cyc_bit,
            max_non_turbo_ratio: u8::try_from(ratio).unwrap_or(0),
            snapshots: snapshots != 0,
        })
    }

    /// The record's body for a per-thread recording with these settings.
    pub(crate) fn write(config: &PtConfig, clock: &TimeConv, snapshots: bool) -> Vec<u8> {
        let mut body = Builder::default();
        body.u32(KIND_INTEL_PT).u32(0).u64s(&[
            PMU_TYPE.into(),
            clock.shift.into(),
            clock.mult.into(),
            clock.zero,
            clock.cap_user_time_zero.into(),
            BIT_TSC,
            BIT_NORETCOMP,
            0, // context switches: none, the stream is one thread's
            snapshots.into(),
            0, // one buffer a CPU
            BIT_MTC,
            BITS_MTC_PERIOD,
            config.tsc_ctc_n.into(),
            config.tsc_ctc_d.into(),
            BIT_CYC,
            config.max_non_turbo_ratio.into(),
            0, // length of the filter text
            0, // event trace
        ]);
        body.0
    }

    /// Settings of the trace unit, given the `config` word of its event.
    pub(crate) fn pt_config(&self, config: u64, cpu: Option<CpuId>) -> PtConfig {
        let period = (config & self.mtc_period_bits)
            .checked_shr(self.mtc_period_bits.trailing_zeros())
            .unwrap_or(0);
        PtConfig {
            cpu,
            tsc: config & self.tsc_bit != 0,
            mtc: config & self.mtc_bit != 0,
            // IA32_RTIT_CTL.MTCFreq has four bits.
            mtc_freq: (period & 0xf) as u8,
            cyc: config & self.cyc_bit != 0,
            no_return_compression: config & self.noretcomp_bit != 0,
            psb_freq: ((config & BITS_PSB_PERIOD) >> BITS_PSB_PERIOD.trailing_zeros()) as u8,
            tsc_ctc_n: self.tsc_ctc_n,
            tsc_ctc_d: self.tsc_ctc_d,
            max_non_turbo_ratio: self.max_non_turbo_ratio,
            ..PtConfig::default()
        }
    }

    /// From TSC to perf clock; `TIME_CONV`, where present, says more.
    pub(crate) fn clock(&self) -> Option<TimeConv> {
        self.clock
    }
}

/// The event's `config` word for these settings.
pub(crate) fn event_config(config: &PtConfig) -> u64 {
    let mut word = BIT_PT | BIT_BRANCH;
    for (on, bit) in [
        (config.tsc, BIT_TSC),
        (config.mtc, BIT_MTC),
        (config.cyc, BIT_CYC),
        (config.no_return_compression, BIT_NORETCOMP),
    ] {
        if on {
            word |= bit;
        }
    }
    for (number, bits) in [
        (config.mtc_freq, BITS_MTC_PERIOD),
        (config.psb_freq, BITS_PSB_PERIOD),
    ] {
        word |= (u64::from(number) << bits.trailing_zeros()) & bits;
    }
    word
}

fn conversion(shift: u64, mult: u64, zero: u64) -> Option<TimeConv> {
    // A shift of 64 and more or a factor of 0 is no clock (`perf_event_mmap_page` in
    // `linux/perf_event.h` has them as u16 and u32; the kernel's shift is below 32).
    let shift = u16::try_from(shift).ok().filter(|&s| s < 64)?;
    let mult = u32::try_from(mult).ok().filter(|&m| m != 0)?;
    Some(TimeConv {
        shift,
        mult,
        zero,
        cycles: 0,
        mask: 0,
        cap_user_time_zero: true,
        cap_user_time_short: false,
    })
}

/// The clock in a `PERF_RECORD_TIME_CONV` (type 79): `u64` shift, mult, zero; since Linux 5.10 also
/// `u64` cycles, mask, `u8` whether zero is valid, `u8` whether cycles and mask are.
pub(crate) fn read_time_conv(body: &[u8]) -> Option<TimeConv> {
    let mut body = Bytes(body);
    let mut clock = conversion(body.u64()?, body.u64()?, body.u64()?)?;
    if let (Some(cycles), Some(mask), Some(cap_zero), Some(cap_short)) =
        (body.u64(), body.u64(), body.u8(), body.u8())
    {
        clock.cycles = cycles;
        clock.mask = mask;
        clock.cap_user_time_zero = cap_zero != 0;
        clock.cap_user_time_short = cap_short != 0;
    }
    Some(clock)
}

/// The body of a `PERF_RECORD_TIME_CONV`.
pub(crate) fn write_time_conv(clock: &TimeConv) -> Vec<u8> {
    let mut body = Builder::default();
    body.u64s(&[
        clock.shift.into(),
        clock.mult.into(),
        clock.zero,
        clock.cycles,
        clock.mask,
    ])
    .u8(clock.cap_user_time_zero.into())
    .u8(clock.cap_user_time_short.into())
    .pad(8);
    body.0
}

/// Bytes of a `PERF_RECORD_AUXTRACE` without the data.
pub(crate) const RECORD_SIZE: u64 = 48;

/// A `PERF_RECORD_AUXTRACE` (type 71), whose data follow the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuxtraceHeader {
    pub(crate) size: u64,
    pub(crate) offset: u64,
    pub(crate) reference: u64,
    pub(crate) index: u32,
    pub(crate) tid: u32,
    /// `u32::MAX` for a thread's stream.
    pub(crate) cpu: u32,
}

impl AuxtraceHeader {
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let mut body = Bytes(body);
        Some(AuxtraceHeader {
            size: body.u64()?,
            offset: body.u64()?,
            reference: body.u64()?,
            index: body.u32()?,
            tid: body.u32()?,
            cpu: body.u32()?,
        })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut body = Builder::default();
        body.u64s(&[self.size, self.offset, self.reference]);
        body.u32(self.index).u32(self.tid).u32(self.cpu).u32(0);
        body.0
    }
}

/// perf's cpuid text (`GenuineIntel,6,85,4`) as numbers.
pub(crate) fn parse_cpuid(text: &str) -> Option<CpuId> {
    let mut parts = text.split(',');
    let vendor = match parts.next()? {
        "GenuineIntel" => Vendor::Intel,
        _ => Vendor::Unknown,
    };
    Some(CpuId {
        vendor,
        family: parts.next()?.parse().ok()?,
        model: parts.next()?.parse().ok()?,
        stepping: parts.next()?.parse().ok()?,
    })
}

/// The cpuid text of a file. A given `cpu` is the trace unit's, and its errata are wanted. Without
/// one the packets have no silicon's faults, so the machine's text is only used if perf knows no
/// fault of that model: perf 6.1 knows one, Goldmont's (model 92) FUPs with the next address.
pub(crate) fn cpuid_text(cpu: Option<CpuId>, machine: &str) -> String {
    match cpu {
        Some(cpu) if parse_cpuid(machine) == Some(cpu) => machine.to_owned(),
        Some(CpuId {
            vendor: Vendor::Intel,
            family,
            model,
            stepping,
        }) => {
            format!("GenuineIntel,{family},{model},{stepping}")
        }
        Some(_) => machine.to_owned(),
        None if machine.starts_with("GenuineIntel,6,92,") => String::new(),
        None => machine.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> PtConfig {
        PtConfig {
            cpu: None,
            tsc: true,
            mtc: true,
            mtc_freq: 9,
            cyc: true,
            no_return_compression: true,
            tsc_ctc_n: 168,
            tsc_ctc_d: 2,
            max_non_turbo_ratio: 21,
            ..PtConfig::default()
        }
    }

    fn clock() -> TimeConv {
        TimeConv {
            shift: 31,
            mult: 1_023_886_000,
            zero: 77,
            cycles: 5,
            mask: u64::MAX >> 8,
            cap_user_time_zero: true,
            cap_user_time_short: true,
        }
    }

    #[test]
    fn settings_come_back() {
        for mask in 0..16u8 {
            let config = PtConfig {
                tsc: mask & 1 != 0,
                mtc: mask & 2 != 0,
                cyc: mask & 4 != 0,
                no_return_compression: mask & 8 != 0,
                mtc_freq: 15 - mask,
                psb_freq: mask,
                ..settings()
            };
            let info = AuxtraceInfo::read(&AuxtraceInfo::write(&config, &clock(), false)).unwrap();
            assert_eq!(info.pt_config(event_config(&config), None), config);
            assert_eq!(info.clock().unwrap().mult, clock().mult);
        }
    }

    #[test]
    fn a_mask_of_zero_has_no_period() {
        let info = AuxtraceInfo {
            pmu_type: 8,
            ..AuxtraceInfo::default()
        };
        // The place of the PSB period is not told by a mask: it is the same everywhere.
        let expected = PtConfig {
            psb_freq: 15,
            ..PtConfig::default()
        };
        assert_eq!(info.pt_config(u64::MAX, None), expected);
    }

    #[test]
    fn the_clock_comes_back_and_the_short_form_is_read() {
        let body = write_time_conv(&clock());
        assert_eq!(body.len(), 48);
        assert_eq!(read_time_conv(&body), Some(clock()));
        let short = read_time_conv(&body[..24]).unwrap();
        assert_eq!(
            (short.shift, short.mult, short.zero),
            (31, 1_023_886_000, 77)
        );
        assert!(short.cap_user_time_zero && !short.cap_user_time_short);
        assert_eq!(read_time_conv(&body[..23]), None);
    }

    #[test]
    fn cpuids() {
        let skylake = CpuId {
            vendor: Vendor::Intel,
            family: 6,
            model: 85,
            stepping: 4,
        };
        assert_eq!(parse_cpuid("GenuineIntel,6,85,4"), Some(skylake));
        assert_eq!(parse_cpuid("GenuineIntel,6,85"), None);
        assert_eq!(
            cpuid_text(Some(skylake), "AuthenticAMD,25,1,1"),
            "GenuineIntel,6,85,4"
        );
        assert_eq!(
            cpuid_text(None, "AuthenticAMD,25,1,1"),
            "AuthenticAMD,25,1,1"
        );
        assert_eq!(cpuid_text(None, "GenuineIntel,6,92,9"), "");
    }
}
