//! How recordings end: signals from outside, Ctrl-C, programs that go on.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::recorded::{dump, engines};
use crate::viewer;

/// A program that says when it is ready, counts its SIGINTs, and then does as its argument says.
const PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile sig_atomic_t caught;
static void on_interrupt(int signal) { (void)signal; caught++; }
__attribute__((noinline)) static void wait_here(void) { pause(); }
int main(int argc, char **argv) {
    int stays = argc > 1 && strcmp(argv[1], "stays") == 0;
    if (argc > 1)
        signal(SIGINT, on_interrupt);
    puts("ready");
    fflush(stdout);
    while (!caught)
        wait_here();
    for (int tenths = 0; tenths < (stays ? 40 : 2); tenths++)
        usleep(100000);
    printf("caught %d\n", (int)caught);
    return 7;
}
"#;

struct Running {
    child: Child,
    output: BufReader<Box<dyn Read + Send>>,
    folder: tempfile::TempDir,
}

impl Running {
    /// Starts `ptrail run` on the program, in a process group of its own, and waits until the
    /// program waits.
    fn start(engine: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = build(folder.path());
        // A test run in the background may have been told to ignore SIGINT, and programs inherit that.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_ptrail"), "run"])
            .arg("-o")
            .arg(folder.path().join("x.pftrace"));
        command
            .arg("--keep-capture")
            .arg(folder.path().join("perf.data"));
        command.args(["--source", engine, "--json", "--"]);
        command.arg(program).args(arguments);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().unwrap();
        let stdout: Box<dyn Read + Send> = Box::new(child.stdout.take().unwrap());
        let mut running = Self {
            child,
            output: BufReader::new(stdout),
            folder,
        };
        assert_eq!(running.line(), "ready\n");
        while running.program_state() != 'S' {
            std::thread::sleep(Duration::from_millis(10));
        }
        running
    }

    /// Process id of the recorded program.
    fn program(&self) -> String {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        std::fs::read_to_string(children)
            .unwrap()
            .trim()
            .to_string()
    }

    /// State of the recorded program: S while it sleeps in a system call, t or T while stopped.
    fn program_state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.program())).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    }

    fn kill_program(&self, signal: &str) {
        assert!(
            Command::new("sh")
                .args(["-c", "kill -s $0 $1", signal, &self.program()])
                .status()
                .unwrap()
                .success()
        );
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    fn kill(&self, signal: &str, group: bool) {
        let target = format!("{}{}", if group { "-" } else { "" }, self.child.id());
        // The shell's own: procps 4.0 takes a small process group for the number of a signal.
        let status = Command::new("sh")
            .args(["-c", "kill -s $0 -- $1", signal, &target])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// What the program still printed, how ptrail ended, and its summary.
    fn end(mut self) -> (String, ExitStatus, Value, tempfile::TempDir) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let mut messages = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut messages)
            .unwrap();
        let status = self.child.wait().unwrap();
        let summary = messages.lines().last().unwrap_or_default();
        let summary =
            serde_json::from_str(summary).unwrap_or_else(|_| panic!("no summary in: {messages}"));
        (rest, status, summary, self.folder)
    }
}

fn build(folder: &Path) -> std::path::PathBuf {
    let (source, program) = (folder.join("waits.c"), folder.join("waits"));
    std::fs::write(&source, PROGRAM).unwrap();
    let status = Command::new("gcc")
        .args(["-O1", "-static", "-o"])
        .arg(&program)
        .arg(&source)
        .status()
        .unwrap();
    assert!(status.success());
    program
}

fn end_of(summary: &Value) -> &str {
    summary["end"].as_str().unwrap()
}

/// The timeline shows the function in which the recording ended, cut.
fn assert_shown(folder: &tempfile::TempDir) {
    let timeline = folder.path().join("x.pftrace");
    let viewed = viewer::view(&timeline);
    assert_eq!(viewed.complaints, Vec::<Value>::new());
    assert!(viewed.slices.iter().any(|slice| slice.0 == "wait_here"));
    let spans = dump(&folder.path().join("perf.data"), &["--spans"]);
    let main = spans
        .iter()
        .find(|span| span["function"] == "main")
        .unwrap();
    assert!(
        main["flags"].as_array().unwrap().contains(&"cut".into()),
        "{main}"
    );
}

