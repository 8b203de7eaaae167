//! Small programs given as bytes, packet streams for them, and what a decoder makes of the two.

use ptrail_flow::{Context, Edge, EdgeKind, OffCause, SegmentEnd, Sink, cut, decode_segment};
use ptrail_image::{Timeline, TimelineBuilder};
use ptrail_pt::{Encoder, ExecMode, Ip, Loss, PerfTime, PsbPlus, PtConfig, Time, TraceOffset, Tsc};

pub(crate) const PID: u32 = 7;

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
    /// Instruction count and time of each anchor.
    pub(crate) anchors: Vec<(u64, u64)>,
    pub(crate) ends: Vec<SegmentEnd>,
}

impl Decoded {
    fn event(&mut self, text: String, instructions: u64) {
        self.counted(instructions);
        self.events.push(text);
    }

    /// Counts are those of the instructions reported, and so never go back.
    fn counted(&mut self, instructions: u64) {
        let before: u64 = self.ends.iter().map(|end| end.instructions).sum();
        assert_eq!(before + instructions, self.instructions.len() as u64);
    }
}

impl Sink for Decoded {
    const INSTRUCTIONS: bool = true;

    fn instruction(&mut self, ip: Ip) {
        self.instructions.push(ip.0);
    }

    fn edge(&mut self, edge: &Edge, instructions: u64) {
        let kind = match edge.kind {
            EdgeKind::Conditional => "jcc",
            EdgeKind::Jump => "jmp",
            EdgeKind::Call => "call",
            EdgeKind::Return => "ret",
            EdgeKind::Far => "far",
            EdgeKind::Async => "async",
            EdgeKind::TsxAbort => "abort",
        };
        if matches!(edge.kind, EdgeKind::Async | EdgeKind::TsxAbort) {
            assert_eq!(edge.next, edge.from);
        } else {
            assert_eq!(self.instructions.last(), Some(&edge.from.0));
            assert!((1..=15).contains(&edge.next.0.wrapping_sub(edge.from.0)));
        }
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
        self.counted(instructions);
        let before: u64 = self.ends.iter().map(|end| end.instructions).sum();
        self.anchors.push((before + instructions, time.at.0));
    }

    fn loss(&mut self, loss: Loss, broken: bool, instructions: u64) {
        assert!(broken && loss.begin <= loss.end && !loss.reason.is_empty());
        self.event(format!("loss {}", loss.cause.name()), instructions);
        self.losses.push(loss);
    }
}

/// Decodes a stream, segment by segment, and checks what must hold for any stream.
pub(crate) fn decode_with(timeline: &Timeline, config: &PtConfig, bytes: &[u8]) -> Decoded {
    let context = Context {
        timeline,
        pid: PID,
        config,
        conversion: None,
        base: PerfTime(0),
    };
    let mut decoded = Decoded::default();
    let cut = cut(bytes, TraceOffset(0));
    let mut at = cut.before_first_psb;
    for segment in &cut.segments {
        let losses = decoded.losses.len();
        let instructions = decoded.instructions.len();
        assert_eq!(segment.offset.0, at, "segments tile the stream");
        let end = decode_segment(segment, &context, &mut decoded);
        at += segment.bytes.len() as u64;
        let lost: u64 = decoded.losses[losses..].iter().map(|loss| loss.bytes).sum();
        assert_eq!(end.lost_bytes, lost, "the ledger adds up");
        assert!(lost <= segment.bytes.len() as u64);
        for loss in &decoded.losses[losses..] {
            assert!((segment.offset.0..=at).contains(&loss.offset.0));
        }
        let count = (decoded.instructions.len() - instructions) as u64;
        assert_eq!(end.instructions, count);
        decoded.ends.push(end);
    }
    assert_eq!(at, bytes.len() as u64);
    assert!(decoded.anchors.is_sorted_by_key(|anchor| anchor.0));
    decoded
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
