//! A function in two places: jumps between them, and calls, are within it.

use std::path::Path;
use std::process::Command;

use ptrail_flow::EdgeKind;
use ptrail_image::{Mapping, Timeline, TimelineBuilder};
use ptrail_pt::PerfTime;

use crate::script::{PID, Script, play};

const BIAS: u64 = 0x7f00_0000_0000;

const SOURCE: &str = "
    .text
    .globl hot, other
    .type hot, @function
hot: .fill 64, 1, 0x90
    .size hot, .-hot
    .type other, @function
other: .fill 64, 1, 0x90
    .size other, .-other
    .type hot.cold, @function
hot.cold: .fill 64, 1, 0x90
    .size hot.cold, .-hot.cold
";

/// Addresses of `hot`, `other` and `hot.cold` where the library is mapped.
fn library(folder: &Path) -> (Timeline, [u64; 3]) {
    let run = |tool: &str, arguments: &[&str]| {
        let output = Command::new(tool)
            .current_dir(folder)
            .args(arguments)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{tool}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    std::fs::write(folder.join("parts.s"), SOURCE).unwrap();
    run(
        "gcc",
        &["-nostdlib", "-shared", "-o", "parts.so", "parts.s"],
    );
    let symbols = run("nm", &["parts.so"]);
    let address = |name: &str| {
        let line = symbols
            .lines()
            .find(|line| line.ends_with(&format!(" {name}")));
        let digits = line.unwrap().split(' ').next().unwrap();
        BIAS + u64::from_str_radix(digits, 16).unwrap()
    };
    let path = folder.join("parts.so");
    let mut builder = TimelineBuilder::new();
    builder.map(
        PID,
        PerfTime(0),
        Mapping {
            address: BIAS,
            len: std::fs::metadata(&path).unwrap().len(),
            file_offset: 0,
            path: path.to_str().unwrap().to_owned(),
            build_id: None,
        },
    );
    (builder.build(), ["hot", "other", "hot.cold"].map(address))
}

#[test]
fn a_cold_part_is_its_function() {
    let folder = tempfile::tempdir().unwrap();
    let (timeline, [hot, other, cold]) = library(folder.path());
    let mut script = Script::new();
    script
        .at(0)
        .begin(other + 0x10)
        .call(other + 0x20, hot)
        .at(1)
        .edge(EdgeKind::Conditional, hot + 0x10, cold + 0x10)
        .at(2)
        // A call from the cold part into the middle of the hot one is no call of a function.
        .call(cold + 0x18, hot + 0x30)
        .ret(hot + 0x34, cold + 0x1d)
        .at(3)
        .jump(cold + 0x20, hot + 0x20)
        .at(4)
        .ret(hot + 0x30, other + 0x25)
        .at(5);
    let (contract, _) = play(&timeline, &script, &[], &[]);
    assert_eq!(
        contract.lines(),
        ["@1 hot 1..5 5/5", "@0 other 0..5 6/1 inferred cut"]
    );
}
