//! Other people's traces and what other decoders made of them.

use std::path::{Path, PathBuf};

use serde_json::Value;

pub(crate) use xtask::reference_data as folder;

pub(crate) fn json(path: &Path) -> Value {
    xtask::read_json(path).unwrap()
}

pub(crate) fn gunzip(path: &Path) -> Vec<u8> {
    xtask::gunzip(path).unwrap()
}

/// libxdc's traces: what its reference says of each, and the file. Some are described only.
pub(crate) fn libxdc_traces() -> Vec<(Value, PathBuf)> {
    let Some(folder) = folder("libxdc") else {
        return Vec::new();
    };
    let reference = json(&folder.join("reference.json"));
    let traces = reference["traces"].as_array().unwrap().iter();
    traces
        .filter_map(|trace| {
            let file = trace["files"]["trace"].as_str()?;
            Some((trace.clone(), folder.join(file)))
        })
        .collect()
}
