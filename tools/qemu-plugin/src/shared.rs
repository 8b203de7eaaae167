//! The memory that the plugin and the recorder share.
//!
//! It starts with [`Control`]. Then come areas, one a process; each has one ring for definitions and
//! one for each virtual CPU. All is sparse: only what is used takes memory.
//!
//! A ring holds 32-bit words. `head` counts the words written since the start, `tail` those read;
//! word number `i` lies at `i % WORDS`. A virtual CPU's ring holds the ids of blocks in the order in
//! which they execute, and between them events: a word with bit 31 set holds an event's tag and the
//! number of words that follow ([`event`]). 64-bit values come as two words, the lower half first.
//! The definitions' ring holds what each block is: the number of words that follow, then as
//! [`DEFINITION_WORDS`] says. A block is defined before it executes for the first time.
//!
//! All threads of all processes take turns, and number them: a thread that executes a block while
//! another one has the turn begins the next turn with [`event::TURN`]. Read in the order of turns,
//! the rings tell one story. They share one CPU, so turns are as long as the kernel lets them run.
//!
//! This file is part of both the plugin and the recorder.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// Processes that can have an area.
pub const AREAS: usize = 1024;
/// Rings of a process: the definitions', then one a virtual CPU.
pub const RINGS: usize = 256;
/// Words in a ring.
pub const WORDS: usize = 1 << 20;
/// A ring begins at a multiple of this many bytes; its words begin a page later.
pub const STRIDE: usize = 8 << 20;
/// Where the words of a ring begin, in bytes.
pub const WORDS_AT: usize = 4096;
/// The writer looks for room once every so many words.
pub const CHUNK: u64 = 1 << 15;
/// Size of [`Control`] in the file, in bytes; the areas follow.
pub const CONTROL_SIZE: usize = 4096;
/// Size of an area in bytes.
pub const AREA_SIZE: usize = RINGS * STRIDE;

/// What all processes share. New memory is all zeros.
#[repr(C)]
pub struct Control {
    /// The virtual CPU that has the turn: area × [`RINGS`] + ring; 0 before the first turn.
    pub running: AtomicU32,
    /// The recorder wants nothing more.
    pub closed: AtomicU32,
    /// Turns begun.
    pub turns: AtomicU64,
    /// Areas given away.
    pub areas: AtomicU32,
    /// Not zero: children get areas too.
    pub follow_forks: AtomicU32,
    /// Threads that are not in a system call.
    pub busy: AtomicI32,
    /// When the last of them entered one; nanoseconds of CLOCK_MONOTONIC.
    pub idle_since: AtomicU64,
}

impl Control {
    /// All zeros.
    pub const fn new() -> Self {
        Self {
            running: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            turns: AtomicU64::new(0),
            areas: AtomicU32::new(0),
            follow_forks: AtomicU32::new(0),
            busy: AtomicI32::new(0),
            idle_since: AtomicU64::new(0),
        }
    }
}

/// What stands at the start of a ring, the writer's and the reader's word on cache lines of their own.
#[repr(C)]
pub struct Header {
    /// Words written.
    pub head: AtomicU64,
    _writer: [u64; 7],
    /// Words read.
    pub tail: AtomicU64,
    _reader: [u64; 7],
    /// In the definitions' ring: blocks defined.
    pub blocks: AtomicU32,
    /// In the definitions' ring: virtual CPUs, at most so many at a time so far.
    pub vcpus: AtomicU32,
}

/// Bit 31: an event and no block.
pub const EVENT: u32 = 1 << 31;

/// Tags of events, in bits 30:24 of their first word.
pub mod event {
    /// A turn begins: its number (64 bits; the first is 1), the process and the thread that have it.
    pub const TURN: u32 = 1;
    /// A system call ended: its number, the nanoseconds of it in which nothing ran (64 bits).
    pub const SYSCALL: u32 = 2;
    /// A signal was delivered: its number, `si_code`, the address of the next instruction without it
    /// (64 bits). The handler's first block follows.
    pub const SIGNAL: u32 = 3;
    /// A signal kills the program; as [`SIGNAL`].
    pub const KILLED: u32 = 4;
    /// An executable mapping: address, length, file offset (64 bits each), 1 if it is writable, the
    /// path (its length in bytes, then the bytes, filled up to whole words).
    pub const MAPPED: u32 = 5;
    /// The thread has a new name, a text as above.
    pub const NAMED: u32 = 6;
    /// The process runs another program from now on; its name.
    pub const EXEC: u32 = 7;
    /// The process tries to run another program, not under QEMU; if it succeeds, nothing follows.
    pub const EXEC_AWAY: u32 = 8;
    /// A child process that is not recorded; its id.
    pub const CHILD: u32 = 9;
    /// The process was born, as the child of this process; it knows so many of its parent's blocks.
    pub const BORN: u32 = 10;
}

/// Words of a definition before its bytes: block id, address (2), number of bytes of code, number
/// of bytes of the pages around it (0 if they are a file's), the pages' address (2). The code's
/// bytes follow, then the pages', each filled up to a whole word.
pub const DEFINITION_WORDS: usize = 7;
