//! The limit of locked memory, as a user who has one.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use ptrail_record::facts::Facts;
use ptrail_record::plan::StopBy;
use ptrail_record::session::Session;

use crate::session::{plan, request};

/// Set where the test runs again as another user.
const AS_USER: &str = "PTRAIL_TEST_AS_USER";

/// Rings are mapped until the kernel refuses: that is where the computed limit says, and the message
/// names it.
#[test]
fn the_kernel_refuses_rings_where_the_limit_is() {
    if std::env::var_os(AS_USER).is_some() {
        return until_refused();
    }
    if Facts::read(Path::new("/")).user != Some(0) {
        eprintln!("SKIPPED: only root can become a user with no other rings");
        return;
    }
    let folder = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let copy = folder.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let output = Command::new("sh")
        .args([
            "-c",
            r#"ulimit -l 512 && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$0" "$@""#,
        ])
        .arg(&copy)
        .args(["--exact", "--nocapture"])
        .arg("limits::the_kernel_refuses_rings_where_the_limit_is")
        .env(AS_USER, "1")
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

fn until_refused() {
    let facts = Facts::read(Path::new("/"));
    let Some(limit) = facts.ring_limit() else {
        eprintln!("SKIPPED: rings have no limit here ({:?})", facts.paranoid);
        return;
    };
    let plan = plan(&request(vec![std::process::id()], None, StopBy::UserSpace));
    // What the plan maps without the AUX area that the stand-in has not.
    let each = plan.mapped - 4096;
    let mut sessions = Vec::new();
    let refusal = loop {
        match Session::open(&plan, &facts, &mut || {}) {
            Ok(session) => sessions.push(session),
            Err(refusal) => break refusal,
        }
        assert!(
            sessions.len() < 400,
            "no limit: {limit} bytes were computed"
        );
    };
    let mapped = sessions.len() as u64 * each;
    assert!(
        mapped <= limit && limit < mapped + each,
        "{} sessions of {each} bytes, limit {limit}: {refusal}",
        sessions.len()
    );
    assert!(
        refusal
            .why
            .contains(&format!("this user may have {} KiB", limit / 1024)),
        "{refusal}"
    );
    assert!(
        refusal.cure.contains("kernel.perf_event_mlock_kb="),
        "{refusal}"
    );
}
