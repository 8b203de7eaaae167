//! Small programs given as bytes, packet streams for them, and what a decoder makes of the two.

use std::collections::HashSet;

use ptrail_flow::{Context, Decoder, Detail, Edge, EdgeKind, OffCause, SegmentEnd, Sink, cut};
use ptrail_image::{Timeline, TimelineBuilder};
use ptrail_pt::{
    CpuId, Encoder, ExecMode, Ip, Loss, PerfTime, PsbPlus, PtConfig, Time, TraceOffset, Tsc, Vendor,
};

pub(crate) const PID: u32 = 7;

/// A CPU of family 6.
pub(crate) fn intel(model: u8) -> CpuId {
    CpuId {
        vendor: Vendor::Intel,
        family: 6,
        model,
        stepping: 3,
    }
}

/// Code at 0x1000.
pub(crate) fn program(bytes: &[u8]) -> Timeline {
    programs(&[(0x1000, bytes)])
}

/// Pieces of code at addresses.
pub(crate) fn programs(pieces: &[(u64, &[u8])]) -> Timeline {
    let mut builder = TimelineBuilder::new();
    for (address, bytes) in pieces {
        builder.code(PID, PerfTime(0), *address, "piece", bytes.to_vec());
    }
    builder.build()
}

/// A PSB+ with execution at `ip`, in 64-bit code.
pub(crate) fn psb(encoder: &mut Encoder, ip: u64) {
    encoder.psb_plus(&PsbPlus {
        mode_exec: Some((ExecMode::Bits64, false)),
        ip: Some(Ip(ip)),
        ..PsbPlus::default()
    });
}

/// A PSB+ with a time; tracing is off if there is no address.
pub(crate) fn psb_at(encoder: &mut Encoder, tsc: u64, ip: Option<u64>) {
    encoder.psb_plus(&PsbPlus {
        mode_exec: Some((ExecMode::Bits64, false)),
        ip: ip.map(Ip),
        tsc: Some(Tsc(tsc)),
        ..PsbPlus::default()
    });
}

/// A stream that starts with a PSB+ at 0x1000.
pub(crate) fn stream(packets: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut encoder = Encoder::new();
    psb(&mut encoder, 0x1000);
    packets(&mut encoder);
    encoder.take()
}

/// An asynchronous event at `ip` after which tracing is off, the usual end of a stream here.
pub(crate) fn stop(encoder: &mut Encoder, ip: u64) {
    encoder.fup(Ip(ip));
    encoder.tip_pgd(None);
}

/// Branch outcomes in short TNT packets, `T` for taken.
pub(crate) fn tnt(encoder: &mut Encoder, outcomes: &str) {
    let outcomes: Vec<bool> = outcomes.chars().map(|c| c == 'T').collect();
    for chunk in outcomes.chunks(6) {
        encoder.put(&ptrail_pt::Packet::Tnt(short_tnt(chunk)));
    }
}

pub(crate) fn short_tnt(outcomes: &[bool]) -> ptrail_pt::Tnt {
    let bits = outcomes
        .iter()
        .fold(0, |bits, &taken| bits << 1 | u64::from(taken));
    ptrail_pt::Tnt::short(bits, outcomes.len() as u8)
}

/// All that a decode reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) instructions: Vec<u64>,
    /// Edges, begins, ons, offs and losses as text; all numbers hexadecimal.
    pub(crate) events: Vec<String>,
    pub(crate) losses: Vec<Loss>,
    /// Instructions executed before each loss.
    pub(crate) lost_after: Vec<usize>,
    /// Instruction count and time of each anchor.
    pub(crate) anchors: Vec<(u64, u64)>,
    pub(crate) ends: Vec<SegmentEnd>,
}

/// Decodes with one [`Detail`], given by its place.
#[derive(Default)]
struct Seen<const DETAIL: usize> {
    decoded: Decoded,
    /// Instruction counts of the events.
    counts: Vec<u64>,
    /// Kind and ends of the edges, by the number of their event.
    edges: Vec<(usize, Edge)>,
}

