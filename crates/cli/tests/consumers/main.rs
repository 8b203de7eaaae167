//! `ptrail open` and Perfetto's page in a browser. Run by `cargo xtask consumers`.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

#[test]
fn perfettos_page_fetches_the_file_and_shows_every_call() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = Command::new(env!("CARGO_BIN_EXE_ptrail"))
        .current_dir(folder.path())
        .args([
            "run",
            "--source",
            "step",
            "-o",
            "a.pftrace",
            "-o",
            "a.jsonl",
        ])
        .args(["--", "/bin/true"])
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    let mut served = Command::new(env!("CARGO_BIN_EXE_ptrail"))
        .current_dir(folder.path())
        .args(["open", "--no-browser", "--port", "0", "a.pftrace"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    let mut lines = BufReader::new(served.stdout.take().unwrap());
    lines.read_line(&mut address).unwrap();
    let viewed = Command::new("node")
        .arg(xtask::workspace_root().join("tools/consumers/perfetto_page.cjs"))
        .arg(address.trim())
        .arg(
            "select count(*) as c from slice join thread_track on slice.track_id = thread_track.id",
        )
        .output()
        .unwrap();
    if !viewed.status.success() {
        served.kill().unwrap();
    }
    let messages = String::from_utf8_lossy(&viewed.stderr);
    assert!(viewed.status.success(), "{messages}");
    assert!(served.wait().unwrap().success());
    let lines = std::fs::read_to_string(folder.path().join("a.jsonl")).unwrap();
    let calls = lines
        .lines()
        .filter(|line| line.starts_with("{\"type\":\"span\""))
        .count();
    let seen = String::from_utf8(viewed.stdout).unwrap();
    assert_eq!(seen.trim(), calls.to_string());
}
