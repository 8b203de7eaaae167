//! What the kernel means when it refuses, and what to do: an error number means different things by what
//! was asked and by what this process may do.

use std::fmt;

use crate::facts::Facts;

// include/uapi/asm-generic/errno-base.h, errno.h
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const E2BIG: i32 = 7;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;

/// What was asked of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The trace unit's event.
    Trace {
        /// The kernel's code too.
        kernel: bool,
        /// For all that runs on a CPU.
        cpu_wide: bool,
    },
    /// An execute breakpoint.
    Breakpoint {
        /// Its address.
        address: u64,
    },
    /// A uprobe.
    Uprobe,
    /// A tracepoint.
    Tracepoint,
    /// The event that only carries the sideband.
    Sideband {
        /// For all that runs on a CPU.
        cpu_wide: bool,
    },
    /// Memory for rings, bytes in all.
    Ring {
        /// Bytes.
        bytes: u64,
    },
    /// An address filter.
    Filter,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was refused, and why.
    pub why: String,
    /// What to do about it.
    pub cure: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.why, self.cure)
    }
}

impl std::error::Error for Refusal {}

/// What an error number means.
#[must_use]
pub fn explain(asked: Asked, errno: i32, facts: &Facts) -> Refusal {
    let what = asked.name();
    let (why, cure) = match (errno, asked) {
        (EACCES, _) => access(asked, facts),
        (EPERM, Asked::Ring { bytes }) => ring_limit(bytes, facts),
        (EPERM, _) => forbidden(asked, facts),
        (EBUSY, Asked::Trace { cpu_wide, .. }) => (
            format!(
                "the trace unit is in use ({})",
                if cpu_wide {
                    "another recording of a thread, or of this CPU"
                } else {
                    "another recording of this thread, or of whole CPUs"
                }
            ),
            "End the other recording (`pgrep -a 'perf|ptrail'` finds it)".into(),
        ),
        (ENOSPC, Asked::Breakpoint { .. }) => (
            "all four debug registers are in use, on this CPU or for this thread".into(),
            "Give fewer --trigger places at once (inlined functions have many), or end debuggers that \
             watch this process; as root, uprobe:PATH:SYMBOL needs no debug register"
                .into(),
        ),
        (EMFILE | ENFILE, _) => (
            "too many open files: each thread and CPU needs some".into(),
            "Raise the limit: `ulimit -n 65536` in this shell (its hard limit: `ulimit -Hn`)".into(),
        ),
        (ESRCH, _) => (
            "there is no such process or thread any more".into(),
            "Look for it with `pgrep`".into(),
        ),
        (ENODEV, Asked::Trace { cpu_wide: true, .. } | Asked::Sideband { cpu_wide: true }) => (
            "the CPU is offline".into(),
            "Leave it out, or `echo 1 > /sys/devices/system/cpu/cpuN/online` as root".into(),
        ),
        (ENOENT | ENODEV, Asked::Trace { .. }) => (
            "the kernel has no trace unit of that number".into(),
            "`ptrail check` says what this machine has".into(),
        ),
        (ENOENT, Asked::Uprobe | Asked::Filter) => (
            "the file is not there".into(),
            "Give its path as this process sees it (a container's: /proc/PID/root/…)".into(),
        ),
        (ENOENT, Asked::Tracepoint) => (
            "the kernel has no such tracepoint".into(),
            "`ls /sys/kernel/tracing/events` shows what it has".into(),
        ),
        (ENOMEM, Asked::Ring { bytes }) => (
            format!("there is no memory in one piece for rings of {} KiB", bytes / 1024),
            "Take a smaller --snapshot-size, or try again after `echo 1 > /proc/sys/vm/compact_memory` as root"
                .into(),
        ),
        (ENOMEM, _) => (
            "the kernel has no memory for it".into(),
            "Record fewer threads, or free some memory".into(),
        ),
        (EINVAL, Asked::Trace { .. }) => (
            "this CPU's trace unit does not take these settings".into(),
            "Try --timing tsc; `ptrail check` says what it has".into(),
        ),
        (EINVAL, Asked::Breakpoint { address }) => (
            format!("{address:#x} is no address of user code"),
            "Give an address below 0x800000000000".into(),
        ),
        (EINVAL, Asked::Uprobe) => (
            "the file has no code there".into(),
            "Check the offset (`objdump -d FILE`)".into(),
        ),
        (EINVAL, Asked::Filter) => (
            "it must be a part of a regular file, with a size".into(),
            "Give the program's own path".into(),
        ),
        (EINVAL, Asked::Ring { .. }) => (
            "a ring has a power of two of pages".into(),
            "Give --snapshot-size 4M, or another power of two".into(),
        ),
        (EOPNOTSUPP, Asked::Filter) => (
            "the trace unit has not so many address filters, or not of this kind".into(),
            "Give fewer --filter and --stop-at".into(),
        ),
        (EOPNOTSUPP, Asked::Ring { .. }) => (
            "the event has no trace to put into memory".into(),
            "`ptrail check` says whether this machine has a trace unit".into(),
        ),
        (EOPNOTSUPP, _) => (
            "this kernel can't do that with this event".into(),
            "Take a newer kernel, or another --source".into(),
        ),
        (E2BIG, _) => (
            "this kernel is too old for what was asked".into(),
            "Take a newer kernel (5.12 has all that ptrail needs)".into(),
        ),
        (ENOSYS, _) => (
            "this kernel was built without perf events (CONFIG_PERF_EVENTS)".into(),
            "Take a distribution's kernel, or --source qemu or step".into(),
        ),
        (number, _) => (
            std::io::Error::from_raw_os_error(number).to_string(),
            "`dmesg | tail` may say more".into(),
        ),
    };
    Refusal {
        why: format!("{what}: {why}"),
        cure,
    }
}

