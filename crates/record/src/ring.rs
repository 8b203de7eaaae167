//! Reading rings: records, a stream of trace, and snapshots of trace.
//!
//! The kernel's rules (`Documentation` of `perf_event_mmap_page`, `kernel/events/ring_buffer.c`):
//!
//! - What lies before a head is written before the head is: load the head with acquire, then read.
//! - The kernel overwrites what lies before a tail: read, then store the tail with release.
//! - `data_head` and a stream's `aux_head` count all bytes ever; a snapshot's `aux_head` is a place in
//!   the ring, and does not tell whether it went round. It is told when the event stops: a ring that is
//!   being written is never read.
//!
//! A snapshot's ring begins as zeros, and zeros are PAD packets. So if all that lies behind the head is
//! zero, leaving it out loses nothing, whether the ring went round or not; and if anything is not, it
//! did. No more needs to be known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;

use crate::memory::{Area, Base};

const WORD: usize = size_of::<u64>();
/// `struct perf_event_header`: u32 type, u16 misc, u16 size.
const RECORD_HEADER: usize = 8;

/// The records of an event.
#[derive(Debug)]
pub struct Records {
    base: Arc<Base>,
}

/// A record as the kernel wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord {
    /// `PERF_RECORD_…`.
    pub kind: u32,
    /// `PERF_RECORD_MISC_…`.
    pub misc: u16,
    /// What stands behind the header.
    pub body: Vec<u8>,
}

/// Why a ring could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The map has another size than a ring.
    #[error("a ring has a header page and a power of two of pages behind it")]
    Shape,
    /// The head moves: its event was not stopped.
    #[error("the trace is being written while it is read: its event was not stopped")]
    Running,
    /// The kernel's counts make no sense.
    #[error("the ring's head is {head}, its tail {tail}: was the header page written over?")]
    Counts {
        /// The head.
        head: u64,
        /// The tail.
        tail: u64,
    },
}

impl Records {
    /// The ring in a map of a header page and a power of two of pages.
    ///
    /// # Errors
    /// [`RingError::Shape`].
    pub fn new(map: MmapRaw) -> Result<Self, RingError> {
        let base = Base::new(map).ok_or(RingError::Shape)?;
        let words = base.data().len();
        if words > 0 && !words.is_power_of_two() {
            return Err(RingError::Shape);
        }
        Ok(Self {
            base: Arc::new(base),
        })
    }

    /// Takes all records that there are, the oldest first.
    ///
    /// # Errors
    /// [`RingError::Counts`]; what was in the ring is then left out.
    pub fn drain(&mut self) -> Result<Vec<RawRecord>, RingError> {
        let header = self.base.header();
        let data = self.base.data();
        let size = (data.len() * WORD) as u64;
        let head = header.data_head.load(Ordering::Acquire);
        let mut tail = header.data_tail.load(Ordering::Relaxed);
        let mut records = Vec::new();
        let wrong = RingError::Counts { head, tail };
        if head.checked_sub(tail).is_none_or(|unread| unread > size) {
            header.data_tail.store(head, Ordering::Release);
            return Err(wrong);
        }
        while tail < head {
            let first = copy(data, tail, RECORD_HEADER);
            let kind = u32::from_le_bytes([first[0], first[1], first[2], first[3]]);
            let misc = u16::from_le_bytes([first[4], first[5]]);
            let len = u64::from(u16::from_le_bytes([first[6], first[7]]));
            if len < RECORD_HEADER as u64 || len > head - tail {
                header.data_tail.store(head, Ordering::Release);
                return Err(wrong);
            }
            let body = copy(
                data,
                tail + RECORD_HEADER as u64,
                len as usize - RECORD_HEADER,
            );
            records.push(RawRecord { kind, misc, body });
            tail += len;
        }
        header.data_tail.store(tail, Ordering::Release);
        Ok(records)
    }

    /// Says where the AUX area is going to be mapped.
    pub fn announce_aux(&self, offset: u64, size: u64) {
        let header = self.base.header();
        header.aux_offset.store(offset, Ordering::Relaxed);
        header.aux_size.store(size, Ordering::Release);
    }

