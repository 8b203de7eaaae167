//! Writing a capture that stock perf decodes.
//!
//! The order is perf's own: AUXTRACE_INFO, TIME_CONV and THREAD_MAP, then what the recorder gives,
//! then FINISHED_ROUND. All goes to a temporary file in the target's folder, which takes the
//! target's name when it is complete.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ptrail_pt::{PerfTime, PtConfig, TimeConv};
use tempfile::NamedTempFile;

use crate::attributes;
use crate::auxtrace::{self, AuxtraceHeader, AuxtraceInfo};
use crate::features::{BuildIds, Features};
use crate::layout::{self, ATTR_SIZE, FileHeader, HEADER_SIZE, SECTION_SIZE, Section};
use crate::wire::Builder;
use crate::{Error, Extra, Machine, Record, Sideband, own_section, sideband};

const BUFFER: usize = 256 * 1024;
/// `PERF_AUX_FLAG_OVERWRITE`.
const AUX_OVERWRITE: u64 = 2;

/// What is known before the first record.
#[derive(Clone, Debug)]
pub struct Target {
    /// Settings of the trace unit. With `cpu` set, the file names that CPU, and decoders apply its
    /// errata; without, the packets have none (see [`Writer`]).
    pub pt_config: PtConfig,
    /// From TSC to perf clock; perf decodes with time only if `cap_user_time_zero` is set.
    pub clock: TimeConv,
    /// The recording machine; empty texts are left out of the file.
    pub machine: Machine,
    /// Process that is recorded.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// The trace data will be looks at rings, which may hold the same again ([`Writer::snapshot`]).
    pub snapshots: bool,
}

/// A `perf.data` file being written: full trace, one stream a thread.
///
/// The CPU of the file is that of [`Target::pt_config`], else the machine's own; but where that one
/// has an erratum that perf knows, no CPU is named, since software's packets don't have it.
///
/// Dropped before [`Writer::finish`], it leaves nothing behind.
///
/// ```no_run
/// # use ptrail_perfdata::{Error, Extra, Record, Sideband, Target, Writer};
/// # fn f(target: Target, packets: &[u8], extra: &Extra) -> Result<(), Error> {
/// let mut writer = Writer::create("trace.data".as_ref(), target)?;
/// writer.record(&Sideband {
///     time: Some(1_000),
///     pid: Some(7),
///     tid: Some(7),
///     cpu: None,
///     record: Record::Comm { name: "true".to_owned(), exec: true },
/// })?;
/// writer.trace(7, 7, 2_000, packets)?;
/// writer.finish(extra)
/// # }
/// ```
pub struct Writer {
    path: PathBuf,
    target: Target,
    out: Output,
    data_start: u64,
    streams: Vec<Stream>,
    index: Vec<u64>,
    /// `None`: several files had this path, or it is not known of all.
    build_ids: BTreeMap<String, Option<Vec<u8>>>,
    cpus: u32,
}

struct Stream {
    tid: u32,
    /// So many bytes of the AUX area are behind its last piece.
    aux_end: u64,
}

