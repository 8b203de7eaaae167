//! Which system calls a recording takes, in their order. Nothing is called here: a [`Plan`] follows
//! from the request and from what the kernel says of the trace unit ([`Pmu`]).
//!
//! For each thread or CPU:
//!
//! 1. a dummy event for the sideband, mapped and switched on before `/proc` is read, so that no
//!    mapping falls between the two;
//! 2. the trace unit's event and, if a breakpoint ends the snapshots, that one, in one group (see
//!    [`StopBy`]);
//! 3. the ring: its base page, where the AUX area is announced, then the AUX area itself, for snapshots
//!    mapped without write permission, by which the kernel knows that it may overwrite;
//! 4. address filters; then everything is switched on.

use std::collections::HashMap;

use crate::attr::{
    Attr, AuxAction, BREAKPOINT_X, BREAKPOINT_X_LEN, Flags, SW_DUMMY, Sample, TYPE_BREAKPOINT,
    TYPE_SOFTWARE, register,
};
use crate::pmu::Pmu;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Pages of a sideband or trigger ring, without its header page.
const DATA_PAGES: u64 = 16;
/// A ring on a CPU whose trace unit takes one block of memory alone is no larger, bytes
/// (the buddy allocator's largest block).
const ONE_BLOCK: u64 = 4 << 20;
/// The kernel copies at most so much into a sample, bytes.
const SAMPLE_SIZE: u32 = 0xfff8;
/// perf's: so often that decoding can begin anywhere near, and still cheap.
const PSB_PERIOD: u64 = 3;
/// The same for MTC packets.
const MTC_PERIOD: u64 = 3;

/// What is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whom.
    pub scope: Scope,
    /// Into what.
    pub ring: Ring,
    /// Clock resolution.
    pub timing: Timing,
    /// User code.
    pub user: bool,
    /// The kernel's code.
    pub kernel: bool,
    /// Returns to where their call came from take one bit.
    pub return_compression: bool,
    /// The values of PTWRITE instructions.
    pub ptwrite: bool,
    /// Address filters; none: everything.
    pub filters: Vec<Filter>,
    /// Execution here ends a snapshot.
    pub breakpoint: Option<u64>,
    /// How it ends it.
    pub stop: StopBy,
}

/// Whom to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// These threads, each with a ring of its own. New ones are not followed.
    Threads(Vec<u32>),
    /// These threads and whatever they start; a ring for each CPU.
    Inherited {
        /// The threads.
        threads: Vec<u32>,
        /// The CPUs that are online.
        cpus: Vec<u32>,
    },
    /// All that runs on these CPUs.
    Cpus(Vec<u32>),
}

/// How the trace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// The last so many bytes.
    Snapshot(u64),
    /// All, through a ring of so many bytes.
    Stream(u64),
}

/// Clock resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// To the cycle.
    Cyc,
    /// By the crystal clock.
    Mtc,
    /// With each PSB.
    Tsc,
}

/// How a hit keeps the trace from being overwritten, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopBy {
    /// The breakpoint leads the group and goes off after one hit, and the trace with it: before the
    /// next instruction, on any kernel.
    Leader,
    /// `aux_pause` (Linux 6.13): within the trap's handler.
    Pause,
    /// The kernel copies the last 64 KiB into the hit's record.
    Sample,
    /// ptrail stops the trace when it hears of the hit, some 100 µs later.
    UserSpace,
}

/// One address filter of the trace unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Trace stops for good here, instead of being kept to it.
    pub stop: bool,
    /// First address; in a file, the offset.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// The file; without, addresses are those of the process.
    pub file: Option<String>,
}

