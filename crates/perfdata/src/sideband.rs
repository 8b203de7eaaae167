//! Sideband records, one by one, in both directions.
//!
//! The bodies are those of `enum perf_event_type` in `linux/perf_event.h`. Where the file says −1
//! for a process, thread, CPU or time, it is `None` here.

use linux_perf_event_reader::constants::{
    PERF_RECORD_MISC_COMM_EXEC, PERF_RECORD_MISC_KERNEL, PERF_RECORD_MISC_MMAP_BUILD_ID,
    PERF_RECORD_MISC_MMAP_DATA, PERF_RECORD_MISC_SWITCH_OUT, PERF_RECORD_MISC_SWITCH_OUT_PREEMPT,
    PERF_RECORD_MISC_USER,
};
use linux_perf_event_reader::{
    ContextSwitchRecord, EventRecord, ForkOrExitRecord, Mmap2FileId, RawData, RawEventRecord,
    RecordParseInfo, RecordType, TaskWasPreempted,
};

use crate::attributes::{DUMMY_ID, PT_ID, SampleId};
use crate::features::BUILD_ID_MAX;
use crate::wire::{Builder, Bytes, text_until_nul};
use crate::{Error, Record, Sideband, attributes, layout};

const PROT_READ: u32 = 1;
const PROT_EXEC: u32 = 4;
const MAP_PRIVATE: u32 = 2;
/// `PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER`.
const KSYMBOL_UNREGISTER: u16 = 1;
/// Place of the build-id's length in the body of an MMAP2 record.
const BUILD_ID_LEN_AT: usize = 32;
/// Longest path or name in a record written here, bytes: Linux allows no longer path (`PATH_MAX`
/// less the NUL), and perf has no room for one.
const TEXT_MAX: usize = 4095;

/// What a record says; `Ok(None)` for kinds that nothing here is made of, `Err` for a body that is
/// too short or contradicts itself.
pub(crate) fn read(
    kind: u32,
    misc: u16,
    body: &[u8],
    layout: RecordParseInfo,
) -> Result<Option<Sideband>, ()> {
    let raw = RawEventRecord::new(RecordType(kind), misc, body.into(), layout);
    let Some((ids, record)) = read_body(&raw, body)? else {
        return Ok(None);
    };
    let end = raw.common_data().map_err(|_| ())?;
    let (pid, tid) = ids.unwrap_or((end.pid.unwrap_or(-1), end.tid.unwrap_or(-1)));
    Ok(Some(Sideband {
        time: end.timestamp.filter(|&t| t != u64::MAX),
        pid: known(pid),
        tid: known(tid),
        cpu: end.cpu.filter(|&c| c != u32::MAX),
        record,
    }))
}

impl Sideband {
    /// From a record as the kernel gives it to a recorder whose events have `sample_id_all` and the
    /// sample type TID, TIME, CPU, IDENTIFIER; `None` for kinds that nothing here is made of. A body
    /// that makes no sense is one lost record.
    #[must_use]
    pub fn from_kernel(kind: u32, misc: u16, body: &[u8]) -> Option<Self> {
        read(kind, misc, body, attributes::sideband_layout()?).unwrap_or(Some(Self {
            time: None,
            pid: None,
            tid: None,
            cpu: None,
            record: Record::Lost(1),
        }))
    }
}

fn known(id: i32) -> Option<u32> {
    u32::try_from(id).ok()
}

type Ids = Option<(i32, i32)>;

fn read_body(raw: &RawEventRecord<'_>, body: &[u8]) -> Result<Option<(Ids, Record)>, ()> {
    let has_build_id = raw.misc & PERF_RECORD_MISC_MMAP_BUILD_ID != 0;
    let too_long = |&len: &u8| usize::from(len) > BUILD_ID_MAX;
    match raw.record_type {
        RecordType::AUX
        | RecordType::ITRACE_START
        | RecordType::LOST_SAMPLES
        | RecordType::NAMESPACES
        | RecordType::KSYMBOL
        | RecordType::BPF_EVENT
        | RecordType::TEXT_POKE
        | RecordType::AUX_OUTPUT_HW_ID => read_unparsed(raw.record_type, body).ok_or(()).map(Some),
        // The library takes a longer build-id for a fault of the program.
        RecordType::MMAP2 if has_build_id && body.get(BUILD_ID_LEN_AT).is_none_or(too_long) => {
            Err(())
        }
        RecordType::MMAP
        | RecordType::MMAP2
        | RecordType::COMM
        | RecordType::FORK
        | RecordType::EXIT
        | RecordType::LOST
        | RecordType::SWITCH
        | RecordType::SWITCH_CPU_WIDE => Ok(convert(raw.parse().map_err(|_| ())?)),
        _ => Ok(None),
    }
}

