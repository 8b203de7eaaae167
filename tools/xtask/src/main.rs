//! `cargo xtask COMMAND`: what a contributor runs.
//!
//! ```text
//! cargo xtask ci         format, lints, tests, licences: what must pass before a change goes in
//! cargo xtask testdata   compiles testdata/programs and checks what each program prints
//! cargo xtask consumers  opens timelines and profiles in programs too heavy for every test run
//! cargo xtask matrix     every test program with every setting of the trace unit, and with faults
//! cargo xtask hardware-test
//!                        what needs a CPU with Intel PT; prints a report to send
//! cargo xtask bench decode [TRACE…]
//!                        this decoder and others on the same traces
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr)] // This is a command line; its messages are its product.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use xtask::{Corpus, Outcome, workspace_root};

const HELP: &str = "\
cargo xtask ci         format, lints, tests, licences: what must pass before a change goes in
cargo xtask testdata   compiles testdata/programs and checks what each program prints
cargo xtask consumers  opens timelines and profiles in programs too heavy for every test run: installs
                       them (tools/consumers/setup_all.sh), then runs the tests
cargo xtask matrix     records every test program with every setting of the trace unit, and with
                       faults, and compares what is decoded with what executed (half an hour)
cargo xtask hardware-test
                       what needs a CPU with Intel PT, and skips itself elsewhere; prints a report to send
cargo xtask bench decode [TRACE…]
                       this decoder and others, in turn on the same traces: perf.data files, or
                       folders with trace.pt, pages.addr and pages.dump; without TRACE, on captures
                       of its own. BENCH_FEATURES=libipt adds libipt (needs cmake and libclang)";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["ci"] => ci(),
        ["testdata"] => testdata(),
        ["consumers"] => consumers(),
        ["matrix"] => matrix(),
        ["hardware-test"] => hardware_test(),
        ["bench", "decode", ref traces @ ..] => bench_decode(traces),
        ["help" | "-h" | "--help"] => {
            eprintln!("{HELP}");
            Ok(())
        }
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn ci() -> Result<()> {
    cargo_if_installed("fmt", &["--all", "--check"])?;
    cargo_if_installed(
        "clippy",
        &["--workspace", "--all-targets", "--", "-D", "warnings"],
    )?;
    cargo("test", &["--workspace", "--exclude", "ptrail-bench"])?;
    // Without the advisories: they need the network, and a new one is no fault of the change at hand.
    cargo_if_installed("deny", &["check", "bans", "licenses", "sources"])
}

fn consumers() -> Result<()> {
    let script = workspace_root().join("tools/consumers/setup_all.sh");
    let output = Command::new(&script)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| script.display().to_string())?;
    if !output.status.success() {
        bail!("{}: {}", script.display(), output.status);
    }
    let folder = PathBuf::from(String::from_utf8(output.stdout)?.trim_end());
    let path = env::var_os("PATH").unwrap_or_default();
    let mut path: Vec<_> = env::split_paths(&path).collect();
    path.insert(0, folder.join("node24/bin"));
    let status = Command::new(env!("CARGO"))
        .args([
            "test",
            "-p",
            "ptrail-export",
            "-p",
            "ptrail",
            "--test",
            "consumers",
        ])
        .env("PATH", env::join_paths(path)?)
        .env("PYTHONPATH", folder.join("python"))
        .env("PTRAIL_CONSUMERS", &folder)
        .current_dir(workspace_root())
        .status()?;
    if !status.success() {
        bail!("cargo test: {status}");
    }
    Ok(())
}

fn matrix() -> Result<()> {
    cargo_with(
        "test",
        &[
            "-p",
            "ptrail",
            "--test",
            "it",
            "matrix",
            "--",
            "--nocapture",
        ],
        &[("PTRAIL_WHOLE_MATRIX", "1")],
    )
}

/// What this machine says of itself, then the tests that need its trace unit, with all that they print.
fn hardware_test() -> Result<()> {
    cargo("run", &["-q", "-p", "ptrail", "--", "check"])?;
    let tests = ["-p", "ptrail-record", "--test", "it", "hardware::"];
    let shown = ["--", "--nocapture", "--test-threads", "1"];
    cargo("test", &[&tests[..], &shown[..]].concat())
}

