//! A recording of a real CPU against what two other programs made of it: quipper's text of every
//! record, and the reference's list of AUX buffers.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use ptrail_perfdata::{Capture, Owner, Record, Sideband};
use ptrail_pt::{CpuId, Vendor};

const NAME: &str = "perf.data.intel_pt-4.14";

/// One `events { … }` block: the fields by their names, those of `header` and `sample_info` with
/// these in front.
type Fields = BTreeMap<String, String>;

fn events(text: &str) -> Vec<Fields> {
    let mut all = Vec::new();
    let mut path: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_suffix(" {") {
            if path.is_empty() && name == "events" {
                all.push(Fields::new());
            }
            path.push(name.to_owned());
        } else if line == "}" {
            path.pop();
        } else if path.first().is_some_and(|name| name == "events") {
            let (name, value) = line.split_once(": ").unwrap();
            let inside = path.last().unwrap();
            let name = match inside.as_str() {
                "header" | "sample_info" => format!("{inside}.{name}"),
                _ => name.to_owned(),
            };
            let value = value.trim_matches('"').to_owned();
            all.last_mut().unwrap().insert(name, value);
        }
    }
    all
}

fn number(fields: &Fields, name: &str) -> u64 {
    fields[name]
        .parse()
        .unwrap_or_else(|_| panic!("{name} of {fields:?}"))
}

/// The fields of a record as our reader should have them; `None` for kinds that are no sideband.
fn expected(fields: &Fields) -> Option<String> {
    let n = |name: &str| number(fields, name);
    let flag = |name: &str| fields[name] == "true";
    let what = match n("header.type") {
        1 | 10 => {
            let executable = match n("header.type") {
                1 => n("header.misc") & 0x2000 == 0,
                _ => n("prot") & 4 != 0,
            };
            let (start, len, pgoff) = (n("start"), n("len"), n("pgoff"));
            let who = fields["pid"].clone();
            format!(
                "{who} map {start:x}+{len:x} @{pgoff:x} {executable} {}",
                fields["filename"]
            )
        }
        3 => format!(
            "{} comm {} {}",
            n("pid"),
            fields["comm"],
            n("header.misc") & 0x2000 != 0
        ),
        4 => format!("{} exit", n("pid")),
        11 => format!(
            "{} aux {}+{}",
            n("sample_info.pid"),
            n("aux_offset"),
            n("aux_size")
        ),
        12 => format!("{} itrace", n("pid")),
        15 => {
            let (pid, tid) = (n("next_prev_pid"), n("next_prev_tid"));
            format!(
                "{} switch {} {pid}/{tid}",
                n("sample_info.pid"),
                flag("is_out")
            )
        }
        _ => return None,
    };
    Some(format!(
        "{} cpu {:?} {what}",
        n("timestamp"),
        fields.get("sample_info.cpu")
    ))
}

fn found(event: &Sideband) -> String {
    let what = match &event.record {
        Record::Mmap2 {
            address,
            len,
            file_offset,
            executable,
            path,
            ..
        } => {
            format!("map {address:x}+{len:x} @{file_offset:x} {executable} {path}")
        }
        Record::Comm { name, exec } => format!("comm {name} {exec}"),
        Record::Exit => "exit".to_owned(),
        Record::Aux {
            aux_offset,
            size,
            flags,
        } => {
            assert_eq!(*flags, 0);
            format!("aux {aux_offset}+{size}")
        }
        Record::ItraceStart => "itrace".to_owned(),
        Record::Switch {
            out,
            other: Some((pid, tid)),
            ..
        } => format!("switch {out} {pid}/{tid}"),
        other => panic!("not in this file: {other:?}"),
    };
    let cpu = event.cpu.map(|cpu| cpu.to_string());
    // quipper prints the process of the kernel's mappings as an unsigned number.
    let pid = event.pid.unwrap_or(u32::MAX);
    format!("{} cpu {cpu:?} {pid} {what}", event.time.unwrap())
}

