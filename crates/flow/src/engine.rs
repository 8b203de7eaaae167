//! The machine that walks code under the direction of packets.
//!
//! It never runs ahead: after a packet it stands right behind the last branch that packet decided,
//! and the straight code up to the next decision is walked when the next packet says that it ran.
//! So an asynchronous event (FUP) in between is met at the right instruction.
//!
//! TNT and TIP packets take the fast way (`follow`), which uses branch outcomes many at a time: they
//! wait until there are enough, or until another packet needs to know where execution stands.

mod follow;
mod loss;
mod mappings;
mod outcomes;
mod walk;

use ptrail_image::AddressSpace;
use ptrail_pt::{
    BadPacket, Clock, Errata, ExecMode, Ip, IpPayload, LastIp, Lexed, Lexer, Loss, LossCause,
    Packet, PacketSink, Picos, TNT_LONG_MAX, TNT_SHORT_MAX, Tnt, TraceOffset,
};

use crate::decoder::{Context, Decoder, Graphs, SegmentEnd};
use crate::graph::{Graph, NodeId, OUTCOMES};
use crate::{
    Class, Detail, Edge, EdgeKind, FarKind, Instruction, OffCause, Segment, Sink,
    return_stack::ReturnStack,
};
use outcomes::Outcomes;

/// Where execution stands.
#[derive(Clone, Debug)]
enum Position {
    /// At this instruction, which is the next to execute.
    At(Ip),
    /// At the start of this node, and nothing but flow is expected: no event is under way, no
    /// MODE waits for its TIP, and no PSB+ is open.
    Node(NodeId),
    /// Tracing is off.
    Off,
    /// Not known since a loss, which ends at the next full address.
    Lost(Box<Loss>),
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

/// Decodes one segment.
pub(crate) struct Engine<'a, 'd, S> {
    decoder: &'d mut Decoder<'a, S>,
    context: Context<'a>,
    space: AddressSpace<'a>,
    /// The code of `space`.
    graph: Graph<'a>,
    clock: Clock,
    /// A timing packet came since the last anchor.
    tick: bool,
    anchored: Option<Picos>,
    last_ip: LastIp,
    /// A MODE.Exec that holds from the target of the next TIP on.
    next_mode: Option<ExecMode>,
    in_psb: bool,
    position: Position,
    /// Execution stands at `position`, unless the next word of the flow is a TIP.PGE: then tracing
    /// was off all the time (errata BDM70, APL12).
    unsure: bool,
    outcomes: Outcomes,
    returns: ReturnStack,
    compressed_returns: bool,
    errata: Errata,
    /// A FUP that its TIP or TIP.PGD has not followed yet.
    interrupted: Option<Ip>,
    /// The packet before says what the next FUP is for: only to name an address.
    fup_is_address: bool,
    tsx_abort: bool,
    instructions: u64,
    lost_bytes: u64,
    /// The time at which the next segment begins.
    next_tsc: Option<u64>,
}

impl<'a, 'd, S: Sink> Engine<'a, 'd, S> {
    pub(crate) fn new(decoder: &'d mut Decoder<'a, S>) -> Self {
        let context = decoder.context;
        let space = context.timeline.space(context.pid, context.base);
        let graph = take_graph::<S>(&mut decoder.graphs, space, ExecMode::Bits64);
        Self {
            decoder,
            context,
            space,
            graph,
            clock: Clock::new(context.config, context.conversion, context.base),
            tick: false,
            anchored: None,
            last_ip: LastIp::new(),
            next_mode: None,
            in_psb: false,
            position: Position::Off,
            unsure: false,
            outcomes: Outcomes::new(),
            returns: ReturnStack::new(),
            compressed_returns: !context.config.no_return_compression,
            errata: context.config.cpu.and_then(Errata::of).unwrap_or_default(),
            interrupted: None,
            fup_is_address: false,
            tsx_abort: false,
            instructions: 0,
            lost_bytes: 0,
            next_tsc: None,
        }
    }

