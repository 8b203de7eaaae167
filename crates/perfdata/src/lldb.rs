//! LLDB's trace bundles: a `trace.json` that names the files with the packets, the context switches
//! and the code (LLDB, `lldb/docs/use/intel_pt.rst` and `TraceIntelPTJSONStructs`).
//!
//! ```json
//! {"type": "intel-pt", "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 85, "stepping": 4},
//!  "processes": [{"pid": 7, "threads": [{"tid": 7, "iptTrace": "7.trace"}],
//!                 "modules": [{"file": "a.out", "loadAddress": 4194304, "uuid": "6AA9A4E2-…"}]}],
//!  "cpus": [{"id": 45, "iptTrace": "45.pt", "contextSwitchTrace": "45.switches"}],
//!  "tscPerfZeroConversion": {"timeMult": 1076264588, "timeShift": 31, "timeZero": "18433473881008870804"},
//!  "kernel": {"file": "vmlinux", "loadAddress": "0xffffffff81000000"}}
//! ```
//!
//! A trace is either a thread's or a CPU's. The context switches are a row of
//! `PERF_RECORD_SWITCH_CPU_WIDE` records that end in a thread and a time. 64-bit numbers may be
//! texts, since not every JSON reader has them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use linux_perf_event_reader::constants::{
    PERF_RECORD_MISC_SWITCH_OUT, PERF_RECORD_MISC_SWITCH_OUT_PREEMPT,
};
use ptrail_pt::{CpuId, PtConfig, TimeConv, Vendor};
use serde_json::Value;

use crate::damage::Damage;
use crate::file::{Store, map};
use crate::layout::RECORD_HEADER_SIZE;
use crate::records::Records;
use crate::wire::Bytes;
use crate::{AuxPiece, AuxStream, Capture, Error, Machine, Owner, Record, Sideband, timeline};

/// Where LLDB takes the kernel to be if the bundle does not say.
const KERNEL_ADDRESS: u64 = 0xffff_ffff_8100_0000;
/// `PERF_RECORD_SWITCH_CPU_WIDE`.
const SWITCH_CPU_WIDE: u32 = 15;

/// The description of a bundle, if `path` is one or a folder that holds one.
pub(crate) fn description(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        let inside = path.join("trace.json");
        return inside.is_file().then_some(inside);
    }
    if !path.is_file() {
        return None;
    }
    let mut head = [0; 64];
    let len = File::open(path).ok()?.read(&mut head).ok()?;
    let first = head[..len].iter().find(|byte| !byte.is_ascii_whitespace());
    (first == Some(&b'{')).then(|| path.to_path_buf())
}

pub(crate) fn open(description: &Path) -> Result<Capture, Error> {
    let refuse = |what: &str| Error::Bundle {
        path: description.to_owned(),
        place: String::new(),
        what: what.to_owned(),
    };
    let text = map(description)?;
    let json: Value = serde_json::from_slice(&text).map_err(|e| refuse(&e.to_string()))?;
    let root = Item {
        file: description,
        place: String::new(),
        value: &json,
    };
    if root.optional("type").and_then(|kind| kind.value.as_str()) != Some("intel-pt") {
        return Err(refuse("not an LLDB trace bundle: its type is not intel-pt"));
    }
    let mut bundle = Bundle {
        folder: description.parent().unwrap_or(Path::new("")),
        files: Vec::new(),
        streams: Vec::new(),
        sideband: Vec::new(),
        damage: Damage::new(description),
    };
    let cpu = cpu(&root.get("cpuInfo")?)?;
    let clock = match root.optional("tscPerfZeroConversion") {
        Some(item) => Some(conversion(&item)?),
        None => None,
    };
    for item in root.list("cpus")? {
        bundle.cpu(&item)?;
    }
    let processes = root.list("processes")?;
    if let Some(kernel) = root.optional("kernel") {
        bundle.kernel(&kernel, &processes)?;
    }
    for process in &processes {
        bundle.process(process)?;
    }
    if bundle.streams.is_empty() {
        return Err(refuse("it names no iptTrace"));
    }
    timeline::sort_by_time(&mut bundle.sideband);
    Ok(Capture {
        machine: Machine::default(),
        pt_config: PtConfig {
            cpu: Some(cpu),
            tsc: true,
            ..PtConfig::default()
        },
        clock,
        streams: bundle.streams,
        sideband: bundle.sideband,
        unknown_records: Default::default(),
        extra: None,
        kernel: None,
        damage: bundle.damage.finish(),
        files: bundle.files,
    })
}

