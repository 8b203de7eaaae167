//! A CPU's trace, divided among the threads that ran on it.
//!
//! 1. [`turns`] walks the packets with a clock. A *turn* begins where tracing is switched on and ends
//!    where it is switched off, or, if the kernel is traced too, where the clock passes a context
//!    switch (at the last PIP packet before, if there was one). Whose it is tells the
//!    [`Schedule`]. The clock may be late: it knows that a turn began between two timing packets.
//!    User code is never the idle task's, so a turn in user code belongs to the first thread that
//!    ran between the two.
//! 2. [`share`] makes a stream of one thread's turns in a PSB segment: the same packets, with those
//!    that decide the flow of others taken out. Times stay exact, because all timing packets stay;
//!    so do the offsets. An address outside of the turns becomes a TIP.PGD with that address, which
//!    is nothing while tracing is off, so that the compressed addresses behind it still mean the
//!    same.

use std::ops::Range;

use ptrail_flow::Segment;
use ptrail_pt::{Clock, Ip, LastIp, Lexed, Lexer, Packet, PerfTime, Picos, PtConfig, TimeConv};

use crate::schedule::{Running, Schedule, Thread};

/// Packets of one thread, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Which segment of the CPU's stream.
    pub(crate) segment: usize,
    /// Where the packets are in the stream.
    pub(crate) range: Range<u64>,
    /// Whose they are; `None` if nothing tells.
    pub(crate) thread: Option<Thread>,
    /// Not before this time.
    pub(crate) begin: Picos,
}

/// What the packets are read with.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) config: &'a PtConfig,
    pub(crate) conversion: Option<TimeConv>,
    pub(crate) base: PerfTime,
}

/// The turns of a CPU's stream, in order.
pub(crate) fn turns(
    segments: &[Segment<'_>],
    setting: Setting<'_>,
    schedule: &Schedule,
) -> Vec<Turn> {
    let mut watch = Watch {
        schedule,
        segments,
        turns: Vec::new(),
        open: None,
        segment: 0,
        status: None,
        last_ip: LastIp::new(),
    };
    for (number, segment) in segments.iter().enumerate() {
        watch.segment = number;
        let mut clock = Clock::new(setting.config, setting.conversion, setting.base);
        for lexed in lexer(segment, setting).filter_map(Result::ok) {
            clock.eat(&lexed.packet);
            watch.packet(&lexed, &clock);
        }
    }
    watch.close(u64::MAX);
    watch.turns
}

fn lexer<'s>(segment: &Segment<'s>, setting: Setting<'_>) -> Lexer<'s> {
    Lexer::new(segment.bytes, segment.offset).for_cpu(setting.config.cpu)
}

struct Watch<'a> {
    schedule: &'a Schedule,
    segments: &'a [Segment<'a>],
    turns: Vec<Turn>,
    open: Option<Open>,
    /// The segment that the packets are of.
    segment: usize,
    /// In a PSB+: the address in it, so far none.
    status: Option<Option<Ip>>,
    last_ip: LastIp,
}

/// A turn that goes on.
struct Open {
    segment: usize,
    start: u64,
    /// It began in kernel code.
    kernel: bool,
    /// The clock when it began.
    begin: Picos,
    /// Whose it is, if that is known already.
    known: Option<(Picos, Running)>,
    /// The last PIP packet since the clock was last asked.
    pip: Option<u64>,
}

