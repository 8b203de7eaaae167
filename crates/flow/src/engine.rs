//! The machine that walks code under the direction of packets.
//!
//! It never runs ahead: after a packet it stands right behind the last branch that packet decided,
//! and the straight code up to the next decision is walked when the next packet says that it ran.
//! So an asynchronous event (FUP) in between is met at the right instruction.

mod loss;
mod walk;

use std::collections::HashMap;

use ptrail_image::{AddressSpace, Timeline};
use ptrail_pt::{
    BadPacket, Clock, Errata, ExecMode, Ip, IpPayload, LastIp, Lexed, Lexer, Loss, LossCause,
    Packet, PerfTime, Picos, PtConfig, TimeConv, Tnt, TraceOffset,
};

use crate::{
    Class, Edge, EdgeKind, FarKind, Instruction, OffCause, Segment, Sink, return_stack::ReturnStack,
};

/// What a segment is decoded with.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The code.
    pub timeline: &'a Timeline,
    /// The process whose code it is.
    pub pid: u32,
    /// The trace unit's settings.
    pub config: &'a PtConfig,
    /// From TSC to perf clock.
    pub conversion: Option<TimeConv>,
    /// Perf-clock time at which [`Picos`] are zero.
    pub base: PerfTime,
}

/// How a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Instructions decoded.
    pub instructions: u64,
    /// Trace bytes lost.
    pub lost_bytes: u64,
    /// Times that would have gone backwards and were clamped.
    pub clamps: u64,
}

/// Decodes one segment.
pub fn decode_segment<S: Sink>(
    segment: &Segment<'_>,
    context: &Context<'_>,
    sink: &mut S,
) -> SegmentEnd {
    let mut engine = Engine::new(context, sink);
    for item in Lexer::new(segment.bytes, segment.offset).for_cpu(context.config.cpu) {
        match item {
            Ok(lexed) => engine.packet(&lexed),
            Err(bad) => engine.bad_packet(&bad),
        }
    }
    engine.finish(segment)
}

/// Where execution stands.
#[derive(Clone, Debug)]
enum Position {
    /// The next instruction to execute.
    At(Ip),
    /// Tracing is off.
    Off,
    /// Not known since a loss, which ends at the next full address.
    Lost(Loss),
}

/// Why a walk could not go on: cause, address and one sentence.
struct Stray {
    cause: LossCause,
    reason: String,
}

impl Stray {
    fn desync(reason: String) -> Self {
        Self {
            cause: LossCause::Desync,
            reason,
        }
    }
}

type Walk<T> = Result<T, Stray>;

/// Outcomes that no branch has used yet, oldest at bit `len - 1`.
#[derive(Clone, Copy, Default)]
struct Outcomes {
    bits: u64,
    len: u8,
}

impl Outcomes {
    fn push(&mut self, tnt: Tnt) -> bool {
        let fits = self.len + tnt.len() <= 64;
        if fits && !tnt.is_empty() {
            self.bits = (self.bits.unbounded_shl(u32::from(tnt.len()))) | tnt.bits();
            self.len += tnt.len();
        }
        fits
    }

    fn pop(&mut self) -> Option<bool> {
        self.len = self.len.checked_sub(1)?;
        Some(self.bits >> self.len & 1 == 1)
    }
}

struct Engine<'a, S> {
    context: &'a Context<'a>,
    sink: &'a mut S,
    space: AddressSpace<'a>,
    cache: HashMap<Ip, Instruction>,
    clock: Clock,
    anchored: Option<Picos>,
    last_ip: LastIp,
    mode: ExecMode,
    /// A MODE.Exec that holds from the target of the next TIP on.
    next_mode: Option<ExecMode>,
    in_psb: bool,
    position: Position,
    outcomes: Outcomes,
    returns: ReturnStack,
    /// A FUP that its TIP or TIP.PGD has not followed yet.
    interrupted: Option<Ip>,
    /// The packet before says what the next FUP is for: only to name an address.
    fup_is_address: bool,
    tsx_abort: bool,
    instructions: u64,
    lost_bytes: u64,
}

