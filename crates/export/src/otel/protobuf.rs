//! OTLP as protobuf: one `TracesData`.
//!
//! It is written in pieces, each a `ResourceSpans` with some of the spans: messages of a repeated
//! field may come one by one. Field numbers are those of OpenTelemetry's public schema
//! (`opentelemetry/proto/trace/v1/trace.proto`).

use prost::Message;
use ptrail_trace::SinkError;

use super::{
    About, Encoder,
    tree::{Node, Value},
};
use crate::output::Output;

/// Bytes of spans in a piece.
const PIECE: usize = 1 << 20;
/// `SpanKind.SPAN_KIND_INTERNAL`.
const INTERNAL: i32 = 1;

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

/// Members of a `oneof` are plain optional fields: one of them is set.
#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    string_value: Option<String>,
    #[prost(int64, optional, tag = "3")]
    int_value: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

/// The spans that wait for their piece to be full.
#[derive(Default)]
pub(super) struct Protobuf {
    trace: u128,
    resource: Resource,
    spans: Vec<u8>,
}

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            string_value: Some(value.to_owned()),
            int_value: None,
        }),
    }
}

fn attribute((key, value): &(&'static str, Value<'_>)) -> KeyValue {
    match value {
        Value::Text(value) => text(key, value),
        Value::Address(address) => text(key, &format!("{address:#x}")),
        Value::Number(number) => KeyValue {
            key: (*key).to_owned(),
            value: Some(AnyValue {
                string_value: None,
                int_value: Some(i64::try_from(*number).unwrap_or(i64::MAX)),
            }),
        },
    }
}

/// A field that holds bytes which are encoded already.
fn put(bytes: &mut Vec<u8>, field: u8, content: &[u8]) {
    bytes.push(field << 3 | 2);
    prost::encoding::encode_varint(content.len() as u64, bytes);
    bytes.extend_from_slice(content);
}

impl Protobuf {
    fn flush(&mut self, output: &mut Output) -> Result<(), SinkError> {
        let scope = Scope {
            name: "ptrail".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mut of_scope = Vec::with_capacity(self.spans.len() + 32);
        put(&mut of_scope, 1, &scope.encode_to_vec());
        of_scope.append(&mut self.spans);
        let mut of_resource = Vec::with_capacity(of_scope.len() + 128);
        put(&mut of_resource, 1, &self.resource.encode_to_vec());
        put(&mut of_resource, 2, &of_scope);
        let mut piece = Vec::with_capacity(of_resource.len() + 8);
        put(&mut piece, 1, &of_resource);
        output.write(&piece)
    }
}

impl Encoder for Protobuf {
    fn begin(&mut self, about: &About, _output: &mut Output) -> Result<(), SinkError> {
        self.trace = about.trace;
        self.resource.attributes = vec![
            text("service.name", &about.service),
            text("ptrail.source", about.source),
        ];
        Ok(())
    }

    fn span(&mut self, node: &Node<'_>, output: &mut Output) -> Result<(), SinkError> {
        let parent = node.parent.map(u64::to_be_bytes);
        let span = Span {
            trace_id: self.trace.to_be_bytes().to_vec(),
            span_id: node.id.to_be_bytes().to_vec(),
            parent_span_id: parent.map_or_else(Vec::new, |id| id.to_vec()),
            name: node.name.to_owned(),
            kind: INTERNAL,
            start_time_unix_nano: node.begin,
            end_time_unix_nano: node.end,
            attributes: node.attributes.iter().map(attribute).collect(),
        };
        prost::encoding::message::encode(2, &span, &mut self.spans);
        if self.spans.len() >= PIECE {
            self.flush(output)?;
        }
        Ok(())
    }

    fn end(&mut self, output: &mut Output) -> Result<(), SinkError> {
        self.flush(output)
    }
}
