//! Files on disk: mapped, never read whole; and build-ids as text.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// Opens and maps a regular file. Pipes and devices are refused: opening those can block.
#[allow(unsafe_code)]
pub(crate) fn map_file(path: &Path) -> io::Result<Mmap> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let file = File::open(path)?;
    // SAFETY: the mapping is private and read-only. Another process that writes to the file can
    // change the bytes under us; they are only ever read as untrusted data, each use with its own
    // bounds check, and no reference typed other than as plain bytes outlives one parse. A file that
    // is cut while mapped ends us with SIGBUS, as it does any tool that maps program files.
    unsafe { Mmap::map(&file) }
}

/// Bytes as hexadecimal text, as build-ids are written.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
