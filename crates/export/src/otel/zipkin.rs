//! Zipkin's v2 JSON: a list of spans. Times are whole microseconds there, and nothing is shorter than
//! one; the tags `ptrail.begin_ns` and `ptrail.duration_ns` have them exactly.

use ptrail_trace::SinkError;

use super::{
    About, Encoder,
    tree::{Node, Value},
};
use crate::{
    json::{put, put_text},
    output::Output,
};

#[derive(Default)]
pub(super) struct Zipkin {
    trace: u128,
    service: String,
    any: bool,
    line: Vec<u8>,
}

impl Encoder for Zipkin {
    fn begin(&mut self, about: &About, output: &mut Output) -> Result<(), SinkError> {
        self.trace = about.trace;
        self.service.clone_from(&about.service);
        output.write(b"[")
    }

    fn span(&mut self, node: &Node<'_>, output: &mut Output) -> Result<(), SinkError> {
        let line = &mut self.line;
        line.clear();
        let comma = if std::mem::replace(&mut self.any, true) {
            ","
        } else {
            ""
        };
        let (trace, id) = (self.trace, node.id);
        put(
            line,
            format_args!("{comma}\n{{\"traceId\":\"{trace:032x}\",\"id\":\"{id:016x}\""),
        );
        if let Some(parent) = node.parent {
            put(line, format_args!(",\"parentId\":\"{parent:016x}\""));
        }
        line.extend_from_slice(b",\"name\":");
        put_text(line, node.name);
        let duration = node.end.saturating_sub(node.begin);
        put(
            line,
            format_args!(
                ",\"timestamp\":{},\"duration\":{},\"localEndpoint\":{{\"serviceName\":",
                node.begin / 1000,
                (duration / 1000).max(1)
            ),
        );
        put_text(line, &self.service);
        put(
            line,
            format_args!(
                "}},\"tags\":{{\"ptrail.begin_ns\":\"{}\",\"ptrail.duration_ns\":\"{duration}\"",
                node.begin
            ),
        );
        for (key, value) in &node.attributes {
            put(line, format_args!(",\"{key}\":"));
            match value {
                Value::Text(text) => put_text(line, text),
                Value::Number(number) => put(line, format_args!("\"{number}\"")),
                Value::Address(address) => put(line, format_args!("\"{address:#x}\"")),
            }
        }
        line.extend_from_slice(b"}}");
        output.write(line)
    }

    fn end(&mut self, output: &mut Output) -> Result<(), SinkError> {
        output.write(b"\n]\n")
    }
}
