//! Every instruction that executed, or a digest of them.

use std::io::{self, Write};

use anyhow::Result;
use ptrail_flow::{Detail, Edge, OffCause, Sink};
use ptrail_pipeline::{Session, Stream};
use ptrail_pt::{Ip, Loss, Picos, Time};
use serde_json::{Map, Value, json};

use super::places::{Place, Places};
use super::{Lines, walk_by_libipt};
use crate::args::Engine;

pub(super) struct InstructionLines<'a, W> {
    pub(super) out: &'a mut W,
    pub(super) json: bool,
    pub(super) tid: u32,
    /// With it, where each instruction is.
    pub(super) places: Option<Places<'a>>,
    pub(super) at: Picos,
    pub(super) failed: Option<io::Error>,
}

impl<W: Write> Sink for InstructionLines<'_, W> {
    const DETAIL: Detail = Detail::Instructions;

    fn instructions(&mut self, ips: &[Ip]) {
        for ip in ips {
            if self.failed.is_some() {
                return;
            }
            let place = self.places.as_mut().map(|places| places.of(*ip, self.at));
            let written = if self.json {
                let mut object = Map::new();
                object.insert("tid".into(), self.tid.into());
                object.insert("ip".into(), format!("{ip:#x}").into());
                object.extend(place.iter().flat_map(Place::json));
                writeln!(self.out, "{}", Value::Object(object))
            } else {
                match place {
                    Some(place) => writeln!(self.out, "{ip:x}  {}", place.text()),
                    None => writeln!(self.out, "{ip:x}"),
                }
            };
            self.failed = written.err();
        }
    }

    fn edge(&mut self, _edge: &Edge, _instructions: u64) {}
    fn begin(&mut self, _ip: Ip, _instructions: u64) {}
    fn on(&mut self, _ip: Ip, _instructions: u64) {}
    fn off(&mut self, _ip: Ip, _next: Ip, _cause: OffCause, _instructions: u64) {}
    fn anchor(&mut self, _instructions: u64, time: Time) {
        self.at = time.at;
    }

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

/// FNV-1a 64 over the instruction addresses, each as 8 little-endian bytes.
struct Digest {
    hash: u64,
    instructions: u64,
    losses: u64,
}

impl Sink for Digest {
    const DETAIL: Detail = Detail::Instructions;

    fn instructions(&mut self, ips: &[Ip]) {
        for byte in ips.iter().flat_map(|ip| ip.0.to_le_bytes()) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        self.instructions += ips.len() as u64;
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

pub(super) fn digest(
    session: &Session<'_>,
    stream: &Stream<'_>,
    engine: Engine,
    as_json: bool,
    out: &mut impl Write,
) -> Result<()> {
    let mut digest = Digest {
        hash: 0xcbf2_9ce4_8422_2325,
        instructions: 0,
        losses: 0,
    };
    match engine {
        Engine::Ptrail => session.walk(stream, &mut digest, |_, _, _| Ok::<_, io::Error>(()))?,
        Engine::Libipt => walk_by_libipt(session, stream, &mut digest)?,
    }
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
