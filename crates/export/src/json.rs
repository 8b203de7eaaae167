//! Pieces of JSON, put into a line of bytes.

use std::io::Write as _;

pub(crate) fn put(line: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    line.write_fmt(text).expect("memory can be written to");
}

/// A JSON string, with quotes.
pub(crate) fn put_text(line: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(line, text).expect("text has a JSON form and memory can be written to");
}
