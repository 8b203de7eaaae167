//! What can't be recorded, found before anything is asked of the kernel.

use super::{PAGE, Request, Ring, Scope, StopBy};
use crate::pmu::Pmu;

/// A ring on a CPU whose trace unit takes one block of memory alone is no larger, bytes
/// (the buddy allocator's largest block).
const ONE_BLOCK: u64 = 4 << 20;

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

/// Whether a request is possible with this trace unit.
pub(super) fn check(request: &Request, pmu: &Pmu) -> Result<(), PlanError> {
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
