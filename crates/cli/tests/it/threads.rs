//! Programs of several threads and processes: each thread's trace is what it executed, for ptrail
//! and for perf.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use xtask::{Exit, Outcome};

use crate::perf;
use crate::recorded::{Recorded, dump, engines, fnv1a64};

/// Four threads that wait for each other, and ten one after the other.
const THREADS: &str = r#"
#include <pthread.h>
#include <stdio.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int total;
__attribute__((noinline)) static int work(int rounds) {
    int sum = 0;
    for (int i = 0; i < rounds; i++) sum += i % 7;
    return sum;
}
static void *run(void *extra) {
    for (int i = 0; i < 20; i++) {
        int sum = work(500 + (int)(long)extra);
        pthread_mutex_lock(&lock);
        total += sum;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}
int main(void) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 10; i++) {
        pthread_create(&threads[0], NULL, run, NULL);
        pthread_join(threads[0], NULL);
    }
    printf("%d\n", total);
    return 5;
}
"#;

fn build(folder: &Path, source: &str) -> String {
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    fs::write(&file, source).unwrap();
    let status = std::process::Command::new("gcc")
        .args(["-O1", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(&file)
        .status()
        .unwrap();
    assert!(status.success());
    program.to_str().unwrap().to_string()
}

/// Instructions and digest of each thread, as the recorder saw them.
fn executed(recorded: &Recorded) -> Vec<(u64, String)> {
    let mut threads: Vec<_> = recorded
        .truths()
        .iter()
        .map(|ips| (ips.len() as u64, fnv1a64(ips)))
        .collect();
    threads.sort();
    threads
}

/// The same, as ptrail decodes them.
fn decoded(recorded: &Recorded) -> Vec<(u64, String)> {
    let mut threads: Vec<_> = dump(&recorded.capture(), &["--instructions", "--digest"])
        .iter()
        .map(|thread| {
            assert_eq!(thread["losses"], 0, "{thread}");
            (
                thread["instructions"].as_u64().unwrap(),
                thread["ip_fnv1a64"].as_str().unwrap().to_string(),
            )
        })
        .collect();
    threads.sort();
    threads
}

/// The same, as perf decodes them.
fn decoded_by_perf(recorded: &Recorded) -> Vec<(u64, String)> {
    let (instructions, errors) = perf::instructions_of_threads(&recorded.capture());
    assert_eq!(errors, Vec::<String>::new());
    let mut threads: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (thread, ip) in instructions {
        threads.entry(thread).or_default().push(ip);
    }
    let mut threads: Vec<_> = threads
        .values()
        .map(|ips| (ips.len() as u64, fnv1a64(ips)))
        .collect();
    threads.sort();
    threads
}

fn check(options: &[&str], program: &[&str]) -> Recorded {
    let mut options = options.to_vec();
    options.extend(["--source", "qemu"]);
    let recorded = Recorded::new(&options, program, "");
    let executed = executed(&recorded);
    assert_eq!(decoded(&recorded), executed);
    assert_eq!(decoded_by_perf(&recorded), executed);
    recorded
}

#[test]
fn threads_that_wait_for_each_other() {
    if !engines().contains(&"qemu") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), THREADS);
    let native = Outcome::of_command(&mut std::process::Command::new(&program), "").unwrap();
    let recorded = check(&[], &[&program]);
    assert_eq!(recorded.outcome, native);
    assert_eq!(recorded.outcome.exit, Exit::Status(5));
    assert_eq!(recorded.truths().len(), 15);
}

#[test]
fn children_and_the_programs_that_they_become() {
    if !engines().contains(&"qemu") {
        return;
    }
    let recorded = check(
        &["--follow-forks"],
        &["bash", "-c", "echo one | cat; exec ls /usr"],
    );
    assert!(recorded.outcome.stdout.starts_with("one\nbin\n"));
    // bash, which becomes ls; its copy that echoes; cat.
    assert_eq!(recorded.truths().len(), 3);
}

#[test]
fn children_that_are_not_followed_run_by_themselves() {
    if !engines().contains(&"qemu") {
        return;
    }
    let recorded = check(&[], &["sh", "-c", "echo one | cat; exec ls /usr"]);
    assert!(recorded.outcome.stdout.starts_with("one\nbin\n"));
    assert_eq!(recorded.truths().len(), 1);
    let note = "note      the program started a child process, which was not recorded (2 times)";
    assert!(recorded.messages.contains(note), "{}", recorded.messages);
}

/// Programs that nobody built for tests, threads and all: output and end as always.
#[test]
fn everyday_programs() {
    if !engines().contains(&"qemu") {
        return;
    }
    let programs: [&[&str]; 3] = [
        &["/bin/ls", "/usr"],
        &[
            "bash",
            "-c",
            "for i in 1 2 3; do echo $((i * i)); done; exit 4",
        ],
        &["git", "--version"],
    ];
    for program in programs {
        let mut command = std::process::Command::new(program[0]);
        let Ok(native) = Outcome::of_command(command.args(&program[1..]), "") else {
            eprintln!("SKIPPED {}: it isn't installed here", program[0]);
            continue;
        };
        assert_eq!(check(&[], program).outcome, native, "{program:?}");
    }
}
