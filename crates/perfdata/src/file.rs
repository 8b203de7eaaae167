//! Bytes that a capture is read from: mapped files, and what had to be unpacked.

use std::fs::File;
use std::io::Read;
use std::ops::{Deref, Range};
use std::path::Path;

use memmap2::Mmap;

use crate::Error;

/// Bytes that stay while the capture is in use.
pub(crate) enum Store {
    Mapped(Mmap),
    Memory(Vec<u8>),
}

impl Deref for Store {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Memory(bytes) => bytes,
        }
    }
}

impl Store {
    /// A part that was found in these very bytes.
    pub(crate) fn part(&self, range: &Range<u64>) -> &[u8] {
        &self[range.start as usize..range.end as usize]
    }
}

/// Maps a file that must not be changed while the capture is in use; what comes from a pipe is read
/// into memory.
#[expect(unsafe_code)]
pub(crate) fn map(path: &Path) -> Result<Store, Error> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(io)?;
    if !file.metadata().map_err(io)?.is_file() {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        return Ok(Store::Memory(bytes));
    }
    // SAFETY: the mapping is private and read-only, and nothing is kept of it but bytes that are
    // checked each time they are read. Should somebody change the file meanwhile, wrong bytes are
    // taken for damage; should somebody cut it, the process gets SIGBUS, which `Capture::open` says
    // must not happen.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    Ok(Store::Mapped(map))
}
