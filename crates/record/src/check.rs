//! What this machine can record, and what cures what it can't: a list of findings from [`Facts`] and
//! [`Trials`].

use crate::attr::BREAKPOINT_X_LEN;
use crate::facts::Facts;
use crate::pmu::Pmu;
use crate::refusal::{Asked, Refusal, explain, ring_limit};
use crate::trials::Trials;

/// How a finding looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It works.
    Yes,
    /// It works with a limit.
    Partly,
    /// It does not work.
    No,
}

impl Verdict {
    /// In outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "partly",
            Self::No => "no",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub topic: &'static str,
    /// Whether it works.
    pub verdict: Verdict,
    /// In a sentence.
    pub text: String,
    /// What to do, if anything helps.
    pub cure: Option<String>,
}

/// Bytes of trace that a thread's ring has if nothing is said, and its header page.
const RING: u64 = (4 << 20) + 4096;

/// Looks at everything about perf events and the trace unit.
#[must_use]
pub fn findings(facts: &Facts, trials: &Trials) -> Vec<Finding> {
    let mut found = vec![cpu(facts), kernel(facts), trace_unit(facts, trials)];
    if let Ok(pmu) = &facts.pmu {
        found.push(capabilities(pmu));
        found.push(rings(facts));
    }
    found.push(tried(
        "kernel code",
        trials.kernel,
        Asked::Trace {
            kernel: true,
            cpu_wide: false,
        },
        facts,
        "may be recorded",
    ));
    found.push(tried(
        "whole CPUs",
        trials.cpu_wide,
        Asked::Trace {
            kernel: false,
            cpu_wide: true,
        },
        facts,
        "may be recorded (--all-cpus)",
    ));
    found.push(breakpoints(facts, trials));
    found.push(uprobes(facts));
    found.push(tracepoints(facts));
    found.push(stopping(trials));
    found.push(other_processes(facts));
    found
}

fn finding(topic: &'static str, verdict: Verdict, text: impl Into<String>) -> Finding {
    Finding {
        topic,
        verdict,
        text: text.into(),
        cure: None,
    }
}

fn refused(topic: &'static str, refusal: Refusal) -> Finding {
    Finding {
        topic,
        verdict: Verdict::No,
        text: refusal.why,
        cure: Some(refusal.cure),
    }
}

fn tried(
    topic: &'static str,
    result: Result<(), i32>,
    asked: Asked,
    facts: &Facts,
    works: &str,
) -> Finding {
    match result {
        Ok(()) => finding(topic, Verdict::Yes, works),
        Err(errno) => refused(topic, explain(asked, errno, facts)),
    }
}

fn cpu(facts: &Facts) -> Finding {
    let name = if facts.cpu.is_empty() {
        "a CPU that does not say its name"
    } else {
        &facts.cpu
    };
    if facts.has_pt {
        return finding("CPU", Verdict::Yes, format!("{name}, which has Intel PT"));
    }
    let why = match (facts.vendor.as_str(), facts.is_virtual) {
        ("GenuineIntel", true) => "a virtual machine that is not given Intel PT by its host",
        ("GenuineIntel", false) => {
            "which says that it has no Intel PT (Intel CPUs have it since Broadwell, 2014)"
        }
        (_, true) => "in a virtual machine; only Intel's CPUs have Intel PT",
        _ => "and only Intel's CPUs have Intel PT",
    };
    let mut found = finding("CPU", Verdict::No, format!("{name}, {why}"));
    if facts.vendor == "GenuineIntel" && facts.is_virtual {
        found.cure = Some(
            "Record on the host itself; few hypervisors pass PT on, and KVM no longer does by default"
                .into(),
        );
    }
    found
}

fn kernel(facts: &Facts) -> Finding {
    let text = match facts.lockdown.as_deref() {
        Some(mode) if mode != "none" => {
            let text = format!("Linux {}, locked down ({mode})", facts.kernel);
            return finding("kernel", Verdict::Partly, text);
        }
        _ => format!("Linux {}", facts.kernel),
    };
    finding("kernel", Verdict::Yes, text)
}

fn trace_unit(facts: &Facts, trials: &Trials) -> Finding {
    match (&facts.pmu, trials.trace) {
        (Err(error), _) => {
            let mut found = finding("trace unit", Verdict::No, error.to_string());
            if facts.has_pt {
                found.cure =
                    Some("`sudo dmesg | grep -i intel_pt` says what the driver found".into());
            }
            found
        }
        (Ok(_), Some(Err(errno))) => {
            let asked = Asked::Trace {
                kernel: false,
                cpu_wide: false,
            };
            refused("trace unit", explain(asked, errno, facts))
        }
        (Ok(pmu), _) => {
            let text = format!(
                "the kernel offers it (perf event type {}), and it opens",
                pmu.kind
            );
            finding("trace unit", Verdict::Yes, text)
        }
    }
}

