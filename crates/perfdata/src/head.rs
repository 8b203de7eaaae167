//! What stands around the data section: file header, events and features.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use linux_perf_data::Feature;

use crate::Error;
use crate::attributes::{Attribute, Attributes};
use crate::layout::{self, FileHeader, SECTION_SIZE, Section};
use crate::reader::Reading;
use crate::wire::Bytes;

impl<'a> Reading<'a> {
    pub(crate) fn header(&mut self) -> Result<FileHeader, Error> {
        let mut bytes = Bytes(self.file);
        match bytes.take(layout::MAGIC.len()) {
            Some(magic) if magic == layout::MAGIC => {}
            Some(magic) if magic == layout::MAGIC_BIG_ENDIAN => {
                return Err(self.unsupported(
                    "it was recorded on a big-endian machine, which has no Intel PT",
                ));
            }
            _ => {
                return Err(Error::NotPerfData {
                    path: self.path.to_owned(),
                });
            }
        }
        let size = { bytes }
            .u64()
            .ok_or_else(|| self.truncated(0, "the file header"))?;
        if size == layout::PIPE_HEADER_SIZE {
            return Err(self.unsupported(
                "the pipe form of perf.data is not read yet; \
                 record with `perf record -o FILE` instead of to a pipe",
            ));
        }
        let header = FileHeader::read(bytes).ok_or_else(|| self.truncated(0, "the file header"))?;
        if header.features.has_feature(Feature::COMPRESSED) {
            return Err(self.compressed());
        }
        Ok(header)
    }

    pub(crate) fn attributes(&mut self, header: &FileHeader) -> Result<Attributes, Error> {
        let what = "the list of events";
        let entries = self
            .section(header.attrs)
            .ok_or_else(|| self.truncated(header.attrs.offset, what))?;
        let attr_size = header.attr_size.checked_sub(SECTION_SIZE);
        let Some(attr_size) = attr_size
            .and_then(|s| usize::try_from(s).ok())
            .filter(|&s| s >= 64)
        else {
            let what = format!("an event has {} bytes, 80 is the least", header.attr_size);
            return Err(Error::Malformed {
                path: self.path.to_owned(),
                offset: 16,
                what,
            });
        };
        let (mut list, mut by_id) = (Vec::new(), HashMap::new());
        let mut ids_left = self.file.len() / 8;
        let mut entries = Bytes(entries);
        while let (Some(attr), Some(ids)) = (entries.take(attr_size), Section::read(&mut entries)) {
            let Some(attribute) = Attribute::read(attr) else {
                self.damage.malformed(
                    header.attrs.offset,
                    "an event's attribute is broken; left out",
                );
                continue;
            };
            let mut ids = Bytes(self.section(ids).unwrap_or_default());
            // Lists that share their bytes would make a small file ask for much memory.
            while let (Some(id), Some(left)) = (ids.u64(), ids_left.checked_sub(1)) {
                by_id.insert(id, list.len());
                ids_left = left;
            }
            list.push(attribute);
        }
        Ok(Attributes::new(list, by_id))
    }

    pub(crate) fn data_range(&mut self, header: &FileHeader) -> Result<Range<u64>, Error> {
        let len = self.file.len() as u64;
        let start = header.data.offset;
        if start > len {
            return Err(self.truncated(start, "the data section"));
        }
        if header.data.size == 0 {
            // perf fills the size in at the end; it did not come to that.
            self.damage.add(Error::Truncated {
                path: self.path.to_owned(),
                offset: start,
                what: "the data section (the recorder was killed)",
            });
            return Ok(start..len);
        }
        header.data.range().ok_or_else(|| {
            let what = format!(
                "the data section has {:#x} bytes, more than a file can",
                header.data.size
            );
            Error::Malformed {
                path: self.path.to_owned(),
                offset: 40,
                what,
            }
        })
    }

    /// Each feature's bytes; those that are not in the file are left out.
    pub(crate) fn features(
        &mut self,
        header: &FileHeader,
        table: u64,
    ) -> BTreeMap<Feature, &'a [u8]> {
        let mut features = BTreeMap::new();
        if header.data.size == 0 {
            return features;
        }
        let start = usize::try_from(table).ok();
        let mut entries = Bytes(
            start
                .and_then(|start| self.file.get(start..))
                .unwrap_or_default(),
        );
        for feature in header.features.iter() {
            let section = Section::read(&mut entries);
            match section.and_then(|section| self.section(section)) {
                Some(bytes) => {
                    features.insert(feature, bytes);
                }
                None => {
                    let offset = section.map_or(table, |section| section.offset);
                    self.damage
                        .add(self.truncated(offset, "the header features"));
                    break;
                }
            }
        }
        features
    }

    fn section(&self, section: Section) -> Option<&'a [u8]> {
        let range = section.range()?;
        self.file
            .get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
    }
}
