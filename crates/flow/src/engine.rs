//! The machine that walks code under the direction of packets.
//!
//! It never runs ahead: after a packet it stands right behind the last branch that packet decided,
//! and the straight code up to the next decision is walked when the next packet says that it ran.
//! So an asynchronous event (FUP) in between is met at the right instruction.

use std::collections::HashMap;

use ptrail_image::{AddressSpace, Timeline};
use ptrail_pt::{
    BadPacket, Clock, ExecMode, Ip, IpPayload, LastIp, Lexed, Lexer, Loss, LossCause, Packet, PerfTime, Picos,
    PtConfig, TimeConv, Tnt, TraceOffset,
};

use crate::{
    Class, Edge, EdgeKind, FarKind, Instruction, OffCause, Segment, Sink, return_stack::ReturnStack,
};

/// More instructions than any straight piece of code has; a walk this long without a decision from
/// the trace is on a wrong path (a direct jump to itself, say).
const WALK_LIMIT: u32 = 1 << 20;

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
pub fn decode_segment<S: Sink>(segment: &Segment<'_>, context: &Context<'_>, sink: &mut S) -> SegmentEnd {
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
        Self { cause: LossCause::Desync, reason }
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
            Packet::ModeExec { mode, .. } if self.in_psb => self.mode = mode,
            Packet::ModeExec { mode, .. } => self.next_mode = Some(mode),
            Packet::ModeTsx { abort, .. } if !self.in_psb => {
                self.tsx_abort = abort;
                self.fup_is_address = !abort;
            }
            Packet::Ptw { ip: true, .. }
            | Packet::Exstop { ip: true }
            | Packet::Bep { ip: true }
            | Packet::Trig { ip: true, .. } => self.fup_is_address = true,
            Packet::Tnt(tnt) => self.guarded(lexed, |engine| engine.tnt(tnt)),
            Packet::Tip(payload) => self.addressed(lexed, payload, Self::tip),
            Packet::TipPge(payload) => self.addressed(lexed, payload, Self::tip_pge),
            Packet::TipPgd(payload) => {
                let ip = self.last_ip.update(payload);
                self.guarded(lexed, |engine| engine.tip_pgd(ip));
            }
            Packet::Fup(payload) => self.addressed(lexed, payload, Self::fup),
            Packet::Ovf => self.overflow(lexed.offset),
            Packet::Tsc(_) | Packet::Mtc(_) if !self.context.config.cyc && !self.in_psb => self.anchor(),
            _ => {}
        }
    }

    /// Runs the handler of a packet that carries an address.
    fn addressed(&mut self, lexed: &Lexed, payload: IpPayload, handle: fn(&mut Self, Ip) -> Walk<()>) {
        match self.last_ip.update(payload) {
            Some(ip) if matches!(self.position, Position::Lost(_)) && !self.in_psb => self.recover(ip),
            Some(ip) => self.guarded(lexed, |engine| handle(engine, ip)),
            // Without an address there is nothing to go by (SDM: only TIP.PGD and a FUP after OVF
            // may suppress it).
            None => self.guarded(lexed, |_| Err(Stray::desync("a packet came without its address".into()))),
        }
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
        if !self.outcomes.push(tnt) {
            return Err(Stray::desync("branch outcomes came where the code has no branches for them".into()));
        }
        self.walk_outcomes()?;
        self.anchor();
        Ok(())
    }

    fn tip(&mut self, to: Ip) -> Walk<()> {
        let edge = match self.interrupted.take() {
            Some(from) => {
                let kind =
                    if std::mem::take(&mut self.tsx_abort) { EdgeKind::TsxAbort } else { EdgeKind::Async };
                Edge { kind, from, to, next: from }
            }
            None => {
                let (from, instruction) = self.walk_to_decision()?;
                self.execute(from);
                self.indirect(from, instruction, to)?
            }
        };
        self.mode = self.next_mode.take().unwrap_or(self.mode);
        self.position = Position::At(to);
        self.sink.edge(&edge, self.instructions);
        self.anchor();
        self.walk_outcomes()
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
        Ok(Edge { kind, from, to, next })
    }

    fn tip_pge(&mut self, to: Ip) -> Walk<()> {
        if let Position::At(ip) = self.position {
            return Err(Stray::desync(format!("tracing was switched on at {to:#x} but was on at {ip:#x}")));
        }
        self.mode = self.next_mode.take().unwrap_or(self.mode);
        self.position = Position::At(to);
        self.anchor();
        self.sink.on(to, self.instructions);
        Ok(())
    }

    fn tip_pgd(&mut self, to: Option<Ip>) -> Walk<()> {
        if matches!(self.position, Position::Off) {
            return Ok(());
        }
        let (ip, next, cause) = match self.interrupted.take() {
            Some(ip) => (ip, ip, OffCause::Async),
            None => self.walk_out(to)?,
        };
        self.tsx_abort = false;
        self.sink.off(ip, next, cause, self.instructions);
        self.anchor();
        self.position = Position::Off;
        self.outcomes = Outcomes::default();
        Ok(())
    }

    fn fup(&mut self, ip: Ip) -> Walk<()> {
        if self.in_psb {
            self.position = Position::At(ip);
            return Ok(());
        }
        let is_address = std::mem::take(&mut self.fup_is_address);
        if matches!(self.position, Position::Off) {
            return Ok(());
        }
        self.walk_to(ip)?;
        if !is_address {
            self.interrupted = Some(ip);
        }
        self.anchor();
        Ok(())
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
        let reason = if bad.truncated { "the data ends inside a packet" } else { "the bytes are no packet" };
        self.lose(bad.offset, bad.skipped, Stray { cause: LossCause::BadPacket, reason: reason.into() });
    }

    // ---- losses ----

    fn lose(&mut self, offset: TraceOffset, bytes: u64, stray: Stray) {
        self.end_loss();
        self.anchor();
        let ip = match self.position {
            Position::At(ip) => Some(ip),
            _ => None,
        };
        let now = self.now();
        let Stray { cause, reason } = stray;
        self.position = Position::Lost(Loss { cause, bytes, offset, begin: now, end: now, ip, reason });
        self.lost_bytes += bytes;
        self.outcomes = Outcomes::default();
        self.returns.clear();
        self.interrupted = None;
        self.fup_is_address = false;
        self.tsx_abort = false;
    }

    /// Ends a loss, if there is one, at the present time.
    fn end_loss(&mut self) {
        if let Position::Lost(mut loss) = std::mem::replace(&mut self.position, Position::Off) {
            loss.end = self.now();
            self.sink.loss(loss, true, self.instructions);
        }
    }

    fn recover(&mut self, ip: Ip) {
        self.end_loss();
        self.mode = self.next_mode.take().unwrap_or(self.mode);
        self.position = Position::At(ip);
        self.anchor();
        self.sink.begin(ip, self.instructions);
    }

    // ---- time ----

    fn now(&self) -> Picos {
        self.clock.now().map_or(Picos(0), |time| time.at)
    }

    fn anchor(&mut self) {
        if matches!(self.position, Position::Lost(_)) {
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
        let Some(change) = self.space.changes_at() else { return };
        let now = PerfTime(self.context.base.0 + self.now().0 / 1000);
        if now >= change {
            self.space = self.context.timeline.space(self.context.pid, now);
            self.cache.clear();
        }
    }

    // ---- walking ----

    fn at(&self) -> Walk<Ip> {
        match self.position {
            Position::At(ip) => Ok(ip),
            _ => Err(Stray::desync("the trace goes on although tracing was off".into())),
        }
    }

    fn fetch(&mut self, ip: Ip) -> Walk<Instruction> {
        if let Some(&instruction) = self.cache.get(&ip) {
            return Ok(instruction);
        }
        let code = self
            .space
            .code(ip)
            .map_err(|no_code| Stray { cause: LossCause::NoCode, reason: format!("{ip:#x}: {no_code}") })?;
        let instruction = Instruction::decode(code, ip, self.mode).or_else(|| {
            let mut bytes = [0; 15];
            let len = self.space.fetch(ip, &mut bytes);
            Instruction::decode(&bytes[..len], ip, self.mode)
        });
        let instruction = instruction.ok_or_else(|| {
            Stray::desync(format!("{ip:#x}: the bytes there are no instruction; did the code change?"))
        })?;
        self.cache.insert(ip, instruction);
        Ok(instruction)
    }

    fn execute(&mut self, ip: Ip) {
        self.instructions += 1;
        if S::INSTRUCTIONS {
            self.sink.instruction(ip);
        }
    }

    /// Executes an instruction that needs no decision; `false`, and nothing done, if it needs one.
    fn advance(&mut self, ip: Ip, instruction: Instruction) -> bool {
        let next = ip.offset(u64::from(instruction.len));
        let to = match instruction.class {
            Class::Plain => next,
            Class::Jump | Class::Call => instruction.target,
            _ => return false,
        };
        self.execute(ip);
        self.position = Position::At(to);
        let kind = match instruction.class {
            Class::Jump => EdgeKind::Jump,
            Class::Call => EdgeKind::Call,
            _ => return true,
        };
        // SDM, "Return Compression": a CALL to the next instruction is not pushed.
        if kind == EdgeKind::Call && to != next {
            self.returns.push(next);
        }
        self.sink.edge(&Edge { kind, from: ip, to, next }, self.instructions);
        true
    }

    /// Uses up branch outcomes, as far as no target from a TIP is needed in between.
    fn walk_outcomes(&mut self) -> Walk<()> {
        let mut left = WALK_LIMIT;
        while self.outcomes.len > 0 {
            let ip = self.at()?;
            let instruction = self.fetch(ip)?;
            if self.advance(ip, instruction) {
                left = left.checked_sub(1).ok_or_else(|| runaway(ip))?;
                continue;
            }
            match instruction.class {
                Class::Conditional => self.conditional(ip, instruction),
                Class::Return => self.compressed_return(ip, instruction)?,
                _ => return Ok(()),
            }
            left = WALK_LIMIT;
        }
        Ok(())
    }

    fn conditional(&mut self, ip: Ip, instruction: Instruction) {
        let next = ip.offset(u64::from(instruction.len));
        self.execute(ip);
        if self.outcomes.pop() == Some(true) {
            let edge = Edge { kind: EdgeKind::Conditional, from: ip, to: instruction.target, next };
            self.sink.edge(&edge, self.instructions);
            self.position = Position::At(instruction.target);
        } else {
            self.position = Position::At(next);
        }
    }

    fn compressed_return(&mut self, ip: Ip, instruction: Instruction) -> Walk<()> {
        if self.outcomes.pop() != Some(true) {
            return Err(Stray::desync(format!("{ip:#x}: a compressed return that was not taken")));
        }
        let to = self
            .returns
            .pop()
            .ok_or_else(|| Stray::desync(format!("{ip:#x}: a compressed return without its call")))?;
        self.execute(ip);
        let next = ip.offset(u64::from(instruction.len));
        self.position = Position::At(to);
        self.sink.edge(&Edge { kind: EdgeKind::Return, from: ip, to, next }, self.instructions);
        Ok(())
    }

    /// Walks to the next instruction that needs a decision and returns it, not yet executed.
    fn walk_to_decision(&mut self) -> Walk<(Ip, Instruction)> {
        for _ in 0..WALK_LIMIT {
            let ip = self.at()?;
            let instruction = self.fetch(ip)?;
            if !self.advance(ip, instruction) {
                return Ok((ip, instruction));
            }
        }
        Err(runaway(self.at()?))
    }

    /// Walks to `target`, which did not execute yet.
    fn walk_to(&mut self, target: Ip) -> Walk<()> {
        for _ in 0..WALK_LIMIT {
            let ip = self.at()?;
            if ip == target {
                return Ok(());
            }
            let instruction = self.fetch(ip)?;
            if !self.advance(ip, instruction) {
                return Err(Stray::desync(format!(
                    "the trace says that {target:#x} was reached, but the code branches at {ip:#x}"
                )));
            }
        }
        Err(runaway(target))
    }

    /// Walks to the instruction that left the traced code, executes it and says where it is, what
    /// is behind it and what it was.
    fn walk_out(&mut self, to: Option<Ip>) -> Walk<(Ip, Ip, OffCause)> {
        for _ in 0..WALK_LIMIT {
            let ip = self.at()?;
            let instruction = self.fetch(ip)?;
            let next = ip.offset(u64::from(instruction.len));
            let leaves = match instruction.class {
                Class::Plain => to == Some(next),
                Class::Jump | Class::Call => to == Some(instruction.target),
                _ => true,
            };
            if leaves {
                self.execute(ip);
                let cause = match instruction.class {
                    Class::Far(FarKind::Syscall) => OffCause::Syscall,
                    Class::Far(_) => OffCause::FarTransfer,
                    _ => OffCause::Filter,
                };
                return Ok((ip, next, cause));
            }
            self.advance(ip, instruction);
        }
        Err(runaway(self.at()?))
    }

    /// Walks on to where the next segment starts, and checks that the two meet.
    fn finish(mut self, segment: &Segment<'_>) -> SegmentEnd {
        let end = TraceOffset(segment.offset.0 + segment.bytes.len() as u64);
        if let Some(start) = segment.next {
            let met = match (&self.position, start.ip) {
                (Position::At(_), Some(ip)) => self.walk_to(ip),
                (Position::At(ip), None) => {
                    Err(Stray::desync(format!("tracing was on at {ip:#x}, but off at the next PSB")))
                }
                (Position::Off, Some(ip)) => {
                    Err(Stray::desync(format!("tracing was off, but on at {ip:#x} at the next PSB")))
                }
                (Position::Off, None) | (Position::Lost(_), _) => Ok(()),
            };
            if let Err(stray) = met {
                self.lose(end, 0, stray);
            }
        }
        self.end_loss();
        SegmentEnd {
            instructions: self.instructions,
            lost_bytes: self.lost_bytes,
            clamps: self.clock.clamps(),
        }
    }
}

fn runaway(ip: Ip) -> Stray {
    Stray::desync(format!("{ip:#x}: more than {WALK_LIMIT} instructions without a word from the trace"))
}
