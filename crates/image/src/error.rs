//! Why code is not there, each with what to do about it.

use std::sync::Arc;

use ptrail_pt::Ip;
use thiserror::Error;

/// Why a mapped file can't give its code.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ImageError {
    /// No such file.
    #[error(
        "{path} is missing: copy it here from the machine of the recording, or say where it is (--sysroot, --map)"
    )]
    Missing {
        /// Path as recorded.
        path: String,
    },
    /// The mapping never had a file, or has none any more.
    #[error("{path} is no file that can be read again: its code must be captured while recording")]
    NoFile {
        /// Name as recorded, such as `[vdso]` or `/memfd:jit (deleted)`.
        path: String,
    },
    /// Kernel code, of which there is no copy.
    #[error(
        "{path} is the kernel's code, and the capture has no copy of it: record as root with `perf record --kcore`, or record user code only (intel_pt//u)"
    )]
    Kernel {
        /// Name as recorded, such as `[kernel.kallsyms]_text`.
        path: String,
    },
    /// The file is another build than the recorded one.
    #[error(
        "{path} has build-id {} but the recording ran build-id {recorded}: bring back the recorded build, or decode with --force if they are the same code",
        found.as_deref().unwrap_or("none")
    )]
    BuildId {
        /// Path as recorded.
        path: String,
        /// Build-id in the recording, hexadecimal.
        recorded: String,
        /// Build-id of the file, hexadecimal; `None` if it has none.
        found: Option<String>,
    },
    /// The system refuses to read the file.
    #[error("{path} can't be read ({reason}): make it readable for this user")]
    Unreadable {
        /// Path as recorded.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// The file is no ELF file.
    #[error("{path} is not an ELF file: find out what replaced it since the recording")]
    NotElf {
        /// Path as recorded.
        path: String,
    },
    /// The user gave a part that the file does not have.
    #[error(
        "{path} has {size:#x} bytes, so there is no code at {start:#x}-{end:#x}: check offset and end"
    )]
    NoSuchPart {
        /// Path as given.
        path: String,
        /// First byte of the part.
        start: u64,
        /// Behind its last byte.
        end: u64,
        /// Size of the file.
        size: u64,
    },
    /// An ELF file for another kind of machine.
    #[error("{path} is {what}, only 64-bit x86 code can be decoded: record a 64-bit build")]
    Unsupported {
        /// Path as recorded.
        path: String,
        /// What it is.
        what: String,
    },
    /// The ELF headers contradict themselves or the file's size.
    #[error("{path} is a damaged ELF file ({detail}): restore it from its package or build")]
    Damaged {
        /// Path as recorded.
        path: String,
        /// What is wrong.
        detail: String,
    },
}

/// Why there are no bytes at an address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoCode {
    /// Nothing executable is known at the address.
    #[error(
        "nothing was mapped at {ip:#x} at that time: code made at run time (JIT) must be captured while recording"
    )]
    Unmapped {
        /// The address.
        ip: Ip,
    },
    /// Something was mapped, but its bytes are not to be had.
    #[error("the code at {ip:#x} is missing: {reason}")]
    Missing {
        /// The address.
        ip: Ip,
        /// Number of the image in [`crate::Timeline::images`].
        image: u32,
        /// Why, and what to do.
        reason: Arc<ImageError>,
    },
    /// The mapping is longer than its file.
    #[error(
        "{ip:#x} lies behind the end of {path} ({size} bytes): the file was cut since the recording, bring back the recorded one"
    )]
    BehindEnd {
        /// The address.
        ip: Ip,
        /// Path as recorded.
        path: String,
        /// Size of the file, bytes.
        size: u64,
    },
}
