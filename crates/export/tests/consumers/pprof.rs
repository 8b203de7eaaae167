//! `go tool pprof`.

use std::{collections::BTreeMap, process::Command};

use ptrail_trace::SpanFlags;

use crate::{program, stream::Stream, sums, write};

fn pprof(stream: &Stream, options: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pprof");
    write(stream, &path);
    let output = Command::new("go")
        .args(["tool", "pprof", "-symbolize=none"])
        .args(options)
        .arg(&path)
        .env("HOME", dir.path())
        .output()
        .expect("go runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    String::from_utf8(output.stdout).unwrap()
}

/// Names by location, from lines such as `1: 0xffff800000000000 M=1 main :0 s=0`. A name
/// may go on in the next line.
fn names(locations: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::<String, String>::new();
    let mut last = String::new();
    for line in locations.lines() {
        let start = line.trim_start().split_once(": 0x");
        if let Some((id, place)) = start.filter(|(id, _)| id.parse::<u32>().is_ok()) {
            let (_, place) = place.split_once(' ').unwrap();
            let with_mapping = place.strip_prefix("M=");
            let name = with_mapping.map_or(place, |rest| rest.split_once(' ').unwrap().1);
            last = id.to_owned();
            names.insert(last.clone(), name.to_owned());
        } else if let Some(name) = names.get_mut(&last) {
            *name = format!("{name}\n{line}");
        }
    }
    let end = |name: String| name.split_once(" :0 s=0").unwrap().0.to_owned();
    names
        .into_iter()
        .map(|(id, name)| (id, end(name)))
        .collect()
}

/// `-raw` prints, for each sample, its values and its locations; then the locations.
#[test]
fn every_sample_is_read() {
    for mut stream in [
        program::random(0x5eed_0008, 5_000),
        program::late_ties(),
        program::deep(1_000, 100),
    ] {
        let text = pprof(&stream, &["-raw"]);
        let (samples, rest) = text.split_once("\nLocations\n").unwrap();
        let (_, samples) = samples.split_once("Samples:\n").unwrap();
        let (types, samples) = samples.split_once('\n').unwrap();
        assert_eq!(
            types,
            "calls/count instructions/count time/nanoseconds[dflt]"
        );
        let (locations, mappings) = rest.split_once("Mappings\n").unwrap();
        // "     1: 0xffff800000000000 M=1 main :0 s=0()"
        let names = names(locations);
        assert!(mappings.contains("demo"), "{mappings}");

        let mut seen = BTreeMap::new();
        for line in samples.lines() {
            // Labels stand on lines of their own below the sample.
            let Some((values, path)) = line.split_once(": ") else {
                continue;
            };
            let values: Vec<u64> = values
                .split_whitespace()
                .filter_map(|value| value.parse().ok())
                .collect();
            let [calls, instructions, time] = values[..] else {
                continue;
            };
            let path = path.split_whitespace().rev();
            let path: Vec<_> = path.map(|id| names[id].clone()).collect();
            sums::add(seen.entry(path).or_default(), (calls, time, instructions));
        }
        let slices = stream.slices();
        let mut truth = BTreeMap::new();
        let paths = sums::by_path(&slices, |_| String::new(), |slice| slice.name.clone());
        for (path, more) in paths {
            sums::add(truth.entry(path[1..].to_vec()).or_default(), more);
        }
        assert_eq!(seen, truth);
    }
}

#[test]
fn top_shows_the_sums() {
    let mut stream = Stream::new(ptrail_trace::Source::Hardware);
    let track = stream.thread(1, 1, "t");
    stream.enter(track, "main", 0);
    stream.enter(track, "größe::計算", 2_000_000);
    stream.leave(track, 5_000_000, SpanFlags::empty());
    stream.leave(track, 10_000_000, SpanFlags::empty());
    let text = pprof(&stream, &["-top", "-unit=ns"]);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.ends_with("main") || line.ends_with("計算"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows,
        [
            ["7000ns", "70.00%", "70.00%", "10000ns", "100%", "main"],
            [
                "3000ns",
                "30.00%",
                "100%",
                "3000ns",
                "30.00%",
                "größe::計算"
            ],
        ]
    );
}
