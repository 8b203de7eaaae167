//! Telling whoever started ptrail that the recording has begun: a line on a file descriptor.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, FromRawFd, RawFd};

/// Not an open descriptor.
const EBADF: i32 = 9;

/// A descriptor that somebody waits at.
#[derive(Debug)]
pub struct Ready(File);

impl Ready {
    /// Takes over a descriptor that was handed to this process (`--ready-fd`). Programs started later
    /// do not get it.
    ///
    /// # Errors
    /// It is not open, or one of the standard ones.
    pub fn take(descriptor: RawFd) -> io::Result<Self> {
        if descriptor <= 2 {
            let what = "0, 1 and 2 are input, output and errors";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // SAFETY: only asked about, and the kernel says so if it is not open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let flags = rustix::io::fcntl_getfd(borrowed)?;
        if flags.contains(rustix::io::FdFlags::CLOEXEC) {
            // Handed down descriptors have no such flag: this is one of our own.
            return Err(io::Error::from_raw_os_error(EBADF));
        }
        rustix::io::fcntl_setfd(borrowed, flags | rustix::io::FdFlags::CLOEXEC)?;
        // SAFETY: it is open, was handed down to us, and nothing here has it (see above).
        Ok(Self(unsafe { File::from_raw_fd(descriptor) }))
    }

    /// Writes `ready` and a newline, and closes it. Whoever waited may be gone: no error.
    pub fn tell(mut self) {
        let _ = self.0.write_all(b"ready\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_descriptors_are_refused() {
        assert!(Ready::take(-1).is_err());
        assert!(Ready::take(1).is_err());
        assert!(Ready::take(100_000).is_err());
        // Ours, opened with close-on-exec.
        let file = tempfile::tempfile().unwrap();
        let own = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert!(Ready::take(own).is_err());
    }
}
