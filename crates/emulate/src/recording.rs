//! A recording under way: what the program does becomes packets, records and truth.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ptrail_flow::{Class, FarKind, Instruction};
use ptrail_perfdata::{CodeBlob, Extra, Machine, Record, Sideband, SourceNote, Target, Writer};
use ptrail_pt::{Ip, Tsc};

use crate::clock::{self, KERNEL_CROSSING, VirtualClock};
use crate::front::Front;
use crate::maps::{self, BuildIds, ExecMapping};
use crate::tracee::Tracee;
use crate::{Error, Program, Settings};

/// At most this many bytes of one mapping's code are recorded.
const CODE_LIMIT: u64 = 64 << 20;
/// Size of a page.
const PAGE: u64 = 4096;
/// Packets are written to the file in pieces of about this size, in bytes.
const PIECE: usize = 1 << 18;

/// What goes into the capture, as it happens.
pub(crate) struct Recording {
    front: Front,
    pub(crate) clock: VirtualClock,
    writer: Writer,
    truth: Option<Truth>,
    pid: u32,
    wall_clock: (u64, u64),
    command: Vec<String>,
    mappings: Vec<ExecMapping>,
    build_ids: BuildIds,
    code: Vec<CodeBlob>,
    /// Pages of writable code as they were last recorded, by address.
    pages: HashMap<u64, Vec<u8>>,
    notes: BTreeMap<String, u64>,
    /// Tracing is on: the last packet of the flow was no TIP.PGD.
    on: bool,
    pub(crate) instructions: u64,
}

impl Recording {
    pub(crate) fn new(
        program: &Program,
        tracee: &Tracee,
        settings: Settings,
        capture: &Path,
        truth: Option<&Path>,
    ) -> Result<Self, Error> {
        let pid = tracee.pid.as_raw() as u32;
        let clock = VirtualClock::start();
        let wall_clock = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos() as u64;
        let target = Target {
            pt_config: clock::pt_config(&settings),
            clock: clock::conversion(),
            machine: machine(),
            pid,
            tid: pid,
        };
        let mut recording = Self {
            front: Front::new(settings, clock.tsc()),
            clock,
            writer: Writer::create(capture, target)?,
            truth: truth.map(Truth::create).transpose()?,
            pid,
            wall_clock: (wall_clock, clock.perf_time()),
            command: program
                .args
                .iter()
                .map(|arg| arg.to_string_lossy().into_owned())
                .collect(),
            mappings: Vec::new(),
            build_ids: BuildIds::default(),
            code: Vec::new(),
            pages: HashMap::new(),
            notes: BTreeMap::new(),
            on: false,
            instructions: 0,
        };
        recording.image_replaced(tracee)?;
        recording.record(Record::ItraceStart)?;
        Ok(recording)
    }

    /// Whether the program is in traced code (and not in the kernel).
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// The instruction at `ip` executed; the next is at `next`.
    pub(crate) fn executed(
        &mut self,
        ip: Ip,
        instruction: Instruction,
        next: Ip,
    ) -> Result<(), Error> {
        self.switch_on(ip);
        self.count(ip)?;
        let now = self.clock.tsc();
        let behind = ip.offset(u64::from(instruction.len));
        match instruction.class {
            Class::Plain | Class::MovCr3 | Class::Jump => {}
            Class::Conditional => self.front.conditional(next != behind, now),
            Class::Call if instruction.target == behind => {}
            Class::Call => self.front.call(behind),
            Class::CallIndirect => {
                self.front.call(behind);
                self.front.indirect(next, now);
            }
            Class::JumpIndirect => self.front.indirect(next, now),
            Class::Return => self.front.ret(next, now),
            Class::Far(FarKind::Syscall | FarKind::Interrupt) => return self.left(),
            Class::Far(_) => self.front.far(next, now),
        }
        self.front.boundary(next, now);
        self.write_pieces(PIECE)
    }

    /// A system call or software interrupt at `ip` executed; the program is in the kernel now.
    pub(crate) fn entered_kernel(&mut self, ip: Ip) -> Result<(), Error> {
        self.switch_on(ip);
        self.count(ip)?;
        self.left()
    }

