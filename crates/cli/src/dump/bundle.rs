//! LLDB's trace bundles: a `trace.json` that names the files with the packets (LLDB,
//! `lldb/docs/use/intel_pt.rst` and `TraceIntelPTJSONStructs`).
//!
//! Only what packets need is read here: `cpus[].iptTrace` or `processes[].threads[].iptTrace`,
//! `cpuInfo` and `tscPerfZeroConversion`. Numbers may be strings, as LLDB writes them where JSON's
//! are too small.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ptrail_perfdata::Owner;
use ptrail_pt::{CpuId, PtConfig, TimeConv, Vendor};
use serde_json::Value;

use super::source::{Source, Stream};

/// The description of a bundle, if `input` is one or a folder that holds one.
pub(super) fn description(input: &Path) -> Option<PathBuf> {
    if input.is_dir() {
        let inside = input.join("trace.json");
        return inside.is_file().then_some(inside);
    }
    let mut head = [0; 64];
    let len = File::open(input).ok()?.read(&mut head).ok()?;
    let first = head[..len].iter().find(|byte| !byte.is_ascii_whitespace());
    (first == Some(&b'{')).then(|| input.to_path_buf())
}

pub(super) fn open(description: &Path) -> Result<Source> {
    let at = || description.display();
    let text =
        fs::read_to_string(description).with_context(|| format!("{}: can't be read", at()))?;
    let json: Value = serde_json::from_str(&text).with_context(|| format!("{}: not JSON", at()))?;
    if json["type"] != "intel-pt" {
        bail!(
            "{}: not an LLDB trace bundle (its type is not intel-pt)",
            at()
        );
    }
    let folder = description.parent().unwrap_or(Path::new(""));
    let mut streams = Vec::new();
    for cpu in list(&json["cpus"]) {
        if let Some(id) = number(&cpu["id"]).and_then(|id| u32::try_from(id).ok()) {
            streams.extend(stream(folder, cpu, Owner::Cpu(id))?);
        }
    }
    for process in list(&json["processes"]) {
        let pid = number(&process["pid"]).and_then(|pid| u32::try_from(pid).ok());
        for thread in list(&process["threads"]) {
            if let Some(tid) = number(&thread["tid"]).and_then(|tid| u32::try_from(tid).ok()) {
                streams.extend(stream(folder, thread, Owner::Thread { pid, tid })?);
            }
        }
    }
    if streams.is_empty() {
        bail!("{}: the bundle names no iptTrace", at());
    }
    let config = PtConfig {
        cpu: cpu(&json["cpuInfo"]),
        tsc: true,
        ..PtConfig::default()
    };
    Ok(Source::loose(
        streams,
        config,
        conversion(&json["tscPerfZeroConversion"]),
    ))
}

fn stream(folder: &Path, item: &Value, owner: Owner) -> Result<Option<Stream<'static>>> {
    let Some(name) = item["iptTrace"].as_str() else {
        return Ok(None);
    };
    let path = folder.join(name);
    let bytes = fs::read(&path).with_context(|| format!("{}: can't be read", path.display()))?;
    Ok(Some(Stream {
        owner: Some(owner),
        name: name.into(),
        bytes: bytes.into(),
    }))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> Option<u64> {
    let text = match value {
        Value::String(text) => text,
        _ => return value.as_u64(),
    };
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn cpu(info: &Value) -> Option<CpuId> {
    let vendor = match info["vendor"].as_str()? {
        "GenuineIntel" | "intel" => Vendor::Intel,
        _ => Vendor::Unknown,
    };
    Some(CpuId {
        vendor,
        family: number(&info["family"])?.try_into().ok()?,
        model: number(&info["model"])?.try_into().ok()?,
        stepping: number(&info["stepping"])?.try_into().ok()?,
    })
}

fn conversion(value: &Value) -> Option<TimeConv> {
    Some(TimeConv {
        shift: number(&value["timeShift"])?.try_into().ok()?,
        mult: number(&value["timeMult"])?.try_into().ok()?,
        zero: number(&value["timeZero"])?,
        cap_user_time_zero: true,
        ..TimeConv::default()
    })
}
