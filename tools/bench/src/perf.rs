//! `perf script`, as a user gets branches today.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::Row;
use crate::trace::{Kind, Trace};

pub(crate) fn calls(trace: &Trace, _warm: Duration) -> Result<Option<Row>> {
    script(trace, "--itrace=cr")
}

pub(crate) fn branches(trace: &Trace, _warm: Duration) -> Result<Option<Row>> {
    script(trace, "--itrace=b")
}

/// Only for a `perf.data`.
fn script(trace: &Trace, itrace: &str) -> Result<Option<Row>> {
    let Kind::PerfData(_) = trace.kind else {
        return Ok(None);
    };
    let start = Instant::now();
    let mut child = Command::new("perf")
        .args(["script", itrace, "-F", "ip,addr,time", "-i"])
        .arg(&trace.path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("perf script")?;
    let mut output = BufReader::with_capacity(1 << 20, child.stdout.take().context("stdout")?);
    loop {
        let buffer = output.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        let len = buffer.len();
        output.consume(len);
    }
    ensure!(child.wait()?.success(), "perf script {itrace} failed");
    Ok(Some(Row {
        cold: start.elapsed().as_secs_f64(),
        warm: None,
        instructions: None,
        branches: None,
    }))
}
