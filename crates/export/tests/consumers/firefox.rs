//! The Firefox Profiler's own code, through its command line.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{program, stream::Stream, sums, write};

/// Runs it with a home of its own: it starts a daemon there.
fn profiler(home: &Path, arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(
        "../../target/consumers/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js",
    );
    let output = Command::new("node")
        .arg(consumers.join(script))
        .args(arguments)
        .env("HOME", home)
        .output()
        .expect("node runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {messages}");
    String::from_utf8(output.stdout).unwrap()
}

/// Nanoseconds in each function alone, and the number of its calls, of the first thread.
fn seen(stream: &Stream) -> BTreeMap<String, (u64, u64)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.profile.json");
    write(stream, &path);
    profiler(dir.path(), &["load", path.to_str().unwrap()]);
    let json = |arguments: &[&str]| -> Value {
        let text = profiler(
            dir.path(),
            &[arguments, &["--thread", "t-0", "--json"]].concat(),
        );
        serde_json::from_str(&text).unwrap()
    };
    let functions = json(&["thread", "functions", "--limit", "0"]);
    let markers = json(&["thread", "markers", "--limit", "0"]);
    profiler(dir.path(), &["stop"]);
    let mut seen = BTreeMap::<String, (u64, u64)>::new();
    for function in functions["functions"].as_array().unwrap() {
        let own = (function["selfSamples"].as_f64().unwrap() * 1e6).round() as u64;
        let name = function["name"].as_str().unwrap().to_owned();
        seen.entry(name).or_default().0 += own;
    }
    for kind in markers["byType"].as_array().unwrap() {
        let name = kind["markerName"].as_str().unwrap();
        if !name.starts_with("lost: ") {
            seen.entry(name.to_owned()).or_default().1 += kind["count"].as_u64().unwrap();
        }
    }
    seen
}

#[test]
fn times_and_calls_are_those_of_the_slices() {
    for mut stream in [program::random(0x5eed_0061, 10_000), program::late_ties()] {
        let seen = seen(&stream);
        let mut truth = BTreeMap::<String, (u64, u64)>::new();
        let slices = stream.slices();
        let first = slices[0].thread.clone();
        for own in sums::own(&slices) {
            if own.slice.thread == first {
                let sums = truth.entry(own.slice.name.clone()).or_default();
                *sums = (sums.0 + own.time, sums.1 + 1);
            }
        }
        assert_eq!(seen, truth);
    }
}
