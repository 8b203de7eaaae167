//! Files that are not what they should be, and disks that are full.

use std::path::Path;
use std::process::Command;

use ptrail_perfdata::{Capture, Error, Writer};

use crate::{extra, target};

fn refusal(path: &Path) -> Error {
    match Capture::open(path) {
        Ok(_) => panic!("{} was accepted", path.display()),
        Err(error) => error,
    }
}

#[test]
fn other_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    assert!(matches!(refusal(&path), Error::Io { .. }));
    let texts: [&[u8]; 4] = [b"", b"PERF", b"\x7fELF\x02\x01\x01\0\0\0\0\0", &[0; 5000]];
    for text in texts {
        std::fs::write(&path, text).unwrap();
        let error = refusal(&path);
        assert!(matches!(error, Error::NotPerfData { .. }), "{error}");
        assert!(
            error.to_string().contains("is not a perf.data file"),
            "{error}"
        );
    }
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(refusal(folder.path()), Error::NotPerfData { .. }));
}

/// Records something without Intel PT with the system's perf; `None`, said aloud, if it can't.
fn record(path: &Path, options: &[&str]) -> Option<()> {
    let mut perf = Command::new("perf");
    perf.args(["record", "-e", "task-clock:u", "-o"])
        .arg(path)
        .args(options)
        .args(["--", "true"]);
    match perf.output() {
        Ok(output) if output.status.success() => Some(()),
        Ok(output) => {
            println!(
                "skipped: perf record: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            None
        }
        Err(error) => {
            println!("skipped: perf: {error}");
            None
        }
    }
}

#[test]
fn a_recording_without_intel_pt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.data");
    if record(&path, &[]).is_none() {
        return;
    }
    let error = refusal(&path);
    assert!(matches!(error, Error::NoIntelPt { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("record with `perf record -e intel_pt//u`"),
        "{error}"
    );
}

const FULL_DISK: &str = "PTRAIL_TEST_FULL_DISK";

/// The test runs itself again in a mount namespace of its own, where a disk of 64 KiB is mounted.
#[test]
fn a_full_disk_is_an_error_and_leaves_nothing_under_the_name() {
    if let Some(folder) = std::env::var_os(FULL_DISK) {
        return fill_the_disk(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=64k tmpfs \"$PTRAIL_TEST_FULL_DISK\" || exit 42; \
                  exec \"$0\" --exact refused::a_full_disk_is_an_error_and_leaves_nothing_under_the_name";
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(FULL_DISK, folder.path())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains("1 passed"), "{text}");
        }
        Ok(output) if output.status.code() == Some(101) => {
            panic!("{}", String::from_utf8_lossy(&output.stdout));
        }
        other => println!("skipped: no small disk can be mounted here: {other:?}"),
    }
}

fn fill_the_disk(folder: &Path) {
    let path = folder.join("trace.data");
    let full = |error: Error| {
        let Error::Io { source, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
        assert!(error.to_string().contains("no storage space"), "{error}");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
    };
    // While tracing; the error is repeated by `finish`, so that no part gets the name.
    let mut writer = Writer::create(&path, target()).unwrap();
    let mut failed = false;
    for time in 0..100 {
        failed |= writer.trace(1, 1, time, &[1; 4_000]).is_err();
    }
    assert!(failed);
    full(writer.finish(&extra()).unwrap_err());
    // At the very end: 68 KB stay in the buffer until then.
    let mut writer = Writer::create(&path, target()).unwrap();
    for time in 0..17 {
        writer.trace(1, 1, time, &[1; 4_000]).unwrap();
    }
    full(writer.finish(&extra()).unwrap_err());
}
