//! Event attributes: which events were recorded, and how their records end.
//!
//! Every record of the kernel ends with a `sample_id` whose fields depend on the event that it
//! belongs to: thread, time, id, CPU … A record's event is known by its id, which is the last word
//! when every event has `PERF_SAMPLE_IDENTIFIER`.
//!
//! Files written here have two events: `intel_pt`, which owns the trace data, and a software dummy,
//! which carries mappings, names, births, deaths and switches.

use std::collections::HashMap;

use linux_perf_event_reader::constants::{
    ATTR_FLAG_BIT_BUILD_ID, ATTR_FLAG_BIT_COMM, ATTR_FLAG_BIT_COMM_EXEC,
    ATTR_FLAG_BIT_CONTEXT_SWITCH, ATTR_FLAG_BIT_EXCLUDE_HV, ATTR_FLAG_BIT_EXCLUDE_KERNEL,
    ATTR_FLAG_BIT_MMAP, ATTR_FLAG_BIT_MMAP2, ATTR_FLAG_BIT_SAMPLE_ID_ALL, ATTR_FLAG_BIT_TASK,
    ATTR_FLAG_BIT_USE_CLOCKID,
};
use linux_perf_event_reader::{
    AttrFlags, Endianness, PerfEventAttr, RecordParseInfo, SampleFormat,
};

use crate::auxtrace::PMU_TYPE;
use crate::layout::ATTR_SIZE;
use crate::wire::{Builder, Bytes};

/// Id of the `intel_pt` event in files written here.
pub(crate) const PT_ID: u64 = 1;
/// Id of the dummy event in files written here.
pub(crate) const DUMMY_ID: u64 = 2;

const TYPE_SOFTWARE: u32 = 1;
const TYPE_RAW: u32 = 4;
const CONFIG_DUMMY: u64 = 9;
const READ_FORMAT_ID: u64 = 4;

/// Fields of the `sample_id` in files written here. perf wants the instruction pointer in the list
/// although only samples carry it, and the time in every event: else it decodes without time.
fn sample_format() -> SampleFormat {
    SampleFormat::IP
        | SampleFormat::TID
        | SampleFormat::TIME
        | SampleFormat::CPU
        | SampleFormat::IDENTIFIER
}

/// One event.
pub(crate) struct Attribute {
    /// PMU type.
    pub(crate) kind: u32,
    pub(crate) config: u64,
    pub(crate) layout: RecordParseInfo,
    identified: bool,
}

impl Attribute {
    /// From a `perf_event_attr`.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut words = Bytes(bytes);
        let (kind, _size, config) = (words.u32()?, words.u32()?, words.u64()?);
        let attr = parse(bytes).or_else(|| parse(&as_raw_event(bytes)?))?;
        let layout = RecordParseInfo::new(&attr, Endianness::LittleEndian);
        let identified = attr.sample_format.contains(SampleFormat::IDENTIFIER)
            && attr.flags.contains(AttrFlags::SAMPLE_ID_ALL);
        Some(Attribute {
            kind,
            config,
            layout,
            identified,
        })
    }
}

fn parse(bytes: &[u8]) -> Option<PerfEventAttr> {
    // `HeaderAttr`, the pipe form's record for an attribute, takes the byte order as a value, where
    // `PerfEventAttr` wants a type of another crate. What stands behind the attribute it reads as
    // ids, hence whole words only.
    let record = linux_perf_data::RawUserRecord {
        record_type: linux_perf_data::UserRecordType::PERF_HEADER_ATTR,
        endian: Endianness::LittleEndian,
        misc: 0,
        data: bytes[..bytes.len() & !7].into(),
    };
    match record.parse().ok()? {
        linux_perf_data::UserRecord::HeaderAttr(header) => Some(header.attr),
        _ => None,
    }
}

/// The same attribute as a raw event on the default clock: where `sample_id` has its fields does
/// not depend on these, and newer kernels have more of them than the library knows.
fn as_raw_event(bytes: &[u8]) -> Option<Vec<u8>> {
    const FLAGS: std::ops::Range<usize> = 40..48;
    let mut bytes = bytes.to_vec();
    bytes
        .get_mut(0..4)?
        .copy_from_slice(&TYPE_RAW.to_le_bytes());
    let flags = u64::from_le_bytes(bytes.get(FLAGS)?.try_into().ok()?) & !ATTR_FLAG_BIT_USE_CLOCKID;
    bytes.get_mut(FLAGS)?.copy_from_slice(&flags.to_le_bytes());
    Some(bytes)
}

/// All events of a file.
pub(crate) struct Attributes {
    pub(crate) list: Vec<Attribute>,
    by_id: HashMap<u64, usize>,
    all_identified: bool,
}

