//! `ptrail dump --packets` on other people's traces, against libipt's counts and the time formula.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::recorded::ptrail;
use crate::reference::{folder, gunzip, json, libxdc_traces};

fn lines(input: &[&str], what: &[&str]) -> Vec<Value> {
    let output = ptrail()
        .args(["dump", "--packets", "--json"])
        .args(input)
        .args(what)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{input:?}: {messages}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Packets by type, named as ptdump does. libipt begins at the first PSB.
fn counts(line: &Value) -> BTreeMap<String, u64> {
    let types = line["types"].as_object().unwrap().iter();
    types
        .map(|(name, count)| {
            let name = match name.as_str() {
                "TRACESTOP" => "stop".into(),
                _ => name.to_lowercase(),
            };
            (name, count["packets"].as_u64().unwrap())
        })
        .collect()
}

fn expected(counts: &Value) -> BTreeMap<String, u64> {
    let counts = counts.as_object().unwrap().iter();
    counts
        .map(|(name, count)| (name.clone(), count.as_u64().unwrap()))
        .collect()
}

/// The bytes of all types and what was skipped are the whole stream.
fn adds_up(line: &Value) {
    let types = line["types"].as_object().unwrap().values();
    let bytes = |count: &Value| count["bytes"].as_u64().unwrap();
    let sum: u64 = types.map(bytes).sum();
    assert_eq!(sum, bytes(&line["all"]));
    assert_eq!(Some(sum + bytes(&line["skipped"])), line["bytes"].as_u64());
}

#[test]
fn raw_packets_are_counted_as_libipt_counts_them() {
    for (trace, path) in libxdc_traces() {
        let lines = lines(&["--raw", path.to_str().unwrap()], &["--stats"]);
        assert_eq!(lines.len(), 1);
        adds_up(&lines[0]);
        assert_eq!(
            counts(&lines[0]),
            expected(&trace["ptdump"]["packets_by_type"]),
            "{}",
            path.display()
        );
    }
}

#[test]
fn lldb_bundles_are_read() {
    let Some(folder) = folder("lldb-traces") else {
        return;
    };
    let bundles: [(&str, &[&str]); 4] = [
        ("intelpt-trace/trace.json", &["3842849"]),
        (
            "intelpt-trace-multi-file/multi-file-no-ld.json",
            &["multi-file"],
        ),
        ("intelpt-multi-core-trace", &["cpu45", "cpu51"]),
        (
            "intelpt-multi-core-trace/trace_with_string_numbers.json",
            &["cpu45", "cpu51"],
        ),
    ];
    for (bundle, streams) in bundles {
        let lines = lines(&[folder.join(bundle).to_str().unwrap()], &["--stats"]);
        assert_eq!(lines.len(), streams.len(), "{bundle}");
        for (line, stream) in lines.iter().zip(streams) {
            adds_up(line);
            let reference = json(&folder.join(format!("reference/{stream}.json")));
            let expected = expected(&reference["ptdump"]["packets_by_type"]);
            assert_eq!(counts(line), expected, "{bundle}: {stream}");
        }
    }
}

#[test]
fn perf_data_recorded_per_cpu_is_read() {
    let Some(folder) = folder("quipper") else {
        return;
    };
    let reference = json(&folder.join("reference.json"));
    // The other file is in pipe form.
    let file = &reference["files"][0];
    let input = folder.join(file["file"].as_str().unwrap());
    let lines = lines(&[input.to_str().unwrap()], &["--stats"]);
    let buffers = file["auxtrace"].as_array().unwrap();
    assert_eq!(lines.len(), buffers.len());
    for (line, buffer) in lines.iter().zip(buffers) {
        adds_up(line);
        assert_eq!(line["cpu"], buffer["cpu"]);
        assert_eq!(counts(line), expected(&buffer["ptdump_packets_by_type"]));
    }
}

#[test]
fn the_time_at_a_tsc_is_what_perfs_formula_gives() {
    let Some(folder) = folder("lldb-traces") else {
        return;
    };
    let bundle = folder.join("intelpt-multi-core-trace");
    let conversion = &json(&bundle.join("trace.json"))["tscPerfZeroConversion"];
    let number = |key: &str| u128::from(conversion[key].as_u64().unwrap());
    let (shift, mult, zero) = (number("timeShift"), number("timeMult"), number("timeZero"));
    let perf = |tsc: u128| (zero + ((tsc * mult) >> shift)) as u64;
    // LLDB's tests name two TSCs with their perf times, which they round down from.
    for (tsc, ns) in [
        (40_450_075_477_621_505, 7_002_363_907_159_404),
        (40_450_075_477_704_372, 7_002_363_907_200_935),
    ] {
        assert!((ns - 1..=ns).contains(&perf(tsc)));
    }

    let text = ptrail()
        .args(["dump", "--packets", "--time"])
        .arg(&bundle)
        .output()
        .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let base = text
        .lines()
        .next()
        .unwrap()
        .strip_prefix("# times in ns since perf time ");
    let base: u64 = base.unwrap().strip_suffix(" ns").unwrap().parse().unwrap();
    let mut compared = 0;
    let mut last = BTreeMap::new();
    for line in lines(&[bundle.to_str().unwrap()], &["--time"]) {
        let Some(at) = line["at_ps"].as_u64() else {
            continue;
        };
        let before = last.insert(line["cpu"].as_u64().unwrap(), at);
        assert!(before <= Some(at));
        if line["packet"] == "TSC" {
            let payload = line["payload"].as_str().unwrap();
            let tsc = u128::from_str_radix(payload.strip_prefix("0x").unwrap(), 16).unwrap();
            assert_eq!(base + at / 1000, perf(tsc), "{line}");
            assert!(line["error_ps"].as_u64().unwrap() <= 1000);
            compared += 1;
        }
    }
    assert!(compared >= 4, "{compared} TSCs");
}

#[test]
fn each_packet_of_a_listing_has_its_place_and_address() {
    let Some(folder) = folder("lldb-traces") else {
        return;
    };
    let input = folder.join("intelpt-trace/trace.json");
    let listing = folder.join("reference/3842849.packets.tsv.gz");
    let listing = String::from_utf8(gunzip(&listing)).unwrap();
    let mut expected = listing.lines().filter_map(|line| {
        let columns: Vec<_> = line.split('\t').collect();
        Some((
            columns[0].parse::<u64>().ok()?,
            columns[1].len() as u64 / 2,
            columns[2].to_string(),
            columns[3].to_string(),
        ))
    });
    let mut compared = 0;
    for line in lines(&[input.to_str().unwrap()], &[]) {
        if line["packet"] == "PAD" || line["packet"] == "SKIP" {
            continue;
        }
        let (offset, len, name, payload) = expected.next().unwrap();
        assert_eq!(
            (line["offset"].as_u64(), line["len"].as_u64()),
            (Some(offset), Some(len)),
            "{line}"
        );
        assert_eq!(line["packet"].as_str().unwrap().to_lowercase(), name);
        if let Some(ip) = line["ip"].as_str() {
            let ip = u64::from_str_radix(ip.strip_prefix("0x").unwrap(), 16).unwrap();
            assert!(
                payload.ends_with(&format!("{ip:016x}")),
                "{line}: {payload}"
            );
        }
        compared += 1;
    }
    assert!(
        expected.next().is_none() && compared > 20,
        "{compared} packets"
    );
}
