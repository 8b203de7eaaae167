//! OTLP as JSON: one `TracesData`, by the rules of OTLP's JSON encoding: ids are hexadecimal, numbers
//! of 64 bits are text.

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
pub(super) struct Json {
    trace: u128,
    any: bool,
    line: Vec<u8>,
}

impl Encoder for Json {
    fn begin(&mut self, about: &About, output: &mut Output) -> Result<(), SinkError> {
        self.trace = about.trace;
        let line = &mut self.line;
        put(line, format_args!("{{\"resourceSpans\":[{{\"resource\":"));
        put_attributes(
            line,
            &[
                ("service.name", Value::Text(&about.service)),
                ("ptrail.source", Value::Text(about.source)),
            ],
        );
        put(
            line,
            format_args!(
                "}},\"scopeSpans\":[{{\"scope\":{{\"name\":\"ptrail\",\"version\":\"{}\"}},\"spans\":[",
                env!("CARGO_PKG_VERSION")
            ),
        );
        output.write(line)
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
            format_args!("{comma}\n{{\"traceId\":\"{trace:032x}\",\"spanId\":\"{id:016x}\""),
        );
        if let Some(parent) = node.parent {
            put(line, format_args!(",\"parentSpanId\":\"{parent:016x}\""));
        }
        line.extend_from_slice(b",\"name\":");
        put_text(line, node.name);
        put(
            line,
            format_args!(
                ",\"kind\":1,\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\",",
                node.begin, node.end
            ),
        );
        put_members(line, &node.attributes);
        line.push(b'}');
        output.write(line)
    }

    fn end(&mut self, output: &mut Output) -> Result<(), SinkError> {
        output.write(b"]}]}]}\n")
    }
}

/// An object with attributes, whose end is left to the caller.
fn put_attributes(line: &mut Vec<u8>, attributes: &[(&'static str, Value<'_>)]) {
    line.push(b'{');
    put_members(line, attributes);
}

fn put_members(line: &mut Vec<u8>, attributes: &[(&'static str, Value<'_>)]) {
    line.extend_from_slice(b"\"attributes\":[");
    for (index, (key, value)) in attributes.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        put(
            line,
            format_args!("{comma}{{\"key\":\"{key}\",\"value\":{{"),
        );
        match value {
            Value::Text(text) => {
                line.extend_from_slice(b"\"stringValue\":");
                put_text(line, text);
            }
            Value::Number(number) => put(line, format_args!("\"intValue\":\"{number}\"")),
            Value::Address(address) => {
                put(line, format_args!("\"stringValue\":\"{address:#x}\""));
            }
        }
        line.extend_from_slice(b"}}");
    }
    line.push(b']');
}
