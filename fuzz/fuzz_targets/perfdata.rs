//! Any bytes: a `perf.data` is read or refused; its pieces lie inside it and don't overlap.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ptrail_perfdata::Capture;

fuzz_target!(|data: &[u8]| {
    let Ok(capture) = Capture::from_bytes(Path::new("fuzz"), data.to_vec()) else { return };
    let pieces = capture.streams.iter().flat_map(|stream| &stream.pieces);
    let mut ranges: Vec<_> = pieces.clone().map(|piece| (piece.file, piece.range.start, piece.range.end)).collect();
    let bytes: usize = pieces.map(|piece| capture.bytes(piece).len()).sum();
    assert_eq!(bytes as u64, ranges.iter().map(|(_, start, end)| end - start).sum::<u64>());
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].0 < pair[1].0 || pair[0].2 <= pair[1].1, "{pair:?}");
    }
});