    pub(crate) fn run(mut self, segment: &Segment<'_>) -> SegmentEnd {
        self.next_tsc = segment.next.and_then(|start| start.tsc);
        Lexer::new(segment.bytes, segment.offset)
            .for_cpu(self.context.config.cpu)
            .drain(&mut self);
        self.finish(segment)
    }

    /// Takes in the time of a packet.
    fn eat(&mut self, packet: &Packet) {
        self.clock.eat(packet);
        self.tick = true;
        self.follow_mappings();
    }

    fn other_packet(&mut self, lexed: &Lexed) {
        match lexed.packet {
            Packet::Psb => self.psb(),
            Packet::PsbEnd => self.psb_end(),
            Packet::ModeExec { mode, .. } if self.in_psb => self.set_mode(mode),
            Packet::ModeExec { mode, .. } => {
                self.expect();
                self.next_mode = Some(mode);
                // Event trace: a change of RFLAGS.IF names its address (SDM, "MODE.Exec Packet").
                self.fup_is_address = self.interrupted.is_none();
            }
            // Without branch packets there is no FUP behind it.
            Packet::ModeTsx { abort, .. } if !self.in_psb && !self.is_off() => {
                self.expect();
                self.tsx_abort = abort;
                self.fup_is_address = !abort;
            }
            Packet::Ptw { ip: true, .. }
            | Packet::Exstop { ip: true }
            | Packet::Bep { ip: true }
            | Packet::Cfe { ip: true, .. }
            | Packet::Trig { ip: true, .. } => self.fup_is_address = true,
            Packet::Pip { .. } if self.expects_mov_cr3() => {
                self.guarded(lexed.offset, lexed.len, Self::walk_to_mov_cr3);
            }
            Packet::TipPge(payload) => self.addressed(lexed, payload, Self::tip_pge),
            Packet::TipPgd(payload) => self.tip_pgd(lexed, payload),
            Packet::Fup(payload) => {
                self.make_sure();
                self.addressed(lexed, payload, Self::fup);
            }
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
            return self.guarded(lexed.offset, lexed.len, |_| {
                Err(Stray::desync("a packet came without its address".into()))
            });
        };
        if self.in_psb {
            return self.guarded(lexed.offset, lexed.len, |engine| handle(engine, ip));
        }
        if !self.is_lost() {
            let (is_address, abort) = (self.fup_is_address, self.tsx_abort);
            match handle(self, ip) {
                // What comes behind the address is another matter.
                Ok(()) => return self.use_deferred(lexed.offset),
                Err(stray) => self.lose(lexed.offset, 0, stray),
            }
            (self.fup_is_address, self.tsx_abort) = (is_address, abort);
        }
        self.recover(lexed, ip);
    }

    /// Uses outcomes that came before the target that they waited for.
    fn use_deferred(&mut self, offset: TraceOffset) {
        if let Err(stray) = self.use_outcomes(0) {
            self.lose(offset, 0, stray);
        }
    }

    /// Runs the handler of a packet; where it fails, or where the position is lost, the packet's
    /// bytes are lost.
    fn guarded(
        &mut self,
        offset: TraceOffset,
        len: u32,
        handle: impl FnOnce(&mut Self) -> Walk<()>,
    ) {
        let bytes = u64::from(len);
        if let Position::Lost(loss) = &mut self.position {
            loss.bytes += bytes;
            self.lost_bytes += bytes;
            return;
        }
        if let Err(stray) = handle(self) {
            self.lose(offset, bytes, stray);
        }
    }

    /// Uses outcomes until at most `keep` wait; where the code does not fit, those that are left are
    /// lost, with the bytes of their packets.
    #[inline]
    fn settle(&mut self, keep: u8) {
        if self.outcomes.len() <= keep {
            return;
        }
        if let Err(stray) = self.use_outcomes(keep) {
            let (offset, bytes) = self.outcomes.unused().unwrap_or_default();
            self.lose(offset, bytes, stray);
        }
    }

    // ---- packets ----

    /// A TNT where more than flow may be expected, or where too many outcomes wait.
    #[cold]
    fn other_tnt(&mut self, offset: TraceOffset, len: u32, tnt: Tnt) {
        self.make_sure();
        self.settle(0);
        self.guarded(offset, len, |engine| engine.wait(tnt, offset, len));
    }

