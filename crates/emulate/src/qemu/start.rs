//! Finding QEMU, and starting it with the program.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::rings::Memory;
use crate::{Error, Program};

/// The plugin, a shared library; empty if it could not be compiled.
const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plugin.so"));
/// QEMU for 64-bit x86 programs, from the package `qemu-user`.
const NAME: &str = "qemu-x86_64";
/// The most capable CPU that QEMU emulates: programs find the instructions that they were built for.
const CPU: &str = "max";

/// A QEMU that can run a program for recording.
pub struct Qemu<'a> {
    path: PathBuf,
    program: &'a Program,
}

impl<'a> Qemu<'a> {
    /// Looks for QEMU.
    ///
    /// # Errors
    /// [`Error::NoQemu`] says why it can't run the program, and what to do.
    pub fn find(program: &'a Program) -> Result<Self, Error> {
        let no = |why: &str| Error::NoQemu { why: why.into() };
        if PLUGIN.is_empty() {
            return Err(no(
                "this ptrail was built without QEMU's plugin (the build said why)",
            ));
        }
        let search = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::split_paths(&search)
            .map(|folder| folder.join(NAME))
            .find(|path| nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok())
            .ok_or_else(|| {
                no("there is no qemu-x86_64 in PATH (on Debian and Ubuntu: apt-get install qemu-user)")
            })?;
        let help = Command::new(&path).arg("-h").output();
        let help = help.map(|output| output.stdout).unwrap_or_default();
        if !String::from_utf8_lossy(&help).contains("-plugin") {
            return Err(no(&format!("{} takes no plugins", path.display())));
        }
        Ok(Self { path, program })
    }

    /// Starts the program; QEMU dies with this process.
    pub(crate) fn start(&self, memory: &Memory) -> Result<Started, Error> {
        let plugin = plugin().map_err(Error::io("hand QEMU its plugin"))?;
        let (code, rings) = (plugin.as_raw_fd(), memory.fd().as_raw_fd());
        let recorder = std::process::id();
        let file = format!("/proc/{recorder}/fd/{code}");
        let (path, args) = self.program.without_script();
        let mut command = Command::new(&self.path);
        command
            .args(["-cpu", CPU])
            .args(preload(std::env::var_os("LD_PRELOAD")))
            .arg("-plugin")
            .arg(format!(
                "file={file},recorder={recorder},memory={rings},code={code},area=0"
            ))
            .arg("-0")
            .arg(&args[0])
            .arg(path)
            .args(&args[1..])
            .env("LD_PRELOAD", &file)
            .stdin(Stdio::inherit());
        // SAFETY: the child calls only prctl, which is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(std::io::Error::from)
            });
        }
        let child = command.spawn().map_err(|source| Error::Start {
            path: self.path.clone(),
            source,
        })?;
        Ok(Started {
            pid: Pid::from_raw(child.id() as i32),
            _plugin: plugin,
        })
    }
}

/// A program that runs under QEMU.
pub(crate) struct Started {
    pub(crate) pid: Pid,
    /// For the programs that the process becomes by exec.
    _plugin: OwnedFd,
}

/// The program's LD_PRELOAD is its own, not QEMU's.
fn preload(programs: Option<OsString>) -> [OsString; 2] {
    match programs {
        Some(value) => {
            let mut text = OsString::from("LD_PRELOAD=");
            text.push(value);
            ["-E".into(), text]
        }
        None => ["-U".into(), "LD_PRELOAD".into()],
    }
}

/// The plugin as a file without a name, so that no file system without permission to execute is in
/// its way. QEMU finds it among this process's open files.
fn plugin() -> std::io::Result<OwnedFd> {
    let fd = memfd_create(c"ptrail-plugin", MFdFlags::MFD_CLOEXEC)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(PLUGIN)?;
    Ok(file.into())
}
