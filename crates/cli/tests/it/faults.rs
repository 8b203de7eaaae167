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