    /// Outcomes, the last of them from this packet, are used if they are many, or if the packet's
    /// time is known.
    fn enough(&mut self, tnt: Tnt) {
        self.settle(OUTCOMES - 1);
        // A packet that is not full was sent because of the one behind it, and at its time.
        let full = if tnt.is_long() {
            TNT_LONG_MAX
        } else {
            TNT_SHORT_MAX
        };
        if self.tick && tnt.len() == full {
            self.settle(0);
            self.anchor();
        }
    }

    /// A TIP that `follow_through` is not made for.
    fn other_tip(&mut self, offset: TraceOffset, len: u32, payload: IpPayload) {
        self.make_sure();
        self.settle(0);
        self.clock.eat_flow();
        let mut last_ip = self.last_ip;
        if self.expects_target()
            && let Some(ip) = last_ip.update(payload)
            && self.follow(ip)
        {
            self.last_ip = last_ip;
            self.fup_is_address = false;
            self.anchor();
            return self.use_deferred(offset);
        }
        let lexed = Lexed {
            offset,
            len,
            packet: Packet::Tip(payload),
        };
        self.addressed(&lexed, payload, Self::event_or_branch);
    }

    fn psb(&mut self) {
        self.expect();
        self.in_psb = true;
        self.last_ip.reset();
    }

    fn psb_end(&mut self) {
        // A PSBEND also closes the status packets after an overflow; only a PSB's own starts here.
        if std::mem::take(&mut self.in_psb) {
            self.anchor();
            self.unsure = self.here().is_some();
            if !self.errata.bdm70 {
                self.make_sure();
            }
        }
    }

    /// No TIP.PGE came: the path begins where execution stands.
    fn make_sure(&mut self) {
        if std::mem::take(&mut self.unsure)
            && let Some(ip) = self.here()
        {
            self.decoder.sink.begin(ip, self.instructions);
        }
    }

    /// Outcomes are taken in; `use_outcomes` uses them.
    fn wait(&mut self, tnt: Tnt, offset: TraceOffset, len: u32) -> Walk<()> {
        self.fup_is_address = false;
        if let Some(ip) = self.interrupted {
            return Err(Stray::desync(format!(
                "branch outcomes came where the target of the event at {ip:#x} should be"
            )));
        }
        if self.is_off() {
            return Err(Stray::desync(
                "the trace goes on although tracing was off".into(),
            ));
        }
        if !self.outcomes.push(tnt, offset, len) {
            return Err(Stray::desync(
                "branch outcomes came where the code has no branches for them".into(),
            ));
        }
        Ok(())
    }

    fn event_or_branch(&mut self, to: Ip) -> Walk<()> {
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
        self.report(&edge);
        self.anchor();
        Ok(())
    }