/// The library's record as one of ours, with the ids of its body.
fn convert(event: EventRecord<'_>) -> Option<(Ids, Record)> {
    Some(match event {
        EventRecord::Mmap(map) => {
            let record = Record::Mmap2 {
                address: map.address,
                len: map.length,
                file_offset: map.page_offset,
                executable: map.is_executable,
                path: text(map.path),
                build_id: None,
            };
            (Some((map.pid, map.tid)), record)
        }
        EventRecord::Mmap2(map) => {
            let record = Record::Mmap2 {
                address: map.address,
                len: map.length,
                file_offset: map.page_offset,
                executable: map.protection & PROT_EXEC != 0,
                path: text(map.path),
                build_id: match map.file_id {
                    Mmap2FileId::BuildId(id) if !id.is_empty() => Some(id),
                    _ => None,
                },
            };
            (Some((map.pid, map.tid)), record)
        }
        EventRecord::Comm(comm) => {
            let record = Record::Comm {
                name: text(comm.name),
                exec: comm.is_execve,
            };
            (Some((comm.pid, comm.tid)), record)
        }
        EventRecord::Fork(ForkOrExitRecord {
            pid,
            tid,
            ppid,
            ptid,
            ..
        }) => {
            let record = Record::Fork {
                parent_pid: ppid as u32,
                parent_tid: ptid as u32,
            };
            (Some((pid, tid)), record)
        }
        EventRecord::Exit(exit) => (Some((exit.pid, exit.tid)), Record::Exit),
        EventRecord::Lost(lost) => (None, Record::Lost(lost.count)),
        EventRecord::ContextSwitch(switch) => (None, read_switch(switch)),
        _ => return None,
    })
}

fn read_switch(switch: ContextSwitchRecord) -> Record {
    let pair = |pid: Option<i32>, tid: Option<i32>| known(pid?).zip(known(tid?));
    match switch {
        ContextSwitchRecord::In { prev_pid, prev_tid } => Record::Switch {
            out: false,
            preempted: false,
            other: pair(prev_pid, prev_tid),
        },
        ContextSwitchRecord::Out {
            next_pid,
            next_tid,
            preempted,
        } => Record::Switch {
            out: true,
            preempted: preempted == TaskWasPreempted::Yes,
            other: pair(next_pid, next_tid),
        },
    }
}

/// The kinds that the library leaves unparsed.
fn read_unparsed(kind: RecordType, body: &[u8]) -> Option<(Ids, Record)> {
    let mut body = Bytes(body);
    Some(match kind {
        RecordType::ITRACE_START => {
            let ids = (body.u32()? as i32, body.u32()? as i32);
            (Some(ids), Record::ItraceStart)
        }
        RecordType::NAMESPACES => {
            let ids = (body.u32()? as i32, body.u32()? as i32);
            let count = body.u64()?;
            let mut namespace = || Some((body.u64()?, body.u64()?));
            let all: Vec<_> = (0..count).map_while(|_| namespace()).collect();
            if all.len() as u64 != count {
                return None;
            }
            (Some(ids), Record::Namespaces(all))
        }
        RecordType::LOST_SAMPLES => (None, Record::LostSamples(body.u64()?)),
        RecordType::AUX_OUTPUT_HW_ID => (None, Record::AuxOutputHwId(body.u64()?)),
        RecordType::BPF_EVENT => {
            let (kind, _flags, id) = (body.u16()?, body.u16()?, body.u32()?);
            (None, Record::BpfEvent { kind, id })
        }
        RecordType::KSYMBOL => {
            let (address, len) = (body.u64()?, body.u32()?);
            let (kind, flags) = (body.u16()?, body.u16()?);
            let record = Record::Ksymbol {
                address,
                len,
                kind,
                unregister: flags & KSYMBOL_UNREGISTER != 0,
                name: text_until_nul(body.0),
            };
            (None, record)
        }
        RecordType::TEXT_POKE => {
            let (address, old, new) = (body.u64()?, body.u16()?, body.u16()?);
            let record = Record::TextPoke {
                address,
                old: body.take(old.into())?.to_vec(),
                new: body.take(new.into())?.to_vec(),
            };
            (None, record)
        }
        _ => {
            let (aux_offset, size, flags) = (body.u64()?, body.u64()?, body.u64()?);
            let record = Record::Aux {
                aux_offset,
                size,
                flags,
            };
            (None, record)
        }
    })
}

