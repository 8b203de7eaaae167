//! Cases of libipt's suite that do not match yet, each with the reason.

const SIDEBAND: &str = "the mappings are in perf records, which this crate does not read";

/// Name and reason. The test fails when a case of this list begins to match.
pub(crate) const NOT_YET: &[(&str, &str)] = &[
    (
        "ptxed-resync-psb-bad_status-psb",
        "libipt drops a segment that does not meet the one before; here it is decoded",
    ),
    ("pevent-comm_exec-mmap-tsc-iret", SIDEBAND),
    ("pevent-fork", SIDEBAND),
    ("pevent-mmap-tip_cached", SIDEBAND),
    ("pevent-mmap_secondary-tsc", SIDEBAND),
    ("pevent-split", SIDEBAND),
    ("pevent-tip_pgd-comm_exec-mmap-tsc-tip_pge", SIDEBAND),
    ("pevent-tip_pgd-mmap-tsc-tip_pge", SIDEBAND),
    ("pevent-tip_pgd-switch-tsc-tip_pge", SIDEBAND),
    ("pevent-tip_pgd-switch_cpu_wide-tsc-tip_pge", SIDEBAND),
];

/// Here event data (EVD) stand before an event that has none, which is an error for libipt. This
/// decoder does not read them.
pub(crate) const EVENT_DATA: &[&str] = &[
    "ptet-evd_cr2-cfe_iret",
    "ptet-evd_cr2-evd_vmxq",
    "ptet-evd_vmxq-cfe_intr",
    "ptet-evd_vmxr-cfe_rsm",
    "ptet-evd_vmxr-evd-cr2",
];
