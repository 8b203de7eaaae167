//! The truth: what executed, written beside the capture.
//!
//! Each thread has two files: the address of every executed instruction in one, the time-stamp
//! counter behind it in another (the same name with `.tsc` at its end), 8 little-endian bytes each.
//! The first thread's has the name that was asked for, a further one's its thread id behind it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ptrail_pt::{Ip, Tsc};

use crate::Error;

pub(crate) struct Truth {
    path: PathBuf,
    addresses: BufWriter<File>,
    times: BufWriter<File>,
}

impl Truth {
    pub(crate) fn create(path: PathBuf) -> Result<Self, Error> {
        let create = || {
            let (addresses, times) = (
                File::create(&path)?,
                File::create(with_extension(&path, ".tsc"))?,
            );
            Ok((BufWriter::new(addresses), BufWriter::new(times)))
        };
        match create() {
            Ok((addresses, times)) => Ok(Self {
                path,
                addresses,
                times,
            }),
            Err(source) => Err(Error::Truth { path, source }),
        }
    }

    /// The truth of a further thread of the same recording.
    pub(crate) fn of_thread(path: &Path, thread: u32) -> Result<Self, Error> {
        Self::create(with_extension(path, &format!(".{thread}")))
    }

    pub(crate) fn add(&mut self, ip: Ip, now: Tsc) -> Result<(), Error> {
        let written = self
            .addresses
            .write_all(&ip.0.to_le_bytes())
            .and_then(|()| self.times.write_all(&now.0.to_le_bytes()));
        self.checked(written)
    }

    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let written = self.addresses.flush().and_then(|()| self.times.flush());
        self.checked(written)
    }

    fn checked(&self, written: io::Result<()>) -> Result<(), Error> {
        written.map_err(|source| Error::Truth {
            path: self.path.clone(),
            source,
        })
    }
}

fn with_extension(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(extension);
    PathBuf::from(name)
}
