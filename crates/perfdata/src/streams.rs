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
use crate::{AuxPiece, AuxStream, Owner, Record, Sideband};

/// Streams under construction.
#[derive(Default)]
pub(crate) struct Streams {
    list: Vec<AuxStream>,
    by_owner: HashMap<(bool, u32), usize>,
}

impl Streams {
    pub(crate) fn add(&mut self, header: &AuxtraceHeader, file: Range<u64>) {
        if file.is_empty() {
            return;
        }
        // perf puts a thread id into the records of a CPU's buffer too.
        let per_cpu = header.cpu != u32::MAX;
        let number = if per_cpu { header.cpu } else { header.tid };
        let index = *self.by_owner.entry((per_cpu, number)).or_insert_with(|| {
            let owner = match per_cpu {
                true => Owner::Cpu(number),
                false => Owner::Thread {
                    pid: None,
                    tid: number,
                },
            };
            self.list.push(AuxStream {
                owner,
                pieces: Vec::new(),
            });
            self.list.len() - 1
        });
        self.list[index].pieces.push(AuxPiece {
            file: 0,
            range: file,
            aux_offset: header.offset,
        });
    }

    /// The streams, each thread's with its process as the sideband has it.
    pub(crate) fn finish(mut self, file: &[u8], sideband: &[Sideband]) -> Vec<AuxStream> {
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
        for (stream, aux_end) in self.list.iter_mut().zip(aux_end) {
            cut_padding(&mut stream.pieces, file, aux_end);
        }
        self.list
    }
}

fn cut_padding(pieces: &mut [AuxPiece], file: &[u8], aux_end: Option<u64>) {
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
        if excess < 8 && end >= piece.range.start && is_zero(file, end..piece.range.end) {
            piece.range.end = end;
        }
    }
}

fn is_zero(file: &[u8], range: Range<u64>) -> bool {
    file[range.start as usize..range.end as usize]
        .iter()
        .all(|&byte| byte == 0)
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
        streams.add(&header(0, u32::MAX), 0..16);
        streams.add(&header(13, u32::MAX), 32..48);
        let streams = streams.finish(&file, &[aux(0, 13, None), aux(13, 12, None)]);
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
        streams.add(&header(0, 3), 0..16);
        assert_eq!(ranges(&streams.finish(&file, &[])), [(0, 16)]);
        // Another CPU's record, and an overlap of 8 bytes as snapshots have it.
        let mut streams = Streams::default();
        streams.add(&header(0, 3), 0..16);
        streams.add(&header(8, 3), 32..48);
        assert_eq!(
            ranges(&streams.finish(&file, &[aux(0, 20, Some(4))])),
            [(0, 16), (32, 48)]
        );
        let mut streams = Streams::default();
        streams.add(&header(0, 3), 0..16);
        let not_zero = [0xff; 16];
        assert_eq!(
            ranges(&streams.finish(&not_zero, &[aux(0, 15, Some(3))])),
            [(0, 16)]
        );
    }
}
