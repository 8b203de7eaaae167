//! libipt's own conformance suite: every packet of every case, for every CPU it names.

use std::path::Path;

use ptrail_pt::{CpuId, Encoder, LastIp, Lexer, Packet, TraceOffset, Vendor};

use crate::ptdump::render;
use crate::testdata;

/// Offset, bytes, name and payload of each packet, as `reference.jsonl` has them. What is no packet
/// is one line named `message` with the offset only.
type Line = (u64, String, String, String);

fn ours(data: &[u8], cpu: Option<CpuId>) -> Vec<Line> {
    let mut lexer = Lexer::new(data, TraceOffset(0)).for_cpu(cpu);
    lexer.seek_psb();
    let mut last_ip = LastIp::new();
    let mut lines = Vec::new();
    for lexed in lexer {
        let Ok(lexed) = lexed else {
            let offset = lexed.unwrap_err().offset.0;
            lines.push((offset, String::new(), "message".into(), String::new()));
            continue;
        };
        let (name, payload) = render(&lexed.packet, &mut last_ip);
        // ptdump writes each PAD.
        let (count, len) = match lexed.packet {
            Packet::Pad { run } => (run.into(), 1),
            _ => (1, lexed.len as usize),
        };
        for i in 0..count {
            let offset = lexed.offset.0 + i;
            let bytes = &data[offset as usize..][..len];
            let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            lines.push((offset, hex, name.to_string(), payload.clone()));
        }
    }
    lines
}

fn reference(case: &serde_json::Value) -> Vec<Line> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_string();
    let line = |packet: &serde_json::Value| {
        let (name, payload) = (text(&packet[2]), text(&packet[3]));
        let Some(offset) = packet[0].as_u64() else {
            let hex = payload[1..].split(':').next().unwrap();
            return (
                u64::from_str_radix(hex, 16).unwrap(),
                String::new(),
                name,
                String::new(),
            );
        };
        // libipt takes bit 3 for HW, the SDM (table "PWRE Packet Definition") and perf bit 7.
        let payload = if name == "pwre" {
            payload.replace(", hw", "")
        } else {
            payload
        };
        (offset, text(&packet[1]), name, payload)
    };
    case["packets"]
        .as_array()
        .unwrap()
        .iter()
        .map(line)
        .collect()
}

/// The differences that are meant; every other one is a fault.
fn adapt(name: &str, lines: &mut Vec<Line>) {
    match name {
        // An MNT is cut off by a PSB. libipt reads through it, finds garbage behind it and goes
        // back; here no packet reaches into a PSB, and the MNT is what is bad.
        "ptdump-trunc-resync" => {
            assert_eq!((lines[1].0, &*lines[1].2), (22, "mnt"));
            assert_eq!((lines[2].0, &*lines[2].2), (33, "message"));
            let message = (22, String::new(), "message".into(), String::new());
            lines.splice(1..3, [message]);
        }
        // A TMA with reserved bits set ends libipt's run, unless it knows the CPU to have erratum
        // SKZ84; here it is a packet that tells nothing, on every CPU.
        "tma-reserved_ctc" | "tma-reserved_fc" => {
            let last = lines.last_mut().unwrap();
            assert_eq!(last.2, "message");
            let bytes = if name.ends_with("ctc") {
                TMA_RESERVED_CTC
            } else {
                "02730101000140"
            };
            *last = (last.0, bytes.into(), "<invalid>".into(), String::new());
        }
        // An OVF in the middle of a CYC: ptdump prints the CYC's bytes only.
        "skd007" => {
            let at = lines.iter().position(|line| line.2 == "ovf").unwrap();
            assert_eq!((&*lines[at].1, lines[at + 1].0), ("f702", lines[at].0 + 3));
            lines[at].1 = "f702f3".into();
        }
        _ => {}
    }
}

/// The second TMA of the case of that name.
const TMA_RESERVED_CTC: &str = "02730101010100";

fn cases(folder: &Path) -> Vec<(String, Vec<u8>, serde_json::Value)> {
    let text = std::fs::read_to_string(folder.join("reference.jsonl")).unwrap();
    let case = |line: &str| {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = case["name"].as_str().unwrap().to_string();
        let trace = folder
            .join(case["group"].as_str().unwrap())
            .join(format!("{name}.pt"));
        (name, std::fs::read(trace).unwrap(), case)
    };
    text.lines().map(case).collect()
}

/// The CPUs of a case; none means one run without a CPU.
fn cpus(manifest: &serde_json::Value, name: &str) -> Vec<Option<CpuId>> {
    let cases = manifest["cases"].as_array().unwrap();
    let case = cases.iter().find(|case| case["name"] == name).unwrap();
    let cpu = |text: &serde_json::Value| {
        let mut numbers = text
            .as_str()
            .unwrap()
            .split('/')
            .map(|n| n.parse::<u16>().unwrap());
        let mut next = || numbers.next().unwrap_or(0);
        let (family, model, stepping) = (next(), next() as u8, next() as u8);
        Some(CpuId {
            vendor: Vendor::Intel,
            family,
            model,
            stepping,
        })
    };
    let list = case["cpus"].as_array().unwrap();
    if list.is_empty() {
        vec![None]
    } else {
        list.iter().map(cpu).collect()
    }
}

#[test]
fn all_242_packet_lists_are_equal() {
    let Some(folder) = testdata::folder("libipt") else {
        return;
    };
    let cases = cases(&folder);
    assert_eq!(cases.len(), 242);
    let manifest = testdata::json(&folder.join("manifest.json"));
    let (mut failed, mut runs) = (Vec::new(), 0);
    for (name, data, case) in &cases {
        let mut theirs = reference(case);
        adapt(name, &mut theirs);
        for cpu in cpus(&manifest, name) {
            let ours = ours(data, cpu);
            runs += 1;
            if ours != theirs {
                let at = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
                let (ours, theirs) = (ours.get(at), theirs.get(at));
                failed.push(format!("{name} on {cpu:?}: {ours:?} is not {theirs:?}"));
            }
        }
    }
    assert_eq!(runs, 491);
    assert!(
        failed.is_empty(),
        "{} cases differ:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

#[test]
fn encoding_the_packets_again_gives_the_same_bytes() {
    let Some(folder) = testdata::folder("libipt") else {
        return;
    };
    for (name, data, _) in cases(&folder) {
        let mut lexer = Lexer::new(&data, TraceOffset(0));
        lexer.seek_psb();
        let mut encoder = Encoder::new();
        for lexed in lexer.filter_map(Result::ok) {
            encoder.put(&lexed.packet);
            let mut theirs = data[lexed.offset.0 as usize..][..lexed.len as usize].to_vec();
            // libipt's suite sets bits that the SDM reserves.
            match lexed.packet {
                Packet::Pwre { .. } => theirs[2] &= 0x80,
                Packet::Cfe { .. } => theirs[2] &= 0x9f,
                _ => {}
            }
            assert_eq!(encoder.take(), theirs, "{name}: {lexed:?}");
        }
    }
}
