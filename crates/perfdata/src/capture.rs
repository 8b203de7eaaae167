//! A capture in memory: what every source of trace data is turned into.

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;

use ptrail_pt::{PtConfig, TimeConv};

use crate::file::Store;
use crate::{Error, Extra};

/// A recording, opened for reading. The trace bytes stay in the mapped file.
pub struct Capture {
    /// Where it was recorded.
    pub machine: Machine,
    /// How the trace unit was set.
    pub pt_config: PtConfig,
    /// From TSC to perf clock; `None` if the capture does not say (times are then raw TSC).
    pub clock: Option<TimeConv>,
    /// The trace data, one stream a thread or CPU, in the order of first appearance.
    pub streams: Vec<AuxStream>,
    /// What else was recorded, ordered by time (records without time keep their place in the file).
    pub sideband: Vec<Sideband>,
    /// Records that nothing here is made of (samples of other events, kinds that are not known),
    /// by type number: counted and skipped.
    pub unknown_records: std::collections::BTreeMap<u32, u64>,
    /// What only ptrail's own recorders know; `None` for other people's files.
    pub extra: Option<Extra>,
    /// A copy of the kernel's memory that was recorded with it (`perf record --kcore`).
    pub kernel: Option<KernelCopy>,
    /// What was wrong with the file, with offsets; empty for a whole one. The rest was read.
    pub damage: Vec<Error>,
    pub(crate) files: Vec<Store>,
}

/// The machine of the recording; empty where the file does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Host name.
    pub hostname: String,
    /// Kernel release.
    pub os_release: String,
    /// Architecture, such as `x86_64`.
    pub arch: String,
    /// CPU description, such as the model name.
    pub cpu_description: String,
    /// perf's cpuid string, such as `GenuineIntel,6,85,4`.
    pub cpuid: String,
    /// Command line of the recording program.
    pub command: Vec<String>,
}

/// Files of a folder `kcore_dir`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCopy {
    /// The kernel's code as an ELF core file, at its true addresses.
    pub kcore: PathBuf,
    /// Its symbols (`/proc/kallsyms`).
    pub kallsyms: PathBuf,
}

/// Whose execution a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// One thread's.
    Thread {
        /// Process id, if some record tells it.
        pid: Option<u32>,
        /// Thread id.
        tid: u32,
    },
    /// One CPU's, whichever thread ran on it.
    Cpu(u32),
    /// Nobody knows: a file of nothing but packets.
    Unknown,
}

/// Trace data of one thread or CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuxStream {
    /// Whose.
    pub owner: Owner,
    /// Its parts in order.
    pub pieces: Vec<AuxPiece>,
}

/// A run of trace bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuxPiece {
    /// Which of the capture's files the bytes are in, counted from 0 (most captures are one file).
    pub file: usize,
    /// Where they stand in it, without the zeros that fill them up to whole words.
    pub range: Range<u64>,
    /// Offset of its first byte in the AUX area's own count (`PERF_RECORD_AUXTRACE.offset`).
    pub aux_offset: u64,
    /// What is missing between the piece before and this one; `None` if nothing is.
    pub gap: Option<Gap>,
}

/// Why a piece does not go on where the piece before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// So many bytes, by the AUX area's own count, are not in the file.
    Bytes(u64),
    /// It is another snapshot or sample: what was in between was overwritten.
    Overwritten,
}

/// A sideband record with its time and thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sideband {
    /// Perf-clock nanoseconds; `None` if the record carries no time.
    pub time: Option<u64>,
    /// Process id, if known.
    pub pid: Option<u32>,
    /// Thread id, if known.
    pub tid: Option<u32>,
    /// CPU, if known.
    pub cpu: Option<u32>,
    /// The record.
    pub record: Record,
}

