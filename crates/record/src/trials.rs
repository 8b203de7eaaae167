//! What the kernel really allows, found by trying on this very thread: nothing is concluded from
//! versions.

use std::hint::black_box;
use std::io;

use crate::attr::{
    Attr, AuxAction, BREAKPOINT_X, BREAKPOINT_X_LEN, Flags, SW_DUMMY, Sample, TYPE_BREAKPOINT,
    TYPE_SOFTWARE,
};
use crate::event::Event;
use crate::facts::Facts;
use crate::plan::{Call, Plan, Request, Ring, Role, Scope, StopBy, Timing};

/// `EINVAL`.
const EINVAL: i32 = 22;
/// Debug registers of an x86 CPU.
const DEBUG_REGISTERS: usize = 4;

/// The answers; an `Err` has the kernel's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trials {
    /// The trace unit, user code of one thread; `None` if there is none to try.
    pub trace: Option<Result<(), i32>>,
    /// Sideband of one thread.
    pub sideband: Result<(), i32>,
    /// The kernel's code.
    pub kernel: Result<(), i32>,
    /// Whole CPUs.
    pub cpu_wide: Result<(), i32>,
    /// An execute breakpoint of one thread.
    pub breakpoint: Result<(), i32>,
    /// How many of them at once.
    pub debug_registers: usize,
    /// The kernel knows `aux_pause`.
    pub pause: bool,
    /// A breakpoint that went off after one hit can be switched on again (not with 6.16.8, 6.17 and
    /// later ones); `None` if that could not be tried.
    pub refresh_again: Option<bool>,
}

impl Trials {
    /// Tries everything; takes about a millisecond.
    #[must_use]
    pub fn run(facts: &Facts) -> Self {
        let tried = |attr: &Attr, pid, cpu| number(Event::open(attr, pid, cpu, None).map(drop));
        let dummy = dummy();
        let kernel = Attr {
            flags: dummy.flags - Flags::EXCLUDE_KERNEL,
            ..dummy
        };
        let paused = Attr {
            aux_action: AuxAction::START_PAUSED,
            ..dummy
        };
        Self {
            trace: facts.pmu.is_ok().then(|| trace(facts)),
            sideband: tried(&dummy, 0, -1),
            kernel: tried(&kernel, 0, -1),
            cpu_wide: tried(&dummy, -1, 0),
            breakpoint: tried(&breakpoint(), 0, -1),
            debug_registers: debug_registers(),
            // A kernel that does not know the field wants it to be zero; one that does says that a
            // dummy can't be paused.
            pause: tried(&paused, 0, -1) != Err(EINVAL),
            refresh_again: refresh_again().ok(),
        }
    }

    /// How a hit is to stop the trace of a thread, the best way that works here. `snapshots`: how many
    /// there may be.
    #[must_use]
    pub fn stop_by(&self, snapshots: u32, inherited: bool) -> StopBy {
        let again = snapshots == 1 || self.refresh_again == Some(true);
        match (inherited, again, self.pause) {
            (false, true, _) => StopBy::Leader,
            (false, false, true) => StopBy::Pause,
            // The trigger, the trace and the ring are opened anew for each snapshot.
            (false, false, false) => StopBy::Leader,
            // Pausing would stop one thread's share of a CPU's ring alone.
            (true, ..) => StopBy::UserSpace,
        }
    }
}

fn number(result: io::Result<()>) -> Result<(), i32> {
    result.map_err(|error| error.raw_os_error().unwrap_or(0))
}

fn dummy() -> Attr {
    Attr {
        kind: TYPE_SOFTWARE,
        config: SW_DUMMY,
        flags: Flags::DISABLED | Flags::EXCLUDE_KERNEL | Flags::EXCLUDE_HV,
        ..Attr::default()
    }
}

/// What the breakpoints of the trials are at.
#[inline(never)]
extern "C" fn landing(number: u64) -> u64 {
    black_box(number) + 1
}

fn breakpoint() -> Attr {
    Attr {
        kind: TYPE_BREAKPOINT,
        sample_period: 1,
        sample_type: Sample::IP,
        flags: Flags::DISABLED | Flags::EXCLUDE_KERNEL | Flags::EXCLUDE_HV,
        bp_type: BREAKPOINT_X,
        config1: landing as *const () as u64,
        config2: BREAKPOINT_X_LEN,
        ..Attr::default()
    }
}

fn debug_registers() -> usize {
    let mut open = Vec::new();
    while open.len() < DEBUG_REGISTERS {
        let attr = Attr {
            config1: breakpoint().config1 + open.len() as u64,
            ..breakpoint()
        };
        match Event::open(&attr, 0, -1, None) {
            Ok(event) => open.push(event),
            Err(_) => break,
        }
    }
    open.len()
}

/// Two rounds of one hit each: whether the second one counts.
fn refresh_again() -> io::Result<bool> {
    let event = Event::open(&breakpoint(), 0, -1, None)?;
    for round in 0..2 {
        event.refresh(1)?;
        black_box(landing(round));
    }
    Ok(event.count()? == 2)
}

/// Opens the trace unit's event as a recording would.
fn trace(facts: &Facts) -> Result<(), i32> {
    let Ok(pmu) = &facts.pmu else {
        return Err(0);
    };
    let request = Request {
        scope: Scope::Threads(vec![0]),
        ring: Ring::Snapshot(4096),
        timing: Timing::Tsc,
        user: true,
        kernel: false,
        return_compression: true,
        ptwrite: false,
        filters: Vec::new(),
        breakpoint: None,
        stop: StopBy::UserSpace,
    };
    let plan = Plan::new(&request, pmu).map_err(|_| EINVAL)?;
    let attr = plan.calls.iter().find_map(|call| match call {
        Call::Open {
            role: Role::Trace,
            attr,
            ..
        } => Some(*attr),
        _ => None,
    });
    let attr = attr.ok_or(EINVAL)?;
    number(Event::open(&attr, 0, -1, None).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_way_that_works() {
        let trials = |pause, refresh_again| Trials {
            trace: None,
            sideband: Ok(()),
            kernel: Ok(()),
            cpu_wide: Ok(()),
            breakpoint: Ok(()),
            debug_registers: 4,
            pause,
            refresh_again,
        };
        assert_eq!(trials(true, Some(false)).stop_by(1, false), StopBy::Leader);
        assert_eq!(trials(true, Some(true)).stop_by(9, false), StopBy::Leader);
        assert_eq!(trials(true, Some(false)).stop_by(9, false), StopBy::Pause);
        assert_eq!(trials(false, Some(false)).stop_by(9, false), StopBy::Leader);
        assert_eq!(trials(true, Some(true)).stop_by(1, true), StopBy::UserSpace);
    }
}
