//! Compressed records (`perf record -z`).
//!
//! perf compresses what it takes from the kernel's rings with zstd and writes it as records of type
//! `COMPRESSED` (a header and a part of the compressed data) or `COMPRESSED2` (a header, the true
//! size of that part, and the part, filled up to whole words). All parts of a file together are one
//! zstd stream, flushed behind each part and never ended; unpacked, it is a row of records, and a
//! record may begin in one part and end in the next. Trace data are never compressed.

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::layout;
use crate::wire::Bytes;

/// Unpacked bytes beyond this are left out: a small file could ask for any amount of memory. It is
/// the sideband of days.
const LIMIT: usize = 2 << 30;

/// The part of the compressed stream in a record's body.
pub(crate) fn part(kind: u32, body: &[u8]) -> &[u8] {
    if kind != layout::COMPRESSED2 {
        return body;
    }
    let mut body = Bytes(body);
    let size = body.u64().unwrap_or(0);
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    &body.0[..size.min(body.0.len())]
}

/// An empty last block: what would end a frame that was never ended, so that all of it is given out.
const END: [u8; 3] = [1, 0, 0];

/// Unpacks a stream as far as it goes; the text says why it does not go on to its end.
pub(crate) fn unpack(packed: &[u8]) -> (Vec<u8>, Option<String>) {
    let mut unpacked = Vec::new();
    let mut source = packed;
    let mut decoder = FrameDecoder::new();
    let mut fault = None;
    while !source.is_empty() && fault.is_none() {
        fault = decoder.reset(&mut source).err().map(|e| e.to_string());
        while fault.is_none() && !decoder.is_finished() && !source.is_empty() {
            let decoded = decoder.decode_blocks(&mut source, BlockDecodingStrategy::UptoBlocks(1));
            fault = decoded.err().map(|e| e.to_string());
            unpacked.extend(decoder.collect().unwrap_or_default());
            if unpacked.len() > LIMIT {
                return (unpacked, Some("more than 2 GiB when unpacked".to_owned()));
            }
        }
        if !decoder.is_finished() {
            // Should that fail, the fault is told already.
            let _ = decoder.decode_blocks(&END[..], BlockDecodingStrategy::All);
        }
        unpacked.extend(decoder.collect().unwrap_or_default());
    }
    (unpacked, fault)
}