fn bench_decode(traces: &[&str]) -> Result<()> {
    cargo("build", &["--release", "-p", "ptrail"])?;
    let own = if traces.is_empty() {
        record_for_bench()?
    } else {
        Vec::new()
    };
    let features = env::var("BENCH_FEATURES").unwrap_or_default();
    let mut arguments = vec!["--release", "-p", "ptrail-bench", "--features", &features];
    arguments.extend(["--", "decode"]);
    arguments.extend(traces);
    arguments.extend(own.iter().map(String::as_str));
    cargo("run", &arguments)
}

/// Records small and large code, with and without CYC, some 200 million instructions each.
fn record_for_bench() -> Result<Vec<String>> {
    let folder = target_folder().join("bench");
    std::fs::create_dir_all(&folder)?;
    let spin = folder.join("spin");
    let source = workspace_root().join("tools/bench/programs/spin.c");
    run(Command::new("cc")
        .arg("-O2")
        .arg("-o")
        .arg(&spin)
        .arg(source))?;
    let spin = spin.to_string_lossy().into_owned();
    const PYTHON: &str = "import json, re, random\n\
        text = json.dumps([{'a': i, 'b': [str(i) * 3]} for i in range(3000)])\n\
        json.loads(text)\n\
        print(len(re.findall(r'\\d+', text)))";
    let programs: [(&str, &str, &[&str]); 4] = [
        ("spin-mtc", "mtc", &[&spin, "4"]),
        ("spin-cyc", "cyc", &[&spin, "4"]),
        ("python-mtc", "mtc", &["/usr/bin/python3", "-c", PYTHON]),
        ("python-cyc", "cyc", &["/usr/bin/python3", "-c", PYTHON]),
    ];
    let mut captures = Vec::new();
    for (name, timing, program) in programs {
        let capture = folder.join(name).with_extension("data");
        let mut command = Command::new(target_folder().join("release/ptrail"));
        command.args(["run", "-q", "--source", "qemu", "--capture-only"]);
        command
            .args(["--timing", timing, "--keep-capture"])
            .arg(&capture);
        run(command.arg("--").args(program))?;
        captures.push(capture.to_string_lossy().into_owned());
    }
    Ok(captures)
}

fn target_folder() -> std::path::PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace_root().join("target"), Into::into)
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| program.clone())?;
    anyhow::ensure!(status.success(), "{program}: {status}");
    Ok(())
}

fn testdata() -> Result<()> {
    let corpus = Corpus::load()?;
    let mut runs = 0;
    for program in corpus.programs() {
        for variant in &program.variants {
            let executable = corpus.build(program, variant)?;
            Outcome::of_running(&executable, program)
                .and_then(|outcome| program.check(&outcome))
                .with_context(|| format!("{} {}", program.name, variant.name))?;
            runs += 1;
        }
    }
    let programs = corpus.programs().len();
    eprintln!("{programs} programs in {runs} variants do what the manifest says");
    Ok(())
}

/// Runs a cargo command that comes as a component or crate of its own, and says so if it isn't there.
fn cargo_if_installed(command: &str, arguments: &[&str]) -> Result<()> {
    let installed = Command::new(cargo_program())
        .args([command, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?
        .success();
    if installed {
        return cargo(command, arguments);
    }
    eprintln!("xtask: SKIPPED cargo {command}: it isn't installed here");
    Ok(())
}

fn cargo(command: &str, arguments: &[&str]) -> Result<()> {
    cargo_with(command, arguments, &[])
}

fn cargo_with(command: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    eprintln!("xtask: cargo {command} {}", arguments.join(" "));
    let start = Instant::now();
    let status = Command::new(cargo_program())
        .arg(command)
        .args(arguments)
        .current_dir(workspace_root())
        .env("PATH", path_with_tools()?)
        .envs(variables.iter().copied())
        .status()
        .with_context(|| format!("can't start cargo {command}"))?;
    if !status.success() {
        bail!("cargo {command} failed ({status})");
    }
    let seconds = start.elapsed().as_secs();
    eprintln!("xtask: cargo {command} took {seconds} s");
    Ok(())
}

fn cargo_program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// `PATH` with the folder where `tools/setup.sh` puts tools that the system keeps outside of it.
fn path_with_tools() -> Result<OsString> {
    let mut folders = vec![workspace_root().join("target/tools")];
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    env::join_paths(folders).context("the workspace's path has a colon in it")
}
