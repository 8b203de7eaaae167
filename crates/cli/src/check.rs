//! `ptrail check`: what this machine can record.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use ptrail_emulate::{Program, Qemu};
use ptrail_record::check::{Finding, Verdict, findings};
use ptrail_record::facts::Facts;
use ptrail_record::trials::Trials;
use serde_json::json;

use crate::args::CheckArgs;

pub(crate) fn check(args: &CheckArgs) -> Result<()> {
    let facts = Facts::read(Path::new("/"));
    let trials = Trials::run(&facts);
    let mut found = findings(&facts, &trials);
    let (software, used) = software();
    found.extend(software);
    let text = if args.json {
        as_json(&found, used)
    } else {
        as_text(&found, used)
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// The software recorder's engines, and which of them `ptrail run` takes.
fn software() -> (Vec<Finding>, &'static str) {
    let own = Program::find(vec!["/proc/self/exe".into()]);
    let qemu = own.and_then(|program| Qemu::find(&program).map(|_| ()));
    let used = if qemu.is_ok() { "qemu" } else { "step" };
    let finding = |topic, verdict, text: &str| Finding {
        topic,
        verdict,
        text: text.to_owned(),
        cure: None,
    };
    let qemu = match qemu {
        Ok(()) => finding(
            "software: qemu",
            Verdict::Yes,
            "some 100 million instructions a second, with a virtual clock",
        ),
        Err(error) => finding("software: qemu", Verdict::No, &error.to_string()),
    };
    let step = finding(
        "software: step",
        Verdict::Yes,
        "some 35,000 instructions a second, with a virtual clock; needs nothing",
    );
    (vec![qemu, step], used)
}

fn as_text(found: &[Finding], used: &str) -> String {
    let width = found.iter().map(|f| f.topic.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding {
        topic,
        verdict,
        text: what,
        cure,
    } in found
    {
        let _ = writeln!(text, "{:<6}  {topic:<width$}  {what}", verdict.name());
        if let Some(cure) = cure {
            let _ = writeln!(text, "        {:width$}  → {cure}", "");
        }
    }
    let _ = writeln!(
        text,
        "\n`ptrail run` records with the software recorder, engine {used}."
    );
    text
}

fn as_json(found: &[Finding], used: &str) -> String {
    let findings: Vec<_> = found
        .iter()
        .map(|finding| {
            json!({
                "topic": finding.topic,
                "verdict": finding.verdict.name(),
                "text": finding.text,
                "cure": finding.cure,
            })
        })
        .collect();
    format!("{}\n", json!({ "findings": findings, "run_uses": used }))
}