fn capabilities(pmu: &Pmu) -> Finding {
    let mut has = Vec::new();
    let mut lacks = Vec::new();
    for (term, name) in [
        ("cyc", "cycles (--timing cyc)"),
        ("mtc", "MTC (--timing mtc)"),
        ("ptw", "PTWRITE"),
        ("event", "event trace"),
    ] {
        if pmu.has(term) {
            has.push(name.to_owned());
        } else {
            lacks.push(name);
        }
    }
    match pmu.address_filters {
        0 => lacks.push("address filters"),
        1 => has.push("1 address filter".to_owned()),
        number => has.push(format!("{number} address filters")),
    }
    let list = |names: &[String]| match names {
        [] => "nothing beside branches".to_owned(),
        names => names.join(", "),
    };
    let mut text = format!("it has {}", list(&has));
    if !lacks.is_empty() {
        text += &format!("; not {}", lacks.join(", "));
    }
    let verdict = if lacks.contains(&"MTC (--timing mtc)") {
        Verdict::Partly
    } else {
        Verdict::Yes
    };
    finding("settings", verdict, text)
}

fn rings(facts: &Facts) -> Finding {
    match facts.ring_limit() {
        None => finding("rings", Verdict::Yes, "of any size"),
        Some(limit) if limit >= RING => {
            let threads = limit / RING;
            let text = format!(
                "{} KiB in all: {threads} thread{} with the 4 MiB that are usual",
                limit / 1024,
                if threads == 1 { "" } else { "s" },
            );
            Finding {
                cure: Some(format!(
                    "For 16 threads: `sudo sysctl kernel.perf_event_mlock_kb={}`",
                    facts.mlock_kb_for(16 * RING)
                )),
                ..finding("rings", Verdict::Partly, text)
            }
        }
        Some(_) => {
            let (why, cure) = ring_limit(RING, facts);
            refused(
                "rings",
                Refusal {
                    why: format!("{why} for one thread's ring of 4 MiB"),
                    cure,
                },
            )
        }
    }
}

fn breakpoints(facts: &Facts, trials: &Trials) -> Finding {
    let topic = "breakpoints";
    match (trials.breakpoint, trials.debug_registers) {
        (Err(errno), _) => {
            let asked = Asked::Breakpoint {
                address: BREAKPOINT_X_LEN,
            };
            refused(topic, explain(asked, errno, facts))
        }
        (Ok(()), 4) => finding(topic, Verdict::Yes, "all 4 debug registers are free"),
        (Ok(()), free) => {
            let text =
                format!("{free} of 4 debug registers are free; a debugger or perf has the others");
            finding(topic, Verdict::Partly, text)
        }
    }
}

fn uprobes(facts: &Facts) -> Finding {
    if !facts.uprobes {
        let text = "this kernel has none (CONFIG_UPROBE_EVENTS)";
        return finding("uprobes", Verdict::No, text);
    }
    if facts.may_admin() {
        return finding("uprobes", Verdict::Yes, "may be used");
    }
    // EACCES
    refused("uprobes", explain(Asked::Uprobe, 13, facts))
}

fn tracepoints(facts: &Facts) -> Finding {
    if facts.tracefs {
        return finding("tracepoints", Verdict::Yes, "tracefs can be read");
    }
    Finding {
        cure: Some("As root: `mount -t tracefs tracefs /sys/kernel/tracing`".into()),
        ..finding(
            "tracepoints",
            Verdict::No,
            "tracefs is not mounted, or only root may read it",
        )
    }
}

fn stopping(trials: &Trials) -> Finding {
    let topic = "stop at a hit";
    if trials.breakpoint.is_err() {
        return finding(
            topic,
            Verdict::No,
            "without breakpoints ptrail stops late, by itself",
        );
    }
    let text = match (trials.refresh_again, trials.pause) {
        (Some(true), _) => {
            "in the kernel, before the next instruction; as often as you like".to_owned()
        }
        (Some(false), true) => {
            "in the kernel, before the next instruction; for several snapshots this kernel has aux_pause"
                .to_owned()
        }
        (Some(false), false) => {
            "in the kernel, before the next instruction; after each snapshot everything is opened anew"
                .to_owned()
        }
        (None, _) => "could not be tried".to_owned(),
    };
    let verdict = if trials.refresh_again.is_some() {
        Verdict::Yes
    } else {
        Verdict::Partly
    };
    finding(topic, verdict, text)
}

