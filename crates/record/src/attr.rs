//! `struct perf_event_attr`, as far as the recorder uses it (`include/uapi/linux/perf_event.h`).

use bitflags::bitflags;

/// `PERF_TYPE_SOFTWARE`.
pub const TYPE_SOFTWARE: u32 = 1;
/// `PERF_TYPE_TRACEPOINT`.
pub const TYPE_TRACEPOINT: u32 = 2;
/// `PERF_TYPE_BREAKPOINT`.
pub const TYPE_BREAKPOINT: u32 = 5;
/// `PERF_COUNT_SW_DUMMY`.
pub const SW_DUMMY: u64 = 9;
/// `HW_BREAKPOINT_X`.
pub const BREAKPOINT_X: u32 = 4;
/// The length that an execute breakpoint must have: `sizeof(long)`.
pub const BREAKPOINT_X_LEN: u64 = 8;

bitflags! {
    /// The one-bit fields.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u64 {
        /// Off until it is enabled.
        const DISABLED = 1 << 0;
        /// Children have it too.
        const INHERIT = 1 << 1;
        /// Not in user code.
        const EXCLUDE_USER = 1 << 4;
        /// Not in the kernel.
        const EXCLUDE_KERNEL = 1 << 5;
        /// Not in the hypervisor.
        const EXCLUDE_HV = 1 << 6;
        /// MMAP records.
        const MMAP = 1 << 8;
        /// COMM records.
        const COMM = 1 << 9;
        /// On when the task runs exec.
        const ENABLE_ON_EXEC = 1 << 12;
        /// FORK and EXIT records.
        const TASK = 1 << 13;
        /// Wake up by bytes, not by events.
        const WATERMARK = 1 << 14;
        /// All records end with the sample's identity.
        const SAMPLE_ID_ALL = 1 << 18;
        /// Not in guests.
        const EXCLUDE_GUEST = 1 << 20;
        /// MMAP2 records.
        const MMAP2 = 1 << 23;
        /// COMM records tell exec apart.
        const COMM_EXEC = 1 << 24;
        /// SWITCH records.
        const CONTEXT_SWITCH = 1 << 26;
        /// KSYMBOL records.
        const KSYMBOL = 1 << 29;
        /// BPF_EVENT records.
        const BPF_EVENT = 1 << 30;
        /// TEXT_POKE records.
        const TEXT_POKE = 1 << 33;
        /// MMAP2 records have build-ids.
        const BUILD_ID = 1 << 34;
    }
}

bitflags! {
    /// `sample_type`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Sample: u64 {
        /// Instruction pointer.
        const IP = 1 << 0;
        /// Process and thread.
        const TID = 1 << 1;
        /// Time.
        const TIME = 1 << 2;
        /// CPU.
        const CPU = 1 << 7;
        /// Registers of the user code.
        const REGS_USER = 1 << 12;
        /// A piece of the user code's stack.
        const STACK_USER = 1 << 13;
        /// Event.
        const IDENTIFIER = 1 << 16;
        /// A piece of the AUX area.
        const AUX = 1 << 20;
    }
}

bitflags! {
    /// `aux_action`: what an event of a group does to the trace of its leader.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct AuxAction: u32 {
        /// The trace starts paused.
        const START_PAUSED = 1 << 0;
        /// A hit pauses the trace.
        const PAUSE = 1 << 1;
        /// A hit lets the trace go on.
        const RESUME = 1 << 2;
    }
}

/// Bits of `sample_regs_user`, in the order in which the values come
/// (`arch/x86/include/uapi/asm/perf_regs.h`).
pub mod register {
    /// Argument 4.
    pub const CX: u32 = 2;
    /// Argument 3.
    pub const DX: u32 = 3;
    /// Argument 2.
    pub const SI: u32 = 4;
    /// Argument 1.
    pub const DI: u32 = 5;
    /// The stack pointer.
    pub const SP: u32 = 7;
    /// Argument 5.
    pub const R8: u32 = 16;
    /// Argument 6.
    pub const R9: u32 = 17;

    /// What a trigger records: the six arguments and the stack pointer.
    pub const TRIGGER: u64 = 1 << CX | 1 << DX | 1 << SI | 1 << DI | 1 << SP | 1 << R8 | 1 << R9;
}

/// See the module. Fields that are not here are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The kernel's names.
pub struct Attr {
    pub kind: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: Sample,
    pub flags: Flags,
    /// Events, or bytes with [`Flags::WATERMARK`].
    pub wakeup: u32,
    pub bp_type: u32,
    /// `bp_addr`, or `config1`.
    pub config1: u64,
    /// `bp_len`, or `config2`.
    pub config2: u64,
    pub sample_regs_user: u64,
    pub sample_stack_user: u32,
    pub aux_watermark: u32,
    pub aux_sample_size: u32,
    pub aux_action: AuxAction,
}
