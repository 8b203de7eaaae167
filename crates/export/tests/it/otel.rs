//! OTLP and Zipkin files, and the tree that their ids make. `tests/consumers` opens OTLP with
//! OpenTelemetry's own schema.

use std::{collections::HashMap, path::PathBuf};

use ptrail_export::{Format, Settings, create_with};
use ptrail_pt::LossCause;
use ptrail_trace::{PointKind, Source, SpanFlags};
use serde_json::Value;

use crate::{
    program,
    protobuf::{messages, number, strings, text},
    stream::{BASE, Slice, Stream},
};

const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn written(stream: &Stream, name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    let settings = Settings {
        trace_parent: Some(PARENT.parse().unwrap()),
    };
    let format = Format::from_path(&path).unwrap();
    let mut sink = create_with(format, &path, &settings).unwrap();
    stream.play(sink.as_mut());
    (dir, path)
}

/// A span as it stands in a file.
#[derive(Debug)]
struct Seen {
    trace: String,
    id: String,
    parent: Option<String>,
    name: String,
    begin: u64,
    end: u64,
    attributes: HashMap<String, String>,
}

fn read(path: &PathBuf) -> Vec<Seen> {
    let bytes = std::fs::read(path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    if name == "a.otlp" {
        return protobuf(&bytes);
    }
    let file: Value = serde_json::from_slice(&bytes).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    if name == "a.zipkin.json" {
        let span = |span: &Value| {
            assert_eq!(span["localEndpoint"]["serviceName"], "demo");
            let tags = span["tags"].as_object().unwrap().iter();
            let mut attributes: HashMap<_, _> = tags
                .map(|(key, value)| (key.clone(), text(value)))
                .collect();
            let mut exact = |key: &str| -> u64 { attributes.remove(key).unwrap().parse().unwrap() };
            let (begin, duration) = (exact("ptrail.begin_ns"), exact("ptrail.duration_ns"));
            assert_eq!(span["timestamp"].as_u64(), Some(begin / 1000));
            assert_eq!(span["duration"].as_u64(), Some((duration / 1000).max(1)));
            Seen {
                trace: text(&span["traceId"]),
                id: text(&span["id"]),
                parent: span["parentId"].as_str().map(str::to_owned),
                name: text(&span["name"]),
                begin,
                end: begin + duration,
                attributes,
            }
        };
        return file.as_array().unwrap().iter().map(span).collect();
    }
    let mut seen = Vec::new();
    for resource in file["resourceSpans"].as_array().unwrap() {
        let service = &resource["resource"]["attributes"][0];
        assert_eq!(service["value"]["stringValue"], "demo");
        for span in resource["scopeSpans"][0]["spans"].as_array().unwrap() {
            let number = |key: &str| text(&span[key]).parse().unwrap();
            let attributes = span["attributes"].as_array().unwrap().iter();
            let value = |value: &Value| {
                let text = value["stringValue"].as_str();
                text.unwrap_or_else(|| value["intValue"].as_str().unwrap())
                    .to_owned()
            };
            seen.push(Seen {
                trace: text(&span["traceId"]),
                id: text(&span["spanId"]),
                parent: span["parentSpanId"].as_str().map(str::to_owned),
                name: text(&span["name"]),
                begin: number("startTimeUnixNano"),
                end: number("endTimeUnixNano"),
                attributes: attributes
                    .map(|attribute| (text(&attribute["key"]), value(&attribute["value"])))
                    .collect(),
            });
        }
    }
    seen
}

/// By field numbers alone.
fn protobuf(bytes: &[u8]) -> Vec<Seen> {
    let hex = |message: &[u8], field| {
        let bytes = messages(message, field);
        bytes
            .first()
            .map(|bytes| bytes.iter().map(|b| format!("{b:02x}")).collect())
    };
    let pairs = |message: &[u8], field| -> HashMap<String, String> {
        let value = |value: &[u8]| match strings(value, 1).first() {
            Some(text) => text.clone(),
            None => number(value, 3).to_string(),
        };
        messages(message, field)
            .into_iter()
            .map(|pair| (text(pair, 1), value(messages(pair, 2)[0])))
            .collect()
    };
    let mut seen = Vec::new();
    for resource in messages(bytes, 1) {
        assert_eq!(pairs(messages(resource, 1)[0], 1)["service.name"], "demo");
        for scope in messages(resource, 2) {
            assert_eq!(text(messages(scope, 1)[0], 1), "ptrail");
            seen.extend(messages(scope, 2).into_iter().map(|span| Seen {
                trace: hex(span, 1).unwrap(),
                id: hex(span, 2).unwrap(),
                parent: hex(span, 4),
                name: text(span, 5),
                begin: number(span, 7),
                end: number(span, 8),
                attributes: pairs(span, 9),
            }));
        }
    }
    seen
}

/// The spans of calls as slices, each with its caller's name; the tree must hang together.
fn slices(seen: &[Seen], epoch: u64) -> Vec<Slice> {
    let by_id: HashMap<_, _> = seen.iter().map(|span| (&span.id, span)).collect();
    assert_eq!(by_id.len(), seen.len(), "an id stands for two spans");
    let call = |span: &&Seen| span.attributes.contains_key("code.function.name");
    let slice = |span: &Seen| {
        assert_eq!(span.trace, format!("{TRACE:032x}"));
        let mut callers = Vec::new();
        let mut at = span;
        while let Some(parent) = by_id.get(at.parent.as_ref().unwrap()) {
            assert!(
                parent.begin <= at.begin && at.end <= parent.end,
                "{at:?} {parent:?}"
            );
            callers.extend(call(parent).then(|| parent.name.clone()));
            at = parent;
        }
        assert_eq!(at.parent.as_deref(), Some("00f067aa0ba902b7"), "{at:?}");
        let of = |key: &str| span.attributes.get(key).cloned();
        let args = [
            ("address", of("ptrail.address")),
            ("call_site", of("ptrail.call_site")),
            ("caller", callers.first().cloned()),
            ("flags", of("ptrail.flags")),
            ("instructions", of("ptrail.instructions")),
            ("mangled_name", of("ptrail.mangled_name")),
            ("module", of("ptrail.module")),
            ("self_instructions", of("ptrail.self_instructions")),
            ("source.file_name", of("code.file.path")),
            ("source.line_number", of("code.line.number")),
        ];
        let number = |key: &str| span.attributes[key].parse().unwrap();
        Slice {
            thread: (
                number("process.pid"),
                number("thread.id"),
                span.attributes["thread.name"].clone(),
            ),
            name: span.attributes["code.function.name"].clone(),
            ts: (span.begin - epoch + BASE) as i64,
            dur: (span.end - span.begin) as i64,
            depth: callers.len() as i64,
            args: args
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?)))
                .collect(),
        }
    };
    seen.iter().filter(call).map(slice).collect()
}