impl Asked {
    fn name(self) -> &'static str {
        match self {
            Self::Trace { kernel: true, .. } => "recording the kernel with the trace unit",
            Self::Trace { cpu_wide: true, .. } => "recording whole CPUs with the trace unit",
            Self::Trace { .. } => "recording with the trace unit",
            Self::Breakpoint { .. } => "a breakpoint",
            Self::Uprobe => "a uprobe",
            Self::Tracepoint => "a tracepoint",
            Self::Sideband { .. } => "recording mappings and switches",
            Self::Ring { .. } => "memory for the rings",
            Self::Filter => "an address filter",
        }
    }

    fn cpu_wide(self) -> bool {
        matches!(
            self,
            Self::Trace { cpu_wide: true, .. } | Self::Sideband { cpu_wide: true }
        )
    }
}

/// How a program gets capabilities without being root.
fn setcap(capability: &str) -> String {
    format!("`sudo setcap {capability}+ep $(command -v ptrail)`")
}

/// EACCES: perf_event_paranoid, or another user's process.
fn access(asked: Asked, facts: &Facts) -> (String, String) {
    if asked == Asked::Uprobe {
        return admin_only("uprobes");
    }
    let level = facts.paranoid.unwrap_or(2);
    let wants = match asked {
        Asked::Trace { kernel: true, .. } => Some((1, "to record the kernel's code")),
        _ if asked.cpu_wide() => Some((0, "to record whole CPUs")),
        Asked::Tracepoint => Some((-1, "to read a tracepoint's fields")),
        _ => None,
    };
    if facts.may_perf() {
        return (
            "the process is another user's, or protected".into(),
            format!(
                "Run ptrail as that user or as root, or {}",
                setcap("cap_sys_ptrace,cap_perfmon")
            ),
        );
    }
    if level >= 3 {
        return (
            format!(
                "kernel.perf_event_paranoid is {level}, at which this distribution's kernel lets only root use perf events"
            ),
            "`sudo sysctl kernel.perf_event_paranoid=2`, or run ptrail as root".into(),
        );
    }
    if let Some((needed, what)) = wants.filter(|&(needed, _)| level > needed) {
        return (
            format!("kernel.perf_event_paranoid is {level}, and must be {needed} {what}"),
            format!(
                "`sudo sysctl kernel.perf_event_paranoid={needed}`, or {}",
                setcap("cap_perfmon")
            ),
        );
    }
    (
        "the process is another user's, or protected (set-user-ID, or PR_SET_DUMPABLE)".into(),
        format!(
            "Run ptrail as that user or as root, or {}",
            setcap("cap_perfmon")
        ),
    )
}

fn admin_only(what: &str) -> (String, String) {
    (
        format!("{what} are for administrators (CAP_SYS_ADMIN; CAP_PERFMON is not enough)"),
        "Run ptrail as root, or take a breakpoint: --trigger SYMBOL needs no rights".into(),
    )
}

/// EPERM: seccomp, lockdown, a security module; uprobes.
fn forbidden(asked: Asked, facts: &Facts) -> (String, String) {
    if facts.seccomp {
        return (
            "a seccomp filter forbids perf_event_open, as containers have one".into(),
            "Start the container with `--cap-add PERFMON` (Docker, Podman; older ones: `--cap-add SYS_ADMIN`), or run ptrail outside it"
                .into(),
        );
    }
    if let Some(lockdown) = facts.lockdown.as_deref().filter(|&mode| mode != "none") {
        return (
            format!("the kernel is locked down ({lockdown})"),
            "Leave out --kernel; user code can be recorded".into(),
        );
    }
    if asked == Asked::Uprobe && !facts.may_admin() {
        return admin_only("uprobes");
    }
    (
        "a security module (SELinux, AppArmor) forbids it".into(),
        "Its log says which rule: `sudo dmesg | grep -i denied`".into(),
    )
}

