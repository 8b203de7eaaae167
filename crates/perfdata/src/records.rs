//! The row of records in the data section.
//!
//! Each record is a `perf_event_header` (`u32` type, `u16` misc, `u16` size with the header) and a
//! body. A `PERF_RECORD_AUXTRACE` is followed by trace data that its size does not count; the walk
//! gives them as a range and steps over them, as over the tracepoints' descriptions.

use std::ops::Range;

use crate::auxtrace::AuxtraceHeader;
use crate::layout::{AUXTRACE, HEADER_TRACING_DATA, RECORD_HEADER_SIZE};
use crate::wire::Bytes;

/// One record.
pub(crate) struct RawRecord<'a> {
    /// Place in the file.
    pub(crate) offset: u64,
    pub(crate) kind: u32,
    pub(crate) misc: u16,
    pub(crate) body: &'a [u8],
    /// The trace data behind an AUXTRACE record, as far as they are there.
    pub(crate) trace: Option<(AuxtraceHeader, Range<u64>)>,
}

/// Why a walk ended before the end of the section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The file ends inside the record at this offset.
    CutRecord(u64),
    /// The file ends inside the trace data at this offset.
    CutTrace(u64),
    /// The record at this offset says that it has this size, which is too small.
    BadSize(u64, u16),
}

/// A walk over the data section.
pub(crate) struct Records<'a> {
    file: &'a [u8],
    at: u64,
    /// End of the section as the header has it; may lie behind the end of the file.
    end: u64,
    pub(crate) stop: Option<Stop>,
}

impl<'a> Records<'a> {
    pub(crate) fn new(file: &'a [u8], section: Range<u64>) -> Self {
        Records {
            file,
            at: section.start,
            end: section.end,
            stop: None,
        }
    }

    /// Bytes of the section from `at` on that are in the file.
    fn rest(&self) -> &'a [u8] {
        let len = self.file.len() as u64;
        let (start, end) = (self.at.min(len), self.end.min(len));
        // Both fit: they are not greater than the length of a slice.
        self.file
            .get(start as usize..end as usize)
            .unwrap_or_default()
    }

    fn read(&mut self) -> Result<RawRecord<'a>, Stop> {
        let offset = self.at;
        let cut = Stop::CutRecord(offset);
        let mut rest = Bytes(self.rest());
        let (kind, misc) = (rest.u32().ok_or(cut)?, rest.u16().ok_or(cut)?);
        let size = rest.u16().ok_or(cut)?;
        let body_size = usize::from(size)
            .checked_sub(RECORD_HEADER_SIZE)
            .ok_or(Stop::BadSize(offset, size))?;
        let body = rest.take(body_size).ok_or(cut)?;
        self.at += u64::from(size);
        let mut record = RawRecord {
            offset,
            kind,
            misc,
            body,
            trace: None,
        };
        if kind == AUXTRACE {
            let header = AuxtraceHeader::read(body).ok_or(Stop::BadSize(offset, size))?;
            let there = header.size.min(rest.0.len() as u64);
            record.trace = Some((header, self.at..self.at + there));
            if there < header.size {
                self.stop = Some(Stop::CutTrace(self.at));
            }
            self.at += there;
        }
        if kind == HEADER_TRACING_DATA {
            // Descriptions of tracepoints stand behind their record, filled up to whole words.
            let size = { Bytes(body) }.u32().ok_or(Stop::BadSize(offset, size))?;
            self.at += u64::from(size).next_multiple_of(8);
        }
        Ok(record)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RawRecord<'a>;

    fn next(&mut self) -> Option<RawRecord<'a>> {
        if self.at >= self.end || self.stop.is_some() {
            return None;
        }
        self.read().map_err(|stop| self.stop = Some(stop)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::record;

    fn trace(size: u64) -> Vec<u8> {
        let header = AuxtraceHeader {
            size,
            offset: 0,
            reference: 0,
            index: 0,
            tid: 1,
            cpu: 2,
        };
        record(AUXTRACE, 0, &header.write()).unwrap()
    }

    #[test]
    fn trace_data_are_stepped_over() {
        let mut file = trace(16);
        file.extend([0xff; 16]);
        file.extend(record(3, 5, &[1; 8]).unwrap());
        let mut records = Records::new(&file, 0..file.len() as u64);
        assert_eq!(records.next().unwrap().trace.unwrap().1, 48..64);
        let comm = records.next().unwrap();
        assert_eq!(
            (comm.offset, comm.kind, comm.misc, comm.body),
            (64, 3, 5, &[1; 8][..])
        );
        assert!(records.next().is_none() && records.stop.is_none());
    }

    #[test]
    fn a_size_beyond_everything_gives_what_is_there() {
        let mut file = trace(u64::MAX);
        file.extend([0xff; 5]);
        let mut records = Records::new(&file, 0..u64::MAX);
        assert_eq!(records.next().unwrap().trace.unwrap().1, 48..53);
        assert!(records.next().is_none());
        assert_eq!(records.stop, Some(Stop::CutTrace(48)));
    }

    #[test]
    fn a_record_of_no_size_ends_the_walk() {
        let file = [0; 64];
        let mut records = Records::new(&file, 8..64);
        assert!(records.next().is_none());
        assert_eq!(records.stop, Some(Stop::BadSize(8, 0)));
    }

    #[test]
    fn a_section_that_begins_behind_the_file_is_cut() {
        let mut records = Records::new(&[], 100..200);
        assert!(records.next().is_none());
        assert_eq!(records.stop, Some(Stop::CutRecord(100)));
    }
}
