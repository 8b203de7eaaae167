//! The instruction-level cases of libipt's conformance suite: what executed, address by address.
//!
//! Compared are the addresses of the executed instructions; events, their order and their times
//! are not. Where libipt stops at an error, this decoder goes on, so a difference behind an error
//! is to be expected and listed.

use std::collections::BTreeMap;
use std::path::Path;

use ptrail_image::{Timeline, TimelineBuilder};
use ptrail_pt::{CpuId, Ip, LossCause, PerfTime, PtConfig, Vendor};
use serde_json::Value;

use crate::libipt_table::{EVENT_DATA, NOT_YET};
use crate::program::{Decoded, PID, decode_with};

/// What ptxed printed: the addresses, and their number where it only counts.
struct Expected {
    addresses: Vec<u64>,
    count: Option<u64>,
    /// It printed an error.
    errors: bool,
    overflows: usize,
}

fn expected(text: &str) -> Expected {
    let address = |line: &str| {
        // A question mark stands before what ran in a transaction.
        let digits = line.trim().trim_start_matches('?').trim();
        (digits.len() == 16)
            .then(|| u64::from_str_radix(digits, 16).ok())
            .flatten()
    };
    let count = |line: &str| {
        let number = line.strip_prefix("insn:")?.trim().trim_end_matches('.');
        number.parse().ok()
    };
    Expected {
        addresses: text.lines().filter_map(address).collect(),
        count: text.lines().find_map(count),
        // Not those of its own configuration and sideband.
        errors: text.contains(": error:"),
        overflows: text.matches("overflow]").count(),
    }
}

fn code(case: &Value) -> Timeline {
    let mut builder = TimelineBuilder::new();
    let text = |key: &str| case["code"][key].as_str().unwrap_or_default();
    let start = u64::from_str_radix(text("load_address").trim_start_matches("0x"), 16);
    let hex = text("hex");
    let digit = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(digit).collect();
    let start = start.unwrap();
    // The case maps its bytes in two pieces.
    if case["name"] == "truncated" {
        builder.code(PID, PerfTime(0), start + 2, "code", bytes[2..].to_vec());
        builder.code(PID, PerfTime(0), start, "code", bytes[..2].to_vec());
    } else {
        builder.code(PID, PerfTime(0), start, "code", bytes);
    }
    builder.build()
}

fn cpus(case: &Value) -> Vec<Option<CpuId>> {
    let list = case["cpus"].as_array().unwrap();
    let cpu = |text: &Value| {
        let numbers = text.as_str().unwrap().split('/');
        let numbers: Vec<u16> = numbers.map(|n| n.parse().unwrap()).collect();
        Some(CpuId {
            vendor: Vendor::Intel,
            family: numbers[0],
            model: numbers[1] as u8,
            stepping: numbers.get(2).map_or(0, |&stepping| stepping as u8),
        })
    };
    if list.is_empty() {
        vec![None]
    } else {
        list.iter().map(cpu).collect()
    }
}

/// The one address filter that a case may have: `--filter:addr0_a FIRST --filter:addr0_b LAST`.
fn filters(case: &Value) -> [Option<(Ip, Ip)>; 4] {
    let options = case["expected"]["ptxed"]["options"].as_str().unwrap();
    let number = |name: &str| {
        let value = options.split(name).nth(1)?.split_whitespace().next()?;
        u64::from_str_radix(value.trim_start_matches("0x"), 16).ok()
    };
    let range = number("addr0_a ").zip(number("addr0_b "));
    [
        range.map(|(first, last)| (Ip(first), Ip(last))),
        None,
        None,
        None,
    ]
}

/// The executed instructions, and those at which the way was lost: libipt lists them too, before it
/// finds that the packets do not fit.
fn reached(decoded: &Decoded) -> Vec<u64> {
    let mut reached = decoded.instructions.clone();
    let losses = decoded.lost_after.iter().zip(&decoded.losses);
    let desyncs = losses.filter(|(_, loss)| loss.cause == LossCause::Desync);
    for (&place, loss) in desyncs.rev() {
        reached.splice(place..place, loss.ip.map(|ip| ip.0));
    }
    reached
}

/// `None` if the case matches on each of its CPUs, else how it differs on the first.
fn difference(folder: &Path, case: &Value) -> Option<String> {
    let read = |name: &Value| std::fs::read(folder.join(name.as_str().unwrap())).unwrap();
    let trace = read(&case["trace"]);
    let text = read(&case["expected"]["ptxed"]["file"]);
    let expected = expected(&String::from_utf8(text).unwrap());
    let code = code(case);
    cpus(case).into_iter().find_map(|cpu| {
        let config = PtConfig {
            cpu,
            filters: filters(case),
            ..PtConfig::default()
        };
        let decoded = decode_with(&code, &config, &trace);
        let same = match expected.count {
            Some(count) => decoded.instructions.len() as u64 == count,
            None => {
                decoded.instructions == expected.addresses
                    || reached(&decoded) == expected.addresses
            }
        };
        let (overflows, others): (Vec<_>, Vec<_>) = decoded
            .losses
            .iter()
            .partition(|loss| loss.cause == LossCause::Overflow);
        let silent = expected.count.is_some() || overflows.len() == expected.overflows;
        let ignored = EVENT_DATA.contains(&case["name"].as_str().unwrap());
        let errors = expected.errors && !ignored;
        let same = same && silent && others.is_empty() != errors;
        (!same).then(|| {
            format!(
                "{:x?} {:?} is not {:x?}",
                decoded.instructions, decoded.events, expected.addresses
            )
        })
    })
}

#[test]
fn all_201_instruction_lists_are_equal_but_for_the_listed_ones() {
    let Some(folder) = xtask::reference_data("libipt") else {
        return;
    };
    let manifest = std::fs::read(folder.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let cases = manifest["cases"].as_array().unwrap();
    let cases: Vec<_> = cases
        .iter()
        .filter(|case| !case["expected"]["ptxed"].is_null())
        .collect();
    assert_eq!(cases.len(), 201);
    let mut listed: BTreeMap<_, _> = NOT_YET.iter().copied().collect();
    assert_eq!(listed.len(), NOT_YET.len(), "a case is listed twice");
    let mut wrong = Vec::new();
    for case in cases {
        let name = case["name"].as_str().unwrap();
        match (difference(&folder, case), listed.remove(name)) {
            (Some(difference), None) => wrong.push(format!("{name}: {difference}")),
            (None, Some(reason)) => wrong.push(format!("{name} matches now ({reason})")),
            _ => {}
        }
    }
    assert!(listed.is_empty(), "no such cases: {listed:?}");
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