impl Attributes {
    /// `by_id`: from an id to a place in `list`.
    pub(crate) fn new(list: Vec<Attribute>, by_id: HashMap<u64, usize>) -> Self {
        let all_identified = list.iter().all(|attribute| attribute.identified);
        Attributes {
            list,
            by_id,
            all_identified,
        }
    }

    /// The layout of a record with this body; `None` if the file has no events.
    pub(crate) fn layout_of(&self, body: &[u8]) -> Option<RecordParseInfo> {
        let first = self.list.first()?;
        if !self.all_identified {
            return Some(first.layout);
        }
        // What perf itself puts in before the recording starts has id 0: it is the first event's.
        Some(self.by_id(body.last_chunk()).unwrap_or(first).layout)
    }

    /// The layout of a sample with this body, which has the id in front.
    pub(crate) fn layout_of_sample(&self, body: &[u8]) -> Option<RecordParseInfo> {
        let only = || self.list.first().filter(|_| self.list.len() == 1);
        let attribute = match self.all_identified {
            true => self.by_id(body.first_chunk()),
            false => None,
        };
        Some(attribute.or_else(only)?.layout)
    }

    fn by_id(&self, id: Option<&[u8; 8]>) -> Option<&Attribute> {
        let index = self.by_id.get(&u64::from_le_bytes(*id?))?;
        self.list.get(*index)
    }
}

/// The two events of a file written here, as `perf_event_attr`, with name and id.
pub(crate) fn written(pt_config: u64) -> [(Vec<u8>, &'static str, u64); 2] {
    let user_only =
        ATTR_FLAG_BIT_EXCLUDE_KERNEL | ATTR_FLAG_BIT_EXCLUDE_HV | ATTR_FLAG_BIT_SAMPLE_ID_ALL;
    let sideband = ATTR_FLAG_BIT_MMAP
        | ATTR_FLAG_BIT_MMAP2
        | ATTR_FLAG_BIT_BUILD_ID
        | ATTR_FLAG_BIT_COMM
        | ATTR_FLAG_BIT_COMM_EXEC
        | ATTR_FLAG_BIT_TASK
        | ATTR_FLAG_BIT_CONTEXT_SWITCH;
    [
        (attr(PMU_TYPE, pt_config, user_only), "intel_pt//u", PT_ID),
        (
            attr(TYPE_SOFTWARE, CONFIG_DUMMY, user_only | sideband),
            "dummy:u",
            DUMMY_ID,
        ),
    ]
}

/// How records of such a dummy end.
pub(crate) fn sideband_layout() -> Option<RecordParseInfo> {
    let [_, (dummy, ..)] = written(0);
    Some(Attribute::read(&dummy)?.layout)
}

fn attr(kind: u32, config: u64, flags: u64) -> Vec<u8> {
    let period = 1;
    let mut built = Builder::default();
    built.u32(kind).u32(ATTR_SIZE);
    built.u64s(&[
        config,
        period,
        sample_format().bits(),
        READ_FORMAT_ID,
        flags,
    ]);
    built.0.resize(ATTR_SIZE as usize, 0);
    built.0
}

/// The `sample_id` at the end of a record written here.
pub(crate) struct SampleId {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) time: u64,
    pub(crate) cpu: u32,
    pub(crate) id: u64,
}

impl SampleId {
    pub(crate) fn write(&self, body: &mut Builder) {
        body.u32(self.pid)
            .u32(self.tid)
            .u64(self.time)
            .u32(self.cpu)
            .u32(0)
            .u64(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_events_are_read_back() {
        for (bytes, _, _) in written(0x300_e601) {
            let attribute = Attribute::read(&bytes).unwrap();
            assert!(attribute.identified);
            assert_eq!(attribute.layout.common_data_offset_from_end, Some(32));
        }
        assert_eq!(
            Attribute::read(&written(0x300_e601)[0].0).unwrap().config,
            0x300_e601
        );
    }

    #[test]
    fn an_event_of_a_newer_kernel_still_has_a_layout() {
        let bytes = attr(TYPE_SOFTWARE, 0xfff, ATTR_FLAG_BIT_SAMPLE_ID_ALL);
        assert!(parse(&bytes).is_none());
        let attribute = Attribute::read(&bytes).unwrap();
        assert_eq!((attribute.kind, attribute.config), (TYPE_SOFTWARE, 0xfff));
        assert_eq!(attribute.layout.common_data_offset_from_end, Some(32));
    }

    #[test]
    fn a_cut_attribute_is_none() {
        let (bytes, _, _) = &written(0)[0];
        for len in 0..bytes.len() {
            assert!(Attribute::read(&bytes[..len]).is_none(), "{len}");
        }
    }
}
