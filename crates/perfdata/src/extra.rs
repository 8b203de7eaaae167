//! ptrail's own section, behind everything that stock perf looks at.

use serde::{Deserialize, Serialize};

/// What perf has no record for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extra {
    /// Who recorded, and how.
    pub source: SourceNote,
    /// Wall-clock time (nanoseconds since the Unix epoch) at perf-clock time `wall_clock_at`.
    pub wall_clock: u64,
    /// See `wall_clock`; perf-clock nanoseconds.
    pub wall_clock_at: u64,
    /// Command line of the recorded program.
    pub command: Vec<String>,
    /// How the recording ended, one sentence for people (`exited with status 0`,
    /// `killed by signal 11 (SIGSEGV)`, `stopped by Ctrl-C`).
    pub end: String,
    /// What the recorder could not or did not record, one sentence each.
    pub notes: Vec<String>,
    /// What snapshots were to be taken at, and how often that happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerNote>,
    /// The snapshots that were taken, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<SnapshotNote>,
    /// Code that stands in no file: the vDSO, JIT code.
    #[serde(skip)]
    pub code: Vec<CodeBlob>,
}

/// Who recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SourceNote {
    /// The trace unit of a CPU.
    Hardware,
    /// ptrail's software recorder.
    Software {
        /// Its engine, such as `step`.
        engine: String,
        /// What its times mean, one sentence for people.
        clock: String,
    },
}

/// A trigger, and what was counted of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerNote {
    /// As it was given, such as `slow_call>50us`.
    pub trigger: String,
    /// How often it was hit, whether a snapshot was taken or not.
    pub hits: u64,
    /// How often the function was called, for triggers that wait for a return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
}

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotNote {
    /// The trigger, by its place in [`Extra::triggers`].
    pub trigger: u64,
    /// Process that hit it.
    pub pid: u32,
    /// Thread that hit it.
    pub tid: u32,
    /// The instruction before which it was hit.
    pub ip: u64,
    /// When it was hit, perf-clock nanoseconds.
    pub time: u64,
    /// How long the call took, nanoseconds, for triggers that wait for a return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<u64>,
    /// The first six integer arguments, as far as the recorder saw the registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<[u64; 6]>,
}

/// Code bytes copied from the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeBlob {
    /// Process.
    pub pid: u32,
    /// First address.
    pub address: u64,
    /// Perf-clock nanoseconds from which on it stood there.
    pub time: u64,
    /// What it is, such as `[vdso]`.
    pub name: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}
