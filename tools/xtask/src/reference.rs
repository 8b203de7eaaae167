//! Reference data: other people's traces, and what other decoders made of them.
//!
//! It is not part of the repository. Tests that need it say so and pass when it is absent.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::workspace_root;

/// The folder `name` of the reference data, under `$PTRAIL_TESTDATA` or beside the checkout; `None`,
/// said aloud, if it is not there.
#[must_use]
#[allow(clippy::print_stderr)] // It is the test's reader who must know.
pub fn reference_data(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PTRAIL_TESTDATA").map_or_else(
        || workspace_root().join("../shared/testdata/real"),
        PathBuf::from,
    );
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

/// Reads a JSON file.
///
/// # Errors
/// It can't be read, or is none.
pub fn read_json(path: &Path) -> Result<Value> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&bytes).with_context(|| path.display().to_string())
}

/// Unpacks with gzip, so that this is not our own unpacking.
///
/// # Errors
/// There is no gzip, or it refuses the file.
pub fn gunzip(path: &Path) -> Result<Vec<u8>> {
    let output = Command::new("gzip").arg("-dc").arg(path).output()?;
    ensure!(output.status.success(), "gzip -dc {}", path.display());
    Ok(output.stdout)
}
