//! From `PERF_RECORD_AUXTRACE` records to streams.
//!
//! perf fills the data of each AUXTRACE record with zeros up to a multiple of 8 bytes. Zeros are
//! PAD packets where a packet may begin, so they do no harm between packets; but a buffer may end
//! inside a packet that goes on in the next one. Fewer than 8 zero bytes at the end of a piece are
//! therefore cut off if the file says that they are not trace data: the AUX area's own count goes
//! on before them, either in the next piece of the stream or, for the last one, in the AUX records
//! of its thread or CPU.

use std::collections::HashMap;
use std::ops::Range;

use crate::auxtrace::AuxtraceHeader;
use crate::file::Store;
use crate::sample::AuxSample;
use crate::{AuxPiece, AuxStream, Gap, Owner, Record, Sideband, overlap};

/// Streams under construction.
#[derive(Default)]
pub(crate) struct Streams {
    list: Vec<AuxStream>,
    by_owner: HashMap<(bool, u32), usize>,
    /// When each piece of each stream was taken; 0 if that is not known.
    taken: Vec<Vec<u64>>,
    /// Overlaps were cut: the AUX area's own count says nothing.
    cut: bool,
}

impl Streams {
    pub(crate) fn add(&mut self, header: &AuxtraceHeader, file: usize, range: Range<u64>) {
        // perf puts a thread id into the records of a CPU's buffer too.
        let owner = match header.cpu {
            u32::MAX => Owner::Thread {
                pid: None,
                tid: header.tid,
            },
            cpu => Owner::Cpu(cpu),
        };
        let piece = AuxPiece {
            file,
            range,
            aux_offset: header.offset,
            gap: None,
        };
        self.put(owner, piece, 0);
    }

    /// A sample's trace data are those of the thread that it hit, as perf takes them.
    pub(crate) fn add_sample(&mut self, sample: &AuxSample, file: usize, body: u64) {
        let owner = match (sample.tid, sample.cpu) {
            (Some(tid), _) => Owner::Thread {
                pid: sample.pid,
                tid,
            },
            (None, Some(cpu)) => Owner::Cpu(cpu),
            (None, None) => Owner::Unknown,
        };
        let piece = AuxPiece {
            file,
            range: body + sample.trace.start as u64..body + sample.trace.end as u64,
            aux_offset: 0,
            gap: None,
        };
        self.put(owner, piece, sample.time.unwrap_or(0));
    }

    fn put(&mut self, owner: Owner, piece: AuxPiece, taken: u64) {
        if piece.range.is_empty() {
            return;
        }
        let key = match owner {
            Owner::Thread { tid, .. } => (false, tid),
            Owner::Cpu(cpu) => (true, cpu),
            Owner::Unknown => (false, u32::MAX),
        };
        let index = *self.by_owner.entry(key).or_insert_with(|| {
            self.list.push(AuxStream {
                owner,
                pieces: Vec::new(),
            });
            self.taken.push(Vec::new());
            self.list.len() - 1
        });
        self.list[index].pieces.push(piece);
        self.taken[index].push(taken);
    }

    /// Brings samples and snapshots in the order of time and leaves out what an earlier one has.
    pub(crate) fn cut_overlaps(&mut self, files: &[Store], has_tsc: bool) {
        self.cut = true;
        for (stream, taken) in self.list.iter_mut().zip(&self.taken) {
            let mut order: Vec<_> = std::mem::take(&mut stream.pieces)
                .into_iter()
                .zip(taken)
                .collect();
            order.sort_by_key(|(_, taken)| **taken);
            let mut before: Option<AuxPiece> = None;
            for (mut piece, _) in order {
                let whole = piece.clone();
                if let Some(before) = &before {
                    let old = files[before.file].part(&before.range);
                    let fresh = overlap::fresh(old, files[piece.file].part(&piece.range), has_tsc);
                    piece.range.start += fresh.start as u64;
                    match (fresh.joined, stream.pieces.last_mut()) {
                        (Some(padding), Some(last)) => last.range.end -= padding as u64,
                        _ => piece.gap = Some(Gap::Overwritten),
                    }
                }
                if !piece.range.is_empty() {
                    stream.pieces.push(piece);
                    before = Some(whole);
                }
            }
        }
    }