    fn left(&mut self) -> Result<(), Error> {
        self.front.off(self.clock.tsc());
        self.on = false;
        self.clock.pass(KERNEL_CROSSING);
        self.write_pieces(PIECE)
    }

    /// The program was interrupted before the instruction at `ip` (a fault, a signal).
    pub(crate) fn interrupted(&mut self, ip: Ip) {
        if self.on {
            self.front.interrupted(ip, self.clock.tsc());
            self.on = false;
            self.clock.pass(KERNEL_CROSSING);
        }
    }

    /// A transaction ended in front of `from`; execution goes on at `to`.
    pub(crate) fn transaction_aborted(&mut self, from: Ip, to: Ip) {
        self.front.transaction_aborted(from, to, self.clock.tsc());
        self.front.boundary(to, self.clock.tsc());
    }

    fn switch_on(&mut self, ip: Ip) {
        if !self.on {
            self.clock.pass(KERNEL_CROSSING);
            self.front.on(ip, self.clock.tsc());
            self.on = true;
        }
    }

    fn count(&mut self, ip: Ip) -> Result<(), Error> {
        self.clock.tick();
        let now = self.clock.tsc();
        self.instructions += 1;
        self.truth
            .as_mut()
            .map_or(Ok(()), |truth| truth.add(ip, now))
    }

    /// Real time passed while the program was in the kernel.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.clock.pass(time);
    }

    // ---- sideband ----

    /// exec: a new name, and all mappings are new.
    pub(crate) fn image_replaced(&mut self, tracee: &Tracee) -> Result<(), Error> {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        self.record(Record::Comm {
            name: name.trim_end_matches('\n').to_string(),
            exec: true,
        })?;
        self.mappings.clear();
        self.pages.clear();
        self.mappings_changed(tracee)
    }

    /// Looks for executable mappings that are new.
    pub(crate) fn mappings_changed(&mut self, tracee: &Tracee) -> Result<(), Error> {
        let now = maps::executable(self.pid);
        let new: Vec<_> = now
            .iter()
            .filter(|mapping| !self.mappings.contains(mapping))
            .cloned()
            .collect();
        self.mappings = now;
        for mapping in new {
            self.mapped(mapping, tracee)?;
        }
        Ok(())
    }

    fn mapped(&mut self, mapping: ExecMapping, tracee: &Tracee) -> Result<(), Error> {
        let build_id = if mapping.is_file() {
            self.build_ids.of(self.pid, &mapping.path)
        } else {
            None
        };
        if !mapping.is_file() && !mapping.writable {
            self.capture_code(&mapping, tracee);
        }
        let ExecMapping {
            address,
            len,
            file_offset,
            path,
            ..
        } = mapping;
        self.record(Record::Mmap2 {
            address,
            len,
            file_offset,
            executable: true,
            path,
            build_id,
        })
    }

    /// Records the bytes of code that stands in no file (vDSO, JIT).
    fn capture_code(&mut self, mapping: &ExecMapping, tracee: &Tracee) {
        let mut bytes = vec![0; mapping.len.min(CODE_LIMIT) as usize];
        let len = tracee.read(mapping.address, &mut bytes);
        bytes.truncate(len);
        if !bytes.is_empty() {
            self.add_code(mapping.address, mapping.path.clone(), bytes);
        }
    }

    fn add_code(&mut self, address: u64, name: String, bytes: Vec<u8>) {
        let (pid, time) = (self.pid, self.clock.perf_time());
        self.code.push(CodeBlob {
            pid,
            address,
            time,
            name,
            bytes,
        });
    }

    /// If the code at `ip` is writable, it may have changed without a system call: records it anew
    /// if it has. Says whether it is writable.
    pub(crate) fn follow_code(&mut self, ip: Ip, tracee: &Tracee) -> bool {
        let inside =
            |m: &&ExecMapping| m.writable && (m.address..m.address + m.len).contains(&ip.0);
        let Some(mapping) = self.mappings.iter().find(inside) else {
            return false;
        };
        let name = mapping.path.clone();
        let end = mapping.address + mapping.len;
        let first = ip.0 & !(PAGE - 1);
        // An instruction may reach into the next page.
        for page in [first, first + PAGE]
            .into_iter()
            .filter(|&page| page < end && page < ip.0 + 15)
        {
            let mut bytes = vec![0; PAGE as usize];
            if tracee.read(page, &mut bytes) == bytes.len() && self.pages.get(&page) != Some(&bytes)
            {
                self.pages.insert(page, bytes.clone());
                self.add_code(page, name.clone(), bytes);
            }
        }
        true
    }

    pub(crate) fn record(&mut self, record: Record) -> Result<(), Error> {
        let (pid, time) = (Some(self.pid), Some(self.clock.perf_time()));
        self.writer.record(&Sideband {
            time,
            pid,
            tid: pid,
            cpu: None,
            record,
        })?;
        Ok(())
    }

    /// Notes something that was not recorded; the same note again is counted.
    pub(crate) fn note(&mut self, text: &str) {
        *self.notes.entry(text.to_string()).or_default() += 1;
    }

    // ---- the file ----

    fn write_pieces(&mut self, at_least: usize) -> Result<(), Error> {
        if self.front.len() >= at_least {
            let bytes = self.front.take();
            self.writer
                .trace(self.pid, self.pid, self.clock.perf_time(), &bytes)?;
        }
        Ok(())
    }

    /// Writes what is left; returns the notes.
    pub(crate) fn finish(mut self, end: &str) -> Result<Vec<String>, Error> {
        self.front.finish(self.clock.tsc());
        self.write_pieces(1)?;
        self.record(Record::Exit)?;
        if let Some(truth) = self.truth.take() {
            truth.finish()?;
        }
        let notes: Vec<_> = self
            .notes
            .into_iter()
            .map(|(text, count)| {
                if count == 1 {
                    text
                } else {
                    format!("{text} ({count} times)")
                }
            })
            .collect();
        self.writer.finish(&Extra {
            source: SourceNote::Software {
                engine: "step".into(),
                clock: clock::DESCRIPTION.into(),
            },
            wall_clock: self.wall_clock.0,
            wall_clock_at: self.wall_clock.1,
            command: self.command,
            end: end.to_string(),
            notes: notes.clone(),
            code: self.code,
        })?;
        Ok(notes)
    }
}

