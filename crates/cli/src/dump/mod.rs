//! `ptrail dump`: what a capture holds, one line an item.

mod branches;
mod instructions;
#[cfg(feature = "libipt")]
mod libipt;
mod packet_text;
mod packets;
mod places;
mod source;
mod spans;
mod statistics;

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

use anyhow::{Context, Result};
use ptrail_flow::Sink;
use ptrail_pipeline::{Session, Stream};
use ptrail_pt::Picos;
use ptrail_trace::Filter;

use crate::args::{DumpArgs, Engine};
use branches::BranchLines;
use instructions::{InstructionLines, digest};
use places::Places;
use spans::SpanLines;

pub(crate) fn dump(args: &DumpArgs) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    if args.packets {
        packets::packets(args, &mut out)?;
    } else {
        decoded(args, &mut out)?;
    }
    out.flush().context("standard output")
}

/// What needs the code that the packets ran through.
fn decoded(args: &DumpArgs, out: &mut impl Write) -> Result<()> {
    let input = args.input.open()?;
    let mut session = Session::with(&input.capture, &input.code)?;
    if let Some(threads) = args.threads {
        session.set_threads(threads);
    }
    if args.spans {
        let mut lines = SpanLines {
            out,
            json: args.json,
            functions: HashMap::new(),
            failed: None,
        };
        let selection = args.selection.selection()?;
        if selection.is_everything() {
            session.run(&mut lines, &mut |_| {})?;
        } else {
            session.run(&mut Filter::new(&selection, &mut lines), &mut |_| {})?;
        }
        return Ok(lines.failed.map_or(Ok(()), Err)?);
    }
    for stream in session.streams() {
        if !args.json && !args.digest {
            writeln!(
                out,
                "# {} pid {} tid {}",
                stream.name, stream.pid, stream.tid
            )?;
        }
        if args.branches {
            let lines = BranchLines {
                out,
                json: args.json,
                tid: stream.tid,
                at: Picos(0),
                failed: None,
            };
            walk(&session, stream, lines)?;
        } else if args.digest {
            digest(&session, stream, args.engine, args.json, out)?;
        } else {
            let mut lines = InstructionLines {
                out,
                json: args.json,
                tid: stream.tid,
                places: args.lines.then(|| Places::new(&session, stream)),
                at: Picos(0),
                failed: None,
            };
            match args.engine {
                Engine::Ptrail => walk(&session, stream, lines)?,
                Engine::Libipt => {
                    walk_by_libipt(&session, stream, &mut lines)?;
                    lines.take_error().map_or(Ok(()), Err)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(feature = "libipt")]
use libipt::walk as walk_by_libipt;

#[cfg(not(feature = "libipt"))]
fn walk_by_libipt(_: &Session<'_>, _: &Stream<'_>, _: &mut impl Sink) -> Result<()> {
    anyhow::bail!(
        "this ptrail was built without libipt; with cmake and libclang installed, \
         `cargo build --release --features libipt` builds one that has it"
    )
}

/// A sink that writes lines and remembers the first error.
trait Lines: Sink {
    fn take_error(&mut self) -> Option<io::Error>;
}

fn walk<L: Lines>(session: &Session<'_>, stream: &Stream<'_>, mut lines: L) -> Result<()> {
    session.walk(stream, &mut lines, |lines, _, _| {
        lines.take_error().map_or(Ok(()), Err)
    })?;
    Ok(())
}

/// Nanoseconds with the picoseconds behind the point.
fn nanoseconds(time: Picos) -> String {
    format!("{}.{:03}", time.0 / 1000, time.0 % 1000)
}
