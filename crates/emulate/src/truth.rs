//! The truth: what executed, written beside the capture.
//!
//! Each thread has files with 8 little-endian bytes for every executed instruction: its address in
//! one, the time-stamp counter behind it in another (the same name with `.tsc` at its end), and, if
//! the engine knows it, the stack pointer before it in a third (`.sp`). The first thread's has the
//! name that was asked for, a further one's its thread id behind it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ptrail_pt::{Ip, Tsc};

use crate::Error;

pub(crate) struct Truth {
    path: PathBuf,
    addresses: BufWriter<File>,
    times: BufWriter<File>,
    /// If the engine tells of the stack.
    stack: Option<BufWriter<File>>,
    /// The stack pointer before the next instruction.
    sp: u64,
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
                stack: None,
                sp: 0,
            }),
            Err(source) => Err(Error::Truth { path, source }),
        }
    }

    /// The truth of a further thread of the same recording.
    pub(crate) fn of_thread(path: &Path, thread: u32) -> Result<Self, Error> {
        Self::create(with_extension(path, &format!(".{thread}")))
    }

    /// Where the stack is before the next instruction.
    pub(crate) fn stack_is(&mut self, sp: u64) -> Result<(), Error> {
        self.sp = sp;
        if self.stack.is_none() {
            let file = File::create(with_extension(&self.path, ".sp"));
            self.stack = Some(BufWriter::new(self.checked(file)?));
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, ip: Ip, now: Tsc) -> Result<(), Error> {
        let written = self
            .addresses
            .write_all(&ip.0.to_le_bytes())
            .and_then(|()| self.times.write_all(&now.0.to_le_bytes()))
            .and_then(|()| match &mut self.stack {
                Some(stack) => stack.write_all(&self.sp.to_le_bytes()),
                None => Ok(()),
            });
        self.checked(written)
    }

    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let stack = self.stack.iter_mut();
        let written = [&mut self.addresses, &mut self.times]
            .into_iter()
            .chain(stack)
            .try_for_each(Write::flush);
        self.checked(written)
    }

    fn checked<T>(&self, result: io::Result<T>) -> Result<T, Error> {
        result.map_err(|source| Error::Truth {
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