    /// The streams, each thread's with its process as the sideband has it.
    pub(crate) fn finish(mut self, files: &[Store], sideband: &[Sideband]) -> Vec<AuxStream> {
        let mut aux_end = vec![None; self.list.len()];
        for event in sideband {
            let by_tid = event.tid.and_then(|tid| self.by_owner.get(&(false, tid)));
            if let (Some(&index), Some(found)) = (by_tid, event.pid)
                && let Owner::Thread {
                    pid: pid @ None, ..
                } = &mut self.list[index].owner
            {
                *pid = Some(found);
            }
            if let Record::Aux {
                aux_offset, size, ..
            } = event.record
            {
                let by_cpu = event.cpu.and_then(|cpu| self.by_owner.get(&(true, cpu)));
                if let Some(&index) = by_cpu.or(by_tid) {
                    aux_end[index] = aux_end[index].max(Some(aux_offset.saturating_add(size)));
                }
            }
        }
        let counted = self.list.iter_mut().zip(aux_end).filter(|_| !self.cut);
        for (stream, aux_end) in counted {
            cut_padding(&mut stream.pieces, files, aux_end);
            find_gaps(&mut stream.pieces);
        }
        self.list
    }
}

fn cut_padding(pieces: &mut [AuxPiece], files: &[Store], aux_end: Option<u64>) {
    for i in 0..pieces.len() {
        let next = pieces.get(i + 1).map(|next| next.aux_offset);
        let Some(true_end) = next.or(aux_end) else {
            continue;
        };
        let piece = &mut pieces[i];
        let excess = (piece
            .aux_offset
            .saturating_add(piece.range.end - piece.range.start))
        .saturating_sub(true_end);
        let end = piece.range.end.saturating_sub(excess);
        let padding = |end| files[piece.file].part(&(end..piece.range.end));
        if excess < 8 && end >= piece.range.start && padding(end).iter().all(|&byte| byte == 0) {
            piece.range.end = end;
        }
    }
}

/// Where the AUX area's own count jumps ahead, bytes are missing.
fn find_gaps(pieces: &mut [AuxPiece]) {
    for i in 1..pieces.len() {
        let before = &pieces[i - 1];
        let end = (before.aux_offset).saturating_add(before.range.end - before.range.start);
        let piece = &mut pieces[i];
        if piece.gap.is_none() && piece.aux_offset > end {
            piece.gap = Some(Gap::Bytes(piece.aux_offset - end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(offset: u64, cpu: u32) -> AuxtraceHeader {
        AuxtraceHeader {
            size: 0,
            offset,
            reference: 0,
            index: 0,
            tid: 9,
            cpu,
        }
    }

    fn aux(aux_offset: u64, size: u64, cpu: Option<u32>) -> Sideband {
        let record = Record::Aux {
            aux_offset,
            size,
            flags: 0,
        };
        Sideband {
            time: None,
            pid: Some(8),
            tid: Some(9),
            cpu,
            record,
        }
    }

    fn finish(streams: Streams, file: &[u8], sideband: &[Sideband]) -> Vec<AuxStream> {
        streams.finish(&[Store::Memory(file.to_vec())], sideband)
    }

    fn ranges(streams: &[AuxStream]) -> Vec<(u64, u64)> {
        let pieces = streams.iter().flat_map(|stream| &stream.pieces);
        pieces
            .map(|piece| (piece.range.start, piece.range.end))
            .collect()
    }

    #[test]
    fn padding_is_cut_by_the_next_piece_and_by_the_aux_records() {
        let mut file = vec![0xff; 48];
        file[13..16].fill(0);
        file[44..48].fill(0);
        let mut streams = Streams::default();
        streams.add(&header(0, u32::MAX), 0, 0..16);
        streams.add(&header(13, u32::MAX), 0, 32..48);
        let streams = finish(streams, &file, &[aux(0, 13, None), aux(13, 12, None)]);
        assert_eq!(ranges(&streams), [(0, 13), (32, 44)]);
        assert_eq!(
            streams[0].owner,
            Owner::Thread {
                pid: Some(8),
                tid: 9
            }
        );
    }

    #[test]
    fn nothing_is_cut_without_word_of_it_or_if_it_is_not_zero() {
        let file = vec![0; 64];
        let mut streams = Streams::default();
        streams.add(&header(0, 3), 0, 0..16);
        assert_eq!(ranges(&finish(streams, &file, &[])), [(0, 16)]);
        // Another CPU's record, and an overlap of 8 bytes as snapshots have it.
        let mut streams = Streams::default();
        streams.add(&header(0, 3), 0, 0..16);
        streams.add(&header(8, 3), 0, 32..48);
        assert_eq!(
            ranges(&finish(streams, &file, &[aux(0, 20, Some(4))])),
            [(0, 16), (32, 48)]
        );
        let mut streams = Streams::default();
        streams.add(&header(0, 3), 0, 0..16);
        let not_zero = [0xff; 16];
        assert_eq!(
            ranges(&finish(streams, &not_zero, &[aux(0, 15, Some(3))])),
            [(0, 16)]
        );
    }
}