impl Writer {
    /// Begins a file. `path` gets its content only by [`Writer::finish`].
    ///
    /// # Errors
    /// [`Error::Io`] if nothing can be written in the folder of `path`.
    pub fn create(path: &Path, target: Target) -> Result<Writer, Error> {
        let out = Output::create(path).map_err(|source| io_error(path, source))?;
        let mut writer = Writer {
            path: path.to_owned(),
            target,
            out,
            data_start: 0,
            streams: Vec::new(),
            index: Vec::new(),
            build_ids: BTreeMap::new(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        };
        writer.begin().map_err(|source| io_error(path, source))?;
        Ok(writer)
    }

    fn begin(&mut self) -> io::Result<()> {
        self.out.put(&[0; HEADER_SIZE as usize])?;
        let mut attrs = Builder::default();
        let events = self.events();
        for (i, (_, _, id)) in events.iter().enumerate() {
            debug_assert_eq!(self.out.at, ids_of(i).offset);
            self.out.put(&id.to_le_bytes())?;
        }
        for (i, (attr, _, _)) in events.iter().enumerate() {
            let ids = ids_of(i);
            attrs.bytes(attr).u64s(&[ids.offset, ids.size]);
        }
        self.out.put(&attrs.0)?;
        self.data_start = self.out.at;

        let Target {
            pt_config,
            clock,
            tid,
            snapshots,
            ..
        } = self.target;
        let mut threads = Builder::default();
        // One thread; its name, 16 bytes, comes with its COMM record.
        threads.u64s(&[1, tid.into(), 0, 0]);
        for (kind, body) in [
            (
                layout::AUXTRACE_INFO,
                AuxtraceInfo::write(&pt_config, &clock, snapshots),
            ),
            (layout::TIME_CONV, auxtrace::write_time_conv(&clock)),
            (layout::THREAD_MAP, threads.0),
        ] {
            self.out
                .put(&layout::record(kind, 0, &body).unwrap_or_default())?;
        }
        Ok(())
    }

    fn events(&self) -> [(Vec<u8>, &'static str, u64); 2] {
        attributes::written(auxtrace::event_config(&self.target.pt_config))
    }

    /// Writes a sideband record. Give the records in the order of their times, a mapping after
    /// the trace of what ran before it and before the trace of what runs in it.
    ///
    /// Build-ids of more than 20 bytes are left out, as the kernel does.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Unwritable`] if a name is longer than 4,095 bytes or contains a NUL,
    /// or if a thread goes on a CPU that is not given (perf would refuse the file).
    pub fn record(&mut self, s: &Sideband) -> Result<(), Error> {
        let bytes = sideband::write(s)?;
        if let Record::Mmap2 { path, build_id, .. } = &s.record {
            let id = sideband::recordable(build_id.as_deref());
            let known = self
                .build_ids
                .entry(path.clone())
                .or_insert_with(|| id.map(<[u8]>::to_vec));
            if known.as_deref() != id {
                *known = None;
            }
        }
        // perf refuses the records of a CPU beyond the number of CPUs.
        self.cpus = self.cpus.max(s.cpu.map_or(0, |cpu| cpu.saturating_add(1)));
        self.out
            .put(&bytes)
            .map_err(|source| io_error(&self.path, source))
    }

    /// Writes trace data of a thread that were complete at `time` (perf-clock nanoseconds).
    ///
    /// `bytes` must end between two packets: behind them zeros (PAD packets) fill the last word.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn trace(&mut self, pid: u32, tid: u32, time: u64, bytes: &[u8]) -> Result<(), Error> {
        let stream = self.streams.iter().find(|stream| stream.tid == tid);
        let aux_offset = stream.map_or(0, |stream| stream.aux_end);
        self.put_piece((pid, tid), time, aux_offset, 0, bytes)
    }

    /// Writes what a thread's ring held at `time`; so many bytes have gone through it by then. It may
    /// begin inside a packet, and hold again what an earlier snapshot has.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn snapshot(
        &mut self,
        pid: u32,
        tid: u32,
        time: u64,
        through: u64,
        ring: &[u8],
    ) -> Result<(), Error> {
        let aux_offset = through.saturating_sub(ring.len() as u64);
        self.put_piece((pid, tid), time, aux_offset, AUX_OVERWRITE, ring)
    }

    fn put_piece(
        &mut self,
        (pid, tid): (u32, u32),
        time: u64,
        aux_offset: u64,
        flags: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let index = match self.streams.iter().position(|stream| stream.tid == tid) {
            Some(index) => index,
            None => {
                self.streams.push(Stream { tid, aux_end: 0 });
                self.streams.len() - 1
            }
        };
        let size = bytes.len() as u64;
        self.streams[index].aux_end = aux_offset + size;
        self.record(&Sideband {
            time: Some(time),
            pid: Some(pid),
            tid: Some(tid),
            cpu: None,
            record: Record::Aux {
                aux_offset,
                size,
                flags,
            },
        })?;
        let header = AuxtraceHeader {
            size: size.next_multiple_of(8),
            offset: aux_offset,
            reference: self.target.clock.to_tsc(PerfTime(time)).0,
            index: index as u32,
            tid,
            cpu: u32::MAX,
        };
        self.put_trace(&header, bytes)
            .map_err(|source| io_error(&self.path, source))
    }