/// A system call; events are numbered in the order of their opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `perf_event_open`.
    Open {
        /// What for.
        role: Role,
        /// How.
        attr: Attr,
        /// Thread, -1 for all.
        pid: i32,
        /// CPU, -1 for any.
        cpu: i32,
        /// The group's leader.
        group: Option<usize>,
    },
    /// `mmap` of the event's ring: a header page and so many more.
    MapRing {
        /// The event.
        event: usize,
        /// Pages behind the header.
        pages: u64,
    },
    /// Announce the AUX area in the header page, and `mmap` it.
    MapAux {
        /// The event.
        event: usize,
        /// Offset in the event's file, bytes.
        offset: u64,
        /// Bytes.
        size: u64,
        /// Without write permission: the kernel may overwrite.
        overwrite: bool,
    },
    /// `PERF_EVENT_IOC_SET_OUTPUT`: into another event's ring.
    SetOutput {
        /// The event.
        event: usize,
        /// Whose ring.
        to: usize,
    },
    /// `PERF_EVENT_IOC_SET_FILTER`.
    SetFilter {
        /// The event.
        event: usize,
        /// All its filters.
        filter: String,
    },
    /// What `/proc` has of threads and mappings is read now.
    ReadProc,
    /// `PERF_EVENT_IOC_ENABLE`.
    Enable {
        /// The event.
        event: usize,
    },
    /// `PERF_EVENT_IOC_REFRESH` by one: on until the next hit.
    Refresh {
        /// The event.
        event: usize,
    },
}

/// What an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Mappings, names, births, switches.
    Sideband,
    /// The trace.
    Trace,
    /// The breakpoint.
    Trigger,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The calls in their order.
    pub calls: Vec<Call>,
    /// What the trace unit can't do as asked, and what is done instead, one sentence each.
    pub notes: Vec<String>,
    /// All that is to be mapped, bytes.
    pub mapped: u64,
}

/// Why there is no way to record that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A ring's size.
    #[error(
        "--snapshot-size {size}: a ring has a power of two of bytes, at least {least}; {nearest} would do"
    )]
    RingSize {
        /// As asked.
        size: u64,
        /// The least.
        least: u64,
        /// The next one that is possible.
        nearest: u64,
    },
    /// A ring on an old trace unit.
    #[error(
        "--snapshot-size {size}: this CPU's trace unit needs its ring in one block of memory, at most 4 MiB (Broadwell); --snapshot-size 4M would do"
    )]
    OneBlock {
        /// As asked.
        size: u64,
    },
    /// Filters.
    #[error(
        "{asked} address filters were asked for, and this CPU has {has}: leave out --filter or --stop-at"
    )]
    Filters {
        /// As asked.
        asked: usize,
        /// What there are.
        has: u32,
    },
    /// A filter's path.
    #[error(
        "{path}: the kernel takes no path with a space or a comma for an address filter; record through a link without one (`ln -s '{path}' /tmp/program`)"
    )]
    FilterPath {
        /// The path.
        path: String,
    },
    /// A filter in a file, for CPUs.
    #[error("an address filter in a file needs a process; with --all-cpus leave out --filter")]
    FilterScope,
    /// Nothing to trace.
    #[error("neither user code nor the kernel is to be recorded: leave out --user or --kernel")]
    Nothing,
    /// An inherited group can't be limited to one hit.
    #[error(
        "a breakpoint that leads the group can't be inherited by new threads: the trace must be stopped in another way"
    )]
    LeaderInherited,
    /// The driver lacks a term that every driver has.
    #[error(
        "the kernel's driver for Intel PT has no `{term}` (format/{term} in sysfs): this kernel is not known to ptrail"
    )]
    NoTerm {
        /// The term.
        term: &'static str,
    },
}

impl Plan {
    /// Plans a recording.
    ///
    /// # Errors
    /// What is asked for is not possible on this machine, or anywhere.
    pub fn new(request: &Request, pmu: &Pmu) -> Result<Self, PlanError> {
        check(request, pmu)?;
        let mut planner = Planner {
            request,
            pmu,
            plan: Self {
                calls: Vec::new(),
                notes: Vec::new(),
                mapped: 0,
            },
            events: 0,
            rings: HashMap::new(),
        };
        let config = planner.config()?;
        planner.calls(config);
        Ok(planner.plan)
    }

    /// The events, in the order of their opening.
    pub fn opened(&self) -> impl Iterator<Item = (Role, &Attr, i32, i32, Option<usize>)> {
        self.calls.iter().filter_map(|call| match call {
            Call::Open {
                role,
                attr,
                pid,
                cpu,
                group,
            } => Some((*role, attr, *pid, *cpu, *group)),
            _ => None,
        })
    }
}

