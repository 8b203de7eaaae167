//! Snapshots and samples of a ring hold old data again. Where the new data begin is found as perf
//! does (`intel_pt_find_overlap` in `tools/perf/util/intel-pt-decoder/intel-pt-decoder.c`): by the
//! TSC of the last PSB+ before, else by the bytes.

use ptrail_pt::{Lexer, Packet, TraceOffset, find_psb};

/// The new data of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fresh {
    /// Where they begin.
    pub(crate) start: usize,
    /// They go on where the buffer before ends, less so many bytes at its end, which are no trace
    /// data; `None` if something is missing in between.
    pub(crate) joined: Option<usize>,
}

impl Fresh {
    fn apart(start: usize) -> Self {
        Self {
            start,
            joined: None,
        }
    }
}

/// Compares a buffer with the one before it.
pub(crate) fn fresh(before: &[u8], buffer: &[u8], has_tsc: bool) -> Fresh {
    // It may begin in the middle of a packet.
    let Some(first) = find_psb(buffer, 0) else {
        return Fresh::apart(buffer.len());
    };
    if find_psb(before, 0).is_none() {
        return Fresh::apart(first);
    }
    if has_tsc && let Some(fresh) = by_tsc(before, buffer, first) {
        return fresh;
    }
    by_bytes(before, buffer, first)
}

fn by_tsc(before: &[u8], buffer: &[u8], first: usize) -> Option<Fresh> {
    // The last PSB+ may be cut: then the one before it counts.
    let last = psbs_from(before, 0)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .take(2);
    let (old, behind_old) = last.filter_map(|psb| tsc_of(before, psb)).next()?;
    let left = before.len() - behind_old;
    for psb in psbs_from(buffer, first) {
        let Some((new, behind_new)) = tsc_of(buffer, psb) else {
            continue;
        };
        if new == old && buffer.len() - behind_new >= left {
            return Some(seam(before, buffer, behind_new + left));
        }
        if is_before(old, new) {
            return Some(Fresh::apart(first));
        }
    }
    Some(Fresh::apart(buffer.len()))
}

fn by_bytes(before: &[u8], buffer: &[u8], first: usize) -> Fresh {
    for psb in psbs_from(before, 0) {
        let tail = &before[psb..];
        if buffer[first..].starts_with(tail) {
            return seam(before, buffer, first + tail.len());
        }
    }
    Fresh::apart(first)
}

/// `before` ends at `start` of `buffer`, or up to 7 bytes earlier: perf fills buffers up to whole
/// words with zeros.
fn seam(before: &[u8], buffer: &[u8], start: usize) -> Fresh {
    const LONGEST: usize = 7;
    let longest = LONGEST.min(start).min(before.len());
    let (old, new) = (
        &before[before.len() - longest..],
        &buffer[start - longest..start],
    );
    let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let padding = longest - same;
    Fresh {
        start: start - padding,
        joined: Some(padding),
    }
}

fn psbs_from(bytes: &[u8], from: usize) -> impl Iterator<Item = usize> {
    let mut at = from;
    std::iter::from_fn(move || {
        let psb = find_psb(bytes, at)?;
        at = psb + 16;
        Some(psb)
    })
}

/// The TSC in a PSB+, and where the bytes behind it begin.
fn tsc_of(bytes: &[u8], psb: usize) -> Option<(u64, usize)> {
    let base = TraceOffset(psb as u64);
    for lexed in Lexer::new(&bytes[psb..], base).map_while(Result::ok) {
        match lexed.packet {
            Packet::Tsc(tsc) => {
                return Some((
                    tsc,
                    lexed.offset.0 as usize + usize::try_from(lexed.len).ok()?,
                ));
            }
            Packet::PsbEnd | Packet::Ovf => return None,
            _ => {}
        }
    }
    None
}

/// TSC packets have 56 bits and go round.
fn is_before(old: u64, new: u64) -> bool {
    const HALF: u64 = 1 << 55;
    new != old && new.wrapping_sub(old) & ((1 << 56) - 1) < HALF
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ptrail_pt::{Encoder, Ip, PsbPlus, Tsc};

    use super::*;

    const CHUNK: usize = 40;

    /// PSB+s with one TNT packet after another between them, which tell nothing about the place.
    fn stream(psbs: u64, with_tsc: bool) -> Vec<u8> {
        let mut encoder = Encoder::new();
        for number in 0..psbs {
            encoder.psb_plus(&PsbPlus {
                tsc: with_tsc.then_some(Tsc(1_000 + number)),
                ip: Some(Ip(0x1000 * (number + 1))),
                ..PsbPlus::default()
            });
            for _ in 0..CHUNK {
                encoder.put(&Packet::Mtc(number as u8));
            }
        }
        encoder.bytes().to_vec()
    }

    proptest! {
        #[test]
        fn what_is_new_in_a_later_look_at_the_same_ring_is_found(
            with_tsc: bool,
            (from, to, from_again, to_again) in (0..300usize, 400..700usize, 0..400usize, 700..900usize),
        ) {
            let stream = stream(10, with_tsc);
            let (before, buffer) = (&stream[from..to], &stream[from.max(from_again)..to_again]);
            // The last PSB+ that tells: with its TSC, where that is compared.
            let tells = |&psb: &usize| !with_tsc || tsc_of(before, psb).is_some();
            let last_psb = psbs_from(before, 0).filter(tells).last().unwrap() + from;
            let found = fresh(before, buffer, with_tsc);
            if from_again <= last_psb {
                let expected = to - from.max(from_again);
                prop_assert_eq!(found, Fresh { start: expected, joined: Some(0) });
            } else {
                // What would tell is not in the buffer: it begins at its first PSB.
                let first = find_psb(buffer, 0).unwrap();
                prop_assert_eq!(found.start, first);
            }
        }
    }

    #[test]
    fn padding_of_the_first_is_not_taken_for_packets_of_the_second() {
        for with_tsc in [true, false] {
            let stream = stream(4, with_tsc);
            let mut before = stream[..201].to_vec();
            before.resize(208, 0);
            let found = fresh(&before, &stream, with_tsc);
            if with_tsc {
                assert_eq!(
                    found,
                    Fresh {
                        start: 201,
                        joined: Some(7)
                    }
                );
            }
        }
    }

    #[test]
    fn buffers_without_a_psb_and_from_other_times() {
        let stream = stream(4, true);
        assert_eq!(
            fresh(&stream, &[0x99, 1, 2], true),
            Fresh {
                start: 3,
                joined: None
            }
        );
        assert_eq!(
            fresh(&[1, 2], &stream, true),
            Fresh {
                start: 0,
                joined: None
            }
        );
        let second = find_psb(&stream, 16).unwrap();
        let (first, later) = stream.split_at(second);
        assert_eq!(
            fresh(first, later, true),
            Fresh {
                start: 0,
                joined: None
            }
        );
        assert_eq!(
            fresh(later, first, true),
            Fresh {
                start: first.len(),
                joined: None
            }
        );
    }

    #[test]
    fn times_go_round() {
        assert!(is_before(1, 2) && !is_before(2, 1) && !is_before(5, 5));
        assert!(is_before((1 << 56) - 1, 0));
    }
}