impl<'a, S: Sink> Engine<'a, S> {
    fn new(context: &'a Context<'a>, sink: &'a mut S) -> Self {
        Self {
            context,
            sink,
            space: context.timeline.space(context.pid, context.base),
            cache: HashMap::new(),
            clock: Clock::new(context.config, context.conversion, context.base),
            anchored: None,
            last_ip: LastIp::new(),
            mode: ExecMode::Bits64,
            next_mode: None,
            in_psb: false,
            position: Position::Off,
            outcomes: Outcomes::default(),
            returns: ReturnStack::new(),
            interrupted: None,
            fup_is_address: false,
            tsx_abort: false,
            instructions: 0,
            lost_bytes: 0,
        }
    }

    fn packet(&mut self, lexed: &Lexed) {
        self.clock.eat(&lexed.packet);
        self.follow_mappings();
        match lexed.packet {
            Packet::Psb => self.psb(),
            Packet::PsbEnd => self.psb_end(),
            Packet::ModeExec { mode, .. } if self.in_psb => self.set_mode(mode),
            Packet::ModeExec { mode, .. } => {
                self.next_mode = Some(mode);
                // Event trace: a change of RFLAGS.IF names its address (SDM, "MODE.Exec Packet").
                self.fup_is_address = self.interrupted.is_none();
            }
            // Without branch packets there is no FUP behind it.
            Packet::ModeTsx { abort, .. } if !self.in_psb && !self.is_off() => {
                self.tsx_abort = abort;
                self.fup_is_address = !abort;
            }
            Packet::Ptw { ip: true, .. }
            | Packet::Exstop { ip: true }
            | Packet::Bep { ip: true }
            | Packet::Cfe { ip: true, .. }
            | Packet::Trig { ip: true, .. } => self.fup_is_address = true,
            Packet::Tnt(tnt) => self.guarded(lexed, |engine| engine.tnt(tnt)),
            Packet::Tip(payload) => self.addressed(lexed, payload, Self::tip),
            Packet::TipPge(payload) => self.addressed(lexed, payload, Self::tip_pge),
            Packet::TipPgd(payload) => self.tip_pgd(lexed, payload),
            Packet::Fup(payload) => self.addressed(lexed, payload, Self::fup),
            Packet::Ovf => self.overflow(lexed.offset),
            Packet::Tsc(_) | Packet::Mtc(_) if !self.context.config.cyc && !self.in_psb => {
                self.anchor();
            }
            _ => {}
        }
    }

    /// Runs the handler of a packet that carries an address. Where it fails, the way to the address
    /// is lost, but from the address on all is known again.
    fn addressed(
        &mut self,
        lexed: &Lexed,
        payload: IpPayload,
        handle: fn(&mut Self, Ip) -> Walk<()>,
    ) {
        let Some(ip) = self.last_ip.update(payload) else {
            // Without an address there is nothing to go by (SDM: only TIP.PGD and a FUP after OVF
            // may suppress it).
            return self.guarded(lexed, |_| {
                Err(Stray::desync("a packet came without its address".into()))
            });
        };
        if self.in_psb {
            return self.guarded(lexed, |engine| handle(engine, ip));
        }
        if !self.is_lost() {
            let (is_address, abort) = (self.fup_is_address, self.tsx_abort);
            match handle(self, ip) {
                // What comes behind the address is another matter.
                Ok(()) => {
                    if let Err(stray) = self.walk_outcomes() {
                        self.lose(lexed.offset, 0, stray);
                    }
                    return;
                }
                Err(stray) => self.lose(lexed.offset, 0, stray),
            }
            (self.fup_is_address, self.tsx_abort) = (is_address, abort);
        }
        self.recover(lexed, ip);
    }

    /// Runs the handler of a packet; where it fails, or where the position is lost, the packet's
    /// bytes are lost.
    fn guarded(&mut self, lexed: &Lexed, handle: impl FnOnce(&mut Self) -> Walk<()>) {
        let bytes = u64::from(lexed.len);
        if let Position::Lost(loss) = &mut self.position {
            loss.bytes += bytes;
            self.lost_bytes += bytes;
            return;
        }
        if let Err(stray) = handle(self) {
            self.lose(lexed.offset, bytes, stray);
        }
    }

    // ---- packets ----

    fn psb(&mut self) {
        self.in_psb = true;
        self.last_ip.reset();
    }

