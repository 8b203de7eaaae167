//! Bytes a second of lexing alone, on one core, with libipt's packet decoder beside it.
//!
//! ```text
//! cargo bench -p ptrail-pt                     # this crate alone
//! cargo bench -p ptrail-pt --features libipt   # with libipt (needs cmake and libclang)
//! ```
//!
//! Each decoder goes through each stream in turn, many times over; the best pass counts, for
//! whatever else the machine does only makes it slower. Kind, offset, length and payload of every
//! packet of ours enter a checksum; libipt's packets are only made, which is to its advantage.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[cfg(feature = "libipt")]
mod reference;
mod streams;

use std::hint::black_box;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use ptrail_pt::{BadPacket, IpPayload, Lexed, Lexer, Packet, PacketSink, Tnt, TraceOffset};

use streams::Stream;

/// Passes over a stream, and how long they take at least.
const PASSES: u32 = 15;
const PASS: Duration = Duration::from_millis(20);

fn main() {
    println!("MB/s of trace, best of {PASSES} passes; ratio to libipt");
    println!(
        "{:<20} {:>8} {:>8} {:>9} {:>9} {:>9} {:>7}",
        "stream", "bytes", "packets", "iterator", "drain", "libipt", "ratio"
    );
    let wanted = std::env::args()
        .skip(1)
        .find(|word| !word.starts_with('-'))
        .unwrap_or_default();
    for Stream { name, bytes } in streams::all()
        .into_iter()
        .filter(|stream| stream.name.contains(&wanted))
    {
        let packets = Lexer::new(&bytes, TraceOffset(0))
            .filter(Result::is_ok)
            .count();
        assert_eq!(lex(&bytes), drain(&bytes), "{name}");
        let [iterator, drain, libipt] = measure(&bytes);
        let ratio = iterator.max(drain) / libipt;
        let len = bytes.len();
        println!(
            "{name:<20} {len:>8} {packets:>8} {iterator:>9.0} {drain:>9.0} {libipt:>9.0} {ratio:>7.2}"
        );
    }
}

/// MB/s of the iterator, of `drain` and of libipt (0 if it is not there), in turns.
fn measure(bytes: &[u8]) -> [f64; 3] {
    let mut best = [0_f64; 3];
    for _ in 0..PASSES {
        for (best, lex) in best.iter_mut().zip(DECODERS) {
            *best = best.max(speed(bytes, *lex));
        }
    }
    best
}

type Decoder = fn(&[u8]) -> u64;

const DECODERS: &[Decoder] = &[
    lex,
    drain,
    #[cfg(feature = "libipt")]
    reference::lex,
];

fn speed(bytes: &[u8], lex: fn(&[u8]) -> u64) -> f64 {
    let begin = cpu_time();
    let mut times = 0_usize;
    let mut end = begin;
    while end - begin < PASS {
        for _ in 0..1 + (1 << 16) / bytes.len() {
            black_box(lex(black_box(bytes)));
            times += 1;
        }
        end = cpu_time();
    }
    (bytes.len() * times) as f64 / (end - begin).as_secs_f64() / 1e6
}

/// Time that this thread was on a CPU.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

/// The iterator.
fn lex(bytes: &[u8]) -> u64 {
    let mut sum = Sum(0);
    for item in Lexer::new(bytes, TraceOffset(0)) {
        match item {
            Ok(lexed) => sum.packet(lexed),
            Err(bad) => sum.bad(bad),
        }
    }
    sum.0
}

/// The same by `drain`.
fn drain(bytes: &[u8]) -> u64 {
    let mut sum = Sum(0);
    Lexer::new(bytes, TraceOffset(0)).drain(&mut sum);
    sum.0
}

/// Kind, place, length and payload of every packet, added up.
struct Sum(u64);

impl Sum {
    #[inline(always)]
    fn add(&mut self, kind: u64, offset: TraceOffset, len: u32, payload: u64) {
        let place = kind << 56 ^ u64::from(len) << 48 ^ offset.0;
        self.0 = self.0.wrapping_add(place ^ payload);
    }
}

impl PacketSink for Sum {
    #[inline(always)]
    fn packet(&mut self, lexed: Lexed) {
        let (kind, payload) = match lexed.packet {
            Packet::Tnt(tnt) => (0, tnt.payload()),
            Packet::Tip(ip) => (1, ip.value),
            Packet::TipPge(ip) => (2, ip.value),
            Packet::TipPgd(ip) => (3, ip.value),
            Packet::Fup(ip) => (4, ip.value),
            Packet::Cyc(cycles) => (5, cycles),
            Packet::Mtc(ctc) => (6, ctc.into()),
            Packet::Tsc(tsc) => (7, tsc),
            Packet::Pad { run } => (8, run.into()),
            _ => (9, 0),
        };
        self.add(kind, lexed.offset, lexed.len, payload);
    }

    fn bad(&mut self, bad: BadPacket) {
        self.0 = self.0.wrapping_add(bad.skipped);
    }

    #[inline(always)]
    fn tnt(&mut self, offset: TraceOffset, len: u32, tnt: Tnt) {
        self.add(0, offset, len, tnt.payload());
    }

    #[inline(always)]
    fn tip(&mut self, offset: TraceOffset, len: u32, payload: IpPayload) {
        self.add(1, offset, len, payload.value);
    }

    #[inline(always)]
    fn cyc(&mut self, offset: TraceOffset, len: u32, cycles: u64) {
        self.add(5, offset, len, cycles);
    }

    #[inline(always)]
    fn mtc(&mut self, offset: TraceOffset, len: u32, ctc: u8) {
        self.add(6, offset, len, ctc.into());
    }

    #[inline(always)]
    fn pad(&mut self, offset: TraceOffset, run: u32) {
        self.add(8, offset, run, run.into());
    }
}