fn other_processes(facts: &Facts) -> Finding {
    let topic = "attach";
    let root = facts.may_ptrace();
    let (verdict, text, cure) = match facts.ptrace_scope {
        _ if root => (Verdict::Yes, "to any process", None),
        Some(0) | None => (Verdict::Yes, "to your own processes", None),
        Some(1) => (
            Verdict::Partly,
            "to programs that ptrail starts alone (kernel.yama.ptrace_scope is 1)",
            Some("`sudo sysctl kernel.yama.ptrace_scope=0`, or run ptrail as root"),
        ),
        Some(2) => (
            Verdict::No,
            "only root may (kernel.yama.ptrace_scope is 2)",
            Some("Run ptrail as root"),
        ),
        Some(_) => (
            Verdict::No,
            "nobody may (kernel.yama.ptrace_scope is 3)",
            Some("Reboot with a lower value"),
        ),
    };
    Finding {
        cure: cure.map(str::to_owned),
        ..finding(topic, verdict, text)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::facts::tests::user;
    use crate::pmu::PmuError;

    const FINE: Trials = Trials {
        trace: Some(Ok(())),
        sideband: Ok(()),
        kernel: Ok(()),
        cpu_wide: Ok(()),
        breakpoint: Ok(()),
        debug_registers: 4,
        pause: true,
        refresh_again: Some(true),
    };

    fn about<'a>(findings: &'a [Finding], topic: &str) -> &'a Finding {
        findings.iter().find(|f| f.topic == topic).unwrap()
    }

    #[test]
    fn a_virtual_machine_without_a_trace_unit() {
        let facts = Facts {
            pmu: Err(PmuError::Missing {
                path: PathBuf::from("/sys/bus/event_source/devices/intel_pt"),
            }),
            has_pt: false,
            is_virtual: true,
            ..user()
        };
        let trials = Trials {
            trace: None,
            ..FINE
        };
        let found = findings(&facts, &trials);
        assert!(
            about(&found, "CPU")
                .text
                .contains("not given Intel PT by its host")
        );
        let unit = about(&found, "trace unit");
        assert!(
            unit.text.contains("devices/intel_pt does not exist"),
            "{}",
            unit.text
        );
        assert!(found.iter().all(|f| f.topic != "rings"));
        let amd = Facts {
            vendor: "AuthenticAMD".into(),
            is_virtual: false,
            ..facts
        };
        assert!(cpu(&amd).text.contains("only Intel's CPUs"));
    }

    #[test]
    fn a_user_without_rights_is_told_each_cure() {
        let trials = Trials {
            kernel: Err(13),
            cpu_wide: Err(13),
            ..FINE
        };
        let found = findings(&user(), &trials);
        let cure = |topic| about(&found, topic).cure.clone().unwrap_or_default();
        assert!(cure("kernel code").contains("perf_event_paranoid=1"));
        assert!(cure("whole CPUs").contains("perf_event_paranoid=0"));
        assert!(cure("uprobes").contains("--trigger SYMBOL needs no rights"));
        assert!(cure("attach").contains("ptrace_scope=0"));
        assert!(cure("rings").contains("mlock_kb="));
        assert!(cure("tracepoints").contains("mount -t tracefs"));
        let debian = Facts {
            paranoid: Some(3),
            ..user()
        };
        let closed = Trials {
            trace: Some(Err(13)),
            breakpoint: Err(13),
            debug_registers: 0,
            ..trials
        };
        let found = findings(&debian, &closed);
        let unit = about(&found, "trace unit");
        assert!(unit.text.contains("is 3"), "{}", unit.text);
        assert_eq!(about(&found, "breakpoints").verdict, Verdict::No);
    }

    #[test]
    fn old_and_new_kernels_stop_in_their_ways() {
        let with = |refresh_again, pause| Trials {
            refresh_again,
            pause,
            ..FINE
        };
        assert!(
            stopping(&with(Some(true), false))
                .text
                .contains("as often as you like")
        );
        assert!(
            stopping(&with(Some(false), true))
                .text
                .contains("aux_pause")
        );
        assert!(
            stopping(&with(Some(false), false))
                .text
                .contains("opened anew")
        );
    }
}
