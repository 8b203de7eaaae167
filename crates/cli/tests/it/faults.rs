//! Faults on purpose: each shows as a loss with its cause, and all around it decodes to what
//! executed.

use std::collections::BTreeSet;

use crate::recorded::{Recorded, dump, engines};

fn record(inject: &str, seed: &str) -> Recorded {
    let engine = engines().last().unwrap();
    let options = ["--source", engine, "--inject", inject, "--seed", seed];
    let recorded = Recorded::new(&options, &["/bin/ls", "/usr"], "");
    let note = format!("note      faults were injected on purpose (seed {seed}): ");
    assert!(recorded.messages.contains(&note), "{}", recorded.messages);
    recorded
}

/// The decoded instructions, and the causes of losses.
fn decoded(recorded: &Recorded) -> (Vec<u64>, BTreeSet<String>) {
    let mut causes = BTreeSet::new();
    let mut ips = Vec::new();
    for line in dump(&recorded.capture(), &["--instructions"]) {
        match (line["ip"].as_str(), line["loss"].as_str()) {
            (Some(ip), _) => {
                ips.push(u64::from_str_radix(ip.trim_start_matches("0x"), 16).unwrap());
            }
            (_, Some(cause)) => {
                causes.insert(cause.to_string());
            }
            _ => {}
        }
    }
    (ips, causes)
}

/// Whether `part` is `whole` with pieces missing.
fn is_part(part: &[u64], whole: &[u64]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|ip| rest.any(|other| other == ip))
}

fn assert_lost(inject: &str, cause: &str) {
    for seed in ["1", "2", "3"] {
        let recorded = record(inject, seed);
        let (ips, causes) = decoded(&recorded);
        assert!(causes.contains(cause), "{causes:?} with seed {seed}");
        assert!(ips.len() < recorded.truth.len(), "nothing is missing");
        assert!(ips.len() > recorded.truth.len() / 2, "{}", ips.len());
        assert!(is_part(&ips, &recorded.truth), "seed {seed}");
    }
}

#[test]
fn overflows() {
    assert_lost("overflow:0.7", "overflow");
}

/// An overflow amid nested calls: all of them end where it begins, it names them, and behind it a new
/// part begins.
#[test]
fn an_overflow_names_the_calls_that_it_cuts() {
    let recorded = record("overflow:0.7", "1");
    let mut cut: Vec<(String, u64)> = Vec::new();
    let (mut compared, mut deepest) = (0, 0);
    for line in dump(&recorded.capture(), &["--spans"]) {
        if line["loss"].is_null() {
            let ends = line["begin_ps"].as_u64().unwrap() + line["duration_ps"].as_u64().unwrap();
            let flags = line["flags"].to_string();
            match flags.contains("\"cut\"") && !flags.contains("gap") {
                true => cut.push((line["function"].as_str().unwrap().to_owned(), ends)),
                false => cut.clear(),
            }
            continue;
        }
        let reason = line["reason"].as_str().unwrap();
        let Some((_, named)) = reason.split_once("; these calls may be longer: ") else {
            assert!(cut.is_empty(), "{line}");
            continue;
        };
        let named: Vec<_> = named.split(" > ").filter(|name| *name != "…").collect();
        let cut = std::mem::take(&mut cut);
        let innermost = cut.iter().take(8).rev();
        let expected: Vec<_> = innermost.map(|(name, _)| name.as_str()).collect();
        assert_eq!(named, expected, "{line}");
        let begin = line["begin_ps"].as_u64().unwrap();
        assert!(cut.iter().all(|(_, end)| *end == begin), "{line}: {cut:?}");
        (compared, deepest) = (compared + 1, deepest.max(cut.len()));
    }
    assert!(
        compared > 5 && deepest > 5,
        "{compared} overflows, {deepest} calls"
    );
}

#[test]
fn truncated_buffers() {
    assert_lost("truncate:0.7", "aux-truncated");
}

#[test]
fn context_switches_lose_nothing() {
    let recorded = record("switch:0.7", "1");
    let (ips, causes) = decoded(&recorded);
    assert_eq!(causes, BTreeSet::new());
    assert!(ips == recorded.truth);
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let said = |recorded: &Recorded| {
        let lines = recorded.messages.lines();
        let notes: Vec<_> = lines.filter(|line| line.starts_with("note")).collect();
        notes.join("\n")
    };
    let text = "overflow:0.3,switch:0.5,corrupt:0.2";
    assert_eq!(said(&record(text, "7")), said(&record(text, "7")));
}