/// `PERF_RECORD_AUXTRACE_ERROR`, which only perf itself writes: `u32` type, code, CPU, process,
/// thread, format; `u64` address, time; 64 bytes of text.
pub(crate) fn read_auxtrace_error(body: &[u8]) -> Option<Sideband> {
    let mut body = Bytes(body);
    let (_kind, code, cpu) = (body.u32()?, body.u32()?, body.u32()?);
    let (pid, tid, format) = (body.u32()?, body.u32()?, body.u32()?);
    let ip = body.u64()?;
    // Old perfs wrote no time.
    let time = if format > 0 { Some(body.u64()?) } else { None };
    let known = |id: u32| Some(id).filter(|&id| id != u32::MAX);
    Some(Sideband {
        time: time.filter(|&time| time != 0),
        pid: known(pid),
        tid: known(tid),
        cpu: known(cpu),
        record: Record::AuxtraceError {
            code,
            ip,
            message: text_until_nul(body.0),
        },
    })
}

fn text(data: RawData<'_>) -> String {
    text_until_nul(&data.as_slice())
}

/// The whole record in the file's form.
pub(crate) fn write(sideband: &Sideband) -> Result<Vec<u8>, Error> {
    if let (Record::Switch { out: false, .. }, None) = (&sideband.record, sideband.cpu) {
        let what =
            "a thread that goes on a CPU needs the CPU: without, perf refuses the whole file";
        return Err(Error::Unwritable {
            what: what.to_owned(),
        });
    }
    let mut end = SampleId {
        pid: sideband.pid.unwrap_or(u32::MAX),
        tid: sideband.tid.unwrap_or(u32::MAX),
        time: sideband.time.unwrap_or(u64::MAX),
        cpu: sideband.cpu.unwrap_or(u32::MAX),
        id: DUMMY_ID,
    };
    if let Record::ItraceStart | Record::Aux { .. } = sideband.record {
        end.id = PT_ID;
    }
    let mut body = Builder::default();
    let (kind, misc) = write_body(&mut body, &end, &sideband.record)?;
    end.write(&mut body);
    layout::record(kind.0, misc, &body.0).ok_or_else(|| Error::Unwritable {
        what: "it is longer than 64 KiB".to_owned(),
    })
}

/// The body without its end; answers type and `misc` bits.
fn write_body(
    body: &mut Builder,
    &SampleId { pid, tid, time, .. }: &SampleId,
    record: &Record,
) -> Result<(RecordType, u16), Error> {
    Ok(match record {
        Record::Mmap2 { .. } => (RecordType::MMAP2, write_map(body, pid, tid, record)?),
        Record::Comm { name, exec } => {
            body.u32(pid).u32(tid).terminated(checked(name)?, 8);
            (
                RecordType::COMM,
                if *exec { PERF_RECORD_MISC_COMM_EXEC } else { 0 },
            )
        }
        Record::Fork {
            parent_pid,
            parent_tid,
        } => {
            body.u32(pid)
                .u32(*parent_pid)
                .u32(tid)
                .u32(*parent_tid)
                .u64(time);
            (RecordType::FORK, 0)
        }
        Record::Exit => {
            // The parent is not known here, and nobody asks for it at the end.
            body.u32(pid).u32(pid).u32(tid).u32(tid).u64(time);
            (RecordType::EXIT, 0)
        }
        Record::ItraceStart => {
            body.u32(pid).u32(tid);
            (RecordType::ITRACE_START, 0)
        }
        Record::Switch {
            out,
            preempted,
            other,
        } => {
            let misc = match (out, preempted) {
                (false, _) => 0,
                (true, false) => PERF_RECORD_MISC_SWITCH_OUT,
                (true, true) => PERF_RECORD_MISC_SWITCH_OUT | PERF_RECORD_MISC_SWITCH_OUT_PREEMPT,
            };
            let Some((pid, tid)) = other else {
                return Ok((RecordType::SWITCH, misc));
            };
            body.u32(*pid).u32(*tid);
            (RecordType::SWITCH_CPU_WIDE, misc)
        }
        Record::Aux {
            aux_offset,
            size,
            flags,
        } => {
            body.u64s(&[*aux_offset, *size, *flags]);
            (RecordType::AUX, 0)
        }
        Record::Lost(count) => {
            body.u64s(&[DUMMY_ID, *count]);
            (RecordType::LOST, 0)
        }
        other => {
            let what = format!("ptrail records no {other:?}");
            return Err(Error::Unwritable { what });
        }
    })
}

/// The body of an MMAP2 record; answers its `misc` bits.
fn write_map(body: &mut Builder, pid: u32, tid: u32, map: &Record) -> Result<u16, Error> {
    let Record::Mmap2 {
        address,
        len,
        file_offset,
        executable,
        path,
        build_id,
    } = map
    else {
        return Ok(0);
    };
    // Kernel mappings belong to no process.
    let mut misc = if pid == u32::MAX {
        PERF_RECORD_MISC_KERNEL
    } else {
        PERF_RECORD_MISC_USER
    };
    body.u32(pid).u32(tid).u64s(&[*address, *len, *file_offset]);
    match recordable(build_id.as_deref()) {
        Some(id) => {
            misc |= PERF_RECORD_MISC_MMAP_BUILD_ID;
            let mut field = [0; BUILD_ID_MAX];
            field[..id.len()].copy_from_slice(id);
            body.u8(id.len() as u8).bytes(&[0; 3]).bytes(&field);
        }
        // Device, inode and its generation are not known.
        None => {
            body.u64s(&[0, 0, 0]);
        }
    }
    let protection = if *executable {
        PROT_READ | PROT_EXEC
    } else {
        PROT_READ
    };
    if !executable {
        misc |= PERF_RECORD_MISC_MMAP_DATA;
    }
    body.u32(protection)
        .u32(MAP_PRIVATE)
        .terminated(checked(path)?, 8);
    Ok(misc)
}

