//! Header features: what is said about machine, events and build-ids behind the data section.
//!
//! A text is a `u32` length that is a multiple of 64 and that many bytes, filled with NULs
//! (`perf_header_string`); a list of texts is a `u32` count in front of them. The build-id feature
//! is a row of records of type 67: `i32` process id (−1: any), 20 bytes of build-id, its length in
//! one byte, 3 bytes of zeros, the path. The AUX index is a `u64` count, then for each
//! `PERF_RECORD_AUXTRACE` its offset in the file and its own size without the data.

use std::collections::BTreeMap;

use linux_perf_data::Feature;
use linux_perf_event_reader::constants::PERF_RECORD_MISC_USER;

use crate::Machine;
use crate::layout::{self, ATTR_SIZE};
use crate::wire::{Builder, Bytes, text_until_nul};

/// Longest build-id that perf has room for, bytes.
pub(crate) const BUILD_ID_MAX: usize = 20;

/// The byte behind the 20 bytes of a build-id holds its length (`PERF_RECORD_MISC_BUILD_ID_SIZE`
/// in `perf_event.h`; perf before 5.10 leaves it out and all 20 bytes count).
const MISC_BUILD_ID_SIZE: u16 = 1 << 15;

/// Build-ids by path.
pub(crate) type BuildIds = BTreeMap<String, Vec<u8>>;

/// A text feature; empty if it is cut short.
pub(crate) fn read_text(bytes: &[u8]) -> String {
    text(&mut Bytes(bytes)).unwrap_or_default()
}

/// A list of texts; ends where it is cut short.
pub(crate) fn read_texts(bytes: &[u8]) -> Vec<String> {
    let mut bytes = Bytes(bytes);
    let count = bytes.u32().unwrap_or(0);
    (0..count).map_while(|_| text(&mut bytes)).collect()
}

fn text(bytes: &mut Bytes<'_>) -> Option<String> {
    let len = bytes.u32()?;
    bytes.take(usize::try_from(len).ok()?).map(text_until_nul)
}

/// The build-id feature; ends where it is cut short.
pub(crate) fn read_build_ids(bytes: &[u8]) -> BuildIds {
    let mut bytes = Bytes(bytes);
    let mut ids = BuildIds::new();
    while let Some((path, id)) = read_build_id(&mut bytes) {
        ids.insert(path, id);
    }
    ids
}

fn read_build_id(bytes: &mut Bytes<'_>) -> Option<(String, Vec<u8>)> {
    let (_kind, misc, size) = (bytes.u32()?, bytes.u16()?, bytes.u16()?);
    build_id(
        misc,
        bytes.take(usize::from(size).checked_sub(layout::RECORD_HEADER_SIZE)?)?,
    )
}

/// Path and build-id of one record.
pub(crate) fn build_id(misc: u16, body: &[u8]) -> Option<(String, Vec<u8>)> {
    let mut body = Bytes(body);
    let _pid = body.u32()?;
    let id = body.take(BUILD_ID_MAX)?;
    let len = match body.u8()? {
        len if misc & MISC_BUILD_ID_SIZE != 0 => usize::from(len).min(BUILD_ID_MAX),
        _ => BUILD_ID_MAX,
    };
    body.take(3)?;
    Some((text_until_nul(body.0), id[..len].to_vec()))
}

/// What goes into the features of a file written here.
pub(crate) struct Features<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) cpuid: &'a str,
    pub(crate) cpus: u32,
    pub(crate) events: &'a [(Vec<u8>, &'static str, u64)],
    pub(crate) build_ids: &'a BuildIds,
    /// Offset of each `PERF_RECORD_AUXTRACE` in the file.
    pub(crate) auxtrace: &'a [u64],
}

