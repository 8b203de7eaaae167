//! `ptrail decode`, and the second half of `ptrail run`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ptrail_export::{Format, create};
use ptrail_pipeline::{Session, Summary};
use ptrail_trace::Fanout;

use crate::args::DecodeArgs;
use crate::progress::Line;
use crate::report;

pub(crate) fn decode(args: &DecodeArgs) -> Result<()> {
    let outputs = if args.outputs.is_empty() {
        let input = args.input.raw.as_ref().or(args.input.input.as_ref());
        let mut name = input
            .and_then(|path| path.file_name())
            .unwrap_or_default()
            .to_os_string();
        name.push(".pftrace");
        vec![PathBuf::from(name)]
    } else {
        args.outputs.clone()
    };
    let formats = formats(&outputs)?;
    let input = args.input.open()?;
    let mut session = Session::with(&input.capture, &input.code)?;
    if let Some(threads) = args.threads {
        session.set_threads(threads);
    }
    let summary = write(&session, &formats, args.quiet)?;
    let report = report::Report {
        summary: &summary,
        extra: input.capture.extra.as_ref(),
        outputs: &outputs,
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

/// The format of each output, so that a wrong name is said before any work is done.
pub(crate) fn formats(outputs: &[PathBuf]) -> Result<Vec<(Format, &Path)>> {
    outputs
        .iter()
        .map(|path| match Format::from_path(path) {
            Some(format) => Ok((format, path.as_path())),
            None => bail!(
                "{}: the name does not say which format to write; end it in one of {}",
                path.display(),
                known_extensions()
            ),
        })
        .collect()
}

fn known_extensions() -> String {
    let all = Format::ALL.iter().flat_map(|format| format.extensions());
    all.map(|extension| format!(".{extension}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Decodes a capture into all outputs in one pass.
pub(crate) fn write(
    session: &Session<'_>,
    outputs: &[(Format, &Path)],
    quiet: bool,
) -> Result<Summary> {
    let mut sinks: Vec<_> = outputs
        .iter()
        .map(|&(format, path)| create(format, path))
        .collect::<Result<_, _>>()?;
    let mut fanout = Fanout::new();
    for sink in &mut sinks {
        fanout.push(sink.as_mut());
    }
    let mut line = Line::new(quiet);
    let summary = session.run(&mut fanout, &mut |progress| {
        line.decoding(progress.done, progress.total)
    })?;
    Ok(summary)
}
