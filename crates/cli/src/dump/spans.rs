//! Function spans, in the order of their ends.

use std::collections::HashMap;
use std::io::{self, Write};

use ptrail_pt::{Loss, Picos};
use ptrail_trace::{Function, FunctionId, SinkError, Span, SpanSink, Track, TrackId};
use serde_json::json;

use super::nanoseconds;

pub(super) struct SpanLines<'a, W> {
    pub(super) out: &'a mut W,
    pub(super) json: bool,
    pub(super) functions: HashMap<FunctionId, Function>,
    pub(super) failed: Option<io::Error>,
}

impl<W: Write> SpanLines<'_, W> {
    fn write(&mut self, line: &str) {
        if self.failed.is_none() {
            self.failed = writeln!(self.out, "{line}").err();
        }
    }
}

impl<W: Write> SpanSink for SpanLines<'_, W> {
    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        if !self.json {
            self.write(&format!("# {}", track.name));
        }
        Ok(())
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        self.functions.insert(function.id, function.clone());
        Ok(())
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        let function = self.functions.get(&span.function);
        let (name, module) = function.map_or(("", ""), |f| (f.name.as_str(), f.module.as_str()));
        let duration = Picos(span.end.0 - span.begin.0);
        let flags: Vec<_> = span.flags.names().collect();
        let line = if self.json {
            let object = json!({
                "track": span.track.0,
                "begin_ps": span.begin.0,
                "duration_ps": duration.0,
                "depth": span.depth,
                "function": name,
                "module": module,
                "address": function.map(|f| format!("{:#x}", f.address)),
                "call_site": span.call_site.map(|ip| format!("{ip:#x}")),
                "instructions": span.instructions,
                "self_instructions": span.self_instructions,
                "flags": flags,
            });
            object.to_string()
        } else {
            format!(
                "{:>16} {:>14} {:>4} {:>9}  {name}{}{}",
                nanoseconds(span.begin),
                nanoseconds(duration),
                span.depth,
                span.instructions,
                if module.is_empty() {
                    String::new()
                } else {
                    format!(" ({module})")
                },
                if flags.is_empty() {
                    String::new()
                } else {
                    format!(" [{}]", flags.join(" "))
                },
            )
        };
        self.write(&line);
        Ok(())
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        let line = if self.json {
            let object = json!({
                "track": track.0, "loss": loss.cause.name(), "bytes": loss.bytes,
                "begin_ps": loss.begin.0, "end_ps": loss.end.0, "reason": loss.reason,
            });
            object.to_string()
        } else {
            format!(
                "# loss: {}: {} ({} bytes)",
                loss.cause.name(),
                loss.reason,
                loss.bytes
            )
        };
        self.write(&line);
        Ok(())
    }
}