    fn put_trace(&mut self, header: &AuxtraceHeader, bytes: &[u8]) -> io::Result<()> {
        self.index.push(self.out.at);
        self.out
            .put(&layout::record(layout::AUXTRACE, 0, &header.write()).unwrap_or_default())?;
        self.out.put(bytes)?;
        self.out.pad()
    }

    /// Completes the file and gives it its name, in place of a file that has it already.
    ///
    /// # Errors
    /// [`Error::Io`], also if an earlier call had failed: then nothing gets the name.
    pub fn finish(mut self, extra: &Extra) -> Result<(), Error> {
        self.end(extra)
            .map_err(|source| io_error(&self.path, source))?;
        self.out
            .persist(&self.path)
            .map_err(|source| io_error(&self.path, source))
    }

    fn end(&mut self, extra: &Extra) -> io::Result<()> {
        let round = layout::record(layout::FINISHED_ROUND, 0, &[]).unwrap_or_default();
        self.out.put(&round)?;
        let data = Section {
            offset: self.data_start,
            size: self.out.at - self.data_start,
        };

        let machine = &self.target.machine;
        let known = |(path, id): (&String, &Option<Vec<u8>>)| Some((path.clone(), id.clone()?));
        let build_ids: BuildIds = self.build_ids.iter().filter_map(known).collect();
        let features = Features {
            machine,
            cpuid: &auxtrace::cpuid_text(self.target.pt_config.cpu, &machine.cpuid),
            cpus: self.cpus,
            events: &self.events(),
            build_ids: &build_ids,
            auxtrace: &self.index,
        }
        .write();
        let mut table = Builder::default();
        let mut offset = self.out.at + features.len() as u64 * SECTION_SIZE;
        for (_, bytes) in &features {
            table.u64s(&[offset, bytes.len() as u64]);
            offset += bytes.len() as u64;
        }
        self.out.put(&table.0)?;
        for (_, bytes) in &features {
            self.out.put(bytes)?;
        }
        self.out.pad()?;
        self.out.put(&own_section::write(extra, self.out.at)?)?;

        let attr_size = u64::from(ATTR_SIZE) + SECTION_SIZE;
        let events = self.events().len() as u64;
        let header = FileHeader {
            size: HEADER_SIZE,
            attr_size,
            attrs: Section {
                offset: ids_of(events as usize).offset,
                size: events * attr_size,
            },
            data,
            features: layout::feature_set(features.iter().map(|(feature, _)| *feature)),
        };
        self.out.put_header(&header.write())
    }
}

/// Where the id of event number `i` stands; behind the last one stand the attributes.
fn ids_of(i: usize) -> Section {
    let size = size_of::<u64>() as u64;
    Section {
        offset: HEADER_SIZE + i as u64 * size,
        size,
    }
}

fn io_error(path: &Path, source: io::Error) -> Error {
    Error::Io {
        path: path.to_owned(),
        source,
    }
}

/// The temporary file.
struct Output {
    file: BufWriter<NamedTempFile>,
    /// Bytes written so far.
    at: u64,
    /// Something is missing in the file.
    broken: Option<io::ErrorKind>,
}

impl Output {
    fn create(path: &Path) -> io::Result<Self> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let file = tempfile::Builder::new()
            .prefix(".ptrail-")
            .suffix(".tmp")
            .tempfile_in(folder)?;
        Ok(Output {
            file: BufWriter::with_capacity(BUFFER, file),
            at: 0,
            broken: None,
        })
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(kind) = self.broken {
            return Err(kind.into());
        }
        self.at += bytes.len() as u64;
        self.file
            .write_all(bytes)
            .inspect_err(|error| self.broken = Some(error.kind()))
    }

    /// Zeros up to the next multiple of 8 bytes.
    fn pad(&mut self) -> io::Result<()> {
        let missing = self.at.next_multiple_of(8) - self.at;
        self.put(&[0; 8][..missing as usize])
    }

    fn put_header(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(bytes)
    }

    fn persist(self, path: &Path) -> io::Result<()> {
        let file = self
            .file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.persist(path)?;
        Ok(())
    }
}
