//! Writing into the shared rings.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use crate::api::{self, PluginId};
use crate::shared::{
    AREA_SIZE, AREAS, CHUNK, CONTROL_SIZE, Control, EVENT, Header, RINGS, STRIDE, WORDS, WORDS_AT,
    event,
};
use crate::{arguments, blocks, idle, kernel};

/// How long the writer sleeps when a ring is full.
const PAUSE: Duration = Duration::from_micros(50);
/// No virtual CPU.
const NONE: u32 = u32::MAX;

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(ptr::null_mut());
/// Stands in for it when nobody reads.
static ALONE: Control = Control::new();
/// This process's area.
static AREA: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// Its number.
static AREA_NUMBER: AtomicU32 = AtomicU32::new(0);
/// The area that a child gets that is about to be born; 0 for none.
static CHILD_AREA: AtomicU32 = AtomicU32::new(0);
/// Nobody reads: this is a child process that is not recorded.
static UNREAD: AtomicBool = AtomicBool::new(false);
/// Writers of the definitions' ring.
static DEFINITIONS: Mutex<()> = Mutex::new(());

thread_local! {
    static VCPU: Cell<u32> = const { Cell::new(NONE) };
}

/// Maps what is shared, from the recorder's file.
pub(crate) fn map() -> bool {
    let (Some(file), Some(area)) = (arguments::open("memory"), arguments::value("area")) else {
        return false;
    };
    let control = map_memory(ptr::null_mut(), CONTROL_SIZE, SHARED, file, 0);
    AREA.store(map_area(ptr::null_mut(), file, area), Ordering::Relaxed);
    AREA_NUMBER.store(area, Ordering::Relaxed);
    // SAFETY: just opened.
    unsafe { api::close(file) };
    CONTROL.store(control.cast(), Ordering::Relaxed);
    !control.is_null() && !AREA.load(Ordering::Relaxed).is_null()
}

const SHARED: i32 = 1;
const FIXED: i32 = 0x10;
const PRIVATE_FIXED_ANONYMOUS: i32 = 0x32;

fn map_area(at: *mut u8, file: i32, number: u32) -> *mut u8 {
    let offset = CONTROL_SIZE + number as usize * AREA_SIZE;
    let flags = if at.is_null() { SHARED } else { SHARED | FIXED };
    map_memory(at, AREA_SIZE, flags, file, offset)
}

fn map_memory(at: *mut u8, len: usize, flags: i32, file: i32, offset: usize) -> *mut u8 {
    const READ_WRITE: i32 = 3;
    const NORESERVE: i32 = 0x4000;
    let (at, offset) = (at.cast::<c_void>(), offset as i64);
    // SAFETY: a new mapping, or one in place of an area, whose layout has no invalid content.
    let address = unsafe { api::mmap(at, len, READ_WRITE, flags | NORESERVE, file, offset) };
    if address as isize == -1 {
        ptr::null_mut()
    } else {
        address.cast()
    }
}

#[inline(always)]
pub(crate) fn control() -> &'static Control {
    // SAFETY: the file starts with it, it is mapped before the first callback and never unmapped, and
    // all its fields are atomic.
    unsafe { &*CONTROL.load(Ordering::Relaxed) }
}

/// In the parent, before fork.
pub(crate) extern "C" fn forks() {
    let control = control();
    let mut area = 0;
    if control.follow_forks.load(Ordering::Relaxed) != 0 && !UNREAD.load(Ordering::Relaxed) {
        area = control.areas.fetch_add(1, Ordering::Relaxed);
        pin();
    }
    CHILD_AREA.store(
        if (area as usize) < AREAS { area } else { 0 },
        Ordering::Relaxed,
    );
}

/// In a child process, behind fork: it has an area of its own, or memory that nobody reads.
pub(crate) extern "C" fn forked() {
    let (area, number) = (
        AREA.load(Ordering::Relaxed),
        CHILD_AREA.load(Ordering::Relaxed),
    );
    idle::forked();
    if number != 0
        && let Some(file) = arguments::open("memory")
    {
        let mapped = map_area(area, file, number);
        // SAFETY: just opened.
        unsafe { api::close(file) };
        if !mapped.is_null() {
            AREA_NUMBER.store(number, Ordering::Relaxed);
            Ring::number(0)
                .header()
                .blocks
                .store(blocks::count(), Ordering::Relaxed);
            Ring::number(0).header().vcpus.store(1, Ordering::Relaxed);
            return;
        }
    }
    UNREAD.store(true, Ordering::Relaxed);
    CONTROL.store(ptr::from_ref(&ALONE).cast_mut(), Ordering::Relaxed);
    if map_memory(area, AREA_SIZE, PRIVATE_FIXED_ANONYMOUS, -1, 0).is_null() {
        std::process::abort();
    }
}

/// Whether what is written is read.
pub(crate) fn are_read() -> bool {
    !UNREAD.load(Ordering::Relaxed) && control().closed.load(Ordering::Relaxed) == 0
}

/// Whether the last child has an area.
pub(crate) fn child_is_read() -> bool {
    CHILD_AREA.load(Ordering::Relaxed) != 0
}

/// The number of this process's area.
pub(crate) fn area() -> u32 {
    AREA_NUMBER.load(Ordering::Relaxed)
}

