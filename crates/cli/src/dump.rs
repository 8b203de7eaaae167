//! `ptrail dump`: what a capture holds, one line an item.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

use anyhow::{Context, Result};
use ptrail_flow::{Edge, EdgeKind, OffCause, Sink};
use ptrail_perfdata::Capture;
use ptrail_pipeline::{Session, Stream};
use ptrail_pt::{Ip, LastIp, Lexer, Loss, Packet, Picos, Time, TraceOffset};
use ptrail_trace::{Function, FunctionId, SinkError, Span, SpanSink, Track, TrackId};
use serde_json::json;

use crate::args::DumpArgs;
use crate::packet_text::describe;

pub(crate) fn dump(args: &DumpArgs) -> Result<()> {
    let capture = Capture::open(&args.input)?;
    let session = Session::new(&capture)?;
    let mut out = BufWriter::new(io::stdout().lock());
    if args.spans {
        let mut lines = SpanLines {
            out: &mut out,
            json: args.json,
            functions: HashMap::new(),
            failed: None,
        };
        session.run(&mut lines, &mut |_| {})?;
        lines.failed.map_or(Ok(()), Err)?;
    } else {
        for stream in session.streams() {
            if !args.json && !args.digest {
                writeln!(
                    out,
                    "# {} pid {} tid {}",
                    stream.name, stream.pid, stream.tid
                )?;
            }
            if args.packets {
                packets(stream, args.json, &mut out)?;
            } else if args.branches {
                let lines = BranchLines {
                    out: &mut out,
                    json: args.json,
                    tid: stream.tid,
                    at: Picos(0),
                    failed: None,
                };
                walk(&session, stream, lines)?;
            } else if args.digest {
                digest(&session, stream, args.json, &mut out)?;
            } else {
                let lines = InstructionLines {
                    out: &mut out,
                    json: args.json,
                    tid: stream.tid,
                    failed: None,
                };
                walk(&session, stream, lines)?;
            }
        }
    }
    out.flush().context("standard output")
}

/// A sink that writes lines and remembers the first error.
trait Lines: Sink {
    fn take_error(&mut self) -> Option<io::Error>;
}

fn walk<L: Lines>(session: &Session<'_>, stream: &Stream<'_>, mut lines: L) -> Result<()> {
    session.walk(stream, &mut lines, |lines, _, _| {
        lines.take_error().map_or(Ok(()), Err)
    })?;
    Ok(())
}

// ---- packets ----

fn packets(stream: &Stream<'_>, as_json: bool, out: &mut impl Write) -> io::Result<()> {
    let mut last_ip = LastIp::new();
    for item in Lexer::new(&stream.bytes, TraceOffset(0)) {
        let (offset, name, payload) = match item {
            Ok(lexed) => {
                let (name, payload) = describe(&lexed.packet);
                (
                    lexed.offset.0,
                    name,
                    with_address(&lexed.packet, payload, &mut last_ip),
                )
            }
            Err(bad) => (
                bad.offset.0,
                "BAD",
                format!("{} bytes skipped", bad.skipped),
            ),
        };
        if as_json {
            let object =
                json!({"tid": stream.tid, "offset": offset, "packet": name, "payload": payload});
            writeln!(out, "{object}")?;
        } else {
            writeln!(out, "{offset:08x}  {name:<9}  {payload}")?;
        }
    }
    Ok(())
}

/// Adds the whole address to the payload of a packet that carries a compressed one.
fn with_address(packet: &Packet, payload: String, last_ip: &mut LastIp) -> String {
    match *packet {
        Packet::Psb => last_ip.reset(),
        Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => {
            if let Some(ip) = last_ip.update(ip) {
                return format!("{payload:<18} {ip:016x}");
            }
        }
        _ => {}
    }
    payload
}

// ---- branches ----

struct BranchLines<'a, W> {
    out: &'a mut W,
    json: bool,
    tid: u32,
    at: Picos,
    failed: Option<io::Error>,
}

impl<W: Write> BranchLines<'_, W> {
    fn line(&mut self, kind: &str, from: Option<Ip>, to: Option<Ip>) {
        if self.failed.is_some() {
            return;
        }
        let hex = |ip: Option<Ip>| ip.map(|ip| format!("{ip:#x}"));
        let written = if self.json {
            let (from, to) = (hex(from), hex(to));
            let object =
                json!({"tid": self.tid, "at_ps": self.at.0, "kind": kind, "from": from, "to": to});
            writeln!(self.out, "{object}")
        } else {
            let or_dash = |ip| hex(ip).unwrap_or_else(|| "-".into());
            let (from, to) = (or_dash(from), or_dash(to));
            writeln!(
                self.out,
                "{:>16}  {kind:<11}  {from:>18} -> {to}",
                nanoseconds(self.at)
            )
        };
        self.failed = written.err();
    }
}

