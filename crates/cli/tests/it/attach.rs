//! Attaching to a running process, and leaving it as it was.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::perf;
use crate::recorded::{dump, fnv1a64, ptrail};

/// Computes, sleeps and checks itself until a line comes on its standard input; tells then what it
/// found: its signal mask, its CPUs, a sum, and how often a sleep was too short or the sum wrong.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <poll.h>
static volatile int beats;
static void *beat(void *unused) { for (;;) { usleep(1000); beats++; } return unused; }
static unsigned mix(unsigned seed) {
    for (int i = 0; i < 1000; i++) seed = seed * 1664525u + 1013904223u;
    return seed;
}
static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGTRAP);
    pthread_t thread;
    pthread_create(&thread, NULL, beat, NULL);
    pthread_sigmask(SIG_SETMASK, &set, NULL);
    unsigned expected = mix(1);
    int wrong = 0, rounds = 0;
    puts("ready");
    fflush(stdout);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, 0) == 0) {
        if (mix(1) != expected) wrong++;
        long before = milliseconds();
        usleep(2000);
        if (milliseconds() - before < 2) wrong++;
        rounds++;
    }
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    int before = beats;
    usleep(100000);
    printf("%d %d %d %d %d %d\n", wrong, sigismember(&set, SIGUSR1), sigismember(&set, SIGTRAP),
           sigismember(&set, SIGINT), CPU_COUNT(&cpus), beats - before > 3);
    return 0;
}
"#;

struct Target {
    child: Child,
    output: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
}

impl Target {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("t.c"), folder.path().join("target"));
        std::fs::write(&source, PROGRAM).unwrap();
        let status = Command::new("gcc")
            .args(["-O1", "-pthread", "-o"])
            .arg(&program)
            .arg(&source)
            .status()
            .unwrap();
        assert!(status.success());
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self {
            child,
            output,
            folder,
        }
    }

    fn attach(&self, options: &[&str]) -> Command {
        let file = |name: &str| self.folder.path().join(name);
        let mut command = ptrail();
        command
            .args(["attach", "-p", &self.child.id().to_string()])
            .args(options)
            .arg("-o")
            .arg(file("x.pftrace"))
            .arg("--keep-capture")
            .arg(file("perf.data"))
            .arg("--truth")
            .arg(file("truth"));
        command
    }

    /// What it says of itself.
    fn end(mut self) -> String {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        text
    }
}

/// Nothing wrong, both signals still blocked and no other, all CPUs, the other thread goes on.
fn untouched() -> String {
    let cpus = std::thread::available_parallelism().unwrap();
    format!("0 1 1 0 {cpus} 1\n")
}

#[test]
fn a_window_of_a_running_process_leaves_no_trace_in_it() {
    let target = Target::start();
    for limit in [1, 1000, 20_000] {
        let output = target
            .attach(&["--limit", &limit.to_string()])
            .output()
            .unwrap();
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{messages}");
        let note = "note      the process has 1 more threads, which were not recorded";
        assert!(messages.contains(note), "{messages}");
        let truth: Vec<u64> = std::fs::read(target.folder.path().join("truth"))
            .unwrap()
            .chunks_exact(8)
            .map(|ip| u64::from_le_bytes(ip.try_into().unwrap()))
            .collect();
        assert_eq!(truth.len(), limit);
        let capture = target.folder.path().join("perf.data");
        let digest = &dump(&capture, &["--instructions", "--digest"])[0];
        assert_eq!(digest["losses"], 0);
        assert_eq!(
            digest["ip_fnv1a64"].as_str(),
            Some(fnv1a64(&truth).as_str())
        );
        let (perf_ips, perf_errors) = perf::instructions(&capture);
        assert_eq!(perf_errors, Vec::<String>::new());
        assert!(perf_ips == truth);
    }
    assert_eq!(target.end(), untouched());
}

#[test]
fn ctrl_c_ends_the_recording_and_not_the_process() {
    let target = Target::start();
    let mut recorder = target.attach(&[]).stderr(Stdio::null()).spawn().unwrap();
    let traced = format!("/proc/{}/status", target.child.id());
    let is_traced = || {
        let status = std::fs::read_to_string(&traced).unwrap();
        !status.contains("TracerPid:\t0\n")
    };
    let begin = Instant::now();
    while !is_traced() {
        assert!(begin.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    let kill = ["-c", "kill -s INT $0", &recorder.id().to_string()].map(str::to_owned);
    assert!(Command::new("sh").args(kill).status().unwrap().success());
    assert!(recorder.wait().unwrap().success());
    assert!(target.folder.path().join("x.pftrace").exists());
    assert_eq!(target.end(), untouched());
}
