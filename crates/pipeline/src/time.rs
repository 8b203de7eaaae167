//! Where a capture's time begins.

use ptrail_perfdata::Capture;
use ptrail_pt::{Lexer, Packet, PerfTime, TraceOffset, Tsc};

/// The earliest perf-clock time that the capture knows: that of a sideband record, or of the first
/// TSC packet of a stream.
#[must_use]
pub fn base_time(capture: &Capture) -> PerfTime {
    let records = capture
        .sideband
        .iter()
        .filter_map(|entry| entry.time)
        .filter(|&time| time > 0);
    let packets = capture.streams.iter().filter_map(|stream| {
        let mut pieces = stream.pieces.iter();
        let tsc = pieces.find_map(|piece| first_tsc(capture.bytes(piece)))?;
        Some(capture.clock.map_or(tsc.0, |clock| clock.to_perf(tsc).0))
    });
    PerfTime(records.chain(packets).min().unwrap_or(0))
}

fn first_tsc(bytes: &[u8]) -> Option<Tsc> {
    let mut lexer = Lexer::new(bytes, TraceOffset(0));
    lexer.seek_psb()?;
    lexer.find_map(|item| match item.ok()?.packet {
        Packet::Tsc(tsc) => Some(Tsc(tsc)),
        _ => None,
    })
}
