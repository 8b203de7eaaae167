//! What can go wrong with a file, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why a capture could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {}{}", path.display(), source.kind(), next_step(source.kind()))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file is something else.
    #[error(
        "{} is not a perf.data file (it does not begin with `PERFILE2`); \
         give a file written by `perf record` or `ptrail run`",
        path.display()
    )]
    NotPerfData {
        /// The file.
        path: PathBuf,
    },
    /// The file ends too early.
    #[error(
        "{}: the file ends inside {what}, which begins at offset {offset:#x}; \
         it was cut short when it was recorded or copied: record or copy it again",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where the part that is cut begins, bytes from the start of the file.
        offset: u64,
        /// The part that is cut.
        what: &'static str,
    },
    /// A perf.data file without Intel PT in it.
    #[error(
        "{} was recorded without intel_pt; record with `perf record -e intel_pt//u` or `ptrail run`",
        path.display()
    )]
    NoIntelPt {
        /// The file.
        path: PathBuf,
    },
    /// A form of perf.data that is not read yet.
    #[error("{}: {what}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Which form, and how to get one that is read.
        what: &'static str,
    },
    /// The file contradicts itself.
    #[error("{}: at offset {offset:#x}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where, bytes from the start of the file.
        offset: u64,
        /// What stands there and what became of it.
        what: String,
    },
    /// An LLDB trace bundle whose description is wrong.
    #[error("{}: {place}{}{what}", path.display(), if place.is_empty() { "" } else { ": " })]
    Bundle {
        /// The description.
        path: PathBuf,
        /// Where in it, such as `processes[1].pid`.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// A record that the format has no room for.
    #[error("cannot write this record to a perf.data file: {what}")]
    Unwritable {
        /// What is too long or not allowed, and the limit.
        what: String,
    },
}

fn next_step(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "; check the name and that its folder exists",
        io::ErrorKind::PermissionDenied => {
            "; it belongs to somebody else: run as its owner, or choose another place"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space or choose another folder, nothing was left under this name"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_file_and_the_next_step() {
        let path = PathBuf::from("trace.data");
        let full = Error::Io {
            path: path.clone(),
            source: io::ErrorKind::StorageFull.into(),
        };
        assert_eq!(
            full.to_string(),
            "trace.data: no storage space; free some space or choose another folder, \
             nothing was left under this name"
        );
        let no_pt = Error::NoIntelPt { path };
        assert_eq!(
            no_pt.to_string(),
            "trace.data was recorded without intel_pt; \
             record with `perf record -e intel_pt//u` or `ptrail run`"
        );
    }
}
