//! What can go wrong before and while recording.

use std::io;
use std::path::PathBuf;

/// Errors of the software recorder. Each message names the cause and the cure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such program.
    #[error("{name}: no such program{hint}")]
    NotFound {
        /// As given.
        name: String,
        /// Where it was looked for.
        hint: String,
    },
    /// It is there but can't be run.
    #[error("{path}: not executable; check its mode (`chmod +x {path}`) and whether its file system is mounted noexec", path = path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// It is a folder.
    #[error("{path}: is a folder, not a program", path = path.display())]
    IsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// It isn't a program for this machine.
    #[error("{path}: {what}; ptrail records 64-bit x86 Linux programs", path = path.display())]
    WrongKind {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// Tracing it would take its privileges away.
    #[error(
        "{path}: is set{which}; the kernel does not give a traced program its privileges. Run ptrail as root, or record a copy without the bit (`cp {path} /tmp/`)",
        path = path.display()
    )]
    SetId {
        /// The file.
        path: PathBuf,
        /// `uid` or `gid`.
        which: &'static str,
    },
    /// The kernel refused to start it.
    #[error("{path}: cannot start: {source}", path = path.display())]
    Start {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// ptrace is forbidden.
    #[error("cannot trace programs here: {source}. {cure}")]
    PtraceForbidden {
        /// What the kernel said.
        source: io::Error,
        /// What forbids it and what to do.
        cure: String,
    },
    /// The `qemu` engine can't be used.
    #[error("the engine `qemu` can't be used: {why}. `--source step` needs nothing, and is slow")]
    NoQemu {
        /// What is missing, and what to do.
        why: String,
    },
    /// The window's beginning is not in the program.
    #[error(
        "--window-start: no such place in the program's file or its loader; check the name (`nm PROGRAM`), or give 0xADDRESS. `--source qemu` looks in libraries too"
    )]
    NoStart,
    /// A trigger that only the kernel's events have.
    #[error(
        "--trigger {trigger}: the software recorder has no kernel events and no static probes; take a place in the code, a signal, exit or crash"
    )]
    NoSuchTrigger {
        /// As given.
        trigger: String,
    },
    /// A trigger lies in no code.
    #[error("--trigger {trigger}: {why}")]
    Unresolved {
        /// As given.
        trigger: String,
        /// Why.
        why: ptrail_record::Unresolved,
    },
    /// QEMU ended before the program began.
    #[error(
        "QEMU could not start the program ({end}; its own message is above). `--source step` needs no QEMU"
    )]
    Qemu {
        /// How it ended.
        end: String,
    },
    /// The plugin wrote what it never writes.
    #[error(
        "QEMU's plugin sent what ptrail does not understand: was its memory overwritten by the program?"
    )]
    QemuProtocol,
    /// No such process.
    #[error("{pid}: no such process")]
    NoProcess {
        /// As given.
        pid: i32,
    },
    /// A system call that should not fail did.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The capture could not be written.
    #[error(transparent)]
    Capture(#[from] ptrail_perfdata::Error),
    /// The truth file could not be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Truth {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(nix::Error) -> Self {
        move |errno| Self::System {
            what,
            source: errno.into(),
        }
    }

    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
