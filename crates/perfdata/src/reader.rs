//! Opening a capture.
//!
//! The file is mapped, the header and the records are read with checked bounds, the trace data are
//! only located. `linux-perf-event-reader` parses attributes and record bodies. The container is
//! walked here: `linux-perf-data` copies the trace data into memory and takes the sizes of header
//! sections on trust.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use linux_perf_data::Feature;
use ptrail_pt::{CpuId, PtConfig, TimeConv};

use crate::attributes::Attributes;
use crate::auxtrace::{self, AuxtraceInfo};
use crate::damage::Damage;
use crate::features;
use crate::file::{Store, map};
use crate::layout;
use crate::records::{RawRecord, Records, Stop};
use crate::streams::Streams;
use crate::{
    AuxPiece, AuxStream, Capture, Error, Extra, Machine, Owner, Sideband, SourceNote, lldb,
    own_section, sideband, timeline,
};

impl Capture {
    /// Opens a `perf.data` file or an LLDB trace bundle (its `trace.json`, or the folder it is in).
    ///
    /// What can be read of a damaged file is given, and [`Capture::damage`] says what is missing.
    /// The file must not be changed while the capture is in use.
    ///
    /// # Errors
    /// If the file can't be read, is something else, holds no Intel PT, is in a form that is not
    /// read yet (pipe, compressed, directory), or is cut so short that its settings are lost.
    pub fn open(path: &Path) -> Result<Capture, Error> {
        if let Some(description) = lldb::description(path) {
            return lldb::open(&description);
        }
        let map = perf_data(path)?;
        let mut reading = Reading {
            path,
            file: &map,
            damage: Damage::new(path),
        };
        let parts = reading.read()?;
        let damage = reading.damage.finish();
        let Parts {
            machine,
            pt_config,
            clock,
            streams,
            sideband,
            unknown_records,
            extra,
        } = parts;
        Ok(Capture {
            machine,
            pt_config,
            clock,
            streams,
            sideband,
            unknown_records,
            extra,
            damage,
            files: vec![map],
        })
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
            damage: Vec::new(),
            files: vec![bytes],
        })
    }
}

/// Maps a `perf.data`.
fn perf_data(path: &Path) -> Result<Store, Error> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let metadata = std::fs::metadata(path).map_err(io)?;
    if metadata.is_dir() {
        return Err(Error::Unsupported {
            path: path.to_owned(),
            what: "directories of `perf record --threads` and `--kcore` are not read yet; \
                   record without these options",
        });
    }
    if metadata.len() < layout::MAGIC.len() as u64 {
        return Err(Error::NotPerfData {
            path: path.to_owned(),
        });
    }
    map(path)
}

/// The fields of a [`Capture`] that come from the bytes of the file.
struct Parts {
    machine: Machine,
    pt_config: PtConfig,
    clock: Option<TimeConv>,
    streams: Vec<crate::AuxStream>,
    sideband: Vec<Sideband>,
    unknown_records: BTreeMap<u32, u64>,
    extra: Option<Extra>,
}

/// A file being read.
pub(crate) struct Reading<'a> {
    pub(crate) path: &'a Path,
    pub(crate) file: &'a [u8],
    pub(crate) damage: Damage,
}

/// What the data section says.
#[derive(Default)]
struct Data {
    info: Option<AuxtraceInfo>,
    time_conv: Option<TimeConv>,
    streams: Streams,
    sideband: Vec<Sideband>,
    unknown_records: BTreeMap<u32, u64>,
}