impl Features<'_> {
    /// Each feature with its bytes, in the order of the feature bits.
    pub(crate) fn write(&self) -> Vec<(Feature, Vec<u8>)> {
        let machine = self.machine;
        let version = concat!("ptrail ", env!("CARGO_PKG_VERSION"));
        let mut cpus = Builder::default();
        cpus.u32(self.cpus).u32(self.cpus);
        let mut all = vec![
            (Feature::BUILD_ID, write_build_ids(self.build_ids)),
            (Feature::HOSTNAME, write_text(&machine.hostname)),
            (Feature::OSRELEASE, write_text(&machine.os_release)),
            (Feature::VERSION, write_text(version)),
            (Feature::ARCH, write_text(&machine.arch)),
            (Feature::NRCPUS, cpus.0),
            (Feature::CPUDESC, write_text(&machine.cpu_description)),
            (Feature::CPUID, write_text(self.cpuid)),
            (Feature::CMDLINE, write_texts(&machine.command)),
            (Feature::EVENT_DESC, self.event_description()),
            (Feature::AUXTRACE, self.auxtrace_index()),
        ];
        // An absent feature means "not known". perf takes the AUX index's presence, even empty, for
        // the sign that the events can be decoded into samples.
        all.retain(|(_, bytes)| !bytes.is_empty());
        all
    }

    fn event_description(&self) -> Vec<u8> {
        let mut built = Builder::default();
        built.u32(self.events.len() as u32).u32(ATTR_SIZE);
        for (attr, name, id) in self.events {
            let ids = 1;
            built.bytes(attr).u32(ids).bytes(&write_text(name)).u64(*id);
        }
        built.0
    }

    fn auxtrace_index(&self) -> Vec<u8> {
        let mut built = Builder::default();
        built.u64(self.auxtrace.len() as u64);
        for offset in self.auxtrace {
            built.u64s(&[*offset, crate::auxtrace::RECORD_SIZE]);
        }
        built.0
    }
}

fn write_text(text: &str) -> Vec<u8> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut padded = Builder::default();
    padded.terminated(text.as_bytes(), 64);
    let mut built = Builder::default();
    built.u32(padded.0.len() as u32).bytes(&padded.0);
    built.0
}

fn write_texts(texts: &[String]) -> Vec<u8> {
    if texts.is_empty() {
        return Vec::new();
    }
    let mut built = Builder::default();
    built.u32(texts.len() as u32);
    for text in texts {
        let mut padded = Builder::default();
        padded.terminated(text.as_bytes(), 64);
        built.u32(padded.0.len() as u32).bytes(&padded.0);
    }
    built.0
}

fn write_build_ids(build_ids: &BuildIds) -> Vec<u8> {
    let mut built = Builder::default();
    for (path, id) in build_ids {
        let mut body = Builder::default();
        let any_process = u32::MAX;
        body.u32(any_process).bytes(id);
        body.0.resize(4 + BUILD_ID_MAX, 0);
        body.u8(id.len() as u8)
            .bytes(&[0; 3])
            .terminated(path.as_bytes(), 64);
        let misc = PERF_RECORD_MISC_USER | MISC_BUILD_ID_SIZE;
        // A path that fits into its MMAP2 record fits here too: the record is shorter.
        built.bytes(&layout::record(layout::HEADER_BUILD_ID, misc, &body.0).unwrap_or_default());
    }
    built.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back() {
        for text in ["x", "Intel(R) Core(TM)", &"ü".repeat(500)] {
            let bytes = write_text(text);
            assert_eq!(bytes.len() % 64, 4);
            assert_eq!(read_text(&bytes), text);
            assert_eq!(read_text(&bytes[..bytes.len() - 1]), "");
        }
        let command: Vec<String> = ["a", "", "c d"].map(String::from).to_vec();
        assert_eq!(read_texts(&write_texts(&command)), command);
    }

    #[test]
    fn a_count_that_lies_costs_nothing() {
        assert_eq!(read_texts(&u32::MAX.to_le_bytes()), Vec::<String>::new());
        assert_eq!(read_text(&u32::MAX.to_le_bytes()), "");
    }

    #[test]
    fn build_ids_come_back() {
        let ids = BuildIds::from([
            ("/usr/lib/libm.so.6".to_owned(), vec![7; 20]),
            ("/opt/a b/ü".to_owned(), vec![1, 2, 3, 4, 5, 6, 7, 8]),
        ]);
        let bytes = write_build_ids(&ids);
        assert_eq!(read_build_ids(&bytes), ids);
        assert_eq!(read_build_ids(&bytes[..bytes.len() - 1]).len(), 1);
    }
}
