//! OpenTelemetry's own protobuf schema, through its Python package.

use std::{collections::BTreeMap, process::Command};

use serde_json::Value;

use crate::{program, sums, write};

/// Prints each span; complains of fields that the schema does not know.
const READER: &str = "
import json, sys
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from google.protobuf.unknown_fields import UnknownFieldSet
data = TracesData.FromString(open(sys.argv[1], 'rb').read())
def check(message):
    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type:
            for inner in value if field.is_repeated else [value]: check(inner)
check(data)
for resource in data.resource_spans:
    for scope in resource.scope_spans:
        for span in scope.spans:
            assert len(span.trace_id) == 16 and len(span.span_id) == 8 and span.kind == 1
            attributes = {a.key: a.value.string_value or a.value.int_value for a in span.attributes}
            print(json.dumps([span.name, span.end_time_unix_nano - span.start_time_unix_nano, attributes]))
";

#[test]
fn sums_by_function_are_those_of_the_slices() {
    for mut stream in [program::random(0x5eed_0051, 20_000), program::odd_names()] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.otlp");
        write(&stream, &path);
        let output = Command::new("python3")
            .args(["-c", READER])
            .arg(&path)
            .output()
            .expect("python3 runs");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{messages}");
        let mut seen = BTreeMap::<String, sums::Sums>::new();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let span: Value = serde_json::from_str(line).unwrap();
            let (name, attributes) = (span[0].as_str().unwrap(), &span[2]);
            if attributes.get("code.function.name").is_some() {
                let instructions = attributes["ptrail.instructions"].as_u64().unwrap();
                let all = seen.entry(name.to_owned()).or_default();
                sums::add(all, (1, span[1].as_u64().unwrap(), instructions));
            }
        }
        let mut truth = BTreeMap::<String, sums::Sums>::new();
        for slice in stream.slices() {
            let instructions = sums::arg(&slice, "instructions").parse().unwrap();
            let all = truth.entry(slice.name).or_default();
            sums::add(all, (1, slice.dur as u64, instructions));
        }
        assert_eq!(seen, truth);
    }
}