    /// The edge of an instruction whose target came by TIP.
    fn indirect(&mut self, from: Ip, instruction: Instruction, to: Ip) -> Walk<Edge> {
        let next = from.offset(u64::from(instruction.len));
        let kind = match instruction.class {
            Class::JumpIndirect => EdgeKind::JumpIndirect,
            Class::CallIndirect => {
                let behind = self.graph.node(next);
                self.returns.push(behind);
                EdgeKind::Call
            }
            Class::Return => {
                // The CPU's stack moves although the return was not compressed.
                self.returns.pop();
                EdgeKind::Return
            }
            Class::Far(FarKind::Return) => EdgeKind::FarReturn,
            Class::Far(_) => EdgeKind::Far,
            Class::Conditional | Class::Plain | Class::MovCr3 | Class::Jump | Class::Call => {
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
        if std::mem::take(&mut self.unsure) {
            self.position = Position::Off;
        }
        if let Some(ip) = self.here() {
            return Err(Stray::desync(format!(
                "tracing was switched on at {to:#x} but was on at {ip:#x}"
            )));
        }
        // What the kernel did before it came back is done, though there was no word of the time yet.
        // A CYC would have been.
        if !self.context.config.cyc
            && let Some(latest) = self.clock.latest()
        {
            self.follow_mappings_until(latest);
        }
        self.take_next_mode();
        self.position = Position::At(to);
        self.anchor();
        self.decoder.sink.on(to, self.instructions);
        Ok(())
    }

    /// Whatever was before, tracing is off behind this packet.
    fn tip_pgd(&mut self, lexed: &Lexed, payload: IpPayload) {
        self.make_sure();
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
            None => match self.follow_out(to) {
                Some(exit) => exit,
                None => self.walk_out(to)?,
            },
        };
        self.tsx_abort = false;
        self.decoder.sink.off(ip, next, cause, self.instructions);
        // Even if the time is that of the last anchor: what comes next in the stream comes after a
        // pause that must not be spread over the instructions before it.
        (self.anchored, self.tick) = (None, true);
        self.anchor();
        Ok(())
    }

    /// Erratum SKD022: the instruction of a VM entry that switched tracing off by itself, although
    /// a FUP came first as if it had been interrupted.
    fn surplus_fup(&mut self, ip: Ip) -> Option<Instruction> {
        let instruction = self.errata.skd022.then(|| self.fetch(ip))?.ok()?;
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
        // Erratum BDM64: the last branch before an abort may have a wrong outcome.
        if self.tsx_abort && self.errata.bdm64 && !self.reaches(ip) {
            self.position = Position::At(ip);
        }
        self.walk_to(ip)?;
        // SDM, "Deferred TIPs": a FUP forces out all targets before it.
        if self.outcomes.len() > 0 {
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
            self.expect();
            self.interrupted = Some(ip);
        }
    }

    /// The next TIP may be more than the target of a branch.
    fn expect(&mut self) {
        if let Some(ip) = self.here() {
            self.position = Position::At(ip);
        }
    }

    fn overflow(&mut self, offset: TraceOffset) {
        self.make_sure();
        let stray = Stray {
            cause: LossCause::Overflow,
            reason: "the CPU produced packets faster than memory took them".into(),
        };
        self.lose(offset, 0, stray);
        self.in_psb = false;
    }

    // ---- state ----

    fn is_lost(&self) -> bool {
        matches!(self.position, Position::Lost(_))
    }

    fn is_off(&self) -> bool {
        matches!(self.position, Position::Off)
    }

    /// The next instruction to execute, if that is known.
    fn here(&self) -> Option<Ip> {
        match self.position {
            Position::At(ip) => Some(ip),
            Position::Node(id) => Some(self.graph.start(id)),
            Position::Off | Position::Lost(_) => None,
        }
    }

    fn at(&self) -> Walk<Ip> {
        self.here()
            .ok_or_else(|| Stray::desync("the trace goes on although tracing was off".into()))
    }

    /// The node that starts where execution stands.
    #[inline]
    fn node(&mut self) -> Walk<NodeId> {
        if let Position::Node(id) = self.position {
            return Ok(id);
        }
        let ip = self.at()?;
        Ok(self.graph.node(ip))
    }

    /// Whether a TIP tells the target of a branch, and nothing more.
    #[inline]
    fn expects_target(&self) -> bool {
        !self.in_psb && !self.tsx_abort && self.interrupted.is_none() && self.next_mode.is_none()
    }

    /// Whether a PIP may belong to an instruction of the code that runs.
    fn expects_mov_cr3(&self) -> bool {
        !self.in_psb
            && !self.unsure
            && self.here().is_some()
            && self.interrupted.is_none()
            && self.outcomes.len() == 0
    }

    fn take_next_mode(&mut self) {
        if let Some(mode) = self.next_mode.take() {
            self.set_mode(mode);
        }
    }

    fn set_mode(&mut self, mode: ExecMode) {
        // The same bytes are other instructions.
        if self.graph.mode != mode {
            self.change_graph(mode);
        }
    }

    // ---- time ----

    fn now(&self) -> Picos {
        self.clock.now().map_or(Picos(0), |time| time.at)
    }

    #[inline]
    fn anchor(&mut self) {
        if self.tick {
            self.new_anchor();
        }
    }

    fn new_anchor(&mut self) {
        if self.is_lost() {
            return;
        }
        self.tick = false;
        if let Some(time) = self.clock.now()
            && self.anchored != Some(time.at)
        {
            self.anchored = Some(time.at);
            self.decoder.sink.anchor(self.instructions, time);
        }
    }

    /// Walks on to where the next segment starts, and checks that the two meet.
    fn finish(mut self, segment: &Segment<'_>) -> SegmentEnd {
        self.settle(0);
        // The PSBEND is missing.
        self.psb_end();
        if self.unsure && segment.next.is_some_and(|next| next.ip.is_none()) {
            (self.unsure, self.position) = (false, Position::Off);
        }
        self.make_sure();
        let end = TraceOffset(segment.offset.0 + segment.bytes.len() as u64);
        if let Some(start) = segment.next {
            let met = match (self.here(), start.ip) {
                _ if self.is_lost() => Ok(()),
                (Some(_), Some(ip)) => self.walk_to(ip),
                (Some(ip), None) => Err(Stray::desync(format!(
                    "tracing was on at {ip:#x}, but off at the next PSB"
                ))),
                (None, Some(_)) if self.errata.bdm70 => Ok(()),
                (None, Some(ip)) => Err(Stray::desync(format!(
                    "tracing was off, but on at {ip:#x} at the next PSB"
                ))),
                (None, None) => Ok(()),
            };
            if let Err(stray) = met {
                self.lose(end, 0, stray);
            }
        }
        self.end_loss();
        self.tick = true;
        self.anchor();
        let key = (self.graph.space.version(), self.graph.mode);
        self.decoder.graphs.insert(key, self.graph);
        SegmentEnd {
            instructions: self.instructions,
            lost_bytes: self.lost_bytes,
            clamps: self.clock.clamps(),
        }
    }
}

fn take_graph<'a, S: Sink>(
    graphs: &mut Graphs<'a>,
    space: AddressSpace<'a>,
    mode: ExecMode,
) -> Graph<'a> {
    let known = graphs.remove(&(space.version(), mode));
    known
        .filter(|graph| !graph.is_full())
        .unwrap_or_else(|| Graph::new(space, mode, S::DETAIL))
}

