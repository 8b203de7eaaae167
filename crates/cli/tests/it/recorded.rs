//! Running ptrail on a program.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use xtask::{Exit, Outcome};

/// The program under test.
pub(crate) fn ptrail() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ptrail"))
}

/// Everything that a recording left behind.
pub(crate) struct Recorded {
    folder: TempDir,
    pub(crate) outcome: Outcome,
    /// What ptrail (and the program) wrote to standard error.
    pub(crate) messages: String,
    /// Addresses of the executed instructions, from the recorder itself.
    pub(crate) truth: Vec<u64>,
}

impl Recorded {
    /// Records `program` (an executable and its arguments) with further options of `ptrail run`; by
    /// single-stepping, unless they say otherwise.
    pub(crate) fn new<A: AsRef<std::ffi::OsStr>>(
        options: &[&str],
        program: &[A],
        stdin: &str,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let mut command = ptrail();
        command.arg("run").args(options);
        if !options.contains(&"--source") {
            command.args(["--source", "step"]);
        }
        command
            .arg("-o")
            .arg(file("trace.pftrace"))
            .arg("--keep-capture")
            .arg(file("perf.data"));
        command
            .arg("--truth")
            .arg(file("truth"))
            .arg("--")
            .args(program);
        command.stderr(std::fs::File::create(file("messages")).unwrap());
        let outcome = Outcome::of_command(&mut command, stdin).unwrap();
        let messages = std::fs::read_to_string(file("messages")).unwrap();
        let truth = addresses(&file("truth"));
        Self {
            folder,
            outcome,
            messages,
            truth,
        }
    }

    pub(crate) fn capture(&self) -> PathBuf {
        self.folder.path().join("perf.data")
    }

    /// What else the recorder knows of each instruction of the first thread: its file's extension;
    /// nothing if there is none.
    pub(crate) fn words(&self, extension: &str) -> Vec<u64> {
        addresses(&self.folder.path().join(format!("truth.{extension}")))
    }

    /// The truth of every thread; the first one's first.
    pub(crate) fn truths(&self) -> Vec<Vec<u64>> {
        let mut further: Vec<_> = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                let name = path.file_name().unwrap().to_str().unwrap();
                name.strip_prefix("truth.")
                    .is_some_and(|thread| thread.parse::<u32>().is_ok())
            })
            .collect();
        further.sort();
        let mut truths = vec![self.truth.clone()];
        truths.extend(further.iter().map(|path| addresses(path)));
        truths
    }

    pub(crate) fn timeline(&self) -> PathBuf {
        self.folder.path().join("trace.pftrace")
    }
}

/// A file of addresses; none if it is not there.
fn addresses(file: &Path) -> Vec<u64> {
    std::fs::read(file)
        .unwrap_or_default()
        .chunks_exact(8)
        .map(|ip| u64::from_le_bytes(ip.try_into().unwrap()))
        .collect()
}

/// The engines that this machine has.
pub(crate) fn engines() -> &'static [&'static str] {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join("qemu-x86_64").exists()) {
        &["step", "qemu"]
    } else {
        eprintln!("SKIPPED the engine qemu: there is no qemu-x86_64 (tools/setup.sh installs it)");
        &["step"]
    }
}

/// How ptrail itself ends when its program ends like this: as shells have it.
pub(crate) fn passed_through(exit: Exit) -> Exit {
    match exit {
        Exit::Signal(signal) => Exit::Status(128 + signal),
        status => status,
    }
}

/// Runs `ptrail dump` and returns its JSON lines.
pub(crate) fn dump(capture: &Path, what: &[&str]) -> Vec<Value> {
    let output = ptrail()
        .arg("dump")
        .arg(capture)
        .args(what)
        .arg("--json")
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ptrail dump {what:?}: {messages}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// FNV-1a 64 over addresses, each as 8 little-endian bytes.
pub(crate) fn fnv1a64(ips: &[u64]) -> String {
    let bytes = ips.iter().flat_map(|ip| ip.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}
