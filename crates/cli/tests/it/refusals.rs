//! What ptrail says, and how it exits, where something is wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::recorded::ptrail;

fn file(folder: &Path, name: &str, contents: &[u8], mode: u32) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, contents).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// The first 64 bytes of an ELF program.
fn elf(class: u8, machine: u8) -> Vec<u8> {
    let mut header = vec![0; 64];
    header[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
    header[16] = 2;
    header[18] = machine;
    header
}

/// Runs ptrail in `folder`; it must refuse with status 1 and one line that holds `parts`.
fn refuses(command: &mut Command, parts: &[&str]) {
    let Output { status, stderr, .. } = command.output().unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{message}");
    assert!(message.starts_with("ptrail: "), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

fn refuses_to_run(folder: &Path, program: &str, parts: &[&str]) {
    refuses(
        ptrail().current_dir(folder).args(["run", "--", program]),
        parts,
    );
    let left: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().contains("pftrace")),
        "{left:?}"
    );
}

#[test]
fn programs_that_cannot_be_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    file(folder, "here", b"#!/bin/sh\n", 0o755);
    file(folder, "plain", &elf(2, 62), 0o644);
    file(folder, "text", b"hello\n", 0o755);
    file(folder, "old", &elf(1, 3), 0o755);
    file(folder, "arm", &elf(2, 183), 0o755);
    file(folder, "cut", &elf(2, 62)[..20], 0o755);
    file(folder, "empty", b"", 0o755);
    file(folder, "script", b"#!/nonexistent/interpreter -x\n", 0o755);
    refuses_to_run(
        folder,
        "no-such-program",
        &["no-such-program: no such program in PATH"],
    );
    refuses_to_run(
        folder,
        "here",
        &["no such program in PATH; did you mean ./here?"],
    );
    refuses_to_run(folder, "./nowhere", &["./nowhere: no such program"]);
    refuses_to_run(folder, "./plain", &["not executable", "chmod +x"]);
    refuses_to_run(folder, "/usr", &["is a folder, not a program"]);
    refuses_to_run(folder, "./text", &["neither an ELF program nor a script"]);
    refuses_to_run(folder, "./empty", &["neither an ELF program nor a script"]);
    refuses_to_run(folder, "./old", &["is a 32-bit program", "64-bit x86"]);
    refuses_to_run(folder, "./arm", &["64-bit ARM"]);
    refuses_to_run(folder, "./cut", &["cut off within its ELF header"]);
    refuses_to_run(
        folder,
        "./script",
        &["/nonexistent/interpreter", "No such file"],
    );
}

/// Copies ptrail to where an unprivileged user can run it.
fn ptrail_for_others(folder: &Path) -> PathBuf {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let copy = folder.join("ptrail");
    fs::copy(env!("CARGO_BIN_EXE_ptrail"), &copy).unwrap();
    copy
}

/// A command run as nobody; as ourselves, if we are nobody in particular.
fn as_nobody(program: &Path) -> Command {
    let is_root =
        String::from_utf8(Command::new("id").arg("-u").output().unwrap().stdout).unwrap() == "0\n";
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(program);
    command
}

#[test]
fn a_set_user_id_program_as_an_ordinary_user() {
    let folder = tempfile::tempdir().unwrap();
    let ptrail = ptrail_for_others(folder.path());
    // /usr/bin/su is root's and set-user-ID on every Debian and Ubuntu.
    let mut command = as_nobody(&ptrail);
    refuses(
        command
            .current_dir(folder.path())
            .args(["run", "--", "su", "--version"]),
        &["is setuid", "Run ptrail as root", "cp "],
    );
}

#[test]
fn an_ordinary_user_can_record() {
    let folder = tempfile::tempdir().unwrap();
    let ptrail = ptrail_for_others(folder.path());
    let output = as_nobody(&ptrail)
        .current_dir(folder.path())
        .args(["run", "--", "true"])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && message.contains("losses    none"),
        "{message}"
    );
}

/// Forbids ptrace, as a container's seccomp filter does, and runs its arguments.
const WITHOUT_PTRACE: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { 4, filter };
    if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 99;
    execv(argv[1], argv + 1);
    return 98;
}
"#;

