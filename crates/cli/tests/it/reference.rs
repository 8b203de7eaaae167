//! Other people's traces and what other decoders made of them.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// A folder of reference data; `None`, said aloud, if it is not there.
pub(crate) fn folder(name: &str) -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/testdata/real");
    let root = std::env::var_os("PTRAIL_TESTDATA").map_or_else(|| default.into(), PathBuf::from);
    let folder = root.join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!(
        "skipped: no reference data at {} (set PTRAIL_TESTDATA)",
        folder.display()
    );
    None
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Unpacks with gzip, so that this is not our own unpacking.
pub(crate) fn gunzip(path: &Path) -> Vec<u8> {
    let output = std::process::Command::new("gzip")
        .arg("-dc")
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", path.display());
    output.stdout
}
