//! What this machine and this process may do, as far as files tell: `/proc` and `/sys` below a root, so
//! that copies of them will do for tests.

use std::fs;
use std::path::Path;

use crate::pmu::{Pmu, PmuError};

/// `CAP_SYS_PTRACE`.
const CAP_SYS_PTRACE: u32 = 19;
/// `CAP_SYS_ADMIN`.
const CAP_SYS_ADMIN: u32 = 21;
/// `CAP_IPC_LOCK`.
const CAP_IPC_LOCK: u32 = 14;
/// `CAP_PERFMON`.
const CAP_PERFMON: u32 = 38;

/// See the module. `None` where a file does not tell.
#[derive(Debug)]
pub struct Facts {
    /// The trace unit.
    pub pmu: Result<Pmu, PmuError>,
    /// The CPU's vendor, such as `GenuineIntel`.
    pub vendor: String,
    /// The CPU's name.
    pub cpu: String,
    /// The CPU says that it has PT.
    pub has_pt: bool,
    /// The machine is a virtual one.
    pub is_virtual: bool,
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that are online.
    pub cpus: u32,
    /// `kernel.perf_event_paranoid`.
    pub paranoid: Option<i32>,
    /// `kernel.perf_event_mlock_kb`.
    pub mlock_kb: Option<u64>,
    /// RLIMIT_MEMLOCK, bytes; `None`: unlimited, or not told.
    pub memlock: Option<u64>,
    /// Effective user id.
    pub user: Option<u32>,
    /// Effective capabilities.
    pub capabilities: u64,
    /// A seccomp filter is in force.
    pub seccomp: bool,
    /// It is a container, by its marks.
    pub container: bool,
    /// The kernel's lockdown, such as `integrity`; `none` if off.
    pub lockdown: Option<String>,
    /// `kernel.yama.ptrace_scope`.
    pub ptrace_scope: Option<u32>,
    /// The kernel has uprobes.
    pub uprobes: bool,
    /// tracefs is mounted and can be read.
    pub tracefs: bool,
    /// KVM gives PT to its guests (`pt_mode`).
    pub kvm_pt_mode: Option<u32>,
}

