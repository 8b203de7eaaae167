//! Memory that the kernel writes and we read: a ring's header page, its records, its AUX area.
//!
//! The kernel and the trace unit write while we look, so all of it is read as atomics: bytes that are
//! being written are any value, never undefined behaviour. In what order things became visible is up
//! to [`crate::ring`].

#![allow(unsafe_code)]

use std::mem::offset_of;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use memmap2::MmapRaw;
use perf_event_open_sys::bindings::perf_event_mmap_page;

/// `struct perf_event_mmap_page`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    version: [AtomicU32; 2],
    pub(crate) lock: AtomicU32,
    index: AtomicU32,
    counts: [AtomicU64; 3],
    pub(crate) capabilities: AtomicU64,
    pmc_width: AtomicU16,
    pub(crate) time_shift: AtomicU16,
    pub(crate) time_mult: AtomicU32,
    time_offset: AtomicU64,
    pub(crate) time_zero: AtomicU64,
    reserved: [AtomicU64; 119],
    pub(crate) data_head: AtomicU64,
    pub(crate) data_tail: AtomicU64,
    pub(crate) data_offset: AtomicU64,
    pub(crate) data_size: AtomicU64,
    pub(crate) aux_head: AtomicU64,
    pub(crate) aux_tail: AtomicU64,
    pub(crate) aux_offset: AtomicU64,
    pub(crate) aux_size: AtomicU64,
}

const _: () = {
    assert!(offset_of!(Header, lock) == offset_of!(perf_event_mmap_page, lock));
    assert!(offset_of!(Header, time_shift) == offset_of!(perf_event_mmap_page, time_shift));
    assert!(offset_of!(Header, time_mult) == offset_of!(perf_event_mmap_page, time_mult));
    assert!(offset_of!(Header, time_zero) == offset_of!(perf_event_mmap_page, time_zero));
    assert!(offset_of!(Header, data_head) == offset_of!(perf_event_mmap_page, data_head));
    assert!(offset_of!(Header, aux_head) == offset_of!(perf_event_mmap_page, aux_head));
    assert!(offset_of!(Header, aux_size) == offset_of!(perf_event_mmap_page, aux_size));
};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// A header page and the records behind it.
#[derive(Debug)]
pub(crate) struct Base(MmapRaw);

impl Base {
    /// `None` if it is not a whole number of pages, at least one.
    pub(crate) fn new(map: MmapRaw) -> Option<Self> {
        (map.len() >= PAGE && map.len().is_multiple_of(PAGE)).then_some(Self(map))
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: `new` checked that the map holds a page, it is page-aligned, and lives as long as
        // `self`; all fields are atomics, for which any content is valid.
        unsafe { &*self.0.as_ptr().cast::<Header>() }
    }

    /// The records, as words.
    pub(crate) fn data(&self) -> &[AtomicU64] {
        words(&self.0, PAGE)
    }
}

/// An AUX area.
#[derive(Debug)]
pub(crate) struct Area(MmapRaw);

impl Area {
    /// `None` if it is not a power of two of bytes, at least one page.
    pub(crate) fn new(map: MmapRaw) -> Option<Self> {
        (map.len() >= PAGE && map.len().is_power_of_two()).then_some(Self(map))
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        words(&self.0, 0)
    }
}

/// What lies behind the first bytes of a map, as words.
fn words(map: &MmapRaw, from: usize) -> &[AtomicU64] {
    let len = map.len().saturating_sub(from) / size_of::<u64>();
    // SAFETY: the words lie inside of the map, whose address and `from` are multiples of a page, and
    // it lives as long as the reference; any content is valid. Where it may not be written it is only
    // read.
    unsafe { std::slice::from_raw_parts(map.as_ptr().add(from).cast::<AtomicU64>(), len) }
}
