//! The packets of a trace: offset, time, name, payload, whole address; or how many there are.

use std::io::{self, Write};

use anyhow::Result;
use ptrail_perfdata::Capture;
use ptrail_pipeline::base_time;
use ptrail_pt::{BadPacket, Clock, CpuId, Ip, LastIp, Lexed, Packet, PerfTime, Time};
use serde_json::{Map, Value, json};

use super::nanoseconds;
use super::packet_text::describe;
use super::source::{Stream, streams};
use super::statistics::Statistics;
use crate::args::DumpArgs;

pub(super) fn packets(args: &DumpArgs, out: &mut impl Write) -> Result<()> {
    let input = args.input.open()?;
    let capture = &input.capture;
    let base = args.time.then(|| base_time(capture));
    if let Some(base) = base.filter(|_| !args.json) {
        let PerfTime(base) = base;
        writeln!(
            out,
            "# times in ns since perf time {base} ns{}",
            ticks(capture)
        )?;
    }
    for stream in &streams(capture) {
        if args.stats {
            let statistics = Statistics::of(stream, capture.pt_config.cpu);
            if args.json {
                writeln!(out, "{}", statistics.json(stream))?;
            } else {
                write!(out, "{}", statistics.text(stream))?;
            }
        } else {
            if !args.json {
                writeln!(out, "# {}", stream.title())?;
            }
            let clock = base.map(|base| Clock::new(&capture.pt_config, capture.clock, base));
            list(stream, capture.pt_config.cpu, clock, args.json, out)?;
        }
    }
    Ok(())
}

fn ticks(capture: &Capture) -> &'static str {
    if capture.clock.is_some() {
        ""
    } else {
        " (how TSC ticks convert is not known: one is taken for a nanosecond)"
    }
}

fn list(
    stream: &Stream<'_>,
    cpu: Option<CpuId>,
    mut clock: Option<Clock>,
    json: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let with_time = clock.is_some();
    let mut last_ip = LastIp::new();
    let (skipped, lexer) = stream.lexer(cpu);
    let before = (skipped > 0).then(|| Line::before_first_psb(skipped));
    let lines = lexer.map(|item| Line::new(&item, &mut last_ip, clock.as_mut()));
    for line in before.into_iter().chain(lines) {
        if json {
            writeln!(out, "{}", line.json(stream, with_time))?;
        } else {
            line.write(with_time, out)?;
        }
    }
    Ok(())
}

struct Line {
    offset: u64,
    len: u64,
    name: &'static str,
    payload: String,
    /// The whole address that a compressed one stands for.
    ip: Option<Ip>,
    time: Option<Time>,
}

impl Line {
    fn before_first_psb(bytes: u64) -> Self {
        Self {
            offset: 0,
            len: bytes,
            name: "SKIP",
            payload: format!("{bytes} bytes before the first PSB"),
            ip: None,
            time: None,
        }
    }

    fn new(
        item: &Result<Lexed, BadPacket>,
        last_ip: &mut LastIp,
        mut clock: Option<&mut Clock>,
    ) -> Self {
        let now = |clock: Option<&mut Clock>| clock.and_then(|clock| clock.now());
        match item {
            Ok(lexed) => {
                if let Some(clock) = &mut clock {
                    clock.eat(&lexed.packet);
                }
                let (name, payload) = describe(&lexed.packet);
                Self {
                    offset: lexed.offset.0,
                    len: lexed.len.into(),
                    name,
                    payload,
                    ip: address(&lexed.packet, last_ip),
                    time: now(clock),
                }
            }
            Err(bad) => Self {
                offset: bad.offset.0,
                len: bad.skipped,
                name: "BAD",
                payload: format!(
                    "{} bytes skipped{}",
                    bad.skipped,
                    if bad.truncated { ", cut off" } else { "" }
                ),
                ip: None,
                time: now(clock),
            },
        }
    }

    fn write(&self, with_time: bool, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{:08x}  ", self.offset)?;
        if with_time {
            let time = self
                .time
                .map_or_else(|| "-".into(), |time| nanoseconds(time.at));
            let error = match self.time {
                Some(time) if time.error.0 < u64::MAX => format!("±{}", nanoseconds(time.error)),
                _ => "±?".into(),
            };
            write!(out, "{time:>18} {error:<12}  ")?;
        }
        match self.ip {
            Some(ip) => writeln!(out, "{:<9}  {:<18} {:016x}", self.name, self.payload, ip.0),
            None => writeln!(out, "{:<9}  {}", self.name, self.payload),
        }
    }

    fn json(&self, stream: &Stream<'_>, with_time: bool) -> Value {
        let mut object = Map::new();
        object.extend(stream.owner_json());
        let mut add = |key: &str, value: Value| object.insert(key.into(), value);
        add("offset", self.offset.into());
        add("len", self.len.into());
        add("packet", self.name.into());
        add("payload", self.payload.as_str().into());
        if let Some(ip) = self.ip {
            add("ip", format!("{ip:#x}").into());
        }
        if with_time {
            let error = self
                .time
                .map(|time| time.error.0)
                .filter(|&error| error < u64::MAX);
            add("at_ps", json!(self.time.map(|time| time.at.0)));
            add("error_ps", json!(error));
        }
        Value::Object(object)
    }
}

/// Keeps `last_ip` up to date; the address if the packet carries one.
fn address(packet: &Packet, last_ip: &mut LastIp) -> Option<Ip> {
    match *packet {
        Packet::Psb => {
            last_ip.reset();
            None
        }
        Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => {
            last_ip.update(ip)
        }
        _ => None,
    }
}