/// The records that matter to a decoder, by perf's names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A mapping was made (MMAP or MMAP2).
    Mmap2 {
        /// First address.
        address: u64,
        /// Bytes.
        len: u64,
        /// Offset in the file, bytes.
        file_offset: u64,
        /// Whether it can be executed.
        executable: bool,
        /// File, or a name in brackets or `//anon`.
        path: String,
        /// Build-id of the file, if recorded.
        build_id: Option<Vec<u8>>,
    },
    /// A whole ELF file was mapped, its lowest segment at this address (LLDB's bundles).
    Module {
        /// Where its first byte lies.
        address: u64,
        /// The file.
        path: String,
        /// Its build-id, if recorded.
        build_id: Option<Vec<u8>>,
    },
    /// A thread got a name.
    Comm {
        /// The name.
        name: String,
        /// By exec: all mappings before it are gone.
        exec: bool,
    },
    /// A process or thread was born.
    Fork {
        /// Parent's process id.
        parent_pid: u32,
        /// Parent's thread id.
        parent_tid: u32,
    },
    /// A process or thread ended.
    Exit,
    /// Tracing of this thread began.
    ItraceStart,
    /// The thread went on a CPU (`out` false) or left it.
    Switch {
        /// It left.
        out: bool,
        /// It left although it could have run on.
        preempted: bool,
        /// The thread that comes next (on leaving) or was before, if recorded: process, thread.
        other: Option<(u32, u32)>,
    },
    /// New AUX data of `size` bytes at `aux_offset`.
    Aux {
        /// Position in the AUX area's own count.
        aux_offset: u64,
        /// Bytes.
        size: u64,
        /// `PERF_AUX_FLAG_*`.
        flags: u64,
    },
    /// perf lost this many sideband records.
    Lost(u64),
    /// perf lost this many samples.
    LostSamples(u64),
    /// Kernel code came or went: a BPF program, a trampoline.
    Ksymbol {
        /// First address.
        address: u64,
        /// Bytes.
        len: u32,
        /// `PERF_RECORD_KSYMBOL_TYPE_*`: 1 BPF, 2 out of line (trampolines).
        kind: u16,
        /// It went.
        unregister: bool,
        /// Its name.
        name: String,
    },
    /// A BPF program was loaded or unloaded.
    BpfEvent {
        /// `PERF_BPF_EVENT_*`: 1 loaded, 2 unloaded.
        kind: u16,
        /// Its id.
        id: u32,
    },
    /// Kernel code was changed in place.
    TextPoke {
        /// First address.
        address: u64,
        /// The bytes before.
        old: Vec<u8>,
        /// The bytes from now on.
        new: Vec<u8>,
    },
    /// The namespaces of a process: device and inode of each, in the order of the kernel's `*_NS_INDEX`.
    Namespaces(Vec<(u64, u64)>),
    /// Which counter of the CPU the event uses (PEBS via PT).
    AuxOutputHwId(u64),
    /// perf could not decode here when it wrote this file.
    AuxtraceError {
        /// perf's error code.
        code: u32,
        /// Address, if known.
        ip: u64,
        /// perf's message.
        message: String,
    },
}

impl Capture {
    /// The bytes of one piece.
    #[must_use]
    pub fn bytes(&self, piece: &AuxPiece) -> &[u8] {
        self.files[piece.file].part(&piece.range)
    }

    /// All bytes of a stream, in order; those of a single piece are not copied.
    #[must_use]
    pub fn stream_bytes(&self, stream: &AuxStream) -> Cow<'_, [u8]> {
        match stream.pieces.as_slice() {
            [piece] => Cow::Borrowed(self.bytes(piece)),
            pieces => pieces
                .iter()
                .flat_map(|piece| self.bytes(piece))
                .copied()
                .collect(),
        }
    }

    /// The last name given to a thread.
    #[must_use]
    pub fn thread_name(&self, tid: u32) -> Option<&str> {
        self.name(|entry| entry.tid == Some(tid))
    }

    /// The last name given to the first thread of a process.
    #[must_use]
    pub fn process_name(&self, pid: u32) -> Option<&str> {
        self.name(|entry| entry.pid == Some(pid) && entry.tid == Some(pid))
    }

    fn name(&self, is: impl Fn(&Sideband) -> bool) -> Option<&str> {
        let mut entries = self.sideband.iter().rev();
        entries.find_map(|entry| match &entry.record {
            Record::Comm { name, .. } if is(entry) => Some(name.as_str()),
            _ => None,
        })
    }
}
