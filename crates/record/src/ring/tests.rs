//! Rings against a model of the kernel and the trace unit: memory laid out as theirs, and a thread that
//! writes it.

use std::sync::atomic::{AtomicBool, fence};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use memmap2::MmapOptions;
use proptest::prelude::*;

use super::*;
use crate::memory::PAGE;

fn anonymous(len: usize) -> MmapRaw {
    MmapRaw::from(MmapOptions::new().len(len).map_anon().unwrap())
}

/// Memory of a ring, mapped twice: once for the model, once for the reader.
fn shared(len: usize) -> (MmapRaw, MmapRaw) {
    let file = tempfile::tempfile().unwrap();
    file.set_len(len as u64).unwrap();
    let map = || MmapOptions::new().len(len).map_raw(&file).unwrap();
    (map(), map())
}

/// A trace unit with its ring.
struct Hardware {
    base: Base,
    area: Area,
    /// All that it ever wrote.
    written: Vec<u8>,
    random: u64,
}

impl Hardware {
    fn new(base: MmapRaw, area: MmapRaw) -> Self {
        Self {
            base: Base::new(base).unwrap(),
            area: Area::new(area).unwrap(),
            written: Vec::new(),
            random: 1,
        }
    }

    /// Some bytes of trace: zeros are rare but come in rows, as padding does.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut zeros = 0;
        (0..len)
            .map(|_| {
                self.random = self
                    .random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let number = (self.random >> 33) as u32;
                if number.is_multiple_of(500) {
                    zeros = 40;
                }
                zeros = zeros.max(1) - 1;
                if zeros > 0 { 0 } else { number as u8 | 1 }
            })
            .collect()
    }

    fn put(&mut self, bytes: &[u8]) {
        let words = self.area.words();
        let size = words.len() * WORD;
        for &byte in bytes {
            let at = self.written.len() % size;
            let word = &words[at / WORD];
            let shift = at % WORD * 8;
            let old = word.load(Ordering::Relaxed);
            let new = old & !(0xff << shift) | u64::from(byte) << shift;
            word.store(new, Ordering::Relaxed);
            self.written.push(byte);
        }
    }

    /// `pt_event_stop` in a snapshot: the head is a place in the ring.
    fn publish_snapshot(&self) {
        let size = self.area.words().len() * WORD;
        let head = self.written.len() % size;
        let header = self.base.header();
        header.aux_head.store(head as u64, Ordering::Release);
    }
}

/// What the last `size` bytes are, less zeros at the beginning.
fn expected(written: &[u8], size: usize) -> &[u8] {
    let last = &written[written.len().saturating_sub(size)..];
    let zeros = last.iter().take_while(|&&byte| byte == 0).count();
    &last[zeros..]
}

/// Without the zeros at the beginning.
fn trimmed(bytes: &[u8]) -> &[u8] {
    expected(bytes, bytes.len())
}

enum Order {
    Write(usize),
    Stop,
    End,
}

