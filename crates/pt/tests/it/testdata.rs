//! The reference data, read.

use std::path::Path;

pub(crate) use xtask::reference_data as folder;

pub(crate) fn json(path: &Path) -> serde_json::Value {
    xtask::read_json(path).unwrap()
}

/// The text in a gzip file.
pub(crate) fn gunzip(path: &Path) -> Vec<u8> {
    xtask::gunzip(path).unwrap()
}

/// Bytes from hexadecimal digits.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digit = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}