#[test]
fn a_signal_to_ptrail_alone_reaches_the_program_once() {
    for engine in engines() {
        let running = Running::start(engine, &["counts"]);
        running.kill("INT", false);
        let (rest, status, summary, _folder) = running.end();
        assert_eq!((rest.as_str(), status.code()), ("caught 1\n", Some(7)));
        assert_eq!(
            end_of(&summary),
            "the program exited with status 7 after Ctrl-C"
        );
    }
}

#[test]
fn a_signal_to_the_process_group_reaches_the_program_once() {
    for engine in engines() {
        let running = Running::start(engine, &["counts"]);
        running.kill("INT", true);
        let (rest, status, _summary, _folder) = running.end();
        assert_eq!((rest.as_str(), status.code()), ("caught 1\n", Some(7)));
    }
}

#[test]
fn ctrl_c_in_a_terminal_reaches_the_program_once() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path());
    // Without `exec`, a shell that SIGINT reaches too would end with 130 (dash does, bash doesn't).
    let line = format!(
        "exec env --default-signal=INT {} run --source step -q -o {}/x.pftrace -- {} counts",
        env!("CARGO_BIN_EXE_ptrail"),
        folder.path().display(),
        program.display()
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("script runs (package bsdutils)");
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    output.read_line(&mut text).unwrap();
    assert_eq!(text.trim_end(), "ready");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"\x03").unwrap();
    text.clear();
    output.read_to_string(&mut text).unwrap();
    assert!(text.contains("caught 1"), "{text}");
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert!(folder.path().join("x.pftrace").exists());
}

#[test]
fn a_program_that_does_not_end_after_ctrl_c_goes_on_unrecorded() {
    for engine in engines() {
        let running = Running::start(engine, &["stays"]);
        running.kill("INT", true);
        let (rest, status, summary, folder) = running.end();
        assert_eq!((rest.as_str(), status.code()), ("caught 1\n", Some(7)));
        assert_eq!(
            end_of(&summary),
            "stopped by Ctrl-C before the program ended"
        );
        assert_eq!(summary["losses"], serde_json::json!([]));
        assert_shown(&folder);
    }
}

#[test]
fn ctrl_c_that_kills_the_program_leaves_its_timeline() {
    for engine in engines() {
        let running = Running::start(engine, &[]);
        running.kill("INT", true);
        let (_rest, status, summary, folder) = running.end();
        assert_eq!(status.code(), Some(128 + 2));
        assert!(
            end_of(&summary).starts_with("the program was killed by signal 2 (SIGINT)"),
            "{summary}"
        );
        assert_shown(&folder);
    }
}

#[test]
fn a_killed_program_leaves_its_timeline() {
    for engine in engines() {
        let running = Running::start(engine, &[]);
        running.kill_program("KILL");
        let (_rest, status, summary, folder) = running.end();
        assert_eq!(status.code(), Some(128 + 9));
        assert_eq!(
            end_of(&summary),
            "the program was killed by signal 9 (SIGKILL)"
        );
        assert_shown(&folder);
    }
}

#[test]
fn a_stopped_program_can_be_continued() {
    for engine in engines() {
        let running = Running::start(engine, &["counts"]);
        running.kill_program("STOP");
        while !matches!(running.program_state(), 't' | 'T') {
            std::thread::sleep(Duration::from_millis(10));
        }
        running.kill_program("CONT");
        running.kill_program("INT");
        let (rest, status, _summary, _folder) = running.end();
        assert_eq!((rest.as_str(), status.code()), ("caught 1\n", Some(7)));
    }
}

/// The kernel ends the program with its tracer, or it would go on half-stepped.
#[test]
fn a_killed_ptrail_takes_the_program_with_it() {
    for engine in engines() {
        let mut running = Running::start(engine, &[]);
        let program = running.program();
        running.kill("KILL", false);
        assert_eq!(running.child.wait().unwrap().signal(), Some(9));
        // In a container nobody may be there to reap it: a zombie has ended, too.
        let stat = format!("/proc/{program}/stat");
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!running.folder.path().join("x.pftrace").exists());
    }
}
