//! Stock perf as an independent decoder.

use std::path::Path;
use std::process::Command;

fn script(capture: &Path, options: &[&str]) -> String {
    // perf in `target/tools` first: tools/setup.sh puts it there where the system's is a wrapper.
    let tools = xtask::workspace_root().join("target/tools");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("perf")
        .arg("script")
        .arg("-i")
        .arg(capture)
        .args(options)
        .env("PATH", format!("{}:{path}", tools.display()))
        .output()
        .expect("perf runs; tools/setup.sh installs it");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "perf script {options:?}: {messages}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Addresses of all instructions, and the errors that perf met.
pub(crate) fn instructions(capture: &Path) -> (Vec<u64>, Vec<String>) {
    let text = script(capture, &["--itrace=i1ie", "-F", "ip"]);
    let mut ips = Vec::new();
    let mut errors = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match u64::from_str_radix(line, 16) {
            Ok(ip) => ips.push(ip),
            Err(_) => errors.push(line.to_string()),
        }
    }
    (ips, errors)
}

/// Thread and address of all instructions, and the errors that perf met.
pub(crate) fn instructions_of_threads(capture: &Path) -> (Vec<(u32, u64)>, Vec<String>) {
    let text = script(capture, &["--itrace=i1ie", "-F", "tid,ip"]);
    let mut instructions = Vec::new();
    let mut errors = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words = line.split_once(char::is_whitespace);
        match words.and_then(|(thread, ip)| {
            Some((
                thread.parse().ok()?,
                u64::from_str_radix(ip.trim(), 16).ok()?,
            ))
        }) {
            Some(instruction) => instructions.push(instruction),
            None => errors.push(line.to_string()),
        }
    }
    (instructions, errors)
}

/// Thread of all branches, from and to; zero where tracing begins or ends.
pub(crate) fn branches(capture: &Path) -> Vec<(u32, u64, u64)> {
    let text = script(capture, &["--itrace=b", "-F", "tid,ip,addr"]);
    let address = |word: &str| u64::from_str_radix(word.trim(), 16).unwrap();
    text.lines()
        .filter_map(|line| line.split_once("=>"))
        .filter_map(|(from, to)| {
            let (thread, from) = from.trim().split_once(char::is_whitespace)?;
            Some((thread.parse().ok()?, address(from), address(to)))
        })
        .collect()
}
