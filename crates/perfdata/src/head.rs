//! What stands around the data section: file header, events and features.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use linux_perf_data::Feature;

use crate::attributes::{Attribute, Attributes};
use crate::damage::Damage;
use crate::features::{self, BuildIds};
use crate::layout::{self, FileHeader, SECTION_SIZE, Section};
use crate::wire::Bytes;
use crate::{Error, Machine, pipe};

/// A file being read.
pub(crate) struct Reading<'a> {
    pub(crate) path: &'a Path,
    pub(crate) file: &'a [u8],
    pub(crate) damage: &'a mut Damage,
}

/// What stands around the records.
pub(crate) struct Head {
    pub(crate) attributes: Attributes,
    pub(crate) machine: Machine,
    pub(crate) build_ids: BuildIds,
    /// Where the records are; may go beyond the end of the file.
    pub(crate) data: Range<u64>,
}

impl<'a> Reading<'a> {
    pub(crate) fn head(&mut self) -> Result<Head, Error> {
        let Some(header) = self.header()? else {
            let pipe::Head {
                attributes,
                features,
                build_ids,
            } = pipe::head(self.file, self.damage);
            return Ok(Head {
                attributes,
                machine: machine(&features),
                build_ids,
                data: layout::PIPE_HEADER_SIZE..self.file.len() as u64,
            });
        };
        let attributes = self.attributes(&header)?;
        let data = self.data_range(&header)?;
        let features = self.features(&header, data.end);
        let build_ids = features.get(&Feature::BUILD_ID);
        Ok(Head {
            attributes,
            machine: machine(&features),
            build_ids: build_ids.map_or_else(BuildIds::new, |b| features::read_build_ids(b)),
            data,
        })
    }

    /// `None` for the pipe form.
    fn header(&mut self) -> Result<Option<FileHeader>, Error> {
        let mut bytes = Bytes(self.file);
        match bytes.take(layout::MAGIC.len()) {
            Some(magic) if magic == layout::MAGIC => {}
            Some(magic) if magic == layout::MAGIC_BIG_ENDIAN => {
                return Err(Error::Unsupported {
                    path: self.path.to_owned(),
                    what: "it was recorded on a big-endian machine, which has no Intel PT",
                });
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
            return Ok(None);
        }
        FileHeader::read(bytes)
            .map(Some)
            .ok_or_else(|| self.truncated(0, "the file header"))
    }

    fn truncated(&self, offset: u64, what: &'static str) -> Error {
        Error::Truncated {
            path: self.path.to_owned(),
            offset,
            what,
        }
    }

    fn attributes(&mut self, header: &FileHeader) -> Result<Attributes, Error> {
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

    fn data_range(&mut self, header: &FileHeader) -> Result<Range<u64>, Error> {
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
    fn features(&mut self, header: &FileHeader, table: u64) -> BTreeMap<Feature, &'a [u8]> {
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

fn machine(features: &BTreeMap<Feature, &[u8]>) -> Machine {
    let text = |feature| {
        features
            .get(&feature)
            .map_or_else(String::new, |b| features::read_text(b))
    };
    Machine {
        hostname: text(Feature::HOSTNAME),
        os_release: text(Feature::OSRELEASE),
        arch: text(Feature::ARCH),
        cpu_description: text(Feature::CPUDESC),
        cpuid: text(Feature::CPUID),
        command: features
            .get(&Feature::CMDLINE)
            .map_or_else(Vec::new, |b| features::read_texts(b)),
    }
}
