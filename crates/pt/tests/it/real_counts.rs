//! How many packets of each type real traces hold, by libipt's count.

use std::collections::BTreeMap;
use std::path::Path;

use ptrail_pt::{LastIp, Lexer, Packet, TraceOffset};

use crate::ptdump::render;
use crate::testdata;

fn check(name: &str, data: &[u8], counts: &serde_json::Value, pads: bool) {
    let mut expected = BTreeMap::new();
    for (kind, count) in counts.as_object().unwrap() {
        expected.insert(kind.clone(), count.as_u64().unwrap());
    }
    let mut lexer = Lexer::new(data, TraceOffset(0));
    lexer.seek_psb();
    let mut ours = BTreeMap::new();
    for lexed in lexer {
        let packet = lexed.unwrap_or_else(|bad| panic!("{name}: {bad}")).packet;
        let count = match packet {
            Packet::Pad { run } if pads => run.into(),
            Packet::Pad { .. } => continue,
            _ => 1,
        };
        let kind = render(&packet, &mut LastIp::new()).0;
        *ours.entry(kind.to_string()).or_default() += count;
    }
    assert_eq!(ours, expected, "{name}");
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[test]
fn dynamorio() {
    let Some(folder) = testdata::folder("dynamorio") else {
        return;
    };
    let reference = testdata::json(&folder.join("reference.json"));
    let counts = &reference["reference"]["ptdump"]["packets_by_type"];
    check("dynamorio", &read(&folder.join("pt.bin")), counts, false);
}

#[test]
fn lldb() {
    let Some(folder) = testdata::folder("lldb-traces") else {
        return;
    };
    for name in ["3842849", "multi-file", "cpu45", "cpu51"] {
        let reference = testdata::json(&folder.join(format!("reference/{name}.json")));
        let data = read(&folder.join(reference["trace"].as_str().unwrap()));
        check(name, &data, &reference["ptdump"]["packets_by_type"], true);
    }
}

#[test]
fn libxdc() {
    let Some(folder) = testdata::folder("libxdc") else {
        return;
    };
    let reference = testdata::json(&folder.join("reference.json"));
    for trace in reference["traces"].as_array().unwrap() {
        // One is described only; its bytes are not there.
        if let Some(file) = trace["files"]["trace"].as_str() {
            let counts = &trace["ptdump"]["packets_by_type"];
            check(file, &read(&folder.join(file)), counts, true);
        }
    }
}

/// The PT stream of a thread in a Griffin log: its buffers, joined in the order of their sequence.
/// Items are: u32 kind, u32 size of the whole item, body; a buffer (kind 0) holds u64 tgid, u64
/// pid, u64 sequence, u64 n, n bytes.
fn griffin_stream(log: &[u8], pid: u64) -> Vec<u8> {
    let u32_at = |at: usize| u32::from_le_bytes(log[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().unwrap());
    assert_eq!((u32_at(0), u32_at(4)), (0x51c0_ffee, 1));
    let mut buffers = BTreeMap::new();
    let mut at = 8;
    while at < log.len() {
        let (kind, size) = (u32_at(at), u32_at(at + 4) as usize);
        if kind == 0 && u64_at(at + 16) == pid {
            let bytes = &log[at + 40..][..u64_at(at + 32) as usize];
            assert!(buffers.insert(u64_at(at + 24), bytes).is_none());
        }
        at += size;
    }
    buffers.into_values().flatten().copied().collect()
}

#[test]
fn arcus() {
    let Some(folder) = testdata::folder("arcus") else {
        return;
    };
    let reference = testdata::json(&folder.join("reference.json"));
    for trace in reference["traces"].as_array().unwrap() {
        let log = testdata::gunzip(&folder.join(trace["log"].as_str().unwrap()));
        for stream in trace["streams"].as_array().unwrap() {
            let data = griffin_stream(&log, stream["pid"].as_u64().unwrap());
            assert_eq!(data.len() as u64, stream["bytes"].as_u64().unwrap());
            let name = trace["name"].as_str().unwrap();
            check(name, &data, &stream["packets_by_type"], true);
        }
    }
}