    /// Bytes of trace, behind the header page of the same event.
    ///
    /// # Errors
    /// [`RingError::Shape`].
    pub fn aux(&self, map: MmapRaw) -> Result<Aux, RingError> {
        Ok(Aux {
            base: Arc::clone(&self.base),
            area: Area::new(map).ok_or(RingError::Shape)?,
        })
    }

    /// From TSC to perf-clock nanoseconds: shift, multiplier, zero; `None` if the kernel's clock is not
    /// the TSC.
    #[must_use]
    pub fn conversion(&self) -> Option<(u16, u32, u64)> {
        /// `cap_user_time_zero`.
        const TIME_ZERO: u64 = 1 << 4;
        let header = self.base.header();
        loop {
            let lock = header.lock.load(Ordering::Acquire);
            let capabilities = header.capabilities.load(Ordering::Relaxed);
            let found = (
                header.time_shift.load(Ordering::Relaxed),
                header.time_mult.load(Ordering::Relaxed),
                header.time_zero.load(Ordering::Relaxed),
            );
            std::sync::atomic::fence(Ordering::Acquire);
            if lock.is_multiple_of(2) && header.lock.load(Ordering::Relaxed) == lock {
                return (capabilities & TIME_ZERO != 0).then_some(found);
            }
        }
    }
}

/// The AUX area of an event.
#[derive(Debug)]
pub struct Aux {
    base: Arc<Base>,
    area: Area,
}

impl Aux {
    /// What a snapshot's ring holds, the oldest byte first; it may begin inside a packet. The event must
    /// have been stopped. Zeros at its beginning are left out.
    ///
    /// # Errors
    /// [`RingError::Running`], [`RingError::Counts`].
    pub fn snapshot(&self) -> Result<Vec<u8>, RingError> {
        let header = self.base.header();
        let words = self.area.words();
        let size = words.len() * WORD;
        let head = header.aux_head.load(Ordering::Acquire);
        let place = usize::try_from(head).ok().filter(|&place| place < size);
        let Some(place) = place else {
            return Err(RingError::Counts { head, tail: 0 });
        };
        let mut held = copy(words, head, size);
        std::sync::atomic::fence(Ordering::Acquire);
        if header.aux_head.load(Ordering::Relaxed) != head {
            return Err(RingError::Running);
        }
        let older = size - place;
        let zeros = held[..older].iter().take_while(|&&byte| byte == 0).count();
        held.drain(..zeros);
        Ok(held)
    }

    /// The new bytes of a stream, in order; the kernel may use their place again.
    ///
    /// # Errors
    /// [`RingError::Counts`]; what was in the ring is then left out.
    pub fn stream(&mut self) -> Result<Vec<u8>, RingError> {
        let header = self.base.header();
        let words = self.area.words();
        let size = (words.len() * WORD) as u64;
        let head = header.aux_head.load(Ordering::Acquire);
        let tail = header.aux_tail.load(Ordering::Relaxed);
        let unread = head.checked_sub(tail).filter(|&unread| unread <= size);
        let bytes = unread.map(|unread| copy(words, tail, unread as usize));
        // All reads come before the tail, which lets the kernel write there.
        std::sync::atomic::fence(Ordering::SeqCst);
        header.aux_tail.store(head, Ordering::Release);
        bytes.ok_or(RingError::Counts { head, tail })
    }
}

/// So many bytes of a ring from a place on that may count rounds too.
fn copy(words: &[AtomicU64], from: u64, len: usize) -> Vec<u8> {
    let size = words.len() * WORD;
    let Some(mut at) = (from as usize).checked_rem(size) else {
        return vec![0; len];
    };
    let mut bytes = Vec::with_capacity(len + WORD);
    while bytes.len() < len {
        let word = words[at / WORD].load(Ordering::Relaxed).to_le_bytes();
        bytes.extend_from_slice(&word[at % WORD..]);
        at = (at / WORD + 1) * WORD % size;
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests;
