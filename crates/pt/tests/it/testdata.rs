//! Where the reference data is. It is not part of the repository; tests that need it say so and
//! pass when it is absent.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder `name` of the reference data, or `None` with a line on the standard output.
pub(crate) fn folder(name: &str) -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/testdata/real");
    let root = std::env::var_os("PTRAIL_TESTDATA").map_or_else(|| default.into(), PathBuf::from);
    let folder = root.join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    println!(
        "skipped: no reference data at {} (set PTRAIL_TESTDATA)",
        folder.display()
    );
    None
}

pub(crate) fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The text in a gzip file.
pub(crate) fn gunzip(path: &Path) -> Vec<u8> {
    let output = Command::new("gzip").arg("-dc").arg(path).output().unwrap();
    assert!(output.status.success(), "gzip -dc {}", path.display());
    output.stdout
}

/// Bytes from hexadecimal digits.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digit = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}