    fn psb_end(&mut self) {
        // A PSBEND also closes the status packets after an overflow; only a PSB's own starts here.
        if std::mem::take(&mut self.in_psb) {
            self.anchor();
            if let Position::At(ip) = self.position {
                self.sink.begin(ip, self.instructions);
            }
        }
    }

    fn tnt(&mut self, tnt: Tnt) -> Walk<()> {
        self.fup_is_address = false;
        if let Some(ip) = self.interrupted {
            return Err(Stray::desync(format!(
                "branch outcomes came where the target of the event at {ip:#x} should be"
            )));
        }
        if !self.outcomes.push(tnt) {
            return Err(Stray::desync(
                "branch outcomes came where the code has no branches for them".into(),
            ));
        }
        self.walk_outcomes()?;
        self.anchor();
        Ok(())
    }

    fn tip(&mut self, to: Ip) -> Walk<()> {
        self.fup_is_address = false;
        let aborted = std::mem::take(&mut self.tsx_abort);
        let edge = match self.interrupted.take() {
            Some(from) => {
                let kind = if aborted {
                    EdgeKind::TsxAbort
                } else {
                    EdgeKind::Async
                };
                let next = from;
                Edge {
                    kind,
                    from,
                    to,
                    next,
                }
            }
            None => {
                let (from, instruction) = self.walk_to_decision()?;
                let edge = self.indirect(from, instruction, to)?;
                self.execute(from);
                edge
            }
        };
        self.take_next_mode();
        self.position = Position::At(to);
        self.sink.edge(&edge, self.instructions);
        self.anchor();
        Ok(())
    }

    /// The edge of an instruction whose target came by TIP.
    fn indirect(&mut self, from: Ip, instruction: Instruction, to: Ip) -> Walk<Edge> {
        let next = from.offset(u64::from(instruction.len));
        let kind = match instruction.class {
            Class::JumpIndirect => EdgeKind::Jump,
            Class::CallIndirect => {
                self.returns.push(next);
                EdgeKind::Call
            }
            Class::Return => {
                // The CPU's stack moves although the return was not compressed.
                self.returns.pop();
                EdgeKind::Return
            }
            Class::Far(_) => EdgeKind::Far,
            Class::Conditional | Class::Plain | Class::Jump | Class::Call => {
                return Err(Stray::desync(format!(
                    "the trace has a branch target, but at {from:#x} the code has a conditional branch"
                )));
            }
        };
        Ok(Edge {
            kind,
            from,
            to,
            next,
        })
    }

    fn tip_pge(&mut self, to: Ip) -> Walk<()> {
        self.fup_is_address = false;
        if let Position::At(ip) = self.position {
            return Err(Stray::desync(format!(
                "tracing was switched on at {to:#x} but was on at {ip:#x}"
            )));
        }
        self.take_next_mode();
        self.position = Position::At(to);
        self.anchor();
        self.sink.on(to, self.instructions);
        Ok(())
    }

    /// Whatever was before, tracing is off behind this packet.
    fn tip_pgd(&mut self, lexed: &Lexed, payload: IpPayload) {
        let to = self.last_ip.update(payload);
        self.fup_is_address = false;
        if !self.is_lost()
            && let Err(stray) = self.leave(to)
        {
            self.lose(lexed.offset, 0, stray);
        }
        self.end_loss();
        self.position = Position::Off;
    }

    fn leave(&mut self, to: Option<Ip>) -> Walk<()> {
        if self.is_off() {
            return Ok(());
        }
        let (ip, next, cause) = match self.interrupted.take() {
            Some(ip) => match self.surplus_fup(ip) {
                Some(instruction) => {
                    self.execute(ip);
                    (
                        ip,
                        ip.offset(u64::from(instruction.len)),
                        OffCause::FarTransfer,
                    )
                }
                None => (ip, ip, OffCause::Async),
            },
            None => self.walk_out(to)?,
        };
        self.tsx_abort = false;
        self.sink.off(ip, next, cause, self.instructions);
        // Even if the time is that of the last anchor: what comes next in the stream comes after a
        // pause that must not be spread over the instructions before it.
        self.anchored = None;
        self.anchor();
        Ok(())
    }