/// A thread that writes by orders; it answers a stop with all that it wrote.
fn hardware_thread(mut hardware: Hardware, orders: &Receiver<Order>, stopped: &Sender<Vec<u8>>) {
    for order in orders {
        match order {
            Order::Write(len) => {
                let bytes = hardware.bytes(len);
                hardware.put(&bytes);
            }
            Order::Stop => {
                hardware.publish_snapshot();
                stopped.send(hardware.written.clone()).unwrap();
            }
            Order::End => break,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever was written, in whatever pieces, with whatever pauses: the snapshot is the end of it.
    #[test]
    fn a_snapshot_is_the_last_bytes_before_the_stop(
        pages in 0..3_u32,
        rounds in prop::collection::vec(prop::collection::vec(0..6000_usize, 0..6), 1..5),
    ) {
        let size = PAGE << pages;
        let ((base, ours), (area, our_area)) = (shared(PAGE), shared(size));
        let hardware = Hardware::new(base, area);
        let (order, orders) = channel();
        let (stopped, stops) = channel();
        let writer = thread::spawn(move || hardware_thread(hardware, &orders, &stopped));
        let records = Records::new(ours).unwrap();
        let aux = records.aux(our_area).unwrap();
        for round in rounds {
            for len in round {
                order.send(Order::Write(len)).unwrap();
            }
            order.send(Order::Stop).unwrap();
            let written = stops.recv().unwrap();
            let held = aux.snapshot().unwrap();
            prop_assert_eq!(trimmed(&held), expected(&written, size));
            // At most zeros are missing.
            prop_assert!(held.len() <= size);
        }
        order.send(Order::End).unwrap();
        writer.join().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A stream that is read while it is written: every byte once and in order, but for what the
    /// hardware left out because the ring was full.
    #[test]
    fn a_stream_has_all_that_was_written(
        pages in 0..2_u32,
        pieces in prop::collection::vec(1..5000_usize, 1..40),
        yields in 0..4_usize,
    ) {
        let size = PAGE << pages;
        let ((base, ours), (area, our_area)) = (shared(PAGE), shared(size));
        let mut hardware = Hardware::new(base, area);
        let ended = AtomicBool::new(false);
        let records = Records::new(ours).unwrap();
        let mut aux = records.aux(our_area).unwrap();
        let mut read = Vec::new();
        let written = thread::scope(|scope| {
            let ended = &ended;
            let writer = scope.spawn(move || {
                for len in pieces {
                    let bytes = hardware.bytes(len);
                    let tail = hardware.base.header().aux_tail.load(Ordering::Acquire);
                    let free = size - (hardware.written.len() - tail as usize);
                    let fits = &bytes[..len.min(free)];
                    hardware.put(fits);
                    let head = hardware.written.len() as u64;
                    hardware.base.header().aux_head.store(head, Ordering::Release);
                    for _ in 0..yields {
                        thread::yield_now();
                    }
                }
                ended.store(true, Ordering::Release);
                hardware.written
            });
            loop {
                let last = ended.load(Ordering::Acquire);
                let bytes = aux.stream().unwrap();
                let done = last && bytes.is_empty();
                read.extend(bytes);
                if done {
                    break;
                }
                thread::yield_now();
            }
            writer.join().unwrap()
        });
        prop_assert!(read == written, "{} read, {} written", read.len(), written.len());
    }

    /// Records of any sizes, written while they are read, across the end of the ring.
    #[test]
    fn records_come_whole_and_in_order(
        sizes in prop::collection::vec(0..120_usize, 1..200),
    ) {
        let (base, ours) = shared(2 * PAGE);
        let base = Base::new(base).unwrap();
        let mut records = Records::new(ours).unwrap();
        let expected: Vec<RawRecord> = sizes
            .iter()
            .enumerate()
            .map(|(number, &words)| RawRecord {
                kind: number as u32,
                misc: words as u16,
                body: vec![number as u8; words * WORD],
            })
            .collect();
        let mut read = Vec::new();
        thread::scope(|scope| {
            let to_write = &expected;
            scope.spawn(move || {
                let mut head = 0;
                for record in to_write {
                    let mut bytes = record.kind.to_le_bytes().to_vec();
                    bytes.extend(record.misc.to_le_bytes());
                    bytes.extend((record.body.len() as u16 + 8).to_le_bytes());
                    bytes.extend(&record.body);
                    let header = base.header();
                    while head + bytes.len() as u64
                        - header.data_tail.load(Ordering::Acquire)
                        > PAGE as u64
                    {
                        thread::yield_now();
                    }
                    for word in bytes.chunks(WORD) {
                        let value = u64::from_le_bytes(word.try_into().unwrap());
                        let data = base.data();
                        data[head as usize / WORD % data.len()].store(value, Ordering::Relaxed);
                        head += WORD as u64;
                    }
                    fence(Ordering::Release);
                    header.data_head.store(head, Ordering::Release);
                }
            });
            while read.len() < expected.len() {
                read.extend(records.drain().unwrap());
                thread::yield_now();
            }
        });
        prop_assert!(read == expected);
    }

    /// Whatever stands in the header page and the data, reading ends, with an answer.
    #[test]
    fn any_memory_can_be_read(words in prop::collection::vec(any::<u64>(), 8), data in any::<u64>()) {
        let (base, ours) = shared(2 * PAGE);
        let base = Base::new(base).unwrap();
        let header = base.header();
        header.data_head.store(words[0] >> (words[1] % 64), Ordering::Relaxed);
        header.data_tail.store(words[2] >> (words[3] % 64), Ordering::Relaxed);
        header.aux_head.store(words[4] >> (words[5] % 64), Ordering::Relaxed);
        header.aux_tail.store(words[6] >> (words[7] % 64), Ordering::Relaxed);
        for word in base.data() {
            word.store(data, Ordering::Relaxed);
        }
        let mut records = Records::new(ours).unwrap();
        let _ = records.drain();
        let mut aux = records.aux(anonymous(PAGE)).unwrap();
        let _ = aux.snapshot();
        let _ = aux.stream();
    }
}

#[test]
fn a_ring_that_is_being_written_is_not_read() {
    let ((base, ours), (_, our_area)) = (shared(PAGE), shared(PAGE));
    let base = Base::new(base).unwrap();
    let records = Records::new(ours).unwrap();
    let aux = records.aux(our_area).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut place = 0;
            while !done.load(Ordering::Relaxed) {
                place = (place + 8) % PAGE as u64;
                base.header().aux_head.store(place, Ordering::Relaxed);
            }
        });
        while aux.snapshot() != Err(RingError::Running) {}
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn maps_of_other_shapes_are_no_rings() {
    assert!(Records::new(anonymous(PAGE)).is_ok());
    assert!(Records::new(anonymous(PAGE * 9)).is_ok());
    assert_eq!(
        Records::new(anonymous(PAGE * 4)).unwrap_err(),
        RingError::Shape
    );
    assert_eq!(Records::new(anonymous(100)).unwrap_err(), RingError::Shape);
    let records = Records::new(anonymous(PAGE)).unwrap();
    assert!(records.aux(anonymous(3 * PAGE)).is_err());
}