/// A bundle being read.
struct Bundle<'a> {
    folder: &'a Path,
    files: Vec<Store>,
    streams: Vec<AuxStream>,
    sideband: Vec<Sideband>,
    damage: Damage,
}

impl Bundle<'_> {
    fn cpu(&mut self, item: &Item<'_>) -> Result<(), Error> {
        let id = item.get("id")?.small()?;
        self.trace(&item.get("iptTrace")?, Owner::Cpu(id))?;
        if let Some(switches) = item.optional("contextSwitchTrace") {
            let path = self.folder.join(switches.text()?);
            let bytes = map(&path)?;
            self.switches(&path, &bytes, id);
        }
        Ok(())
    }

    fn process(&mut self, item: &Item<'_>) -> Result<(), Error> {
        let pid = item.get("pid")?.small()?;
        for thread in item.list("threads")? {
            let tid = thread.get("tid")?.small()?;
            if let Some(trace) = thread.optional("iptTrace") {
                self.trace(
                    &trace,
                    Owner::Thread {
                        pid: Some(pid),
                        tid,
                    },
                )?;
            }
        }
        for module in item.list("modules")? {
            let address = module.get("loadAddress")?.number()?;
            self.module(Some(pid), &module, address)?;
        }
        Ok(())
    }

    fn kernel(&mut self, item: &Item<'_>, processes: &[Item<'_>]) -> Result<(), Error> {
        if !processes.is_empty() {
            return Err(item.refuse("a bundle with a kernel has no processes"));
        }
        if self.streams.is_empty() {
            return Err(item.refuse("a bundle with a kernel needs cpus"));
        }
        let address = match item.optional("loadAddress") {
            Some(address) => address.number()?,
            None => KERNEL_ADDRESS,
        };
        self.module(None, item, address)
    }

    fn module(&mut self, pid: Option<u32>, item: &Item<'_>, address: u64) -> Result<(), Error> {
        let file = match item.optional("file") {
            Some(file) => self.folder.join(file.text()?),
            None => PathBuf::from(item.get("systemPath")?.text()?),
        };
        // Images are known by whole paths.
        let path = std::path::absolute(&file).unwrap_or(file);
        let build_id = match item.optional("uuid") {
            Some(uuid) => Some(uuid.hexadecimal()?),
            None => None,
        };
        self.sideband.push(Sideband {
            time: None,
            pid,
            tid: None,
            cpu: None,
            record: Record::Module {
                address,
                path: path.to_string_lossy().into_owned(),
                build_id,
            },
        });
        Ok(())
    }

    fn trace(&mut self, item: &Item<'_>, owner: Owner) -> Result<(), Error> {
        let bytes = map(&self.folder.join(item.text()?))?;
        self.streams.push(AuxStream {
            owner,
            pieces: vec![AuxPiece {
                file: self.files.len(),
                range: 0..bytes.len() as u64,
                aux_offset: 0,
                gap: None,
            }],
        });
        self.files.push(bytes);
        Ok(())
    }

    fn switches(&mut self, path: &Path, bytes: &[u8], cpu: u32) {
        let mut records = Records::new(bytes, 0..bytes.len() as u64);
        for record in records.by_ref() {
            match switch(record.misc, record.body, cpu) {
                Some(switch) if record.kind == SWITCH_CPU_WIDE => self.sideband.push(switch),
                _ => self.damage.add(Error::Malformed {
                    path: path.to_owned(),
                    offset: record.offset,
                    what: "not a context switch; left out".to_owned(),
                }),
            }
        }
        if records.stop.is_some() {
            self.damage.add(Error::Truncated {
                path: path.to_owned(),
                offset: (bytes.len() - bytes.len() % (RECORD_HEADER_SIZE * 4)) as u64,
                what: "a context switch",
            });
        }
    }
}

/// Process and thread that come next or were before, then process, thread and time of the switch.
fn switch(misc: u16, body: &[u8], cpu: u32) -> Option<Sideband> {
    let mut body = Bytes(body);
    let other = (body.u32()?, body.u32()?);
    let (pid, tid, time) = (body.u32()?, body.u32()?, body.u64()?);
    Some(Sideband {
        time: Some(time),
        pid: Some(pid),
        tid: Some(tid),
        cpu: Some(cpu),
        record: Record::Switch {
            out: misc & PERF_RECORD_MISC_SWITCH_OUT != 0,
            preempted: misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0,
            other: Some(other),
        },
    })
}

