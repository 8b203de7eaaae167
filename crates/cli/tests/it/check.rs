//! `ptrail check` on this machine, as several users.

use std::process::Command;

use serde_json::Value;

use crate::recorded::ptrail;

fn check(command: &mut Command) -> Vec<Value> {
    let output = command.output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    all["findings"].as_array().unwrap().clone()
}

fn about<'a>(findings: &'a [Value], topic: &str) -> &'a Value {
    let found = findings.iter().find(|finding| finding["topic"] == topic);
    found.unwrap_or_else(|| panic!("nothing about {topic}: {findings:?}"))
}

fn has_trace_unit() -> bool {
    std::path::Path::new("/sys/bus/event_source/devices/intel_pt").exists()
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.contains("Uid:\t0\t0")
}

#[test]
fn it_tells_the_truth_about_the_trace_unit() {
    let findings = check(ptrail().args(["check", "--json"]));
    let unit = about(&findings, "trace unit");
    if has_trace_unit() {
        assert_ne!(unit["verdict"], Value::Null);
    } else {
        assert_eq!(unit["verdict"], "no");
        let text = unit["text"].as_str().unwrap();
        assert!(text.contains("intel_pt does not exist"), "{text}");
    }
    let text = ptrail().arg("check").output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("`ptrail run` records with"), "{text}");
    for finding in &findings {
        assert!(text.contains(finding["text"].as_str().unwrap()), "{text}");
        if let Some(cure) = finding["cure"].as_str() {
            assert!(text.contains(cure), "{text}");
        }
    }
}

/// Runs a copy of ptrail that others may run too, as another user with these options of `setpriv`.
fn check_as(options: &[&str]) -> Vec<Value> {
    let folder = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let copy = folder.path().join("ptrail");
    std::fs::copy(ptrail().get_program(), &copy).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    check(
        Command::new("setpriv")
            .args(options)
            .arg(&copy)
            .args(["check", "--json"]),
    )
}

/// The kernel says yes or no to the dummy, the breakpoint, the uprobe; the finding says the same, and
/// the cure is the one for this level.
#[test]
fn a_user_without_rights_gets_the_cures() {
    if !is_root() {
        eprintln!("SKIPPED: only root can become another user");
        return;
    }
    let findings = check_as(&["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    let paranoid: i32 = paranoid.trim().parse().unwrap();
    let kernel = about(&findings, "kernel code");
    assert_eq!(kernel["verdict"], if paranoid > 1 { "no" } else { "yes" });
    if paranoid > 1 {
        let cure = kernel["cure"].as_str().unwrap();
        assert!(cure.contains("kernel.perf_event_paranoid="), "{cure}");
        let cpus = about(&findings, "whole CPUs")["text"].as_str().unwrap();
        assert!(
            cpus.contains(&format!("perf_event_paranoid is {paranoid}")),
            "{cpus}"
        );
    }
    assert_eq!(about(&findings, "uprobes")["verdict"], "no");
    let uprobes = about(&findings, "uprobes")["text"].as_str().unwrap();
    assert!(uprobes.contains("CAP_SYS_ADMIN"), "{uprobes}");
}

/// What the cure for the kernel's code says works: CAP_PERFMON.
#[test]
fn the_capability_that_a_cure_names_is_enough() {
    if !is_root() {
        eprintln!("SKIPPED: only root can give capabilities");
        return;
    }
    let findings = check_as(&[
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--inh-caps",
        "+perfmon",
        "--ambient-caps",
        "+perfmon",
    ]);
    assert_eq!(about(&findings, "kernel code")["verdict"], "yes");
    assert_eq!(about(&findings, "whole CPUs")["verdict"], "yes");
    assert_eq!(about(&findings, "uprobes")["verdict"], "no");
}
