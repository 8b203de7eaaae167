//! Decoding on several threads gives what decoding on one gives.

use std::fs;

use crate::recorded::{Recorded, dump, ptrail};

/// Spoils a byte in every thousand of the trace, which lies in the last two thirds of the file.
fn spoil(capture: &std::path::Path) -> std::path::PathBuf {
    let mut bytes = fs::read(capture).unwrap();
    let third = bytes.len() / 3;
    for at in (third..2 * third).step_by(1000) {
        bytes[at] ^= 0x55;
    }
    let path = capture.with_file_name("spoiled.data");
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn any_number_of_threads_gives_the_same() {
    let recorded = Recorded::new(&["--timing", "cyc"], &["/bin/true"], "");
    let whole = recorded.capture();
    let spoiled = spoil(&whole);
    for capture in [&whole, &spoiled] {
        for what in ["--branches", "--instructions", "--spans"] {
            let lines = |threads| dump(capture, &[what, "--threads", threads]);
            let one = lines("1");
            let losses = one.iter().filter(|line| line.to_string().contains("loss"));
            assert_eq!(losses.count() > 0, capture == &spoiled);
            assert!(one.len() > 1000, "{what}: {} lines", one.len());
            for threads in ["2", "8"] {
                assert!(one == lines(threads), "{what} on {threads} threads differs");
            }
        }
        let timeline = |threads: &str| {
            let output = capture.with_extension("jsonl");
            let status = ptrail()
                .args(["decode", "-q", "--threads", threads, "-o"])
                .args([&output, capture])
                .output()
                .unwrap();
            assert!(status.status.success());
            fs::read(output).unwrap()
        };
        let one = timeline("1");
        assert!(one == timeline("2") && one == timeline("8"));
    }
}