fn with_callers(slices: Vec<Slice>) -> Vec<Slice> {
    let mut path = Vec::<String>::new();
    let mut done = Vec::new();
    for mut slice in slices {
        path.truncate(slice.depth as usize);
        let caller = path.last().cloned();
        slice
            .args
            .extend(caller.map(|name| ("caller".to_owned(), name)));
        slice.args.sort();
        path.push(slice.name.clone());
        done.push(slice);
    }
    done
}

fn sorted(slices: Vec<Slice>) -> Vec<String> {
    let mut lines: Vec<_> = slices.iter().map(|slice| format!("{slice:?}")).collect();
    lines.sort();
    lines
}

#[test]
fn the_tree_is_that_of_the_calls() {
    for name in ["a.otlp", "a.otlp.json", "a.zipkin.json"] {
        for mut stream in [
            program::random(0x5eed_0050, 20_000),
            program::late_ties(),
            program::odd_names(),
            program::deep(2_000, 200),
        ] {
            let (_dir, path) = written(&stream, name);
            let seen = slices(&read(&path), stream.recording.wall_clock.unwrap());
            let (seen, truth) = (sorted(seen), sorted(with_callers(stream.slices())));
            for (seen, truth) in seen.iter().zip(&truth) {
                assert_eq!(seen, truth, "{name}");
            }
            assert_eq!(seen.len(), truth.len());
        }
    }
}

#[test]
fn the_recording_its_points_and_losses_are_spans() {
    let mut stream = Stream::new(Source::Software);
    let track = stream.thread(10, 11, "worker");
    stream.enter(track, "main", 1_000);
    stream.point(track, 3_500, PointKind::Signal, "SIGUSR1");
    stream.loss(track, 5_000, 8_000, LossCause::Overflow, "line\nbreak");
    stream.leave(track, 20_000, SpanFlags::CUT);
    let epoch = stream.recording.wall_clock.unwrap();
    for name in ["a.otlp", "a.otlp.json", "a.zipkin.json"] {
        let (_dir, path) = written(&stream, name);
        let seen = read(&path);
        let at = |name: &str| seen.iter().find(|span| span.name == name).unwrap();
        let root = at("demo --fast");
        let times = |span: &Seen| (span.begin - epoch, span.end - epoch);
        assert_eq!(times(root), (0, 20));
        let thread = at("thread worker 11");
        assert_eq!(
            (times(thread), &thread.parent),
            ((1, 20), &Some(root.id.clone()))
        );
        let main = at("main");
        assert_eq!(main.parent.as_ref(), Some(&thread.id));
        let signal = at("SIGUSR1");
        assert_eq!(
            (times(signal), &signal.parent),
            ((3, 3), &Some(main.id.clone()))
        );
        let loss = at("lost: overflow");
        assert_eq!(times(loss), (5, 8));
        assert_eq!(loss.attributes["ptrail.reason"], "line\nbreak");
        assert_eq!(loss.attributes["ptrail.bytes"], "4096");
        // The same again, to the byte.
        let (_dir, again) = written(&stream, name);
        assert!(std::fs::read(path).unwrap() == std::fs::read(again).unwrap());
    }
}