impl Facts {
    /// Reads them below a root, which is `/` except in tests.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        let word = |path: &str| text(path).map(|text| text.trim().to_owned());
        let cpuinfo = text("proc/cpuinfo").unwrap_or_default();
        let status = text("proc/self/status").unwrap_or_default();
        let flags = field(&cpuinfo, "flags").unwrap_or_default();
        let has_flag = |flag: &str| flags.split(' ').any(|word| word == flag);
        let devices = root.join("sys/bus/event_source/devices");
        let status_number = |key: &str, radix: u32| {
            let value = field(&status, key)?;
            let value = value.split_whitespace().next()?.to_owned();
            u64::from_str_radix(&value, radix).ok()
        };
        Self {
            pmu: Pmu::read(&devices),
            vendor: field(&cpuinfo, "vendor_id").unwrap_or_default(),
            cpu: field(&cpuinfo, "model name").unwrap_or_default(),
            has_pt: has_flag("intel_pt"),
            is_virtual: has_flag("hypervisor"),
            kernel: word("proc/sys/kernel/osrelease").unwrap_or_default(),
            cpus: cpuinfo.matches("processor\t").count().max(1) as u32,
            paranoid: word("proc/sys/kernel/perf_event_paranoid").and_then(|w| w.parse().ok()),
            mlock_kb: word("proc/sys/kernel/perf_event_mlock_kb").and_then(|w| w.parse().ok()),
            memlock: text("proc/self/limits").as_deref().and_then(memlock),
            user: field(&status, "Uid").and_then(|ids| {
                let effective = ids.split_whitespace().nth(1)?;
                effective.parse().ok()
            }),
            capabilities: status_number("CapEff", 16).unwrap_or(0),
            seccomp: status_number("Seccomp", 10) == Some(2),
            container: ["run/.containerenv", ".dockerenv"]
                .iter()
                .any(|mark| root.join(mark).exists()),
            lockdown: word("sys/kernel/security/lockdown").and_then(|modes| {
                let chosen = modes.split(['[', ']']).nth(1)?;
                Some(chosen.to_owned())
            }),
            ptrace_scope: word("proc/sys/kernel/yama/ptrace_scope").and_then(|w| w.parse().ok()),
            uprobes: devices.join("uprobe/type").exists(),
            tracefs: ["sys/kernel/tracing", "sys/kernel/debug/tracing"]
                .iter()
                .any(|folder| fs::read_dir(root.join(folder).join("events")).is_ok()),
            kvm_pt_mode: word("sys/module/kvm_intel/parameters/pt_mode")
                .and_then(|word| word.parse().ok()),
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    /// May use everything of perf.
    #[must_use]
    pub fn may_perf(&self) -> bool {
        self.has(CAP_PERFMON) || self.has(CAP_SYS_ADMIN)
    }

    /// May do what only administrators may.
    #[must_use]
    pub fn may_admin(&self) -> bool {
        self.has(CAP_SYS_ADMIN)
    }

    /// May trace other users' processes.
    #[must_use]
    pub fn may_ptrace(&self) -> bool {
        self.has(CAP_SYS_PTRACE)
    }

    /// How much memory all rings may have together, bytes; `None`: no limit.
    ///
    /// What a user's rings exceed `perf_event_mlock_kb` for each CPU counts as locked memory of the
    /// process (`perf_mmap` in `kernel/events/core.c`).
    #[must_use]
    pub fn ring_limit(&self) -> Option<u64> {
        if self.has(CAP_IPC_LOCK) || self.paranoid == Some(-1) {
            return None;
        }
        let of_user = self.mlock_kb? * 1024 * u64::from(self.cpus);
        Some(of_user.saturating_add(self.memlock?))
    }

    /// `perf_event_mlock_kb` with which rings of so many bytes are allowed.
    #[must_use]
    pub fn mlock_kb_for(&self, bytes: u64) -> u64 {
        let rest = bytes.saturating_sub(self.memlock.unwrap_or(0));
        rest.div_ceil(1024 * u64::from(self.cpus)).max(516)
    }
}

/// The first `key : value` of a text.
fn field(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// `Max locked memory         8388608              8388608              bytes`
fn memlock(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A machine with a Skylake's trace unit and an ordinary user.
    pub(crate) fn user() -> Facts {
        let mut facts = Facts::read(Path::new("/nonexistent"));
        facts.pmu = Ok(Pmu {
            kind: 8,
            ..Pmu::default()
        });
        facts.vendor = "GenuineIntel".into();
        facts.cpu = "Intel(R) Core(TM) i7-6700".into();
        facts.has_pt = true;
        facts.kernel = "6.1.0".into();
        facts.cpus = 8;
        facts.paranoid = Some(2);
        facts.mlock_kb = Some(516);
        facts.memlock = Some(8 << 20);
        facts.user = Some(1000);
        facts.ptrace_scope = Some(1);
        facts.uprobes = true;
        facts
    }

    #[test]
    fn files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let cpu = "vendor_id\t: GenuineIntel\nmodel name\t: Some CPU\nflags\t\t: fpu intel_pt hypervisor\n\n";
        write(
            "proc/cpuinfo",
            &format!("processor\t: 0\n{cpu}processor\t: 1\n{cpu}"),
        );
        write(
            "proc/self/status",
            "Name:\tx\nUid:\t0\t1000\t0\t0\nCapEff:\t0000004000000000\nSeccomp:\t2\nSeccomp_filters:\t1\n",
        );
        write(
            "proc/self/limits",
            "Limit   Soft   Hard  Units\nMax locked memory         65536                131072               bytes     \n",
        );
        write("proc/sys/kernel/perf_event_paranoid", "-1\n");
        write("proc/sys/kernel/perf_event_mlock_kb", "516\n");
        write(
            "sys/kernel/security/lockdown",
            "none [integrity] confidentiality\n",
        );
        let facts = Facts::read(folder.path());
        assert_eq!(
            (facts.cpus, facts.has_pt, facts.is_virtual),
            (2, true, true)
        );
        assert_eq!((facts.user, facts.seccomp), (Some(1000), true));
        assert!(facts.may_perf() && !facts.may_admin());
        assert_eq!((facts.paranoid, facts.memlock), (Some(-1), Some(65536)));
        assert_eq!(facts.lockdown.as_deref(), Some("integrity"));
        assert!(matches!(facts.pmu, Err(PmuError::NoSysfs { .. })));
    }

    /// With 8 MiB of RLIMIT_MEMLOCK and 2 CPUs a kernel allowed 8 MiB + 1,032 KiB together.
    #[test]
    fn rings_have_a_limit_for_all_cpus_and_all_rings_of_a_user() {
        let facts = Facts { cpus: 2, ..user() };
        let limit = (8 << 20) + 1032 * 1024;
        assert_eq!(facts.ring_limit(), Some(limit));
        assert_eq!(facts.mlock_kb_for(limit), 516);
        assert_eq!(facts.mlock_kb_for(limit + 1), 517);
        for unlimited in [
            Facts {
                paranoid: Some(-1),
                ..user()
            },
            Facts {
                capabilities: 1 << CAP_IPC_LOCK,
                ..user()
            },
        ] {
            assert_eq!(unlimited.ring_limit(), None);
        }
        let perfmon = Facts {
            capabilities: 1 << CAP_PERFMON,
            ..user()
        };
        assert!(perfmon.ring_limit().is_some());
    }
}