#[test]
fn ptrace_forbidden_by_seccomp() {
    let folder = tempfile::tempdir().unwrap();
    let source = file(folder.path(), "filter.c", WITHOUT_PTRACE.as_bytes(), 0o644);
    let filter = folder.path().join("filter");
    assert!(
        Command::new("gcc")
            .arg("-o")
            .arg(&filter)
            .arg(&source)
            .status()
            .unwrap()
            .success()
    );
    let mut command = Command::new(&filter);
    command
        .arg(env!("CARGO_BIN_EXE_ptrail"))
        .current_dir(folder.path());
    refuses(
        command.args(["run", "--source", "step", "--", "/bin/true"]),
        &[
            "cannot trace programs here",
            "Operation not permitted",
            "seccomp",
            "--cap-add SYS_PTRACE",
        ],
    );
}

#[test]
fn outputs_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let run = |output: &str| {
        let mut command = ptrail();
        command
            .current_dir(folder.path())
            .args(["run", "-o", output, "--", "/bin/true"]);
        command
    };
    refuses(
        &mut run("x.svg"),
        &["x.svg", "which format", ".pftrace", ".json"],
    );
    refuses(
        &mut run("missing/x.json"),
        &["cannot write missing/x.json", "the folder missing"],
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_full_disk_keeps_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.json");
    std::os::unix::fs::symlink("/dev/full", &output).unwrap();
    let mut command = ptrail();
    command
        .current_dir(folder.path())
        .args(["run", "-o", "x.json", "--", "/bin/true"]);
    let Output { status, stderr, .. } = command.output().unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{message}");
    assert!(message.contains("No space left on device"), "{message}");
    let kept = message
        .split("kept in ")
        .nth(1)
        .and_then(|rest| rest.split(", but").next())
        .unwrap();
    let decoded = ptrail()
        .current_dir(folder.path())
        .args(["decode", kept, "-o", "y.json"])
        .output()
        .unwrap();
    assert!(decoded.status.success(), "{decoded:?}");
    fs::remove_dir_all(Path::new(kept).parent().unwrap()).unwrap();
}

#[test]
fn inputs_that_are_no_capture() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut recording = ptrail();
    recording.current_dir(folder).args([
        "run",
        "--keep-capture",
        "whole",
        "--capture-only",
        "--",
        "/bin/true",
    ]);
    assert!(recording.output().unwrap().status.success());
    let whole = fs::read(folder.join("whole")).unwrap();
    file(folder, "cut", &whole[..100], 0o644);
    file(folder, "other", b"\x89PNG\r\n\x1a\n and so on", 0o644);
    file(folder, "empty", b"", 0o644);
    let status = Command::new("perf")
        .current_dir(folder)
        .args([
            "record",
            "-q",
            "-e",
            "task-clock",
            "-o",
            "plain",
            "--",
            "/bin/true",
        ])
        .output()
        .unwrap()
        .status;
    assert!(status.success());
    for (input, parts) in [
        ("missing", &["missing", "not found"][..]),
        ("other", &["other is not a perf.data file", "perf record"]),
        ("empty", &["empty"]),
        ("cut", &["cut", "cut short"]),
        (
            "plain",
            &[
                "plain was recorded without intel_pt",
                "perf record -e intel_pt",
            ],
        ),
        (".", &["."]),
    ] {
        refuses(ptrail().current_dir(folder).args(["decode", input]), parts);
        refuses(
            ptrail()
                .current_dir(folder)
                .args(["dump", input, "--spans"]),
            parts,
        );
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [
        &["run"][..],
        &["decode"],
        &["dump", "x"],
        &["frobnicate"],
        &["run", "--timing", "x", "true"],
    ] {
        assert_eq!(
            ptrail().args(arguments).output().unwrap().status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_reader_that_has_read_enough_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = ptrail();
    recording.current_dir(folder.path());
    recording.args([
        "run",
        "--keep-capture",
        "perf.data",
        "--capture-only",
        "--",
        "/bin/true",
    ]);
    assert!(recording.output().unwrap().status.success());
    let line = format!(
        "set -o pipefail; {} dump perf.data --instructions | head -n 1",
        env!("CARGO_BIN_EXE_ptrail")
    );
    let output = Command::new("bash")
        .current_dir(folder.path())
        .args(["-c", &line])
        .output()
        .unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}