fn unpacked(path: &Path) -> String {
    let output = Command::new("gzip").arg("-dc").arg(path).output().unwrap();
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn every_sideband_record_is_as_quipper_has_it() {
    let Some(folder) = xtask::reference_data("quipper") else {
        return;
    };
    let capture = Capture::open(&folder.join(NAME)).unwrap();
    let events = events(&unpacked(&folder.join(format!("{NAME}.pb_text.gz"))));
    let mut expected: Vec<_> = events.iter().filter_map(expected).collect();
    let mut found: Vec<_> = capture.sideband.iter().map(found).collect();
    assert_eq!(found.len(), 56 + 3 + 1 + 10 + 10 + 2 + 152);
    let times: Vec<_> = capture.sideband.iter().map(|event| event.time).collect();
    assert!(times.is_sorted());
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(capture.unknown_records, BTreeMap::from([(9, 15)]));
    assert!(capture.damage.is_empty(), "{:?}", capture.damage);
}

#[test]
fn the_trace_is_where_the_reference_has_it() {
    let Some(folder) = xtask::reference_data("quipper") else {
        return;
    };
    let capture = Capture::open(&folder.join(NAME)).unwrap();
    let text = std::fs::read_to_string(folder.join("reference.json")).unwrap();
    let reference: serde_json::Value = serde_json::from_str(&text).unwrap();
    let buffers = reference["files"][0]["auxtrace"].as_array().unwrap();
    assert_eq!(capture.streams.len(), buffers.len());
    for (stream, buffer) in capture.streams.iter().zip(buffers) {
        let n = |name: &str| buffer[name].as_u64().unwrap();
        assert_eq!(stream.owner, Owner::Cpu(n("cpu") as u32));
        let [piece] = &stream.pieces[..] else {
            panic!("{stream:?}")
        };
        assert_eq!(piece.aux_offset, n("aux_offset"));
        assert_eq!(piece.range.start, n("file_offset"));
        let bytes = capture.bytes(piece);
        assert_eq!(bytes.len() as u64, n("size"));
        assert_eq!(sha256(bytes), buffer["sha256"].as_str().unwrap());
    }
}

#[test]
fn machine_settings_and_clock() {
    let Some(folder) = xtask::reference_data("quipper") else {
        return;
    };
    let capture = Capture::open(&folder.join(NAME)).unwrap();
    assert_eq!(capture.machine.hostname, "localhost");
    assert_eq!(capture.machine.os_release, "4.14.18");
    assert_eq!(capture.machine.arch, "x86_64");
    assert_eq!(
        capture.machine.cpu_description,
        "Intel(R) Core(TM) m7-6Y75 CPU @ 1.20GHz"
    );
    assert_eq!(
        capture.machine.command[..4],
        ["/usr/bin/perf", "record", "-e", "cycles"]
    );
    let config = capture.pt_config;
    let cpu = CpuId {
        vendor: Vendor::Intel,
        family: 6,
        model: 78,
        stepping: 3,
    };
    assert_eq!(config.cpu, Some(cpu));
    // config 0x300e601 as the folder's README has it: TSC and MTC on, period 3.
    assert!(config.tsc && config.mtc && !config.cyc && !config.no_return_compression);
    assert_eq!(config.mtc_freq, 3);
    assert_eq!(
        (
            config.tsc_ctc_n,
            config.tsc_ctc_d,
            config.max_non_turbo_ratio
        ),
        (100, 2, 12)
    );
    let clock = capture.clock.unwrap();
    assert_eq!((clock.shift, clock.mult), (31, 1_789_569_706));
    assert_eq!(clock.zero, 18_446_744_041_015_200_657);
    assert_eq!(capture.extra, None);
}

#[test]
fn build_ids_come_from_the_header() {
    let Some(folder) = xtask::reference_data("quipper") else {
        return;
    };
    let capture = Capture::open(&folder.join(NAME)).unwrap();
    let list = std::fs::read_to_string(folder.join(format!("{NAME}.buildids"))).unwrap();
    let expected: BTreeMap<&str, &str> = list
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(id, path)| (path, id))
        .collect();
    let mut seen = 0;
    for event in &capture.sideband {
        let Record::Mmap2 { path, build_id, .. } = &event.record else {
            continue;
        };
        let path = if path.starts_with("[kernel") {
            "[kernel.kallsyms]"
        } else {
            path
        };
        let id = build_id
            .as_ref()
            .map(|id| -> String { id.iter().map(|byte| format!("{byte:02x}")).collect() });
        assert_eq!(id.as_deref(), expected.get(path).copied(), "{path}");
        seen += usize::from(id.is_some());
    }
    assert!(seen > 50, "{seen}");
}
