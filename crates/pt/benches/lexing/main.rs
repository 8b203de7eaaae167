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
use ptrail_pt::{Lexed, Lexer, Packet, TraceOffset};

use streams::Stream;

/// Passes over a stream, and how long they take at least.
const PASSES: u32 = 15;
const PASS: Duration = Duration::from_millis(20);

fn main() {
    println!("MB/s of trace, best of {PASSES} passes; ratio to libipt");
    println!(
        "{:<24} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "stream", "bytes", "packets", "ptrail", "libipt", "ratio"
    );
    for stream in streams::all() {
        let packets = Lexer::new(&stream.bytes, TraceOffset(0))
            .filter(Result::is_ok)
            .count();
        let (ours, theirs) = measure(&stream);
        let (theirs, ratio) = match theirs {
            Some(theirs) => (format!("{theirs:.0}"), format!("{:.2}", ours / theirs)),
            None => ("-".into(), "-".into()),
        };
        let (name, bytes) = (&stream.name, stream.bytes.len());
        println!("{name:<24} {bytes:>9} {packets:>9} {ours:>9.0} {theirs:>9} {ratio:>7}");
    }
}

/// MB/s of this crate and of libipt.
fn measure(stream: &Stream) -> (f64, Option<f64>) {
    let (mut ours, mut theirs) = (0_f64, None);
    for _ in 0..PASSES {
        ours = ours.max(speed(&stream.bytes, lex));
        #[cfg(feature = "libipt")]
        {
            let speed = speed(&stream.bytes, reference::lex);
            theirs = Some(theirs.map_or(speed, |best: f64| best.max(speed)));
        }
        #[cfg(not(feature = "libipt"))]
        {
            theirs = None;
        }
    }
    (ours, theirs)
}

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

fn lex(bytes: &[u8]) -> u64 {
    let mut sum = 0_u64;
    for item in Lexer::new(bytes, TraceOffset(0)) {
        match item {
            Ok(lexed) => sum = sum.wrapping_add(checksum(&lexed)),
            Err(bad) => sum = sum.wrapping_add(bad.skipped),
        }
    }
    sum
}

#[inline(always)]
fn checksum(lexed: &Lexed) -> u64 {
    let payload = match lexed.packet {
        Packet::Tnt(tnt) => tnt.bits(),
        Packet::Tip(ip) => 1 ^ ip.value,
        Packet::TipPge(ip) => 2 ^ ip.value,
        Packet::TipPgd(ip) => 3 ^ ip.value,
        Packet::Fup(ip) => 4 ^ ip.value,
        Packet::Cyc(cycles) => 5 ^ cycles,
        Packet::Mtc(ctc) => 6 ^ u64::from(ctc),
        Packet::Tsc(tsc) => 7 ^ tsc,
        Packet::Pad { run } => 8 ^ u64::from(run),
        _ => 9,
    };
    payload ^ lexed.offset.0 ^ u64::from(lexed.len) << 32
}