/// The truth: the address of every executed instruction in one file, the time-stamp counter behind
/// it in another (the same name with `.tsc` at its end), 8 little-endian bytes each.
struct Truth {
    path: PathBuf,
    addresses: BufWriter<File>,
    times: BufWriter<File>,
}

impl Truth {
    fn create(path: &Path) -> Result<Self, Error> {
        let mut times = path.as_os_str().to_os_string();
        times.push(".tsc");
        let create = || {
            let (addresses, times) = (File::create(path)?, File::create(times)?);
            Ok((BufWriter::new(addresses), BufWriter::new(times)))
        };
        let path = path.to_path_buf();
        match create() {
            Ok((addresses, times)) => Ok(Self {
                path,
                addresses,
                times,
            }),
            Err(source) => Err(Error::Truth { path, source }),
        }
    }

    fn add(&mut self, ip: Ip, now: Tsc) -> Result<(), Error> {
        let written = self
            .addresses
            .write_all(&ip.0.to_le_bytes())
            .and_then(|()| self.times.write_all(&now.0.to_le_bytes()));
        written.map_err(|source| Error::Truth {
            path: self.path.clone(),
            source,
        })
    }

    fn finish(mut self) -> Result<(), Error> {
        let written = self.addresses.flush().and_then(|()| self.times.flush());
        written.map_err(|source| Error::Truth {
            path: self.path,
            source,
        })
    }
}

fn machine() -> Machine {
    let name = nix::sys::utsname::uname();
    let text =
        |text: Option<&std::ffi::OsStr>| text.unwrap_or_default().to_string_lossy().into_owned();
    let (hostname, os_release, arch) = name.as_ref().map_or_else(
        |_| Default::default(),
        |name| {
            (
                text(Some(name.nodename())),
                text(Some(name.release())),
                text(Some(name.machine())),
            )
        },
    );
    let cpu = clock::CPU;
    Machine {
        hostname,
        os_release,
        arch,
        cpu_description: "ptrail software recorder".into(),
        cpuid: format!("GenuineIntel,{},{},{}", cpu.family, cpu.model, cpu.stepping),
        command: std::env::args_os()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect(),
    }
}