fn check(request: &Request, pmu: &Pmu) -> Result<(), PlanError> {
    if !request.user && !request.kernel {
        return Err(PlanError::Nothing);
    }
    let (size, least) = match request.ring {
        Ring::Snapshot(size) => (size, PAGE),
        Ring::Stream(size) => (size, 2 * PAGE),
    };
    if !size.is_power_of_two() || size < least {
        let nearest = size.max(least).checked_next_power_of_two();
        return Err(PlanError::RingSize {
            size,
            least,
            nearest: nearest.unwrap_or(1 << 40),
        });
    }
    let one_block = pmu.caps.get("topa_multiple_entries") == Some(&0);
    if one_block && matches!(request.ring, Ring::Snapshot(_)) && size > ONE_BLOCK {
        return Err(PlanError::OneBlock { size });
    }
    if request.filters.len() > pmu.address_filters as usize {
        return Err(PlanError::Filters {
            asked: request.filters.len(),
            has: pmu.address_filters,
        });
    }
    for file in request.filters.iter().filter_map(|f| f.file.as_ref()) {
        if matches!(request.scope, Scope::Cpus(_)) {
            return Err(PlanError::FilterScope);
        }
        if file.contains([' ', ',', '\n', '\t']) {
            return Err(PlanError::FilterPath { path: file.clone() });
        }
    }
    let inherited = matches!(request.scope, Scope::Inherited { .. });
    if inherited && request.breakpoint.is_some() && request.stop == StopBy::Leader {
        return Err(PlanError::LeaderInherited);
    }
    Ok(())
}

struct Planner<'a> {
    request: &'a Request,
    pmu: &'a Pmu,
    plan: Plan,
    events: usize,
    /// The event that has the ring of a CPU.
    rings: HashMap<(Role, i32), usize>,
}

