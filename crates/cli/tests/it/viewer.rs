//! Perfetto's own trace processor.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Opens a timeline and returns the rows of a query.
pub(crate) fn query(file: &Path, sql: &str) -> Vec<Value> {
    let workspace = xtask::workspace_root();
    let consumers = std::env::var_os("PTRAIL_CONSUMERS")
        .map_or_else(|| workspace.join("target/consumers"), PathBuf::from);
    let output = Command::new("node")
        .arg(workspace.join("tools/consumers/trace_processor.cjs"))
        .arg(file)
        .arg(sql)
        .env("PTRAIL_CONSUMERS", consumers)
        .output()
        .expect("node runs; tools/setup.sh installs it");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "trace processor (tools/setup.sh installs it): {messages}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["row"].take())
        .collect()
}

/// What the trace processor found wrong with a file.
pub(crate) fn complaints(file: &Path) -> Vec<Value> {
    query(
        file,
        "select name, value from stats where severity in ('error', 'data_loss') and value != 0",
    )
}

/// Name, begin (ns), duration (ns) of all slices on threads' own tracks, in the order of their ends.
pub(crate) fn slices(file: &Path) -> Vec<(String, i64, i64)> {
    let sql = "select s.name as name, s.ts as ts, s.dur as dur from slice s join thread_track k on \
               s.track_id = k.id where k.name is null";
    let rows = query(file, sql);
    rows.iter()
        .map(|row| {
            let name = row["name"].as_str().unwrap_or_default().to_string();
            (
                name,
                row["ts"].as_i64().unwrap(),
                row["dur"].as_i64().unwrap(),
            )
        })
        .collect()
}