fn cpu(info: &Item<'_>) -> Result<CpuId, Error> {
    fn part<T: TryFrom<u64>>(info: &Item<'_>, name: &str) -> Result<T, Error> {
        let item = info.get(name)?;
        let number = item.value.as_u64();
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| item.refuse("no CPU has this number"))
    }
    Ok(CpuId {
        vendor: match info.get("vendor")?.text()? {
            "GenuineIntel" | "intel" => Vendor::Intel,
            _ => Vendor::Unknown,
        },
        family: part(info, "family")?,
        model: part(info, "model")?,
        stepping: part(info, "stepping")?,
    })
}

fn conversion(item: &Item<'_>) -> Result<TimeConv, Error> {
    let (shift, mult) = (item.get("timeShift")?, item.get("timeMult")?);
    let shift = u16::try_from(shift.number()?)
        .ok()
        .filter(|&shift| shift < 64)
        .ok_or_else(|| shift.refuse("a clock shifts by less than 64 bits"))?;
    Ok(TimeConv {
        shift,
        mult: mult.small()?,
        zero: item.get("timeZero")?.number()?,
        cap_user_time_zero: true,
        ..TimeConv::default()
    })
}

/// A value of the description and the way to it, such as `processes[1].pid`.
struct Item<'a> {
    file: &'a Path,
    place: String,
    value: &'a Value,
}

impl<'a> Item<'a> {
    fn refuse(&self, what: &str) -> Error {
        Error::Bundle {
            path: self.file.to_owned(),
            place: self.place.clone(),
            what: what.to_owned(),
        }
    }

    fn inside(&self, step: &str, value: &'a Value) -> Item<'a> {
        let place = if self.place.is_empty() {
            step.trim_start_matches('.').to_owned()
        } else {
            format!("{}{step}", self.place)
        };
        Item {
            file: self.file,
            place,
            value,
        }
    }

    fn optional(&self, key: &str) -> Option<Item<'a>> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        Some(self.inside(&format!(".{key}"), value))
    }

    fn get(&self, key: &str) -> Result<Item<'a>, Error> {
        if !self.value.is_object() {
            return Err(self.refuse("an object should stand here"));
        }
        self.optional(key).ok_or_else(|| {
            self.inside(&format!(".{key}"), &Value::Null)
                .refuse("missing")
        })
    }

    /// The items of a list that may be left out.
    fn list(&self, key: &str) -> Result<Vec<Item<'a>>, Error> {
        let Some(list) = self.optional(key) else {
            return Ok(Vec::new());
        };
        let items = list
            .value
            .as_array()
            .ok_or_else(|| list.refuse("a list should stand here"))?;
        let numbered = items.iter().enumerate();
        Ok(numbered
            .map(|(number, value)| list.inside(&format!("[{number}]"), value))
            .collect())
    }

    fn text(&self) -> Result<&'a str, Error> {
        self.value
            .as_str()
            .ok_or_else(|| self.refuse("a text should stand here"))
    }

    /// A number, or one as text.
    fn number(&self) -> Result<u64, Error> {
        let parsed = match self.value {
            Value::String(text) => match text.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => text.parse().ok(),
            },
            _ => self.value.as_u64(),
        };
        parsed.ok_or_else(|| self.refuse("a number should stand here"))
    }

    fn small(&self) -> Result<u32, Error> {
        u32::try_from(self.number()?).map_err(|_| self.refuse("the number is too large"))
    }

    /// Bytes as `AEFB0D59-233F-…`.
    fn hexadecimal(&self) -> Result<Vec<u8>, Error> {
        let digits: Vec<u32> = self
            .text()?
            .chars()
            .filter(|&c| c != '-')
            .map_while(|c| c.to_digit(16))
            .collect();
        let clean = self.text()?.chars().filter(|&c| c != '-').count() == digits.len();
        if !clean || !digits.len().is_multiple_of(2) {
            return Err(self.refuse("a build-id in hexadecimal digits should stand here"));
        }
        let bytes = digits.chunks(2);
        Ok(bytes.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
    }
}