impl<S: Sink> PacketSink for Engine<'_, '_, S> {
    #[inline(always)]
    fn tnt(&mut self, offset: TraceOffset, len: u32, tnt: Tnt) {
        self.clock.eat_flow();
        if matches!(self.position, Position::Node(_)) && self.outcomes.push(tnt, offset, len) {
            self.fup_is_address = false;
        } else {
            self.other_tnt(offset, len, tnt);
        }
        if self.outcomes.len() >= OUTCOMES || self.tick {
            self.enough(tnt);
        }
    }

    #[inline(always)]
    fn tip(&mut self, offset: TraceOffset, len: u32, payload: IpPayload) {
        let mut last_ip = self.last_ip;
        if S::DETAIL < Detail::Instructions
            && let Position::Node(node) = self.position
            && let Some(ip) = last_ip.update(payload)
            && self.follow_through(node, ip)
        {
            self.clock.eat_flow();
            self.last_ip = last_ip;
            self.fup_is_address = false;
            return self.anchor();
        }
        self.other_tip(offset, len, payload);
    }

    #[inline]
    fn cyc(&mut self, _offset: TraceOffset, _len: u32, cycles: u64) {
        self.settle(0);
        self.eat(&Packet::Cyc(cycles));
    }

    #[inline]
    fn pad(&mut self, _offset: TraceOffset, _run: u32) {}

    fn packet(&mut self, lexed: Lexed) {
        self.settle(0);
        match lexed.packet {
            Packet::TipPge(_) | Packet::TipPgd(_) | Packet::Fup(_) => self.clock.eat_flow(),
            _ => self.eat(&lexed.packet),
        }
        self.other_packet(&lexed);
    }

    fn bad(&mut self, bad: BadPacket) {
        self.make_sure();
        self.settle(0);
        let reason = if bad.truncated {
            "the data ends inside a packet"
        } else {
            "the bytes are no packet"
        };
        let stray = Stray {
            cause: LossCause::BadPacket,
            reason: reason.into(),
        };
        self.lose(bad.offset, bad.skipped, stray);
    }
}