impl<'a> Reading<'a> {
    fn read(&mut self) -> Result<Parts, Error> {
        let header = self.header()?;
        let attributes = self.attributes(&header)?;
        let data_range = self.data_range(&header)?;
        let features = self.features(&header, data_range.end);
        let mut data = self.data(data_range, &attributes)?;
        let no_pt = || Error::NoIntelPt {
            path: self.path.to_owned(),
        };
        let info = data.info.ok_or_else(no_pt)?;
        let config = attributes
            .list
            .iter()
            .find(|a| a.kind == info.pmu_type)
            .ok_or_else(no_pt)?
            .config;

        let extra = own_section::read(self.file).unwrap_or_else(|what| {
            self.damage.malformed(self.file.len() as u64, what);
            None
        });
        let machine = machine(&features);
        let cpu = trace_unit(&machine, extra.as_ref());
        let build_ids = features
            .get(&Feature::BUILD_ID)
            .copied()
            .map(features::read_build_ids);
        timeline::add_build_ids(&mut data.sideband, &build_ids.unwrap_or_default());
        timeline::sort_by_time(&mut data.sideband);
        Ok(Parts {
            machine,
            pt_config: info.pt_config(config, cpu),
            clock: data
                .time_conv
                .or(info.clock())
                .filter(|clock| clock.cap_user_time_zero),
            streams: data.streams.finish(self.file, &data.sideband),
            sideband: data.sideband,
            unknown_records: data.unknown_records,
            extra,
        })
    }

    fn data(&mut self, range: Range<u64>, attributes: &Attributes) -> Result<Data, Error> {
        let mut data = Data::default();
        let mut records = Records::new(self.file, range);
        for record in records.by_ref() {
            self.record(record, attributes, &mut data)?;
        }
        let stopped = match records.stop {
            None => return Ok(data),
            Some(Stop::CutRecord(at)) => self.truncated(at, "a record"),
            Some(Stop::CutTrace(at)) => self.truncated(at, "the trace data"),
            Some(Stop::BadSize(offset, size)) => {
                let what =
                    format!("a record says that it has {size} bytes; nothing behind it was read");
                Error::Malformed {
                    path: self.path.to_owned(),
                    offset,
                    what,
                }
            }
        };
        if data.info.is_none() {
            // It may stand in the part that is lost.
            return Err(stopped);
        }
        self.damage.add(stopped);
        Ok(data)
    }

    fn record(
        &mut self,
        record: RawRecord<'_>,
        attributes: &Attributes,
        data: &mut Data,
    ) -> Result<(), Error> {
        let RawRecord {
            offset,
            kind,
            misc,
            body,
            trace,
        } = record;
        if let Some((header, bytes)) = trace {
            data.streams.add(&header, bytes);
            return Ok(());
        }
        match kind {
            layout::AUXTRACE_INFO => data.info = data.info.or(AuxtraceInfo::read(body)),
            layout::TIME_CONV => {
                data.time_conv = auxtrace::read_time_conv(body);
                if data.time_conv.is_none() {
                    self.damage
                        .malformed(offset, "the clock conversion is broken; left out");
                }
            }
            layout::COMPRESSED | layout::COMPRESSED2 => return Err(self.compressed()),
            layout::FINISHED_ROUND
            | layout::FINISHED_INIT
            | layout::ID_INDEX
            | layout::THREAD_MAP
            | layout::CPU_MAP
            | layout::EVENT_UPDATE => {}
            _ => {
                let found = attributes
                    .layout_of(body)
                    .map_or(Ok(None), |layout| sideband::read(kind, misc, body, layout));
                match found {
                    Ok(Some(event)) => data.sideband.push(event),
                    Ok(None) => *data.unknown_records.entry(kind).or_default() += 1,
                    Err(()) => {
                        let what = format!("a record of type {kind} is broken; left out");
                        self.damage.malformed(offset, what);
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn truncated(&self, offset: u64, what: &'static str) -> Error {
        Error::Truncated {
            path: self.path.to_owned(),
            offset,
            what,
        }
    }

    pub(crate) fn unsupported(&self, what: &'static str) -> Error {
        Error::Unsupported {
            path: self.path.to_owned(),
            what,
        }
    }

    pub(crate) fn compressed(&self) -> Error {
        self.unsupported("compressed files are not read yet; record without `-z`")
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

/// The CPU whose trace unit made the packets: none, where ptrail's software did.
fn trace_unit(machine: &Machine, extra: Option<&Extra>) -> Option<CpuId> {
    match extra.map(|extra| &extra.source) {
        Some(SourceNote::Software { .. }) => None,
        _ => auxtrace::parse_cpuid(&machine.cpuid),
    }
}
