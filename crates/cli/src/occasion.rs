//! A command for as long as whose run a process is recorded: `ptrail attach -p PID -- COMMAND`.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};

/// See the module.
pub(crate) struct Occasion {
    /// Empty: there is none.
    command: Vec<OsString>,
    running: RefCell<Option<JoinHandle<io::Result<ExitStatus>>>>,
}

impl Occasion {
    pub(crate) fn new(command: Vec<OsString>) -> Self {
        Self {
            command,
            running: RefCell::new(None),
        }
    }

    /// The recording is armed: the command runs, if it does not yet, and its end ends the recording.
    pub(crate) fn begin(&self) {
        let Some((program, arguments)) = self.command.split_first() else {
            return;
        };
        self.running.borrow_mut().get_or_insert_with(|| {
            let mut command = Command::new(program);
            command.args(arguments);
            std::thread::spawn(move || {
                let status = command.status();
                ptrail_emulate::occasion_ended();
                status
            })
        });
    }

    /// Waits for the command's end; its exit status, if there was one.
    pub(crate) fn end(self) -> Result<Option<ExitCode>> {
        let Some(running) = self.running.into_inner() else {
            return Ok(None);
        };
        let name = || self.command.first().map(|name| name.to_string_lossy());
        let status = running
            .join()
            .map_err(|_| anyhow!("the command was not waited for"))?
            .with_context(|| format!("cannot run {}", name().unwrap_or_default()))?;
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        Ok(code.map(|code| ExitCode::from(code as u8)))
    }
}
