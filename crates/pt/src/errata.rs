//! What certain CPUs do against the SDM: Intel's specification updates, by the short names that
//! libipt also uses.

use crate::{CpuId, Vendor};

/// The errata of a CPU that change how its trace is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errata {
    /// A PSB+ right before a TIP.PGE may hold a FUP and a MODE.Exec, although tracing is off
    /// (also SKD024, SKL021, KBL021).
    pub bdm70: bool,
    /// A wrong packet may follow a transaction's abort.
    pub bdm64: bool,
    /// An OVF may stand in the place of all but the first byte of a CYC. [`crate::Lexer`] reads
    /// the two as one OVF.
    pub skd007: bool,
    /// A VM entry that switches tracing off may write a surplus FUP.
    pub skd022: bool,
    /// The FUP behind an OVF may be missing.
    pub skd010: bool,
    /// A TIP.PGD may lack its target.
    pub skl014: bool,
    /// An OVF may be followed by a surplus FUP.
    pub apl12: bool,
    /// An OVF may be followed by a TIP.PGD.
    pub apl11: bool,
    /// A CYC right before a PSB may be missing. [`crate::Clock`] measures nothing across it.
    pub skl168: bool,
    /// Under a hypervisor that scales or offsets the TSC, a TMA is corrupt and a byte too long.
    /// [`crate::Lexer`] reads it as [`crate::Packet::TmaInvalid`].
    pub skz84: bool,
}

impl Errata {
    /// The errata of a CPU; `None` if it is not known whether it has any.
    #[must_use]
    pub fn of(cpu: CpuId) -> Option<Self> {
        if cpu.vendor != Vendor::Intel {
            return None;
        }
        let none = Self::default();
        let core = Self {
            bdm70: true,
            skl014: true,
            skd022: true,
            ..none
        };
        Some(match (cpu.family, cpu.model) {
            // Broadwell.
            (6, 0x3d | 0x47 | 0x4f | 0x56) => Self {
                bdm70: true,
                bdm64: true,
                ..none
            },
            // Skylake, Kaby Lake, Coffee Lake, Comet Lake.
            (6, 0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6) => Self {
                skd007: true,
                skd010: true,
                skl168: true,
                ..core
            },
            // Servers from Skylake on.
            (6, 0x55 | 0x6a | 0x6c | 0x8f | 0xad | 0xae | 0xcf) | (0x13, 0x01) => Self {
                skz84: true,
                ..core
            },
            // Cannon Lake, Ice Lake, Tiger Lake, Rocket Lake.
            (6, 0x66 | 0x7d | 0x7e | 0x8c | 0x8d | 0xa7 | 0xa8) => core,
            // Hybrids from Alder Lake on.
            (6, 0x97 | 0x9a | 0xaa | 0xac | 0xb5 | 0xb7 | 0xba | 0xbd | 0xbf) => Self {
                apl11: true,
                ..core
            },
            // Arrow Lake, Panther Lake and Wildcat Lake; Nova Lake.
            (6, 0xc5 | 0xc6 | 0xcc | 0xd5) | (0x12, 0x01 | 0x03) => Self {
                apl11: true,
                ..core
            },
            // Goldmont.
            (6, 0x5c | 0x5f) => Self {
                apl11: true,
                apl12: true,
                ..none
            },
            // Goldmont Plus, Tremont, the E-cores alone.
            (6, 0x7a | 0x86 | 0x96 | 0x9c | 0xaf | 0xb6 | 0xdd) => Self {
                apl11: true,
                ..none
            },
            _ => return None,
        })
    }
}