impl Watch<'_> {
    fn packet(&mut self, lexed: &Lexed, clock: &Clock) {
        let offset = lexed.offset.0;
        // Asked only where a turn may begin or end: most packets are of the turn that is open.
        let now = || clock.now().map_or(Picos(0), |time| time.at);
        match lexed.packet {
            Packet::Psb => {
                self.status = Some(None);
                self.last_ip.reset();
            }
            Packet::PsbEnd => self.psb_end(now()),
            Packet::Fup(payload) if self.status.is_some() => {
                self.status = Some(self.last_ip.update(payload));
            }
            Packet::TipPgd(payload) => {
                self.last_ip.update(payload);
                self.close(offset + u64::from(lexed.len));
            }
            Packet::TipPge(payload) | Packet::Tip(payload) | Packet::Fup(payload) => {
                let ip = self.last_ip.update(payload);
                self.open(offset, ip, now);
            }
            Packet::Pip { .. } => {
                if let Some(open) = &mut self.open {
                    open.pip = Some(offset);
                }
            }
            Packet::Tsc(_) | Packet::Mtc(_) | Packet::Cyc(_) | Packet::Tma { .. }
                if self.status.is_none() =>
            {
                // A little late rather than a little early: a switch is not behind before that is
                // certain.
                let error = clock.now().map_or(Picos(0), |time| time.error);
                let now = now();
                self.tick(offset, Picos(now.0.saturating_sub(error.0)), now);
            }
            Packet::Tnt(_) => self.open(offset, None, now),
            _ => {}
        }
    }

    /// The time of a PSB+ is known only at its end, but all of it is its thread's.
    fn psb_end(&mut self, now: Picos) {
        let Some(status) = self.status.take() else {
            return;
        };
        let start = self.segments[self.segment].offset.0;
        self.tick(start, now, now);
        self.close(start);
        if let Some(ip) = status {
            self.open(start, Some(ip), || now);
        }
    }

    /// A turn begins, if there is none.
    fn open(&mut self, start: u64, ip: Option<Ip>, now: impl FnOnce() -> Picos) {
        if self.open.is_some() {
            return;
        }
        let now = now();
        let mut open = Open {
            segment: self.segment,
            start,
            kernel: ip.is_some_and(|ip| ip.0 >> 63 == 1),
            begin: now,
            known: None,
            pip: None,
        };
        let running = self.schedule.at(now);
        if open.kernel || matches!(running.1, Running::Thread(_)) {
            open.known = Some(running);
        }
        self.open = Some(open);
    }

    /// The clock went on to `now`; it is certain that `passed` is behind.
    fn tick(&mut self, offset: u64, passed: Picos, now: Picos) {
        let Some(open) = &mut self.open else { return };
        let Some((_, before)) = open.known else {
            let user = self.schedule.user_between(open.begin, now);
            open.known = user.map(|(begin, thread)| (begin, Running::Thread(thread)));
            return;
        };
        let running = self.schedule.at(passed);
        if passed > open.begin && running.1 != before && running.0 > open.begin {
            // It ran on over a context switch: the kernel is traced too.
            let at = open.pip.unwrap_or(offset);
            self.close(at);
            self.open = Some(Open {
                segment: self.segment,
                start: at,
                kernel: true,
                begin: running.0,
                known: Some(running),
                pip: None,
            });
        } else {
            open.pip = None;
        }
    }

    fn close(&mut self, end: u64) {
        let Some(open) = self.open.take() else { return };
        let segment = &self.segments[open.segment];
        let end = end.min(segment.offset.0 + segment.bytes.len() as u64);
        if open.start >= end {
            return;
        }
        // No time came behind it: then it is the next thread's.
        let next = || {
            let user = self.schedule.user_between(open.begin, Picos(u64::MAX));
            user.map(|(begin, thread)| (begin, Running::Thread(thread)))
        };
        let (begin, running) = open
            .known
            .or_else(next)
            .unwrap_or((Picos(0), Running::Unknown));
        self.turns.push(Turn {
            segment: open.segment,
            range: open.start..end,
            thread: match running {
                Running::Thread(thread) => Some(thread),
                Running::Idle | Running::Unknown => None,
            },
            begin: begin.max(open.begin),
        });
    }
}

/// The segment with only the packets of these turns, as far as the last of them.
pub(crate) fn share(segment: &Segment<'_>, setting: Setting<'_>, turns: &[Range<u64>]) -> Vec<u8> {
    let base = segment.offset.0;
    let end = turns.last().map_or(base, |turn| turn.end);
    let mut bytes = segment.bytes[..(end - base) as usize].to_vec();
    let mut turns = turns.iter().peekable();
    for item in lexer(segment, setting) {
        let (offset, len, packet) = match &item {
            Ok(lexed) => (lexed.offset.0, u64::from(lexed.len), Some(&lexed.packet)),
            Err(bad) => (bad.offset.0, bad.skipped, None),
        };
        if offset >= end {
            break;
        }
        while turns.next_if(|turn| turn.end <= offset).is_some() {}
        if turns.peek().is_some_and(|turn| turn.start <= offset) {
            continue;
        }
        let start = (offset - base) as usize;
        let stop = (start + len as usize).min(bytes.len());
        take_out(&mut bytes[start..stop], packet);
    }
    bytes
}