impl<const DETAIL: usize> Seen<DETAIL> {
    fn event(&mut self, text: String, instructions: u64) {
        let count = self.count(instructions);
        self.counts.push(count);
        self.decoded.events.push(text);
    }

    /// Counts are those of the instructions reported, and so never go back.
    fn count(&mut self, instructions: u64) -> u64 {
        let ends = self.decoded.ends.iter();
        let count = instructions + ends.map(|end| end.instructions).sum::<u64>();
        if Self::DETAIL == Detail::Instructions {
            assert_eq!(count, self.decoded.instructions.len() as u64);
        }
        count
    }
}

impl<const DETAIL: usize> Sink for Seen<DETAIL> {
    const DETAIL: Detail = [Detail::Calls, Detail::Branches, Detail::Instructions][DETAIL];

    fn instructions(&mut self, ips: &[Ip]) {
        assert_eq!(Self::DETAIL, Detail::Instructions);
        let ips = ips.iter().map(|ip| ip.0);
        self.decoded.instructions.extend(ips);
    }

    fn edge(&mut self, edge: &Edge, instructions: u64) {
        let kind = match edge.kind {
            EdgeKind::Conditional => "jcc",
            EdgeKind::Jump | EdgeKind::JumpIndirect => "jmp",
            EdgeKind::Call => "call",
            EdgeKind::Return => "ret",
            EdgeKind::Far => "far",
            EdgeKind::FarReturn => "far-return",
            EdgeKind::Async => "async",
            EdgeKind::TsxAbort => "abort",
        };
        if matches!(edge.kind, EdgeKind::Async | EdgeKind::TsxAbort) {
            assert_eq!(edge.next, edge.from);
        } else {
            if Self::DETAIL == Detail::Instructions {
                assert_eq!(self.decoded.instructions.last(), Some(&edge.from.0));
            }
            assert!((1..=15).contains(&edge.next.0.wrapping_sub(edge.from.0)));
        }
        self.edges.push((self.counts.len(), *edge));
        self.event(
            format!("{kind} {:x}>{:x}", edge.from, edge.to),
            instructions,
        );
    }

    fn begin(&mut self, ip: Ip, instructions: u64) {
        self.event(format!("begin {ip:x}"), instructions);
    }

    fn on(&mut self, ip: Ip, instructions: u64) {
        self.event(format!("on {ip:x}"), instructions);
    }

    fn off(&mut self, ip: Ip, next: Ip, cause: OffCause, instructions: u64) {
        let cause = match cause {
            OffCause::Syscall => "syscall",
            OffCause::FarTransfer => "far",
            OffCause::Async => "async",
            OffCause::Filter => "filter",
        };
        let len = next.0.wrapping_sub(ip.0);
        self.event(format!("off-{cause} {ip:x}+{len}"), instructions);
    }

    fn anchor(&mut self, instructions: u64, time: Time) {
        let count = self.count(instructions);
        self.decoded.anchors.push((count, time.at.0));
    }

    fn loss(&mut self, loss: Loss, broken: bool, instructions: u64) {
        assert!(broken && loss.begin <= loss.end && !loss.reason.is_empty());
        self.event(format!("loss {}", loss.cause.name()), instructions);
        let count = self.count(instructions) as usize;
        self.decoded.lost_after.push(count);
        self.decoded.losses.push(loss);
    }
}

