//! A program that does what it is told.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) struct Target {
    pub(crate) child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub(crate) landing: u64,
    pub(crate) folder: tempfile::TempDir,
}

impl Target {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("target");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/target.c");
        let status = Command::new("gcc")
            .args(["-O2", "-pthread", "-o"])
            .arg(&program)
            .arg(source)
            .status()
            .unwrap();
        assert!(status.success());
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut target = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            landing: 0,
            folder,
        };
        target.landing = address(&target.answer());
        target
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Orders something, and does not wait for it.
    pub(crate) fn order(&mut self, order: &str) {
        self.input.write_all(order.as_bytes()).unwrap();
        self.input.write_all(b"\n").unwrap();
    }

    /// Its next line.
    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub(crate) fn does(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn address(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}