impl Planner<'_> {
    // ---- the trace unit's settings ----

    /// `config`, as perf makes it by default, with the timing that was asked for.
    fn config(&mut self) -> Result<u64, PlanError> {
        let mut config = self.set(0, "tsc", 1)?;
        // `branch` without `pt`, or the other way round on Broadwell, is refused.
        for term in ["pt", "branch"] {
            if self.pmu.format.contains_key("pt") && self.pmu.format.contains_key("branch") {
                config = self.set(config, term, 1)?;
            }
        }
        if !self.request.return_compression {
            config = self.set(config, "noretcomp", 1)?;
        }
        config = self.timing(config);
        if self.pmu.has("psb_period")
            && let Some(period) = self.pmu.nearest("psb_periods", PSB_PERIOD)
        {
            config = self
                .pmu
                .with(config, "psb_period", period)
                .unwrap_or(config);
        }
        if self.request.ptwrite {
            config = self.ptwrite(config);
        }
        Ok(config)
    }

    fn timing(&mut self, mut config: u64) -> u64 {
        let mtc = self
            .pmu
            .nearest("mtc_periods", MTC_PERIOD)
            .filter(|_| self.pmu.has("mtc"));
        if self.request.timing != Timing::Tsc {
            match mtc.and_then(|period| {
                let on = self.pmu.with(config, "mtc", 1)?;
                self.pmu.with(on, "mtc_period", period)
            }) {
                Some(with_mtc) => config = with_mtc,
                None => self.note(
                    "this CPU's trace unit has no MTC packets: times are known at each PSB alone",
                ),
            }
        }
        if self.request.timing == Timing::Cyc {
            // A threshold of 0 is always allowed: every packet may have its cycles.
            match self.pmu.with(config, "cyc", 1).filter(|_| self.pmu.has("cyc")) {
                Some(with_cyc) => config = with_cyc,
                None => self.note(
                    "this CPU's trace unit does not count cycles: --timing cyc gives what --timing mtc does",
                ),
            }
        }
        config
    }

    fn ptwrite(&mut self, config: u64) -> u64 {
        let with = self
            .pmu
            .with(config, "ptw", 1)
            .filter(|_| self.pmu.has("ptw"));
        let Some(with) = with else {
            self.note("this CPU has no PTWRITE: its values are not recorded");
            return config;
        };
        self.pmu.with(with, "fup_on_ptw", 1).unwrap_or(with)
    }

    fn set(&self, config: u64, term: &'static str, value: u64) -> Result<u64, PlanError> {
        self.pmu
            .with(config, term, value)
            .ok_or(PlanError::NoTerm { term })
    }

    fn note(&mut self, text: &str) {
        self.plan.notes.push(text.to_owned());
    }

    // ---- calls ----

    fn calls(&mut self, config: u64) {
        let targets = targets(&self.request.scope);
        for &target in &targets {
            let sideband = self.open(Role::Sideband, self.sideband(), target, None);
            self.map_ring(Role::Sideband, sideband, target);
            self.plan.calls.push(Call::Enable { event: sideband });
        }
        self.plan.calls.push(Call::ReadProc);
        let mut switches = Vec::new();
        for &target in &targets {
            let (trace, switch) = self.group(config, target);
            switches.push(switch);
            self.map_trace(trace, target);
            if !self.request.filters.is_empty() {
                let filter = filter_text(&self.request.filters);
                self.plan.calls.push(Call::SetFilter {
                    event: trace,
                    filter,
                });
            }
        }
        self.plan.calls.extend(switches.into_iter().flatten());
    }

    /// Trace and trigger of one target; what switches them on, and the trace's number.
    fn group(&mut self, config: u64, target: (i32, i32)) -> (usize, Vec<Call>) {
        let on = |event| Call::Enable { event };
        let Some(address) = self.request.breakpoint else {
            let trace = self.open(Role::Trace, self.trace(config, true), target, None);
            return (trace, vec![on(trace)]);
        };
        let mut trigger = trigger(address);
        match self.request.stop {
            StopBy::Leader => {
                trigger.flags |= Flags::DISABLED;
                let leader = self.open(Role::Trigger, trigger, target, None);
                self.map_ring(Role::Trigger, leader, target);
                let trace = self.trace(config, false);
                let trace = self.open(Role::Trace, trace, target, Some(leader));
                (trace, vec![Call::Refresh { event: leader }])
            }
            StopBy::Pause | StopBy::Sample => {
                let trace = self.open(Role::Trace, self.trace(config, true), target, None);
                if self.request.stop == StopBy::Pause {
                    trigger.aux_action = AuxAction::PAUSE;
                } else {
                    trigger.sample_type |= Sample::AUX;
                    trigger.aux_sample_size = SAMPLE_SIZE;
                }
                let trigger = self.open(Role::Trigger, trigger, target, Some(trace));
                self.map_ring(Role::Trigger, trigger, target);
                (trace, vec![on(trace)])
            }
            StopBy::UserSpace => {
                trigger.flags |= Flags::DISABLED;
                let trace = self.open(Role::Trace, self.trace(config, true), target, None);
                let trigger = self.open(Role::Trigger, trigger, target, None);
                self.map_ring(Role::Trigger, trigger, target);
                // The trace runs before the first hit can come.
                (trace, vec![on(trace), on(trigger)])
            }
        }
    }

    fn open(
        &mut self,
        role: Role,
        mut attr: Attr,
        (pid, cpu): (i32, i32),
        group: Option<usize>,
    ) -> usize {
        if matches!(self.request.scope, Scope::Inherited { .. }) {
            attr.flags |= Flags::INHERIT;
        }
        self.plan.calls.push(Call::Open {
            role,
            attr,
            pid,
            cpu,
            group,
        });
        self.events += 1;
        self.events - 1
    }

    /// A ring for an event's records.
    fn map_ring(&mut self, role: Role, event: usize, target: (i32, i32)) {
        if !self.shares(role, event, target) {
            self.map(event, DATA_PAGES);
        }
    }

    /// A CPU's first event of a kind has the ring for all of them; says whether this is a later one.
    fn shares(&mut self, role: Role, event: usize, (_, cpu): (i32, i32)) -> bool {
        if cpu < 0 {
            return false;
        }
        let to = *self.rings.entry((role, cpu)).or_insert(event);
        if to != event {
            self.plan.calls.push(Call::SetOutput { event, to });
        }
        to != event
    }

    fn map(&mut self, event: usize, pages: u64) {
        self.plan.mapped += (pages + 1) * PAGE;
        self.plan.calls.push(Call::MapRing { event, pages });
    }

    /// A snapshot's ring needs no records: they would only tell of each switch that it was switched.
    fn map_trace(&mut self, event: usize, target: (i32, i32)) {
        if self.shares(Role::Trace, event, target) {
            return;
        }
        let (pages, size, overwrite) = match self.request.ring {
            Ring::Snapshot(size) => (0, size, true),
            Ring::Stream(size) => (DATA_PAGES, size, false),
        };
        self.map(event, pages);
        self.plan.mapped += size;
        self.plan.calls.push(Call::MapAux {
            event,
            offset: (pages + 1) * PAGE,
            size,
            overwrite,
        });
    }

    // ---- events ----

    fn trace(&self, config: u64, disabled: bool) -> Attr {
        let mut flags = Flags::EXCLUDE_HV | Flags::SAMPLE_ID_ALL;
        flags.set(Flags::DISABLED, disabled);
        flags.set(Flags::EXCLUDE_KERNEL, !self.request.kernel);
        flags.set(Flags::EXCLUDE_USER, !self.request.user);
        let aux_watermark = match self.request.ring {
            Ring::Stream(size) => u32::try_from(size / 4).unwrap_or(u32::MAX),
            Ring::Snapshot(_) => 0,
        };
        Attr {
            kind: self.pmu.kind,
            config,
            sample_period: 1,
            sample_type: IDENTITY,
            flags,
            aux_watermark,
            ..Attr::default()
        }
    }

    fn sideband(&self) -> Attr {
        Attr {
            kind: TYPE_SOFTWARE,
            config: SW_DUMMY,
            sample_type: IDENTITY,
            flags: Flags::DISABLED
                | Flags::EXCLUDE_KERNEL
                | Flags::EXCLUDE_HV
                | Flags::EXCLUDE_GUEST
                | Flags::MMAP
                | Flags::MMAP2
                | Flags::BUILD_ID
                | Flags::COMM
                | Flags::COMM_EXEC
                | Flags::TASK
                | Flags::CONTEXT_SWITCH
                | Flags::SAMPLE_ID_ALL
                | Flags::WATERMARK,
            wakeup: (DATA_PAGES * PAGE / 4) as u32,
            ..Attr::default()
        }
    }
}