/// Decodes a stream, segment by segment, and checks what must hold for any stream.
fn decode_seen<const DETAIL: usize>(
    timeline: &Timeline,
    config: &PtConfig,
    bytes: &[u8],
) -> Seen<DETAIL> {
    let context = Context {
        timeline,
        pid: PID,
        config,
        conversion: None,
        base: PerfTime(0),
    };
    let mut decoder = Decoder::new(context, Seen::default());
    let cut = cut(bytes, TraceOffset(0));
    let mut at = cut.before_first_psb;
    for segment in &cut.segments {
        let losses = decoder.sink().decoded.losses.len();
        let instructions = decoder.sink().decoded.instructions.len();
        assert_eq!(segment.offset.0, at, "segments tile the stream");
        let end = decoder.segment(segment);
        let decoded = &mut decoder.sink().decoded;
        at += segment.bytes.len() as u64;
        let lost: u64 = decoded.losses[losses..].iter().map(|loss| loss.bytes).sum();
        assert_eq!(end.lost_bytes, lost, "the ledger adds up");
        assert!(lost <= segment.bytes.len() as u64);
        for loss in &decoded.losses[losses..] {
            assert!((segment.offset.0..=at).contains(&loss.offset.0));
        }
        if DETAIL == Detail::Instructions as usize {
            let count = (decoded.instructions.len() - instructions) as u64;
            assert_eq!(end.instructions, count);
        }
        decoded.ends.push(end);
    }
    assert_eq!(at, bytes.len() as u64);
    let seen = decoder.into_sink();
    assert!(seen.decoded.anchors.is_sorted_by_key(|anchor| anchor.0));
    seen
}

/// Decodes a stream in all details, which must tell the same story.
pub(crate) fn decode_with(timeline: &Timeline, config: &PtConfig, bytes: &[u8]) -> Decoded {
    let all: Seen<{ Detail::Instructions as usize }> = decode_seen(timeline, config, bytes);
    let branches: Seen<{ Detail::Branches as usize }> = decode_seen(timeline, config, bytes);
    assert_eq!(branches.counts, all.counts);
    let expected = Decoded {
        instructions: Vec::new(),
        ..all.decoded.clone()
    };
    assert_eq!(branches.decoded, expected, "instructions change the story");

    let calls: Seen<{ Detail::Calls as usize }> = decode_seen(timeline, config, bytes);
    let space = timeline.space(PID, PerfTime(0));
    let function = |ip| space.function(ip).map(|hit| (hit.id, hit.entry));
    let inner = |edge: &Edge| {
        matches!(
            edge.kind,
            EdgeKind::Jump | EdgeKind::JumpIndirect | EdgeKind::Conditional
        ) && function(edge.from) == function(edge.to)
    };
    let inner: HashSet<usize> = all
        .edges
        .iter()
        .filter(|(_, edge)| inner(edge))
        .map(|&(event, _)| event)
        .collect();
    let kept = |event: &usize| !inner.contains(event);
    let events = (0..all.counts.len()).filter(kept);
    let expected: Vec<_> = events
        .map(|i| (&all.decoded.events[i], all.counts[i]))
        .collect();
    let events = calls.decoded.events.iter().zip(calls.counts);
    assert_eq!(events.collect::<Vec<_>>(), expected, "calls tell another");
    assert_eq!(calls.decoded.anchors, all.decoded.anchors);
    assert_eq!(calls.decoded.losses, all.decoded.losses);
    assert_eq!(calls.decoded.ends, all.decoded.ends);
    all.decoded
}

pub(crate) fn decode(timeline: &Timeline, bytes: &[u8]) -> Decoded {
    decode_with(timeline, &PtConfig::default(), bytes)
}

/// Decodes `packets` over `code` at 0x1000 and compares the executed addresses and the events;
/// events are given without the first, `begin 1000`.
#[track_caller]
pub(crate) fn check(
    code: &[u8],
    packets: impl FnOnce(&mut Encoder),
    instructions: &[u64],
    events: &[&str],
) {
    let decoded = decode(&program(code), &stream(packets));
    assert_eq!(decoded.events[0], "begin 1000");
    assert_eq!(decoded.events[1..], *events);
    assert_eq!(hex(&decoded.instructions), hex(instructions));
}

/// Readable when a comparison fails.
pub(crate) fn hex(addresses: &[u64]) -> Vec<String> {
    addresses.iter().map(|ip| format!("{ip:x}")).collect()
}