impl<W: Write> Sink for BranchLines<'_, W> {
    fn edge(&mut self, edge: &Edge, _instructions: u64) {
        let kind = match edge.kind {
            EdgeKind::Conditional => "conditional",
            EdgeKind::Jump => "jump",
            EdgeKind::Call => "call",
            EdgeKind::Return => "return",
            EdgeKind::Far => "far",
            EdgeKind::Async => "async",
            EdgeKind::TsxAbort => "tsx-abort",
        };
        self.line(kind, Some(edge.from), Some(edge.to));
    }

    fn begin(&mut self, _ip: Ip, _instructions: u64) {}

    fn on(&mut self, ip: Ip, _instructions: u64) {
        self.line("on", None, Some(ip));
    }

    fn off(&mut self, ip: Ip, _next: Ip, cause: OffCause, _instructions: u64) {
        let kind = match cause {
            OffCause::Syscall => "off-syscall",
            OffCause::FarTransfer => "off-far",
            OffCause::Async => "off-async",
            OffCause::Filter => "off-filter",
        };
        self.line(kind, Some(ip), None);
    }

    fn anchor(&mut self, _instructions: u64, time: Time) {
        self.at = time.at;
    }

    fn loss(&mut self, loss: Loss, _broken: bool, _instructions: u64) {
        self.line(&format!("loss:{}", loss.cause.name()), loss.ip, None);
    }
}

impl<W: Write> Lines for BranchLines<'_, W> {
    fn take_error(&mut self) -> Option<io::Error> {
        self.failed.take()
    }
}

// ---- instructions ----

struct InstructionLines<'a, W> {
    out: &'a mut W,
    json: bool,
    tid: u32,
    failed: Option<io::Error>,
}

impl<W: Write> Sink for InstructionLines<'_, W> {
    const INSTRUCTIONS: bool = true;

    fn instruction(&mut self, ip: Ip) {
        if self.failed.is_none() {
            let written = if self.json {
                writeln!(
                    self.out,
                    "{}",
                    json!({"tid": self.tid, "ip": format!("{ip:#x}")})
                )
            } else {
                writeln!(self.out, "{ip:x}")
            };
            self.failed = written.err();
        }
    }

    fn edge(&mut self, _edge: &Edge, _instructions: u64) {}
    fn begin(&mut self, _ip: Ip, _instructions: u64) {}
    fn on(&mut self, _ip: Ip, _instructions: u64) {}
    fn off(&mut self, _ip: Ip, _next: Ip, _cause: OffCause, _instructions: u64) {}
    fn anchor(&mut self, _instructions: u64, _time: Time) {}

    fn loss(&mut self, loss: Loss, _broken: bool, _instructions: u64) {
        if self.failed.is_none() {
            let (cause, reason) = (loss.cause.name(), &loss.reason);
            let written = if self.json {
                writeln!(
                    self.out,
                    "{}",
                    json!({"tid": self.tid, "loss": cause, "reason": reason})
                )
            } else {
                writeln!(self.out, "# loss: {cause}: {reason}")
            };
            self.failed = written.err();
        }
    }
}

impl<W: Write> Lines for InstructionLines<'_, W> {
    fn take_error(&mut self) -> Option<io::Error> {
        self.failed.take()
    }
}

// ---- digest ----

/// FNV-1a 64 over the instruction addresses, each as 8 little-endian bytes.
struct Digest {
    hash: u64,
    instructions: u64,
    losses: u64,
}

impl Sink for Digest {
    const INSTRUCTIONS: bool = true;

    fn instruction(&mut self, ip: Ip) {
        for byte in ip.0.to_le_bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        self.instructions += 1;
    }

    fn edge(&mut self, _edge: &Edge, _instructions: u64) {}
    fn begin(&mut self, _ip: Ip, _instructions: u64) {}
    fn on(&mut self, _ip: Ip, _instructions: u64) {}
    fn off(&mut self, _ip: Ip, _next: Ip, _cause: OffCause, _instructions: u64) {}
    fn anchor(&mut self, _instructions: u64, _time: Time) {}

    fn loss(&mut self, _loss: Loss, _broken: bool, _instructions: u64) {
        self.losses += 1;
    }
}

fn digest(
    session: &Session<'_>,
    stream: &Stream<'_>,
    as_json: bool,
    out: &mut impl Write,
) -> Result<()> {
    let mut digest = Digest {
        hash: 0xcbf2_9ce4_8422_2325,
        instructions: 0,
        losses: 0,
    };
    session.walk(stream, &mut digest, |_, _, _| Ok::<_, io::Error>(()))?;
    let Digest {
        hash,
        instructions,
        losses,
    } = digest;
    let name = &stream.name;
    if as_json {
        let object = json!({
            "name": name, "pid": stream.pid, "tid": stream.tid, "instructions": instructions,
            "ip_fnv1a64": format!("{hash:016x}"), "losses": losses,
        });
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "{name}/{}  {instructions}  {hash:016x}", stream.tid)?;
        if losses > 0 {
            writeln!(out, "# {losses} losses; see `ptrail dump --instructions`")?;
        }
    }
    Ok(())
}

// ---- spans ----

struct SpanLines<'a, W> {
    out: &'a mut W,
    json: bool,
    functions: HashMap<FunctionId, Function>,
    failed: Option<io::Error>,
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

/// Nanoseconds with the picoseconds behind the point.
fn nanoseconds(time: Picos) -> String {
    format!("{}.{:03}", time.0 / 1000, time.0 % 1000)
}
