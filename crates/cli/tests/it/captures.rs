//! Captures in the forms that others' recordings have: per CPU, with holes.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::recorded::{Recorded, dump, fnv1a64, ptrail};

const ITRACE_START: u32 = 12;
const AUX: u32 = 11;
const AUXTRACE: u32 = 71;

/// Rewrites a capture record by record. Records of the kernel end in 32 bytes: process, thread, time,
/// CPU, id.
fn rewritten(capture: &Path, mut change: impl FnMut(u32, &mut [u8])) -> PathBuf {
    let mut file = std::fs::read(capture).unwrap();
    let word = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let (mut at, size) = (word(&file, 40) as usize, word(&file, 48) as usize);
    let end = at + size;
    while at < end {
        let kind = u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let mut size = usize::from(u16::from_le_bytes([file[at + 6], file[at + 7]]));
        change(kind, &mut file[at..at + size]);
        if kind == AUXTRACE {
            size += word(&file, at + 8) as usize;
        }
        at += size;
    }
    let path = capture.with_file_name("rewritten.data");
    std::fs::write(&path, file).unwrap();
    path
}

fn summary(capture: &Path) -> Value {
    let output = ptrail()
        .args(["decode", "--json", "-o"])
        .arg(capture.with_file_name("again.jsonl"))
        .arg(capture)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn losses(summary: &Value) -> Vec<(&str, u64)> {
    let losses = summary["losses"].as_array().unwrap().iter();
    losses
        .map(|loss| {
            (
                loss["cause"].as_str().unwrap(),
                loss["bytes"].as_u64().unwrap(),
            )
        })
        .collect()
}

fn recorded() -> Recorded {
    Recorded::new(&["--timing", "mtc"], &["/bin/true"], "")
}

#[test]
fn a_cpus_trace_is_its_threads() {
    let recorded = recorded();
    let per_cpu = rewritten(&recorded.capture(), |kind, record| match kind {
        AUXTRACE => {
            record[36..40].copy_from_slice(&u32::MAX.to_le_bytes());
            record[40..44].copy_from_slice(&3u32.to_le_bytes());
        }
        ITRACE_START | AUX => {
            let cpu = record.len() - 16;
            record[cpu..cpu + 4].copy_from_slice(&3u32.to_le_bytes());
        }
        _ => {}
    });
    let found = dump(&per_cpu, &["--instructions", "--digest"]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["instructions"], recorded.truth.len());
    assert_eq!(found[0]["ip_fnv1a64"], fnv1a64(&recorded.truth));
    assert_eq!(losses(&summary(&per_cpu)), []);
}

#[test]
fn a_cpus_trace_without_a_word_of_who_ran_is_lost_by_that_name() {
    let recorded = recorded();
    let per_cpu = rewritten(&recorded.capture(), |kind, record| {
        if kind == AUXTRACE {
            record[36..40].copy_from_slice(&u32::MAX.to_le_bytes());
            record[40..44].copy_from_slice(&3u32.to_le_bytes());
        }
    });
    let summary = summary(&per_cpu);
    let losses = losses(&summary);
    assert!(
        !losses.is_empty() && losses.iter().all(|(cause, _)| *cause == "unattributed"),
        "{losses:?}"
    );
    let bytes: u64 = losses.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(summary["lost_bytes"], bytes);
    assert_eq!(summary["instructions"], 0);
    // All but what tells no flow: status, times, padding.
    assert!(
        bytes * 4 > summary["trace_bytes"].as_u64().unwrap() * 3,
        "{summary}"
    );
}

#[test]
fn a_full_buffer_is_a_loss_where_it_was() {
    let recorded = recorded();
    let full = rewritten(&recorded.capture(), |kind, record| {
        const FLAGS: usize = 8 + 16;
        const TRUNCATED: u8 = 1;
        if kind == AUX {
            record[FLAGS] |= TRUNCATED;
        }
    });
    let found = dump(&full, &["--instructions", "--digest"]);
    assert_eq!(found[0]["ip_fnv1a64"], fnv1a64(&recorded.truth));
    let summary = summary(&full);
    assert!(
        losses(&summary).contains(&("aux-truncated", 0)),
        "{summary}"
    );
}

const SOURCE: &str = r#"
#include <unistd.h>
__attribute__((noinline)) static int inner(int n) { return n % 7 ? n * 3 : n / 2; }
__attribute__((noinline)) int outer(int n) { int s = 0; while (n-- > 0) s += inner(n); return s; }
int main(void) { return outer(50) == 1; }
"#;

/// A program built with these options, and its recording.
struct Program {
    folder: tempfile::TempDir,
    path: PathBuf,
    recorded: Recorded,
}

impl Program {
    /// Strips the program of its debug information, which goes into a file beside it.
    fn split_debug(&self) -> PathBuf {
        let debug = self.folder.path().join("program.debug");
        tool(
            "objcopy",
            &["--only-keep-debug", text(&self.path), text(&debug)],
        );
        tool("strip", &[text(&self.path)]);
        let link = format!("--add-gnu-debuglink={}", text(&debug));
        tool("objcopy", &[&link, text(&self.path)]);
        debug
    }

    fn build(into: &Path, options: &[&str]) -> PathBuf {
        let source = into.join("program.c");
        std::fs::write(&source, SOURCE).unwrap();
        let path = into.join("program");
        tool(
            "gcc",
            &[
                &["-O1", "-g", "-static", "-o", text(&path), text(&source)],
                options,
            ]
            .concat(),
        );
        path
    }

    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = Self::build(folder.path(), &["-Wl,--build-id=0x01020304"]);
        let recorded = Recorded::new(&[], &[&path], "");
        Self {
            folder,
            path,
            recorded,
        }
    }

    /// Whether the decoded instructions are those that ran.
    #[track_caller]
    fn decodes(&self, options: &[&str]) {
        let options = [&["--instructions", "--digest"], options].concat();
        let found = dump(&self.recorded.capture(), &options);
        assert_eq!(found[0]["instructions"], self.recorded.truth.len());
        assert_eq!(found[0]["ip_fnv1a64"], fnv1a64(&self.recorded.truth));
    }

    fn functions(&self) -> Vec<String> {
        let spans = dump(&self.recorded.capture(), &["--spans"]);
        let names = spans.iter().filter_map(|span| span["function"].as_str());
        names.map(str::to_owned).collect()
    }

    /// Why there is no code.
    fn reason(&self) -> String {
        let lines = dump(&self.recorded.capture(), &["--instructions"]);
        let mut losses = lines.iter().filter(|line| line["loss"] == "no-code");
        losses.next().unwrap()["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn tool(name: &str, arguments: &[&str]) {
    let output = std::process::Command::new(name)
        .args(arguments)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {messages}");
}

#[test]
fn moved_programs_are_found() {
    let program = Program::new();
    program.decodes(&[]);
    let root = program.folder.path().join("root");
    let moved = root.join(program.path.strip_prefix("/").unwrap());
    std::fs::create_dir_all(moved.parent().unwrap()).unwrap();
    std::fs::rename(&program.path, &moved).unwrap();
    assert!(
        program.reason().contains("is missing"),
        "{}",
        program.reason()
    );
    program.decodes(&["--sysroot", text(&root)]);
    let prefix = program.path.parent().unwrap();
    let map = format!("{}={}", text(prefix), text(moved.parent().unwrap()));
    program.decodes(&["--map", &map]);
}

#[test]
fn stripped_programs_and_their_debug_files() {
    let program = Program::new();
    let has = |name: &str| program.functions().iter().any(|found| found == name);
    assert!(has("inner") && has("outer"));
    let debug = program.split_debug();
    program.decodes(&[]);
    assert!(has("inner") && has("outer"));
    std::fs::remove_file(&debug).unwrap();
    program.decodes(&[]);
    assert!(!has("inner") && !has("outer"));
}

#[test]
fn another_build_is_refused_by_name_unless_forced() {
    let program = Program::new();
    Program::build(program.folder.path(), &["-Wl,--build-id=0x05060708"]);
    let reason = program.reason();
    assert!(
        reason.contains("has build-id 05060708 but the recording ran build-id 01020304"),
        "{reason}"
    );
    assert!(reason.contains("--force"), "{reason}");
    program.decodes(&["--force"]);
}

#[test]
fn a_packed_capture_decodes_where_its_files_are_not() {
    let program = Program::new();
    let debug = program.split_debug();
    let packed = program.folder.path().join("packed.tar");
    let output = ptrail()
        .arg("pack")
        .arg(program.recorded.capture())
        .arg("-o")
        .arg(&packed)
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && report.contains("with 2 files"),
        "{report}"
    );

    std::fs::remove_file(&program.path).unwrap();
    std::fs::remove_file(&debug).unwrap();
    std::fs::remove_file(program.recorded.capture()).unwrap();
    let found = dump(&packed, &["--instructions", "--digest"]);
    assert_eq!(found[0]["ip_fnv1a64"], fnv1a64(&program.recorded.truth));
    let spans = dump(&packed, &["--spans"]);
    assert!(spans.iter().any(|span| span["function"] == "inner"));

    let other = program.folder.path().join("other.tar");
    tool("tar", &["-cf", text(&other), "-C", "/etc", "hostname"]);
    let output = ptrail().arg("info").arg(&other).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("not one that `ptrail pack` wrote"),
        "{message}"
    );
}
