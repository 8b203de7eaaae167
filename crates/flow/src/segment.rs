//! Dividing a stream at its PSBs.

use ptrail_pt::{ExecMode, Ip, LastIp, Lexer, Packet, TraceOffset, find_psb};

/// A part of a stream that begins with a PSB and ends before the next one.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Stream offset of the first.
    pub offset: TraceOffset,
    /// Where the segment behind it starts; `None` if there is none, or if its head is damaged.
    pub next: Option<SegmentStart>,
}

/// The state that the status packets of a PSB+ tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentStart {
    /// The address at which execution stands; `None` if tracing is off there.
    pub ip: Option<Ip>,
    /// Code width.
    pub mode: Option<ExecMode>,
    /// The payload of the TSC packet.
    pub tsc: Option<u64>,
}

/// A stream, cut.
#[derive(Clone, Debug)]
pub struct Cut<'a> {
    /// The segments in order.
    pub segments: Vec<Segment<'a>>,
    /// Bytes before the first PSB: they can't be decoded.
    pub before_first_psb: u64,
}

/// Cuts a stream of packets, whose first byte has the offset `base`, at its PSBs.
#[must_use]
pub fn cut(bytes: &[u8], base: TraceOffset) -> Cut<'_> {
    let mut starts = Vec::new();
    let mut from = 0;
    while let Some(psb) = find_psb(bytes, from) {
        starts.push(psb);
        from = psb + 16;
    }
    let before_first_psb = starts.first().copied().unwrap_or(bytes.len()) as u64;
    let mut segments: Vec<Segment<'_>> = Vec::with_capacity(starts.len());
    let mut next = None;
    let mut end = bytes.len();
    for &start in starts.iter().rev() {
        let segment = &bytes[start..end];
        segments.push(Segment {
            bytes: segment,
            offset: TraceOffset(base.0 + start as u64),
            next,
        });
        next = status(segment);
        end = start;
    }
    segments.reverse();
    Cut {
        segments,
        before_first_psb,
    }
}

/// Reads the status packets at the head of a segment; `None` if they break off before they tell
/// whether tracing is on.
fn status(segment: &[u8]) -> Option<SegmentStart> {
    let mut last_ip = LastIp::new();
    let mut start = SegmentStart {
        ip: None,
        mode: None,
        tsc: None,
    };
    for lexed in Lexer::new(segment, TraceOffset(0)).map_while(Result::ok) {
        match lexed.packet {
            Packet::Fup(payload) => start.ip = last_ip.update(payload),
            Packet::ModeExec { mode, .. } => start.mode = Some(mode),
            Packet::Tsc(low) => start.tsc = Some(low),
            Packet::PsbEnd => return Some(start),
            Packet::Ovf => break,
            _ => {}
        }
    }
    start.ip.map(|_| start)
}
