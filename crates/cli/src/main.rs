//! The command line of ptrail: arguments in, messages out; the work is done by the crates below.

#![forbid(unsafe_code)]

mod args;
mod check;
mod decode;
mod dump;
mod info;
mod input;
mod occasion;
mod open;
mod outputs;
mod pack;
mod progress;
mod report;
mod run;
mod write;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Run(args) => run::run(args),
        Command::Attach(args) => run::attach(args),
        Command::Check(args) => check::check(&args).map(|()| ExitCode::SUCCESS),
        Command::Decode(args) => decode::decode(&args).map(|()| ExitCode::SUCCESS),
        Command::Info(args) => info::info(&args).map(|()| ExitCode::SUCCESS),
        Command::Open(args) => open::open(&args).map(|()| ExitCode::SUCCESS),
        Command::Pack(args) => pack::pack(&args).map(|()| ExitCode::SUCCESS),
        Command::Dump(args) => dump::dump(&args).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        if is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        let _ = writeln!(io::stderr(), "ptrail: {error:#}");
        ExitCode::FAILURE
    })
}

/// Whoever read our output has read enough (`| head`).
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
