//! What is to be recorded.

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
