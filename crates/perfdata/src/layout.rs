//! Fixed points of the file format: record types of user space, the file header and the event
//! attributes, for reader and writer.
//!
//! A `perf.data` file (`tools/perf/Documentation/perf.data-file-format.txt`) begins with
//!
//! | bytes | field |
//! | --- | --- |
//! | 8 | magic `PERFILE2` |
//! | 8 | size of this header, 104 (16: the pipe form) |
//! | 8 | size of one entry of the attribute section |
//! | 3 × 16 | offset and size of the attributes, of the data, of the event types (unused) |
//! | 32 | one bit for each header feature |
//!
//! An attribute entry is a `perf_event_attr`, then offset and size of the event's list of ids. The
//! data section is a row of records. Behind it stand offset and size of each feature, in the order
//! of the feature bits.

use std::ops::Range;

use linux_perf_data::{Feature, FeatureSet};

use crate::wire::{Builder, Bytes};

pub(crate) const MAGIC: &[u8; 8] = b"PERFILE2";
pub(crate) const MAGIC_BIG_ENDIAN: &[u8; 8] = b"2ELIFREP";
pub(crate) const HEADER_SIZE: u64 = 104;
pub(crate) const PIPE_HEADER_SIZE: u64 = 16;
/// Bytes of `perf_event_attr` in files written here (`PERF_ATTR_SIZE_VER7`).
pub(crate) const ATTR_SIZE: u32 = 128;
/// Bytes of an (offset, size) pair.
pub(crate) const SECTION_SIZE: u64 = 16;
/// Bytes of `perf_event_header`: type, misc and size of a record.
pub(crate) const RECORD_HEADER_SIZE: usize = 8;

/// `PERF_RECORD_SAMPLE`.
pub(crate) const SAMPLE: u32 = 9;

// Record types of user space (`enum perf_user_event_type` in `perf/event.h`).
pub(crate) const HEADER_ATTR: u32 = 64;
pub(crate) const HEADER_EVENT_TYPE: u32 = 65;
pub(crate) const HEADER_TRACING_DATA: u32 = 66;
pub(crate) const HEADER_BUILD_ID: u32 = 67;
pub(crate) const FINISHED_ROUND: u32 = 68;
pub(crate) const ID_INDEX: u32 = 69;
pub(crate) const AUXTRACE_INFO: u32 = 70;
pub(crate) const AUXTRACE: u32 = 71;
pub(crate) const AUXTRACE_ERROR: u32 = 72;
pub(crate) const THREAD_MAP: u32 = 73;
pub(crate) const CPU_MAP: u32 = 74;
pub(crate) const EVENT_UPDATE: u32 = 78;
pub(crate) const TIME_CONV: u32 = 79;
pub(crate) const HEADER_FEATURE: u32 = 80;
pub(crate) const COMPRESSED: u32 = 81;
pub(crate) const FINISHED_INIT: u32 = 82;
pub(crate) const COMPRESSED2: u32 = 83;

/// The file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) size: u64,
    pub(crate) attr_size: u64,
    pub(crate) attrs: Section,
    pub(crate) data: Section,
    pub(crate) features: FeatureSet,
}

/// A part of the file, as the file gives it: not checked against anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl Section {
    /// First and last address; `None` if they leave the range of `u64`.
    pub(crate) fn range(self) -> Option<Range<u64>> {
        Some(self.offset..self.offset.checked_add(self.size)?)
    }

    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(Section {
            offset: bytes.u64()?,
            size: bytes.u64()?,
        })
    }
}

impl FileHeader {
    /// From the start of a file, behind the magic.
    pub(crate) fn read(mut bytes: Bytes<'_>) -> Option<Self> {
        let (size, attr_size) = (bytes.u64()?, bytes.u64()?);
        let (attrs, data) = (Section::read(&mut bytes)?, Section::read(&mut bytes)?);
        let _event_types = Section::read(&mut bytes)?;
        let features = FeatureSet([bytes.u64()?, bytes.u64()?, bytes.u64()?, bytes.u64()?]);
        Some(FileHeader {
            size,
            attr_size,
            attrs,
            data,
            features,
        })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut built = Builder::default();
        built.bytes(MAGIC).u64s(&[self.size, self.attr_size]);
        built.u64s(&[
            self.attrs.offset,
            self.attrs.size,
            self.data.offset,
            self.data.size,
            0,
            0,
        ]);
        built.u64s(&self.features.0);
        built.0
    }
}

/// The feature bits of these features.
pub(crate) fn feature_set(features: impl Iterator<Item = Feature>) -> FeatureSet {
    let mut bits = [0u64; 4];
    for feature in features {
        bits[(feature.0 / 64) as usize] |= 1 << (feature.0 % 64);
    }
    FeatureSet(bits)
}

/// A record: header and body, the body filled with zeros up to a multiple of 8 bytes. `None` if it
/// is longer than the header's 16-bit size can say.
pub(crate) fn record(kind: u32, misc: u16, body: &[u8]) -> Option<Vec<u8>> {
    let size = (RECORD_HEADER_SIZE + body.len()).next_multiple_of(8);
    let mut built = Builder::default();
    built
        .u32(kind)
        .u16(misc)
        .u16(u16::try_from(size).ok()?)
        .bytes(body)
        .pad(8);
    Some(built.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_its_size_and_comes_back() {
        let header = FileHeader {
            size: HEADER_SIZE,
            attr_size: u64::from(ATTR_SIZE) + SECTION_SIZE,
            attrs: Section {
                offset: 120,
                size: 288,
            },
            data: Section {
                offset: 408,
                size: 12,
            },
            features: feature_set([Feature::HOSTNAME, Feature::AUXTRACE].into_iter()),
        };
        let bytes = header.write();
        assert_eq!(bytes.len() as u64, HEADER_SIZE);
        assert_eq!(FileHeader::read(Bytes(&bytes[8..])), Some(header));
    }

    #[test]
    fn a_record_fills_whole_words_and_stays_below_64_kib() {
        assert_eq!(
            record(3, 1, &[9]).unwrap(),
            [3, 0, 0, 0, 1, 0, 16, 0, 9, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(record(3, 0, &[0; 65_520]).unwrap().len(), 65_528);
        assert!(record(3, 0, &[0; 65_521]).is_none());
    }
}
