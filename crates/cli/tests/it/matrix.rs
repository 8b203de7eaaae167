//! The test programs with every setting of the trace unit, and with faults: what is decoded is what
//! executed, but for what the recorder declared lost.
//!
//! All programs with all settings take half an hour (`cargo xtask matrix`); else each program is
//! recorded with one setting, such that every one of them has its turn.

use std::collections::BTreeMap;

use xtask::{Corpus, Program};

use crate::recorded::{Recorded, dump, engines};

const TIMINGS: [&str; 3] = ["cyc", "mtc", "tsc"];
const PSB_PERIODS: [&str; 3] = ["0", "1", "5"];
/// Options, the cause of the losses, and what the capture's note calls the faults.
const FAULTS: [Option<[&str; 3]>; 3] = [
    None,
    Some(["overflow:0.6", "overflow", "overflow"]),
    Some(["truncate:0.6", "aux-truncated", "truncate"]),
];

#[derive(Clone, Copy, Debug)]
struct Setting {
    timing: &'static str,
    psb_period: &'static str,
    return_compression: bool,
    fault: Option<[&'static str; 3]>,
}

fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for timing in TIMINGS {
        for psb_period in PSB_PERIODS {
            for return_compression in [true, false] {
                settings.extend(FAULTS.map(|fault| Setting {
                    timing,
                    psb_period,
                    return_compression,
                    fault,
                }));
            }
        }
    }
    settings
}

#[test]
fn every_program_with_every_setting() {
    let corpus = Corpus::load().unwrap();
    let settings = settings();
    let all = std::env::var_os("PTRAIL_WHOLE_MATRIX").is_some();
    let mut tried = vec![false; settings.len()];
    let mut faults = Vec::new();
    for (number, program) in corpus.programs().iter().enumerate() {
        // 7 has no factor in common with the number of settings: all are met in turn.
        let first = 7 * number;
        let count = if all { settings.len() } else { 1 };
        for place in (first..first + count).map(|place| place % settings.len()) {
            tried[place] = true;
            let fault = check(&corpus, program, settings[place]).err();
            faults.extend(
                fault.map(|fault| format!("{}, {:?}: {fault}", program.name, settings[place])),
            );
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(tried.iter().all(|&tried| tried), "{tried:?}");
}

fn check(corpus: &Corpus, program: &Program, setting: Setting) -> Result<(), String> {
    let executable = corpus.build(program, &program.variants[0]).unwrap();
    let mut words = vec![executable.into_os_string()];
    words.extend(program.args.iter().map(Into::into));
    let engine = engines().last().unwrap();
    let mut options = vec!["--source", engine, "--json"];
    // Only a clock that tells every branch tells code from the code that is written over it.
    let timing = match program.has_limit("code-changes") {
        true => "cyc",
        false => setting.timing,
    };
    options.extend(["--timing", timing, "--psb-period", setting.psb_period]);
    if !setting.return_compression {
        options.push("--no-return-compression");
    }
    if let Some([inject, ..]) = setting.fault {
        options.extend(["--inject", inject, "--seed", "5"]);
    }
    let recorded = Recorded::new(&options, &words, &program.stdin);
    let mut decoded = Decoded::of(&recorded);
    let (injected, cause) = match setting.fault {
        Some([_, cause, fault]) => (injected(&recorded.messages, fault)?, cause),
        None => (0, "none"),
    };
    // Every fault that the recorder declares is a loss, and there are no others.
    let causes = std::mem::take(&mut decoded.causes);
    if causes.len() as u64 != injected || causes.iter().any(|other| other != cause) {
        return Err(format!(
            "{injected} times {cause} was injected, the losses are {causes:?}"
        ));
    }
    let mut truths = recorded.truths();
    for (thread, pieces) in decoded.threads {
        let fits = |truth: &Vec<u64>| match setting.fault {
            None => pieces.concat() == *truth,
            Some(_) => are_parts(&pieces, truth),
        };
        let Some(place) = truths.iter().position(fits) else {
            return Err(format!(
                "thread {thread} decodes to what no thread executed"
            ));
        };
        truths.remove(place);
    }
    if setting.fault.is_none() && !truths.is_empty() {
        return Err(format!("{} threads are missing", truths.len()));
    }
    adds_up(&recorded.messages)
}

/// Of each thread, the pieces between losses; and the causes of those.
struct Decoded {
    threads: BTreeMap<u64, Vec<Vec<u64>>>,
    causes: Vec<String>,
}

impl Decoded {
    fn of(recorded: &Recorded) -> Self {
        let mut decoded = Self {
            threads: BTreeMap::new(),
            causes: Vec::new(),
        };
        for line in dump(&recorded.capture(), &["--instructions"]) {
            let thread = line["tid"].as_u64().unwrap();
            let pieces = decoded.threads.entry(thread).or_default();
            if let Some(cause) = line["loss"].as_str() {
                decoded.causes.push(cause.to_string());
                pieces.push(Vec::new());
            } else if let Some(ip) = line["ip"].as_str() {
                let ip = u64::from_str_radix(ip.trim_start_matches("0x"), 16).unwrap();
                if pieces.is_empty() {
                    pieces.push(Vec::new());
                }
                pieces.last_mut().unwrap().push(ip);
            }
        }
        decoded
    }
}

/// Whether the pieces, each without a gap, follow each other in `whole`.
fn are_parts(pieces: &[Vec<u64>], whole: &[u64]) -> bool {
    let mut from = 0;
    pieces
        .iter()
        .filter(|piece| !piece.is_empty())
        .all(|piece| {
            let found = whole[from..]
                .windows(piece.len())
                .position(|window| window == piece);
            from += found.map_or(0, |at| at + piece.len());
            found.is_some()
        })
}

/// How many faults of a kind the capture's note tells of.
fn injected(messages: &str, fault: &str) -> Result<u64, String> {
    let (_, rest) = messages
        .split_once("faults were injected on purpose")
        .ok_or("the capture does not tell of its faults")?;
    let (_, rest) = rest
        .split_once(&format!("{fault} "))
        .ok_or("no count of the faults")?;
    let digits = rest
        .split(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap_or_default();
    digits.parse().map_err(|_| format!("no number: {rest}"))
}

/// The bytes of the losses are those of the summary, and no more than there are.
fn adds_up(messages: &str) -> Result<(), String> {
    let line = messages.lines().find(|line| line.starts_with('{'));
    let line = line.ok_or_else(|| format!("no summary: {messages}"))?;
    let summary: serde_json::Value =
        serde_json::from_str(line).map_err(|error| error.to_string())?;
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let losses = summary["losses"].as_array().unwrap();
    let listed: u64 = losses.iter().map(|loss| number(&loss["bytes"])).sum();
    let (lost, all) = (
        number(&summary["lost_bytes"]),
        number(&summary["trace_bytes"]),
    );
    if listed == lost && lost <= all {
        Ok(())
    } else {
        Err(format!(
            "{listed} bytes are listed as lost, {lost} of {all} are counted"
        ))
    }
}