/// Rings are beyond what this user may lock.
pub(crate) fn ring_limit(bytes: u64, facts: &Facts) -> (String, String) {
    let kib = |bytes: u64| bytes.div_ceil(1024);
    let limit = facts.ring_limit().map_or_else(String::new, |limit| {
        format!(", and this user may have {} KiB", kib(limit))
    });
    (
        format!("{} KiB are needed{limit}", kib(bytes)),
        format!(
            "`sudo sysctl kernel.perf_event_mlock_kb={}`, or a smaller --snapshot-size, or {}",
            facts.mlock_kb_for(bytes),
            setcap("cap_ipc_lock")
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::facts::tests::user;

    const ALL: [i32; 14] = [
        EPERM, ENOENT, ESRCH, E2BIG, ENOMEM, EACCES, EBUSY, ENODEV, EINVAL, ENFILE, EMFILE, ENOSPC,
        ENOSYS, EOPNOTSUPP,
    ];

    fn trace() -> Asked {
        Asked::Trace {
            kernel: false,
            cpu_wide: false,
        }
    }

    #[test]
    fn each_error_number_has_its_own_message() {
        let facts = user();
        for asked in [
            trace(),
            Asked::Breakpoint { address: 1 << 63 },
            Asked::Ring { bytes: 1 << 30 },
            Asked::Uprobe,
            Asked::Filter,
            Asked::Sideband { cpu_wide: true },
        ] {
            let mut seen: HashMap<String, i32> = HashMap::new();
            for errno in ALL {
                // Both say the same: too many open files.
                if errno == ENFILE {
                    continue;
                }
                let refusal = explain(asked, errno, &facts);
                assert!(!refusal.cure.is_empty());
                let same = seen.insert(refusal.why.clone(), errno);
                let alike = matches!(
                    (asked, errno, same),
                    (Asked::Trace { .. }, ENODEV, Some(ENOENT))
                        | (Asked::Uprobe, EACCES | EPERM, Some(EACCES | EPERM))
                );
                assert!(
                    same.is_none() || alike,
                    "{asked:?} {errno} {same:?}: {refusal}"
                );
            }
        }
        let unknown = explain(trace(), 5, &facts);
        assert!(unknown.why.contains("Input/output error"), "{unknown}");
    }

    #[test]
    fn access_is_told_apart_by_level_and_rights() {
        let kernel = Asked::Trace {
            kernel: true,
            cpu_wide: false,
        };
        let cpus = Asked::Trace {
            kernel: false,
            cpu_wide: true,
        };
        let at = |level, asked| {
            let facts = Facts {
                paranoid: Some(level),
                ..user()
            };
            explain(asked, EACCES, &facts).to_string()
        };
        assert!(at(2, kernel).contains("is 2, and must be 1"));
        assert!(at(2, kernel).contains("`sudo sysctl kernel.perf_event_paranoid=1`"));
        assert!(at(1, cpus).contains("is 1, and must be 0"));
        assert!(at(2, trace()).contains("another user's"));
        assert!(at(4, trace()).contains("is 4") && at(4, trace()).contains("paranoid=2`"));
        let perfmon = Facts {
            capabilities: 1 << 38,
            paranoid: Some(4),
            ..user()
        };
        assert!(
            explain(trace(), EACCES, &perfmon)
                .why
                .contains("another user's")
        );
        assert!(
            explain(Asked::Uprobe, EACCES, &perfmon)
                .why
                .contains("CAP_SYS_ADMIN")
        );
    }

    #[test]
    fn what_is_forbidden_is_told_apart() {
        let seccomp = Facts {
            seccomp: true,
            ..user()
        };
        assert!(
            explain(trace(), EPERM, &seccomp)
                .cure
                .contains("--cap-add PERFMON")
        );
        let lockdown = Facts {
            lockdown: Some("confidentiality".into()),
            ..user()
        };
        assert!(
            explain(trace(), EPERM, &lockdown)
                .why
                .contains("locked down")
        );
        assert!(
            explain(trace(), EPERM, &user())
                .why
                .contains("security module")
        );
    }

    #[test]
    fn the_number_to_set_is_the_one_that_is_enough() {
        let facts = user();
        let bytes = 64 << 20;
        let refusal = explain(Asked::Ring { bytes }, EPERM, &facts);
        let number = facts.mlock_kb_for(bytes);
        assert!(
            refusal.cure.contains(&format!("mlock_kb={number}`")),
            "{refusal}"
        );
        let enough = |mlock_kb| {
            let facts = Facts {
                mlock_kb: Some(mlock_kb),
                ..user()
            };
            facts.ring_limit().unwrap() >= bytes
        };
        assert!(enough(number) && !enough(number - 1));
    }
}
