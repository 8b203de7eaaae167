//! What the kernel says of the trace unit: the folder `intel_pt` in sysfs.
//!
//! `type` is the number for `perf_event_attr.type`. `format/TERM` says which bits of `config` a term
//! has (`config:14-17`). `caps/NAME` are hexadecimal without `0x`; those that end in `periods` or
//! `thresholds` are bit masks: bit v is set if the value v may be programmed. An older kernel lacks
//! newer files: missing is unknown, not zero. (`arch/x86/events/intel/pt.c`)

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where sysfs has it.
pub const DEVICES: &str = "/sys/bus/event_source/devices";

/// The trace unit as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmu {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// Bits of `config`, by term: the lowest, and how many.
    pub format: BTreeMap<String, (u32, u32)>,
    /// Capabilities, by name.
    pub caps: BTreeMap<String, u64>,
    /// How many address filters there are.
    pub address_filters: u32,
    /// TSC ticks per tick of the crystal clock, numerator and denominator; `None` if not enumerated.
    pub tsc_per_crystal: Option<(u32, u32)>,
    /// The TSC's frequency in units of the bus clock.
    pub max_non_turbo_ratio: u8,
}

/// Why there is no trace unit to record with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmuError {
    /// The folder is not there.
    #[error(
        "the kernel offers no Intel PT ({} does not exist): no CPU with PT, a virtual machine, or something else had switched PT on when the machine started (`dmesg | grep -i intel_pt`)",
        path.display()
    )]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// sysfs itself is not there.
    #[error(
        "{} does not exist: is sysfs mounted? In a container, `mount -t sysfs sysfs /sys`, or start it with /sys",
        path.display()
    )]
    NoSysfs {
        /// The folder that should be there.
        path: PathBuf,
    },
    /// A file there can't be read or understood.
    #[error("{}: {problem}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

impl Pmu {
    /// Reads the folder `intel_pt` below `devices` (see [`DEVICES`]).
    ///
    /// # Errors
    /// It is not there, or a file in it is no number or no range of bits.
    pub fn read(devices: &Path) -> Result<Self, PmuError> {
        if !devices.is_dir() {
            return Err(PmuError::NoSysfs {
                path: devices.to_owned(),
            });
        }
        let folder = devices.join("intel_pt");
        if !folder.is_dir() {
            return Err(PmuError::Missing { path: folder });
        }
        let read = |name: &str| content(&folder.join(name));
        let kind = read("type")?;
        let kind = kind
            .parse()
            .map_err(|_| unreadable(folder.join("type"), format!("{kind:?} is no number")))?;
        let mut pmu = Self {
            kind,
            ..Self::default()
        };
        for (name, text) in files(&folder.join("format"))? {
            // Bits of config1 and config2 belong to no term of PT.
            if let Some(bits) = bits(&text) {
                pmu.format.insert(name, bits);
            }
        }
        for (name, text) in files(&folder.join("caps"))? {
            let value = u64::from_str_radix(&text, 16).map_err(|_| {
                unreadable(
                    folder.join("caps").join(&name),
                    format!("{text:?} is no hexadecimal number"),
                )
            })?;
            pmu.caps.insert(name, value);
        }
        // The following are not there on older kernels, or without the capability.
        let optional = |name: &str| read(name).unwrap_or_default();
        pmu.address_filters = optional("nr_addr_filters").parse().unwrap_or(0);
        pmu.max_non_turbo_ratio = optional("max_nonturbo_ratio").parse().unwrap_or(0);
        pmu.tsc_per_crystal = optional("tsc_art_ratio")
            .split_once(':')
            .and_then(|(n, d)| {
                let (n, d) = (n.parse().ok()?, d.parse().ok()?);
                (n > 0 && d > 0).then_some((n, d))
            });
        Ok(pmu)
    }

    /// Whether the driver has a term, and its capability is not denied.
    #[must_use]
    pub fn has(&self, term: &str) -> bool {
        let capability = match term {
            "cyc" | "cyc_thresh" | "psb_period" => "psb_cyc",
            "mtc" | "mtc_period" => "mtc",
            "ptw" | "fup_on_ptw" => "ptwrite",
            "pwr_evt" => "power_event_trace",
            "event" => "event_trace",
            "notnt" => "tnt_disable",
            _ => "",
        };
        self.format.contains_key(term) && self.caps.get(capability) != Some(&0)
    }

    /// `config` with a term set to a value; `None` if the term is not there or too narrow.
    #[must_use]
    pub fn with(&self, config: u64, term: &str, value: u64) -> Option<u64> {
        let &(low, width) = self.format.get(term)?;
        let mask = u64::MAX >> (64 - width);
        (value <= mask).then(|| config & !(mask << low) | value << low)
    }

    /// The value nearest to `wanted` that a field may have, by its bit mask; the lower one of two.
    /// `None` if no value may be programmed; `wanted` if the kernel does not say.
    #[must_use]
    pub fn nearest(&self, mask: &str, wanted: u64) -> Option<u64> {
        let Some(&allowed) = self.caps.get(mask) else {
            return Some(wanted);
        };
        (0..16_u64)
            .filter(|value| allowed >> value & 1 == 1)
            .min_by_key(|value| value.abs_diff(wanted))
    }
}

/// `config:3` or `config:14-17`: the lowest bit, and how many.
fn bits(text: &str) -> Option<(u32, u32)> {
    let range = text.strip_prefix("config:")?;
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    let (low, high) = (low.parse().ok()?, high.parse().ok()?);
    (low <= high && high < 64_u32).then(|| (low, high - low + 1))
}

fn files(folder: &Path) -> Result<Vec<(String, String)>, PmuError> {
    let problem = |error: io::Error| unreadable(folder.to_owned(), error.to_string());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(problem)? {
        let entry = entry.map_err(problem)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push((name, content(&entry.path())?));
    }
    files.sort();
    Ok(files)
}

fn content(path: &Path) -> Result<String, PmuError> {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .map_err(|error| unreadable(path.to_owned(), error.to_string()))
}

fn unreadable(path: PathBuf, problem: String) -> PmuError {
    PmuError::Unreadable { path, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bits() {
        assert_eq!(bits("config:10"), Some((10, 1)));
        assert_eq!(bits("config:14-17"), Some((14, 4)));
        assert_eq!(bits("config:0-63"), Some((0, 64)));
        for wrong in [
            "config1:3",
            "config:17-14",
            "config:64",
            "config:",
            "config:-1",
            "",
        ] {
            assert_eq!(bits(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_nearest_allowed_value() {
        let caps = [("mtc_periods".to_owned(), 0x249), ("none".to_owned(), 0)];
        let pmu = Pmu {
            caps: caps.into(),
            ..Pmu::default()
        };
        assert_eq!(pmu.nearest("mtc_periods", 3), Some(3));
        assert_eq!(pmu.nearest("mtc_periods", 4), Some(3));
        assert_eq!(pmu.nearest("mtc_periods", 0), Some(0));
        assert_eq!(pmu.nearest("mtc_periods", 15), Some(9));
        assert_eq!(pmu.nearest("none", 3), None);
        assert_eq!(pmu.nearest("not told", 3), Some(3));
    }
}
