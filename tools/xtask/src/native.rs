//! Runs a test program without any recorder, to see that it does what the manifest says.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::manifest::{Call, Exit, Program};

/// Only what hangs takes so long: a recorder that single-steps takes two minutes on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// What a run of a program showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What it wrote to standard output, with invalid UTF-8 replaced.
    pub stdout: String,
    /// How it ended.
    pub exit: Exit,
}

impl Outcome {
    /// Runs `executable` with the arguments and the input of `program`. Its standard error is ours.
    ///
    /// # Errors
    /// When it can't be started, or runs for more than a minute.
    pub fn of_running(executable: &Path, program: &Program) -> Result<Self> {
        let mut command = Command::new(executable);
        command.args(&program.args);
        Self::of_command(&mut command, &program.stdin)
    }

    /// Runs any command, with `input` as its standard input.
    ///
    /// # Errors
    /// As [`of_running`](Self::of_running).
    pub fn of_command(command: &mut Command, input: &str) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("can't start {command:?}"))?;
        let mut stdin = child.stdin.take().context("standard input is a pipe")?;
        let mut stdout = child.stdout.take().context("standard output is a pipe")?;
        // In a thread, or a program that never ends would keep us here in spite of the limit.
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).map(|_| bytes)
        });
        match stdin.write_all(input.as_bytes()) {
            // A program need not read its input.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error.into()),
            _ => drop(stdin),
        }
        let status = wait(&mut child).with_context(|| format!("{command:?}"))?;
        let bytes = match reader.join() {
            Ok(result) => result.context("can't read the program's output")?,
            Err(_) => bail!("the reader of the program's output panicked"),
        };
        Ok(Self {
            stdout: String::from_utf8_lossy(&bytes).into_owned(),
            exit: exit(status)?,
        })
    }
}

impl Program {
    /// The calls that the program itself counted while it ran.
    ///
    /// # Errors
    /// When the line of one of [`counted`](Self::counted) is missing in `outcome`.
    pub fn counted_calls(&self, outcome: &Outcome) -> Result<Vec<Call>> {
        let count_of = |function: &String| {
            let count = outcome
                .stdout
                .lines()
                .filter_map(|line| line.strip_prefix("count "))
                .find_map(|line| line.strip_prefix(function.as_str())?.trim().parse().ok())
                .with_context(|| format!("{} printed no count of {function}", self.name))?;
            Ok(Call {
                function: function.clone(),
                count,
            })
        };
        self.counted.iter().map(count_of).collect()
    }

    /// Compares output and end with what is expected.
    ///
    /// # Errors
    /// Says what differs.
    pub fn check(&self, outcome: &Outcome) -> Result<()> {
        if outcome.exit != self.exit {
            bail!(
                "{}: expected {:?}, ended with {:?}",
                self.name,
                self.exit,
                outcome.exit
            );
        }
        let counts = self.counted_calls(outcome)?.len();
        let stdout: String = outcome
            .stdout
            .split_inclusive('\n')
            .filter(|line| counts == 0 || !line.starts_with("count "))
            .collect();
        ensure!(
            stdout == self.stdout,
            "{}: expected the output {:?}, got {stdout:?}",
            self.name,
            self.stdout
        );
        Ok(())
    }
}

fn wait(child: &mut Child) -> Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > TIME_LIMIT {
            child.kill()?;
            child.wait()?;
            bail!("still running after {} s", TIME_LIMIT.as_secs());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn exit(status: ExitStatus) -> Result<Exit> {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(Exit::Status(code)),
        (None, Some(signal)) => Ok(Exit::Signal(signal)),
        (None, None) => bail!("neither a status nor a signal: {status:?}"),
    }
}