    /// Erratum SKD022: the instruction of a VM entry that switched tracing off by itself, although
    /// a FUP came first as if it had been interrupted.
    fn surplus_fup(&mut self, ip: Ip) -> Option<Instruction> {
        let errata = self.context.config.cpu.and_then(Errata::of)?;
        let instruction = errata.skd022.then(|| self.fetch(ip))?.ok()?;
        (instruction.class == Class::Far(FarKind::Vm)).then_some(instruction)
    }

    fn fup(&mut self, ip: Ip) -> Walk<()> {
        if self.in_psb {
            self.position = Position::At(ip);
            return Ok(());
        }
        let is_address = std::mem::take(&mut self.fup_is_address);
        if self.is_off() {
            return Ok(());
        }
        self.walk_to(ip)?;
        // SDM, "Deferred TIPs": a FUP forces out all targets before it.
        if self.outcomes.len > 0 {
            return Err(Stray::desync(format!(
                "branch outcomes are left over at {ip:#x}"
            )));
        }
        self.at_fup(ip, is_address);
        self.anchor();
        Ok(())
    }

    /// Execution stands at the address of a FUP.
    fn at_fup(&mut self, ip: Ip, is_address: bool) {
        if is_address {
            self.take_next_mode();
        } else {
            self.interrupted = Some(ip);
        }
    }

    fn overflow(&mut self, offset: TraceOffset) {
        let stray = Stray {
            cause: LossCause::Overflow,
            reason: "the CPU produced packets faster than memory took them".into(),
        };
        self.lose(offset, 0, stray);
        self.in_psb = false;
    }

    fn bad_packet(&mut self, bad: &BadPacket) {
        let reason = if bad.truncated {
            "the data ends inside a packet"
        } else {
            "the bytes are no packet"
        };
        self.lose(
            bad.offset,
            bad.skipped,
            Stray {
                cause: LossCause::BadPacket,
                reason: reason.into(),
            },
        );
    }

    fn is_lost(&self) -> bool {
        matches!(self.position, Position::Lost(_))
    }

    fn is_off(&self) -> bool {
        matches!(self.position, Position::Off)
    }

    fn take_next_mode(&mut self) {
        if let Some(mode) = self.next_mode.take() {
            self.set_mode(mode);
        }
    }

    fn set_mode(&mut self, mode: ExecMode) {
        if self.mode != mode {
            self.mode = mode;
            // The same bytes are other instructions.
            self.cache.clear();
        }
    }

    // ---- time ----

    fn now(&self) -> Picos {
        self.clock.now().map_or(Picos(0), |time| time.at)
    }

    fn anchor(&mut self) {
        if self.is_lost() {
            return;
        }
        if let Some(time) = self.clock.now()
            && self.anchored != Some(time.at)
        {
            self.anchored = Some(time.at);
            self.sink.anchor(self.instructions, time);
        }
    }

    /// Goes over to the mappings that are valid by now.
    fn follow_mappings(&mut self) {
        let Some(change) = self.space.changes_at() else {
            return;
        };
        let now = PerfTime(self.context.base.0 + self.now().0 / 1000);
        if now >= change {
            self.space = self.context.timeline.space(self.context.pid, now);
            self.cache.clear();
        }
    }

    /// Walks on to where the next segment starts, and checks that the two meet.
    fn finish(mut self, segment: &Segment<'_>) -> SegmentEnd {
        // The PSBEND is missing.
        self.psb_end();
        let end = TraceOffset(segment.offset.0 + segment.bytes.len() as u64);
        if let Some(start) = segment.next {
            let met = match (&self.position, start.ip) {
                (Position::At(_), Some(ip)) => self.walk_to(ip),
                (Position::At(ip), None) => Err(Stray::desync(format!(
                    "tracing was on at {ip:#x}, but off at the next PSB"
                ))),
                (Position::Off, Some(ip)) => Err(Stray::desync(format!(
                    "tracing was off, but on at {ip:#x} at the next PSB"
                ))),
                (Position::Off, None) | (Position::Lost(_), _) => Ok(()),
            };
            if let Err(stray) = met {
                self.lose(end, 0, stray);
            }
        }
        self.end_loss();
        self.anchor();
        SegmentEnd {
            instructions: self.instructions,
            lost_bytes: self.lost_bytes,
            clamps: self.clock.clamps(),
        }
    }
}
