//! Recording a part of a run.

use xtask::{Corpus, Exit};

use crate::perf;
use crate::recorded::{Recorded, dump, engines, fnv1a64};
use crate::spans::Spans;

fn record(engine: &str, options: &[&str]) -> Recorded {
    let corpus = Corpus::load().unwrap();
    let (program, variant) = corpus.find("fib", "O2-static").unwrap();
    let executable = corpus.build(program, variant).unwrap();
    let mut all = vec!["--source", engine];
    all.extend(options);
    let recorded = Recorded::new(&all, &[executable], "");
    assert_eq!(recorded.outcome.stdout, "fib(10) = 55\n");
    assert_eq!(recorded.outcome.exit, Exit::Status(0));
    recorded
}

fn assert_decodes(recorded: &Recorded, engine: &str) {
    let digest = &dump(&recorded.capture(), &["--instructions", "--digest"])[0];
    assert_eq!(digest["losses"], 0, "{engine}");
    assert_eq!(
        digest["ip_fnv1a64"].as_str(),
        Some(fnv1a64(&recorded.truth).as_str()),
        "{engine}"
    );
    let (perf_ips, perf_errors) = perf::instructions(&recorded.capture());
    assert_eq!(perf_errors, Vec::<String>::new(), "{engine}");
    assert!(perf_ips == recorded.truth, "{engine}: perf differs");
}

#[test]
fn from_a_function_on() {
    for engine in engines() {
        let recorded = record(engine, &["--window-start", "main"]);
        assert_decodes(&recorded, engine);
        let spans = Spans::from_dump(&dump(&recorded.capture(), &["--spans"]));
        assert_eq!(spans.count("fib"), 177, "{engine}");
        let first = spans.all.iter().min_by_key(|span| span.begin).unwrap();
        assert_eq!(first.function, "main", "{engine}");
        let end = "the program exited with status 0";
        assert!(recorded.messages.contains(end), "{}", recorded.messages);
    }
}

#[test]
fn so_many_instructions_and_no_more() {
    for engine in engines() {
        for limit in [1, 2, 500, 501, 502] {
            let options = ["--window-start", "main", "--limit", &limit.to_string()];
            let recorded = record(engine, &options);
            assert_eq!(recorded.truth.len(), limit, "{engine}");
            assert_decodes(&recorded, engine);
            let end = "as many instructions as were to be recorded; the program went on";
            assert!(recorded.messages.contains(end), "{}", recorded.messages);
        }
    }
}

#[test]
fn a_place_that_is_not_reached_is_told() {
    if !engines().contains(&"qemu") {
        return;
    }
    let recorded = record("qemu", &["--window-start", "no_such_function"]);
    assert_eq!(recorded.truth.len(), 0);
    let note = "the place where the window begins was not reached";
    assert!(recorded.messages.contains(note), "{}", recorded.messages);
}

/// The end of what executed, as far as the ring reaches back.
#[test]
fn a_snapshot_holds_the_end() {
    for engine in engines() {
        let recorded = record(engine, &["--snapshot-size", "6K"]);
        let ips: Vec<u64> = dump(&recorded.capture(), &["--instructions"])
            .iter()
            .filter_map(|line| line["ip"].as_str())
            .map(|ip| u64::from_str_radix(ip.trim_start_matches("0x"), 16).unwrap())
            .collect();
        assert!(ips.len() > 1000, "{engine}: {}", ips.len());
        assert!(recorded.truth.ends_with(&ips), "{engine}");
        let (perf_ips, perf_errors) = perf::instructions(&recorded.capture());
        assert_eq!(perf_errors, Vec::<String>::new(), "{engine}");
        assert_eq!(perf_ips, ips, "{engine}");
    }
}