/// Keeps this thread, and those that it starts, on one CPU: so the threads take turns.
fn pin() {
    // SAFETY: plain functions; the mask is as long as said.
    unsafe {
        let cpu = api::sched_getcpu().max(0) as usize;
        let mut mask = [0_u64; 16];
        mask[cpu / 64 % mask.len()] = 1 << (cpu % 64);
        api::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast());
    }
}

pub(crate) extern "C" fn vcpu_starts(_: PluginId, vcpu: u32) {
    idle::thread_starts();
    let vcpus = &Ring::number(0).header().vcpus;
    vcpus.fetch_max(vcpu + 1, Ordering::Relaxed);
    if vcpu > 0 {
        pin();
    }
    // A number may have been another thread's.
    let _ =
        control()
            .running
            .compare_exchange(turn_of(vcpu), 0, Ordering::Relaxed, Ordering::Relaxed);
    if vcpu == 0 && arguments::value("exec").is_some() {
        kernel::program_starts(vcpu);
    }
}

/// A ring, as its writer sees it.
#[derive(Clone, Copy)]
struct Ring(*mut u8);

impl Ring {
    #[inline(always)]
    fn number(number: u32) -> Self {
        let offset = number as usize % RINGS * STRIDE;
        // SAFETY: inside of the area, which is mapped before the first callback.
        Self(unsafe { AREA.load(Ordering::Relaxed).add(offset) })
    }

    #[inline(always)]
    fn header(self) -> &'static Header {
        // SAFETY: a ring starts with its header, and is never unmapped.
        unsafe { &*self.0.cast::<Header>() }
    }

    /// Writes a word; there is room for it.
    #[inline(always)]
    fn put(self, word: u32) {
        let head = self.header().head.load(Ordering::Relaxed);
        // SAFETY: inside of the ring's words, which only this thread writes.
        unsafe {
            let words = self.0.add(WORDS_AT).cast::<AtomicU32>();
            (*words.add(head as usize % WORDS)).store(word, Ordering::Relaxed);
        }
        self.header().head.store(head + 1, Ordering::Release);
        if (head + 1).is_multiple_of(CHUNK) {
            self.wait_for_room(head + 1);
        }
    }

    /// Waits until there is room for a whole chunk.
    #[cold]
    fn wait_for_room(self, head: u64) {
        let tail = &self.header().tail;
        while head + CHUNK - tail.load(Ordering::Acquire) > WORDS as u64 && are_read() {
            std::thread::sleep(PAUSE);
        }
    }

    fn put_event(self, tag: u32, words: &[u32]) {
        self.put(EVENT | tag << 24 | words.len() as u32);
        for &word in words {
            self.put(word);
        }
    }
}

fn turn_of(vcpu: u32) -> u32 {
    area() * RINGS as u32 + vcpu % (RINGS as u32 - 1) + 1
}

/// A virtual CPU's ring, when it is its turn.
#[inline(always)]
fn ring_of(vcpu: u32) -> Ring {
    let ring = Ring::number(vcpu % (RINGS as u32 - 1) + 1);
    if control().running.load(Ordering::Relaxed) != turn_of(vcpu) {
        begin_turn(ring, vcpu);
    }
    ring
}

#[cold]
fn begin_turn(ring: Ring, vcpu: u32) {
    VCPU.set(vcpu);
    let control = control();
    control.running.store(turn_of(vcpu), Ordering::Relaxed);
    let [low, high] = halves(control.turns.fetch_add(1, Ordering::AcqRel) + 1);
    // SAFETY: plain system calls.
    let (process, thread) = unsafe { (api::getpid() as u32, api::gettid() as u32) };
    ring.put_event(event::TURN, &[low, high, process, thread]);
}

/// A virtual CPU executes a block.
#[inline(always)]
pub(crate) fn block(vcpu: u32, id: u32) {
    ring_of(vcpu).put(id);
}

/// Something happened between two blocks.
pub(crate) fn event(vcpu: u32, tag: u32, words: &[u32]) {
    ring_of(vcpu).put_event(tag, words);
}

/// The virtual CPU that this thread is; known from its first turn on.
pub(crate) fn this_vcpu() -> Option<u32> {
    Some(VCPU.get()).filter(|&vcpu| vcpu != NONE && !UNREAD.load(Ordering::Relaxed))
}

/// The number of blocks that this process's area has.
pub(crate) fn blocks_defined() -> u32 {
    Ring::number(0).header().blocks.load(Ordering::Relaxed)
}

/// Defines a block, before it executes.
pub(crate) fn define(words: &[u32]) {
    let ring = Ring::number(0);
    let _writer = DEFINITIONS.lock();
    ring.put(words.len() as u32);
    for &word in words {
        ring.put(word);
    }
    ring.header().blocks.fetch_add(1, Ordering::Relaxed);
}

/// A 64-bit value as two words.
pub(crate) fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// A text as words: its length, then its bytes.
pub(crate) fn text(bytes: &[u8]) -> impl Iterator<Item = u32> {
    std::iter::once(bytes.len() as u32).chain(packed(bytes))
}

/// Bytes as words, the last one filled up with zeros.
pub(crate) fn packed(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks(4).map(|part| {
        let mut word = [0; 4];
        word[..part.len()].copy_from_slice(part);
        u32::from_le_bytes(word)
    })
}
