//! `ptrail decode`.

use std::io::{self, Write};

use anyhow::{Context, Result};
use ptrail_pipeline::Session;

use crate::args::DecodeArgs;
use crate::report;
use crate::write::write;

pub(crate) fn decode(args: &DecodeArgs) -> Result<()> {
    let input = args.input.raw.as_ref().or(args.input.input.as_ref());
    let name = input.and_then(|path| path.file_name()).unwrap_or_default();
    let targets = args.outputs.targets(name)?;
    // A wrong one is said before any work is done.
    args.outputs.selection.selection()?;
    let input = args.input.open()?;
    let mut session = Session::with(&input.capture, &input.code)?;
    if let Some(threads) = args.threads {
        session.set_threads(threads);
    }
    let report = report::Report {
        written: &write(&session, &targets, &args.outputs, args.quiet)?,
        extra: input.capture.extra.as_ref(),
        targets: &targets,
    };
    let text = if args.json {
        report.json()
    } else {
        report.text()
    };
    io::stdout()
        .write_all(text.as_bytes())
        .context("standard output")?;
    Ok(())
}