/// An execute breakpoint, whose records have the arguments, the stack pointer and what it points to: at a
/// function's entry, where it returns to.
pub(crate) fn trigger(address: u64) -> Attr {
    Attr {
        kind: TYPE_BREAKPOINT,
        sample_period: 1,
        sample_type: IDENTITY | Sample::IP | Sample::REGS_USER | Sample::STACK_USER,
        flags: Flags::EXCLUDE_KERNEL | Flags::EXCLUDE_HV | Flags::SAMPLE_ID_ALL,
        wakeup: 1,
        bp_type: BREAKPOINT_X,
        config1: address,
        config2: BREAKPOINT_X_LEN,
        sample_regs_user: register::TRIGGER,
        sample_stack_user: 8,
        ..Attr::default()
    }
}

/// Every record tells thread, time, CPU and event.
const IDENTITY: Sample = Sample::TID
    .union(Sample::TIME)
    .union(Sample::CPU)
    .union(Sample::IDENTIFIER);

/// Thread and CPU of each event, the CPU's first.
fn targets(scope: &Scope) -> Vec<(i32, i32)> {
    let signed = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    match scope {
        Scope::Threads(threads) => threads.iter().map(|&tid| (signed(tid), -1)).collect(),
        Scope::Cpus(cpus) => cpus.iter().map(|&cpu| (-1, signed(cpu))).collect(),
        Scope::Inherited { threads, cpus } => cpus
            .iter()
            .flat_map(|&cpu| threads.iter().map(move |&tid| (signed(tid), signed(cpu))))
            .collect(),
    }
}

/// As `perf_event_set_addr_filter` reads it.
fn filter_text(filters: &[Filter]) -> String {
    let filters = filters.iter().map(|filter| {
        let action = if filter.stop { "stop" } else { "filter" };
        let file = filter.file.as_ref();
        let file = file.map_or_else(String::new, |file| format!("@{file}"));
        format!("{action} {:#x}/{:#x}{file}", filter.start, filter.size)
    });
    filters.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
