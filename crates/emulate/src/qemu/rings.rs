//! The reader's side of the memory shared with the plugin.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::shared::{
    AREA_SIZE, AREAS, CONTROL_SIZE, Control, EVENT, Header, RINGS, STRIDE, WORDS, WORDS_AT, event,
};
use crate::Error;

/// The definitions' ring.
pub(crate) const DEFINITIONS: usize = 0;

/// The memory itself.
pub(crate) struct Memory {
    fd: OwnedFd,
    control: MmapRaw,
}

impl Memory {
    /// New memory, with one area given away.
    pub(crate) fn new(follow_forks: bool) -> Result<Self, Error> {
        let make = || {
            let fd = memfd_create(c"ptrail-rings", MFdFlags::MFD_CLOEXEC)?;
            nix::unistd::ftruncate(&fd, (CONTROL_SIZE + AREAS * AREA_SIZE) as i64)?;
            let control = MmapOptions::new().len(CONTROL_SIZE).map_raw(&fd)?;
            Ok(Self { fd, control })
        };
        let memory = make().map_err(Error::io("share memory with QEMU"))?;
        memory.control().areas.store(1, Ordering::Relaxed);
        let follow_forks = u32::from(follow_forks);
        memory
            .control()
            .follow_forks
            .store(follow_forks, Ordering::Relaxed);
        Ok(memory)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Areas given away.
    pub(crate) fn areas(&self) -> usize {
        (self.control().areas.load(Ordering::Relaxed) as usize).min(AREAS)
    }

    /// Maps an area.
    pub(crate) fn area(&self, number: usize) -> Result<Area, Error> {
        let map = MmapOptions::new()
            .offset((CONTROL_SIZE + number * AREA_SIZE) as u64)
            .len(AREA_SIZE)
            .map_raw(&self.fd)
            .map_err(Error::io("share memory with QEMU"))?;
        Ok(Area { map })
    }

    /// Tells the plugins that nobody reads any more.
    pub(crate) fn close(&self) {
        self.control().closed.store(1, Ordering::Relaxed);
    }

    fn control(&self) -> &Control {
        // SAFETY: the file starts with it; all its fields are atomic.
        unsafe { &*self.control.as_ptr().cast::<Control>() }
    }
}

/// The rings of a process.
pub(crate) struct Area {
    map: MmapRaw,
}

impl Area {
    /// How many virtual CPUs it has had at most.
    pub(crate) fn vcpus(&self) -> usize {
        let vcpus = self.header(DEFINITIONS).vcpus.load(Ordering::Relaxed);
        (vcpus as usize).min(RINGS - 1)
    }

    /// What is to be read of a ring.
    pub(crate) fn unread(&self, ring: usize) -> Unread<'_> {
        let header = self.header(ring);
        // SAFETY: the words of a ring lie inside of the map, aligned, and any content is valid.
        let words = unsafe {
            let words = self.map.as_ptr().add(ring * STRIDE + WORDS_AT);
            std::slice::from_raw_parts(words.cast::<AtomicU32>(), WORDS)
        };
        Unread {
            header,
            words,
            at: header.tail.load(Ordering::Relaxed),
            head: header.head.load(Ordering::Acquire),
        }
    }

    /// The turn that begins with what is to be read next of a ring.
    pub(crate) fn next_turn(&self, ring: usize) -> Option<u64> {
        let mut unread = self.unread(ring);
        let first = unread.next()?;
        if first >> 24 != (EVENT >> 24 | event::TURN) {
            return None;
        }
        let words = unread.take((first & 0xff_ffff) as usize)?;
        Some(long(*words.first()?, *words.get(1)?))
    }

    fn header(&self, ring: usize) -> &Header {
        assert!(ring < RINGS, "rings are counted by the callers");
        // SAFETY: a ring starts with its header, inside of the map; all its fields are atomic.
        unsafe { &*self.map.as_ptr().add(ring * STRIDE).cast::<Header>() }
    }
}

/// The words of a ring that were not read yet, the oldest first.
pub(crate) struct Unread<'a> {
    header: &'a Header,
    words: &'a [AtomicU32],
    at: u64,
    head: u64,
}

impl Unread<'_> {
    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.head - self.at
    }

    /// The next word; `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.at == self.head {
            return None;
        }
        let word = self.words[self.at as usize % WORDS].load(Ordering::Relaxed);
        self.at += 1;
        Some(word)
    }

    /// The next `len` words, or nothing if the writer has not finished them.
    pub(crate) fn take(&mut self, len: usize) -> Option<Vec<u32>> {
        if self.len() < len as u64 {
            return None;
        }
        (0..len).map(|_| self.next()).collect()
    }

    /// The next words, or nothing if the writer has not finished them.
    pub(crate) fn take_array<const N: usize>(&mut self) -> Option<[u32; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Goes back by so many words.
    pub(crate) fn back(&mut self, words: u64) {
        self.at -= words;
    }

    /// Tells the writer that all words taken so far may be overwritten.
    pub(crate) fn release(&self) {
        self.header.tail.store(self.at, Ordering::Release);
    }
}

/// 64 bits from two words, the lower half first.
pub(crate) fn long(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Bytes that were packed into words.
pub(crate) fn unpacked(words: &[u32], len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// A text that was packed into words, behind its length.
pub(crate) fn text(words: &[u32]) -> Option<String> {
    let (&len, bytes) = words.split_first()?;
    Some(String::from_utf8_lossy(&unpacked(bytes, len as usize)).into_owned())
}
