//! Perfetto's own trace processor.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const SLICES: &str = "select s.name as name, s.ts as ts, s.dur as dur from slice s \
    join thread_track k on s.track_id = k.id where k.name is null";

const COMPLAINTS: &str = "select name, value from stats \
    where severity in ('error', 'data_loss') and value != 0";

/// What the trace processor makes of a timeline.
pub(crate) struct Viewed {
    /// Name, begin (ns), duration (ns) of all slices on threads' own tracks, in the order of their
    /// ends.
    pub(crate) slices: Vec<(String, i64, i64)>,
    /// What it found wrong with the file.
    pub(crate) complaints: Vec<Value>,
}

/// Opens a timeline.
pub(crate) fn view(file: &Path) -> Viewed {
    let workspace = xtask::workspace_root();
    let consumers = std::env::var_os("PTRAIL_CONSUMERS")
        .map_or_else(|| workspace.join("target/consumers"), PathBuf::from);
    let output = Command::new("node")
        .arg(workspace.join("tools/consumers/trace_processor.cjs"))
        .arg(file)
        .args([SLICES, COMPLAINTS])
        .env("PTRAIL_CONSUMERS", consumers)
        .output()
        .expect("node runs; tools/setup.sh installs it");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "trace processor (tools/setup.sh installs it): {messages}"
    );
    let mut viewed = Viewed {
        slices: Vec::new(),
        complaints: Vec::new(),
    };
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let row = line["row"].take();
        if line["query"] == 1 {
            viewed.complaints.push(row);
            continue;
        }
        let name = row["name"].as_str().unwrap_or_default().to_string();
        let (begin, duration) = (row["ts"].as_i64().unwrap(), row["dur"].as_i64().unwrap());
        viewed.slices.push((name, begin, duration));
    }
    viewed
}