/// Makes a packet of somebody else one that decides nothing here.
fn take_out(bytes: &mut [u8], packet: Option<&Packet>) {
    const IP_BYTES: u8 = 0xe0;
    const TIP_PGD: u8 = 0x01;
    match packet {
        Some(
            Packet::Psb
            | Packet::PsbEnd
            | Packet::Pad { .. }
            | Packet::Tsc(_)
            | Packet::Tma { .. }
            | Packet::TmaInvalid(_)
            | Packet::Mtc(_)
            | Packet::Cyc(_)
            | Packet::Cbr { .. }
            | Packet::ModeExec { .. },
        ) => {}
        Some(Packet::Tip(_) | Packet::TipPge(_) | Packet::TipPgd(_) | Packet::Fup(_))
            if bytes[0] & IP_BYTES != 0 =>
        {
            bytes[0] = bytes[0] & IP_BYTES | TIP_PGD;
        }
        _ => bytes.fill(0),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use ptrail_pt::{Encoder, ExecMode, PsbPlus, Tnt, TraceOffset, Tsc};

    use ptrail_flow::cut;

    use super::*;

    /// What a thread does while it is on the CPU.
    #[derive(Clone, Debug)]
    struct Visit {
        tid: u32,
        ip: u64,
        outcomes: u8,
        /// A PSB in the middle of it.
        psb: bool,
        /// The clock knows of the switch only when the thread runs already.
        late: bool,
    }

    fn visits() -> impl Strategy<Value = Vec<Visit>> {
        let visit = (1..4u32, any::<u16>(), 1..7u8, any::<bool>(), any::<bool>());
        let visit = visit.prop_map(|(tid, place, outcomes, psb, late)| Visit {
            tid,
            ip: 0x7f00_0000_0000 * u64::from(tid % 2)
                + u64::from(tid) * 0x10_0000
                + u64::from(place),
            outcomes,
            psb,
            late,
        });
        prop::collection::vec(visit, 1..40)
    }

    const TURN: u64 = 100;

    fn psb(encoder: &mut Encoder, tsc: u64, ip: Option<u64>) {
        encoder.psb_plus(&PsbPlus {
            tsc: Some(Tsc(tsc)),
            mode_exec: ip.map(|_| (ExecMode::Bits64, false)),
            ip: ip.map(Ip),
            ..PsbPlus::default()
        });
    }

    /// The stream of a CPU, who ran when, and what each thread's packets are.
    fn run(visits: &[Visit]) -> (Vec<u8>, Schedule, HashMap<u32, Vec<String>>) {
        let mut encoder = Encoder::new();
        let mut turns = vec![(Picos(0), Running::Idle)];
        let mut truth: HashMap<u32, Vec<String>> = HashMap::new();
        psb(&mut encoder, 1, None);
        for (number, visit) in visits.iter().enumerate() {
            let start = (number as u64 + 1) * TURN;
            let thread = Thread {
                pid: 7,
                tid: visit.tid,
            };
            let at = |time: u64| Picos(time * 1000);
            turns.push((at(start), Running::Idle));
            turns.push((at(start + 20), Running::Thread(thread)));
            turns.push((at(start + 80), Running::Idle));
            let known = if visit.late { 10 } else { 30 };
            encoder.put(&Packet::Tsc(start + known));
            let of_thread = truth.entry(visit.tid).or_default();
            encoder.put(&Packet::ModeExec {
                mode: ExecMode::Bits64,
                interrupts: false,
            });
            encoder.tip_pge(Ip(visit.ip));
            of_thread.push(format!("on {:x}", visit.ip));
            encoder.put(&Packet::Tnt(Tnt::short(0, visit.outcomes)));
            of_thread.push(format!("{} outcomes", visit.outcomes));
            if visit.psb {
                psb(&mut encoder, start + 40, Some(visit.ip + 8));
                of_thread.push(format!("at {:x}", visit.ip + 8));
            }
            encoder.tip(Ip(visit.ip + 4));
            of_thread.push(format!("to {:x}", visit.ip + 4));
            encoder.put(&Packet::Tsc(start + 50));
            encoder.tip_pgd(None);
            of_thread.push("off".to_owned());
        }
        (encoder.take(), Schedule::new(turns), truth)
    }

    /// What the packets of a stream say, as [`run`] says it.
    fn say(bytes: &[u8]) -> Vec<String> {
        let mut last_ip = LastIp::new();
        let mut on = false;
        let mut said = Vec::new();
        for lexed in Lexer::new(bytes, TraceOffset(0)).map(Result::unwrap) {
            let mut ip = |payload| last_ip.update(payload).map_or(0, |ip| ip.0);
            match lexed.packet {
                Packet::Psb => last_ip.reset(),
                Packet::TipPge(payload) => {
                    on = true;
                    said.push(format!("on {:x}", ip(payload)));
                }
                Packet::Fup(payload) => {
                    on = true;
                    said.push(format!("at {:x}", ip(payload)));
                }
                Packet::Tip(payload) => said.push(format!("to {:x}", ip(payload))),
                Packet::Tnt(tnt) => said.push(format!("{} outcomes", tnt.len())),
                Packet::TipPgd(payload) => {
                    last_ip.update(payload);
                    if std::mem::take(&mut on) {
                        said.push("off".to_owned());
                    }
                }
                _ => {}
            }
        }
        said
    }

    proptest! {
        #[test]
        fn each_thread_gets_its_own_packets(visits in visits()) {
            let (bytes, schedule, truth) = run(&visits);
            let config = PtConfig { tsc: true, ..PtConfig::default() };
            let setting = Setting { config: &config, conversion: None, base: PerfTime(0) };
            let segments = cut(&bytes, TraceOffset(0)).segments;
            let turns = turns(&segments, setting, &schedule);
            for (tid, truth) in truth {
                let own = turns.iter().filter(|turn| turn.thread == Some(Thread { pid: 7, tid }));
                let own: Vec<_> = own.collect();
                let mut found = Vec::new();
                for of_segment in own.chunk_by(|a, b| a.segment == b.segment) {
                    let ranges: Vec<_> = of_segment.iter().map(|turn| turn.range.clone()).collect();
                    found.extend(share(&segments[of_segment[0].segment], setting, &ranges));
                }
                prop_assert_eq!(say(&found), truth);
            }
        }
    }

    #[test]
    fn a_switch_in_traced_kernel_code_is_cut_at_the_pip_before_the_time_that_shows_it() {
        let thread = |tid| Running::Thread(Thread { pid: 7, tid });
        let schedule = Schedule::new(vec![(Picos(0), thread(1)), (Picos(50_000), thread(2))]);
        let mut encoder = Encoder::new();
        psb(&mut encoder, 1, Some(u64::MAX << 40));
        encoder.tip(Ip(u64::MAX << 40 | 0x10));
        encoder.put(&Packet::Tsc(20));
        encoder.tip(Ip(u64::MAX << 40 | 0x20));
        let at = encoder.len() as u64;
        encoder.put(&Packet::Pip {
            cr3: 0x1000,
            non_root: false,
        });
        encoder.tip(Ip(u64::MAX << 40 | 0x30));
        encoder.put(&Packet::Tsc(60));
        let bytes = encoder.take();
        let config = PtConfig {
            tsc: true,
            ..PtConfig::default()
        };
        let setting = Setting {
            config: &config,
            conversion: None,
            base: PerfTime(0),
        };
        let segments = cut(&bytes, TraceOffset(0)).segments;
        let turns = turns(&segments, setting, &schedule);
        let found: Vec<_> = turns
            .iter()
            .map(|turn| (turn.range.clone(), turn.thread.unwrap().tid))
            .collect();
        assert_eq!(found, [(0..at, 1), (at..bytes.len() as u64, 2)]);
    }
}
