//! Where the reference data is. It is not part of the repository; tests that need it say so and
//! pass when it is absent.

use std::path::PathBuf;

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
