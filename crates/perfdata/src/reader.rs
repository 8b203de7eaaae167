//! Opening a capture.
//!
//! The files are mapped, the header and the records are read with checked bounds, the trace data are
//! only located. `linux-perf-event-reader` parses attributes and record bodies. The container is
//! walked here: `linux-perf-data` copies the trace data into memory and takes the sizes of header
//! sections on trust.
//!
//! A recording with `--threads` or `--kcore` is a folder: `data` is a whole file, `data.0`, `data.1`
//! … hold nothing but more records.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ptrail_pt::{CpuId, PtConfig, TimeConv};

use crate::attributes::Attributes;
use crate::auxtrace::{self, AuxtraceInfo};
use crate::damage::Damage;
use crate::file::{Store, map};
use crate::head::{Head, Reading};
use crate::records::{RawRecord, Records, Stop};
use crate::streams::Streams;
use crate::{
    AuxPiece, AuxStream, Capture, Error, Extra, KernelCopy, Machine, Owner, Sideband, SourceNote,
    layout, lldb, own_section, sample, sideband, timeline, unpack,
};

impl Capture {
    /// Opens a `perf.data` file or an LLDB trace bundle (its `trace.json`, or the folder it is in).
    ///
    /// `perf.data` is read in every form that perf writes: seekable, as a pipe stream (also from a
    /// pipe, then into memory), compressed, as a folder. What can be read of a damaged file is
    /// given, and [`Capture::damage`] says what is missing. The file must not be changed while the
    /// capture is in use.
    ///
    /// # Errors
    /// If the file can't be read, is something else, holds no Intel PT, or is cut so short that its
    /// settings are lost.
    pub fn open(path: &Path) -> Result<Capture, Error> {
        if let Some(description) = lldb::description(path) {
            return lldb::open(&description);
        }
        read(path, files(path)?)
    }

    /// Reads a `perf.data` that is in memory already; `path` is its name in messages.
    ///
    /// # Errors
    /// As for [`Capture::open`].
    pub fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Capture, Error> {
        read(path, vec![(path.to_owned(), Store::Memory(bytes))])
    }

    /// Opens a file of nothing but Intel PT packets. How the trace unit was set is not known: it is
    /// taken for user code with return compression, without errata; see [`Capture::pt_config`].
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn open_raw(path: &Path) -> Result<Capture, Error> {
        let bytes = map(path)?;
        let piece = AuxPiece {
            file: 0,
            range: 0..bytes.len() as u64,
            aux_offset: 0,
            gap: None,
        };
        Ok(Capture {
            machine: Machine::default(),
            pt_config: PtConfig {
                tsc: true,
                ..PtConfig::default()
            },
            clock: None,
            streams: vec![AuxStream {
                owner: Owner::Unknown,
                pieces: vec![piece],
            }],
            sideband: Vec::new(),
            unknown_records: BTreeMap::new(),
            extra: None,
            kernel: None,
            damage: Vec::new(),
            files: vec![bytes],
        })
    }
}

/// The files of a recording, the one with the header first.
fn files(path: &Path) -> Result<Vec<(PathBuf, Store)>, Error> {
    if !path.is_dir() {
        return Ok(vec![(path.to_owned(), map(path)?)]);
    }
    let first = path.join("data");
    if !first.is_file() {
        return Err(Error::NotPerfData {
            path: path.to_owned(),
        });
    }
    let mut files = vec![(first.clone(), map(&first)?)];
    let more = (0..).map(|number| path.join(format!("data.{number}")));
    for file in more.take_while(|file| file.is_file()) {
        let store = map(&file)?;
        files.push((file, store));
    }
    Ok(files)
}

fn read(path: &Path, mut files: Vec<(PathBuf, Store)>) -> Result<Capture, Error> {
    let mut damage = Damage::new(&files[0].0);
    let head = Reading {
        path: &files[0].0,
        file: &files[0].1,
        damage: &mut damage,
    }
    .head()?;
    let mut walk = Walk {
        attributes: &head.attributes,
        damage,
        data: Data::default(),
    };
    let on_disk = files.len();
    let mut number = 0;
    while let Some((name, file)) = files.get(number) {
        let range = match number {
            0 => head.data.clone(),
            _ => 0..file.len() as u64,
        };
        let packed = walk.file(name, number, file, range)?;
        if !packed.is_empty() && number < on_disk {
            let (unpacked, fault) = unpack::unpack(&packed);
            if let Some(fault) = fault {
                let what = format!("compressed records end early: {fault}");
                walk.damage.malformed(file.len() as u64, what);
            }
            let name = PathBuf::from(format!("{} (unpacked)", name.display()));
            files.push((name, Store::Memory(unpacked)));
        }
        number += 1;
    }
    let Walk { damage, data, .. } = walk;
    let files = files.into_iter().map(|(_, file)| file).collect();
    capture(path, head, damage, data, files)
}

/// Puts together what was read.
fn capture(
    path: &Path,
    head: Head,
    mut damage: Damage,
    mut data: Data,
    files: Vec<Store>,
) -> Result<Capture, Error> {
    let no_pt = || Error::NoIntelPt {
        path: path.to_owned(),
    };
    let info = data.info.ok_or_else(no_pt)?;
    let mut events = head.attributes.list.iter();
    let event = events.find(|a| a.kind == info.pmu_type).ok_or_else(no_pt)?;
    let extra = own_section::read(&files[0]).unwrap_or_else(|what| {
        damage.malformed(files[0].len() as u64, what);
        None
    });
    timeline::add_build_ids(&mut data.sideband, &head.build_ids);
    timeline::sort_by_time(&mut data.sideband);
    let pt_config = info.pt_config(event.config, trace_unit(&head.machine, extra.as_ref()));
    if info.snapshots || data.sampled {
        data.streams.cut_overlaps(&files, pt_config.tsc);
    }
    Ok(Capture {
        pt_config,
        clock: data
            .time_conv
            .or(info.clock())
            .filter(|clock| clock.cap_user_time_zero),
        streams: data.streams.finish(&files, &data.sideband),
        machine: head.machine,
        sideband: data.sideband,
        unknown_records: data.unknown_records,
        extra,
        kernel: kernel_copy(path),
        damage: damage.finish(),
        files,
    })
}

