//! Cutting a stream at its PSBs without putting it together: the bytes stay in the mapped file, only
//! what crosses from one buffer into the next is copied. A buffer ends somewhere, often in the middle
//! of a packet.

use std::borrow::Cow;

use ptrail_flow::{Segment, cut};
use ptrail_pt::{TraceOffset, find_psb};

/// Bytes of a PSB packet.
const PSB: usize = 16;
/// More than a PSB+ has: so much of a segment is read to know where the one before it must end.
const HEAD: usize = 4096;

/// Contiguous bytes with whole segments in them.
pub(crate) struct Chunk<'a> {
    bytes: Cow<'a, [u8]>,
    /// Stream offset of the first byte.
    offset: u64,
    /// Segments that start at this stream offset or later are only here to be met: another chunk has
    /// all of them.
    end: u64,
}

impl Chunk<'_> {
    /// A whole stream.
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        Self {
            offset: 0,
            end: bytes.len() as u64,
            bytes: Cow::Owned(bytes),
        }
    }

    /// Its segments, and how many bytes are before the first.
    fn segments(&self) -> (Vec<Segment<'_>>, u64) {
        let cut = cut(&self.bytes, TraceOffset(self.offset));
        let mut segments = cut.segments;
        segments.retain(|segment| segment.offset.0 < self.end);
        let before = cut.before_first_psb.min(self.end - self.offset);
        (segments, before)
    }
}

/// Divides buffers that follow each other, the first of which begins at stream offset `start`.
pub(crate) fn divide<'a>(buffers: &[&'a [u8]], start: u64) -> Vec<Chunk<'a>> {
    let mut chunks = Vec::new();
    // What no chunk has yet.
    let mut carried: Vec<u8> = Vec::new();
    let mut offset = start;
    for (number, buffer) in buffers.iter().enumerate() {
        let end = offset + buffer.len() as u64;
        let is_last = number + 1 == buffers.len();
        // PSBs from here on may be cut off themselves.
        let sure = if is_last {
            buffer.len()
        } else {
            buffer.len().saturating_sub(HEAD)
        };
        let first = match carried.is_empty() && number == 0 {
            true => Some(0),
            false => find_psb(buffer, 0).filter(|&first| first < sure),
        };
        let Some(first) = first else {
            carried.extend_from_slice(buffer);
            offset = end;
            continue;
        };
        if first > 0 || !carried.is_empty() {
            let begin = offset - carried.len() as u64;
            carried.extend_from_slice(&buffer[..buffer.len().min(first + HEAD)]);
            chunks.push(Chunk {
                bytes: Cow::Owned(std::mem::take(&mut carried)),
                offset: begin,
                end: offset + first as u64,
            });
        }
        let last = if is_last {
            buffer.len()
        } else {
            last_psb(&buffer[..sure], first)
        };
        if first < last {
            chunks.push(Chunk {
                bytes: Cow::Borrowed(&buffer[first..buffer.len().min(last + HEAD)]),
                offset: offset + first as u64,
                end: offset + last as u64,
            });
        }
        carried = buffer[last..].to_vec();
        offset = end;
    }
    if !carried.is_empty() {
        chunks.push(Chunk {
            offset: offset - carried.len() as u64,
            bytes: Cow::Owned(carried),
            end: offset,
        });
    }
    chunks
}

/// The last PSB at or behind `from`, which is taken if there is no other.
fn last_psb(bytes: &[u8], from: usize) -> usize {
    let mut window = 1 << 16;
    loop {
        let start = bytes.len().saturating_sub(window).max(from);
        let mut last = None;
        let mut at = start;
        while let Some(psb) = find_psb(bytes, at) {
            last = Some(psb);
            at = psb + PSB;
        }
        match last {
            Some(psb) => return psb,
            None if start == from => return from,
            None => window *= 2,
        }
    }
}

/// All segments of the chunks, and how many bytes are before the first.
pub(crate) fn segments<'c>(chunks: &'c [Chunk<'_>]) -> (Vec<Segment<'c>>, u64) {
    let mut all = Vec::new();
    let mut before = 0;
    for chunk in chunks {
        let (segments, in_front) = chunk.segments();
        if all.is_empty() {
            before += in_front;
        }
        all.extend(segments);
    }
    (all, before)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ptrail_pt::{Encoder, Ip, Packet, PsbPlus, Tsc};

    use super::*;

    fn stream(psbs: &[u8]) -> Vec<u8> {
        let mut encoder = Encoder::new();
        for (number, packets) in psbs.iter().enumerate() {
            encoder.psb_plus(&PsbPlus {
                tsc: Some(Tsc(number as u64)),
                ip: Some(Ip(0x40_0000 + number as u64)),
                ..PsbPlus::default()
            });
            for packet in 0..*packets {
                encoder.put(&Packet::Mtc(packet));
            }
        }
        encoder.take()
    }

    proptest! {
        /// Wherever the buffers end, the segments are those of the whole.
        #[test]
        fn buffers_give_the_segments_of_the_whole(
            psbs in prop::collection::vec(any::<u8>(), 0..80),
            junk in 0..20usize,
            cuts in prop::collection::vec(0..30_000usize, 0..8),
        ) {
            let mut whole = vec![0x99; junk];
            whole.extend(stream(&psbs));
            let mut cuts: Vec<_> = cuts.into_iter().map(|at| at.min(whole.len())).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let buffers: Vec<&[u8]> = cuts.windows(2).map(|pair| &whole[pair[0]..pair[1]]).collect();
            let chunks = divide(&buffers, 7);
            let (found, before) = segments(&chunks);
            let expected = cut(&whole, TraceOffset(7));
            prop_assert_eq!(before, expected.before_first_psb);
            let say = |segments: &[Segment<'_>]| -> Vec<_> {
                segments.iter().map(|s| (s.offset, s.bytes.to_vec(), s.next)).collect()
            };
            prop_assert_eq!(say(&found), say(&expected.segments));
        }
    }
}