/// A build-id that a record has room for; the kernel too leaves others out.
pub(crate) fn recordable(build_id: Option<&[u8]>) -> Option<&[u8]> {
    build_id.filter(|id| (1..=BUILD_ID_MAX).contains(&id.len()))
}

fn checked(text: &str) -> Result<&[u8], Error> {
    let what = if text.len() > TEXT_MAX {
        let start: String = text.chars().take(40).collect();
        format!(
            "the name `{start}…` has {} bytes, the limit is {TEXT_MAX}",
            text.len()
        )
    } else if text.contains('\0') {
        format!("the name {text:?} contains a NUL")
    } else {
        return Ok(text.as_bytes());
    };
    Err(Error::Unwritable { what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{Attribute, written};

    fn layout_written() -> RecordParseInfo {
        Attribute::read(&written(0)[1].0).unwrap().layout
    }

    fn map(path: String, build_id: Option<Vec<u8>>) -> Sideband {
        let record = Record::Mmap2 {
            address: 0x40_0000,
            len: 0x1000,
            file_offset: 0,
            executable: true,
            path,
            build_id,
        };
        Sideband {
            time: Some(5),
            pid: Some(7),
            tid: Some(8),
            cpu: None,
            record,
        }
    }

    fn read_back(record: &[u8]) -> Result<Option<Sideband>, ()> {
        let mut words = Bytes(record);
        let (kind, misc) = (words.u32().unwrap(), words.u16().unwrap());
        read(kind, misc, &record[8..], layout_written())
    }

    #[test]
    fn the_body_says_whose_record_it_is_even_if_another_thread_caused_it() {
        let fork = Sideband {
            time: Some(9),
            pid: Some(20),
            tid: Some(21),
            cpu: Some(3),
            record: Record::Fork {
                parent_pid: 20,
                parent_tid: 20,
            },
        };
        let mut bytes = write(&fork).unwrap();
        let trailer = bytes.len() - 32;
        bytes[trailer..trailer + 8].copy_from_slice(&[20, 0, 0, 0, 20, 0, 0, 0]);
        assert_eq!(read_back(&bytes), Ok(Some(fork)));
    }

    #[test]
    fn build_ids_of_any_length_are_written_or_left_out() {
        for len in [0usize, 1, 8, 16, 20, 21, 64] {
            let id = vec![0xab; len];
            let expected = (1..=20).contains(&len).then(|| id.clone());
            let bytes = write(&map("/bin/x".to_owned(), Some(id))).unwrap();
            assert_eq!(
                read_back(&bytes),
                Ok(Some(map("/bin/x".to_owned(), expected)))
            );
        }
    }

    #[test]
    fn a_build_id_length_beyond_its_field_is_an_error() {
        let mut bytes = write(&map("/bin/x".to_owned(), Some(vec![1; 20]))).unwrap();
        bytes[8 + BUILD_ID_LEN_AT] = 21;
        assert_eq!(read_back(&bytes), Err(()));
    }

    #[test]
    fn names_that_do_not_fit_are_refused_with_the_limit() {
        assert!(write(&map("x".repeat(4095), None)).is_ok());
        let long = write(&map("x".repeat(4096), None)).unwrap_err().to_string();
        assert!(long.contains("4096 bytes, the limit is 4095"), "{long}");
        assert!(write(&map("a\0b".to_owned(), None)).is_err());
    }

    #[test]
    fn a_switch_in_needs_its_cpu() {
        let switch = |out, cpu| {
            let record = Record::Switch {
                out,
                preempted: false,
                other: None,
            };
            write(&Sideband {
                time: Some(1),
                pid: Some(2),
                tid: Some(2),
                cpu,
                record,
            })
        };
        assert!(switch(false, Some(0)).is_ok());
        assert!(switch(true, None).is_ok());
        assert!(
            switch(false, None)
                .unwrap_err()
                .to_string()
                .contains("needs the CPU")
        );
    }

    #[test]
    fn a_cut_record_is_an_error() {
        let bytes = write(&map("/bin/x".to_owned(), None)).unwrap();
        for len in 8..72 {
            assert_eq!(read_back(&bytes[..len]), Err(()), "{len}");
        }
    }
}