/// What the records say.
#[derive(Default)]
struct Data {
    info: Option<AuxtraceInfo>,
    time_conv: Option<TimeConv>,
    streams: Streams,
    /// Trace data came inside samples.
    sampled: bool,
    sideband: Vec<Sideband>,
    unknown_records: BTreeMap<u32, u64>,
}

/// A walk over the records of all files.
struct Walk<'a> {
    attributes: &'a Attributes,
    damage: Damage,
    data: Data,
}

impl Walk<'_> {
    /// Reads the records of a file; returns the compressed ones, put together.
    fn file(
        &mut self,
        path: &Path,
        number: usize,
        file: &[u8],
        range: Range<u64>,
    ) -> Result<Vec<u8>, Error> {
        self.damage.path(path);
        let mut packed = Vec::new();
        let mut records = Records::new(file, range);
        for record in records.by_ref() {
            match record.kind {
                layout::COMPRESSED | layout::COMPRESSED2 => {
                    packed.extend_from_slice(unpack::part(record.kind, record.body));
                }
                _ => self.record(&record, number),
            }
        }
        let truncated = |offset, what| Error::Truncated {
            path: path.to_owned(),
            offset,
            what,
        };
        let stopped = match records.stop {
            None => return Ok(packed),
            Some(Stop::CutRecord(at)) => truncated(at, "a record"),
            Some(Stop::CutTrace(at)) => truncated(at, "the trace data"),
            Some(Stop::BadSize(offset, size)) => Error::Malformed {
                path: path.to_owned(),
                offset,
                what: format!("a record says that it has {size} bytes; nothing behind it was read"),
            },
        };
        if self.data.info.is_none() && packed.is_empty() {
            // It may stand in the part that is lost.
            return Err(stopped);
        }
        self.damage.add(stopped);
        Ok(packed)
    }

    fn record(&mut self, record: &RawRecord<'_>, file: usize) {
        let &RawRecord {
            offset,
            kind,
            misc,
            body,
            ..
        } = record;
        if let Some((header, bytes)) = &record.trace {
            self.data.streams.add(header, file, bytes.clone());
            return;
        }
        match kind {
            layout::AUXTRACE_INFO => self.data.info = self.data.info.or(AuxtraceInfo::read(body)),
            layout::TIME_CONV => {
                self.data.time_conv = auxtrace::read_time_conv(body);
                if self.data.time_conv.is_none() {
                    self.damage
                        .malformed(offset, "the clock conversion is broken; left out");
                }
            }
            layout::SAMPLE => self.sample(record, file),
            layout::AUXTRACE_ERROR => {
                let error = sideband::read_auxtrace_error(body);
                self.event(offset, kind, error.map(Some).ok_or(()));
            }
            layout::FINISHED_ROUND
            | layout::FINISHED_INIT
            | layout::ID_INDEX
            | layout::THREAD_MAP
            | layout::CPU_MAP
            | layout::EVENT_UPDATE
            | layout::HEADER_ATTR
            | layout::HEADER_EVENT_TYPE
            | layout::HEADER_TRACING_DATA
            | layout::HEADER_BUILD_ID
            | layout::HEADER_FEATURE => {}
            _ => {
                let layout = self.attributes.layout_of(body);
                let found =
                    layout.map_or(Ok(None), |layout| sideband::read(kind, misc, body, layout));
                self.event(offset, kind, found);
            }
        }
    }

    fn event(&mut self, offset: u64, kind: u32, found: Result<Option<Sideband>, ()>) {
        match found {
            Ok(Some(event)) => self.data.sideband.push(event),
            Ok(None) => *self.data.unknown_records.entry(kind).or_default() += 1,
            Err(()) => {
                let what = format!("a record of type {kind} is broken; left out");
                self.damage.malformed(offset, what);
            }
        }
    }

    /// Trace data inside a sample; other samples are counted and left out.
    fn sample(&mut self, record: &RawRecord<'_>, file: usize) {
        let layout = self.attributes.layout_of_sample(record.body);
        let Some(layout) = layout.filter(sample::has_trace) else {
            return self.event(record.offset, record.kind, Ok(None));
        };
        match sample::read(record.body, &layout) {
            Some(sample) => {
                let body = record.offset + layout::RECORD_HEADER_SIZE as u64;
                self.data.streams.add_sample(&sample, file, body);
                self.data.sampled = true;
            }
            None => self.event(record.offset, record.kind, Err(())),
        }
    }
}

/// The copy of the kernel in the folder of a recording.
fn kernel_copy(path: &Path) -> Option<KernelCopy> {
    let folder = path.join("kcore_dir");
    let kcore = folder.join("kcore");
    kcore.is_file().then(|| KernelCopy {
        kcore,
        kallsyms: folder.join("kallsyms"),
    })
}

/// The CPU whose trace unit made the packets: none, where ptrail's software did.
fn trace_unit(machine: &Machine, extra: Option<&Extra>) -> Option<CpuId> {
    match extra.map(|extra| &extra.source) {
        Some(SourceNote::Software { .. }) => None,
        _ => auxtrace::parse_cpuid(&machine.cpuid),
    }
}
