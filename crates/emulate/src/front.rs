//! The encoder front: from what a program did to packets, placed as a trace unit places them.
//!
//! Outcomes of conditional branches and compressed returns gather in a TNT packet, which leaves when
//! it is full or when another packet must not overtake it. Before a packet that marks progress goes
//! a CYC with the cycles since the last one; MTC leaves at its crystal ticks, PSB+ at the end of its
//! period, between two instructions.

use ptrail_pt::{Encoder, ExecMode, Ip, IpPayload, Packet, PsbPlus, TNT_SHORT_MAX, Tnt, Tsc};

use crate::clock::{BUS_RATIO, MTC_FREQ, TICKS_PER_CRYSTAL};

/// After a longer silence than this many MTC periods the clock is set anew by TSC and TMA, as a CPU
/// does when it wakes up, instead of by all the MTCs in between.
const SILENT_PERIODS: u64 = 64;
/// Depth of the return compression stack (SDM, "Return Compression").
const RETURN_DEPTH: usize = 64;

/// Clock resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Timing {
    /// TSC, MTC and CYC packets: each packet's time to the cycle.
    #[default]
    Cyc,
    /// TSC and MTC packets: every 320 ns.
    Mtc,
    /// TSC packets alone: one every few kilobytes of trace.
    Tsc,
}

/// Settings of the virtual trace unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Clock resolution.
    pub timing: Timing,
    /// Returns to where their call came from take one bit.
    pub return_compression: bool,
    /// A PSB+ after each 2^(n + 11) bytes (IA32_RTIT_CTL.PSBFreq, 0 to 15).
    pub psb_freq: u8,
}

impl Settings {
    /// Bytes from PSB+ to PSB+.
    fn psb_period(&self) -> usize {
        1 << (self.psb_freq.min(15) + 11)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timing: Timing::default(),
            return_compression: true,
            psb_freq: 1,
        }
    }
}

/// Turns executed branches into packets. Every method takes the time at which it happens.
pub(crate) struct Front {
    settings: Settings,
    encoder: Encoder,
    outcomes: u64,
    outcome_count: u8,
    returns: ReturnStack,
    last_cycle: u64,
    last_mtc: u64,
    /// When the crystal clock begins its next MTC period.
    next_mtc: u64,
    last_psb: usize,
    written: usize,
    /// What is written behind this many bytes is going to be lost.
    loses_from: Option<usize>,
}

impl Front {
    /// A front that starts with a PSB+, tracing off.
    pub(crate) fn new(settings: Settings, now: Tsc) -> Self {
        let mut front = Self {
            settings,
            encoder: Encoder::new(),
            outcomes: 0,
            outcome_count: 0,
            returns: ReturnStack::default(),
            last_cycle: now.0,
            last_mtc: mtc_tick(now),
            next_mtc: mtc_time(mtc_tick(now) + 1),
            last_psb: 0,
            written: 0,
            loses_from: None,
        };
        front.psb(None, now);
        front
    }

    /// Packets written and not yet taken, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.encoder.bytes().len()
    }

    /// Hands out the packets written so far; ends between two packets.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let bytes = self.encoder.take();
        self.written += bytes.len();
        bytes
    }

    /// Tracing is switched on at `ip`.
    pub(crate) fn on(&mut self, ip: Ip, now: Tsc) {
        self.returns.clear();
        self.mtc(now);
        self.cyc(now);
        self.encoder.tip_pge(ip);
    }

    /// The instruction that just executed left the traced code.
    pub(crate) fn off(&mut self, now: Tsc) {
        self.flush(now);
        self.mtc(now);
        self.cyc(now);
        self.encoder.tip_pgd(None);
    }

    /// Execution was interrupted before the instruction at `ip`, and left the traced code.
    pub(crate) fn interrupted(&mut self, ip: Ip, now: Tsc) {
        self.flush(now);
        self.cyc(now);
        self.encoder.fup(ip);
        self.encoder.tip_pgd(None);
    }

    /// A transaction was aborted before the instruction at `from`; execution goes on at `to`.
    pub(crate) fn transaction_aborted(&mut self, from: Ip, to: Ip, now: Tsc) {
        self.flush(now);
        self.cyc(now);
        self.encoder.put(&Packet::ModeTsx {
            in_tx: false,
            abort: true,
        });
        self.encoder.fup(from);
        self.encoder.tip(to);
    }

    /// A conditional branch executed.
    pub(crate) fn conditional(&mut self, taken: bool, now: Tsc) {
        self.outcome(taken, now);
    }

    /// A call executed that returns to `return_to`.
    pub(crate) fn call(&mut self, return_to: Ip) {
        self.returns.push(return_to);
    }

    /// A far transfer went to `to`, within the traced code.
    pub(crate) fn far(&mut self, to: Ip, now: Tsc) {
        // Decoders differ in what a far return does to their stack of calls.
        self.returns.clear();
        self.indirect(to, now);
    }

    /// An indirect jump or call went to `to`.
    pub(crate) fn indirect(&mut self, to: Ip, now: Tsc) {
        self.flush(now);
        self.cyc(now);
        self.encoder.tip(to);
    }

    /// A near return went to `to`.
    pub(crate) fn ret(&mut self, to: Ip, now: Tsc) {
        if self.settings.return_compression && self.returns.last() == Some(to) {
            self.returns.pop();
            self.outcome(true, now);
        } else {
            // Decoders differ in what an uncompressed return does to their stack; from an empty one
            // they all go on alike.
            self.returns.clear();
            self.indirect(to, now);
        }
    }

    /// Time passed while nothing left the trace.
    pub(crate) fn passed(&mut self, now: Tsc) {
        self.mtc(now);
    }

    /// The instruction before `next` is complete: time for what comes between instructions.
    pub(crate) fn boundary(&mut self, next: Ip, now: Tsc) {
        self.mtc(now);
        if self.written + self.len() - self.last_psb >= self.settings.psb_period() {
            self.flush(now);
            self.psb(Some(next), now);
        }
    }

    /// From now on packets are lost.
    pub(crate) fn loses(&mut self, now: Tsc) {
        self.flush(now);
        self.loses_from = Some(self.len());
    }

    /// No more packets are lost. `ip` is the next instruction if tracing is on. With `overflow`, the
    /// trace says what happened; else it begins anew. Returns where the loss lies, in bytes that are
    /// not yet taken; `None` if there was none.
    pub(crate) fn recovers(&mut self, ip: Option<Ip>, now: Tsc, overflow: bool) -> Option<usize> {
        let len = self.loses_from.take()?;
        self.encoder.truncate(len);
        self.last_psb = self.last_psb.min(self.written + len);
        (self.outcomes, self.outcome_count) = (0, 0);
        self.returns.clear();
        (self.last_cycle, self.last_mtc) = (now.0, mtc_tick(now));
        self.next_mtc = mtc_time(self.last_mtc + 1);
        if !overflow {
            self.psb(ip, now);
            return Some(len);
        }
        self.encoder.put(&Packet::Ovf);
        if let Some(ip) = ip {
            self.encoder.put(&Packet::Fup(IpPayload::whole(ip)));
        }
        self.encoder.put(&Packet::Tsc(now.0));
        if self.settings.timing != Timing::Tsc {
            let (ctc, fast_counter) = tma(now);
            self.encoder.put(&Packet::Tma { ctc, fast_counter });
        }
        Some(len)
    }

    /// Whether packets are being lost.
    pub(crate) fn is_losing(&self) -> bool {
        self.loses_from.is_some()
    }

    /// Bytes written since the start.
    pub(crate) fn total(&self) -> usize {
        self.written + self.len()
    }

    /// The recording ends: nothing may wait any longer, and the trace tells when it was.
    pub(crate) fn finish(&mut self, now: Tsc) {
        self.flush(now);
        self.cyc(now);
        self.encoder.put(&Packet::Tsc(now.0));
    }

    fn outcome(&mut self, taken: bool, now: Tsc) {
        self.outcomes = self.outcomes << 1 | u64::from(taken);
        self.outcome_count += 1;
        if self.outcome_count == TNT_SHORT_MAX {
            self.flush(now);
        }
    }

    fn flush(&mut self, now: Tsc) {
        if self.outcome_count > 0 {
            self.cyc(now);
            self.encoder
                .put(&Packet::Tnt(Tnt::short(self.outcomes, self.outcome_count)));
            self.outcomes = 0;
            self.outcome_count = 0;
        }
    }

    fn cyc(&mut self, now: Tsc) {
        let cycles = now.0.saturating_sub(self.last_cycle);
        if self.settings.timing == Timing::Cyc && cycles > 0 {
            self.encoder.put(&Packet::Cyc(cycles));
            self.last_cycle = now.0;
        }
    }

    #[inline]
    fn mtc(&mut self, now: Tsc) {
        if now.0 >= self.next_mtc {
            self.mtc_due(now);
        }
    }

    fn mtc_due(&mut self, now: Tsc) {
        let has_mtc = self.settings.timing != Timing::Tsc;
        let tick = mtc_tick(now);
        if tick - self.last_mtc > SILENT_PERIODS {
            self.last_mtc = tick;
            self.cyc(now);
            self.encoder.put(&Packet::Tsc(now.0));
            if has_mtc {
                let (ctc, fast_counter) = tma(now);
                self.encoder.put(&Packet::Tma { ctc, fast_counter });
            }
        }
        if !has_mtc {
            self.last_mtc = tick;
        }
        while self.last_mtc < tick {
            self.last_mtc += 1;
            self.cyc(Tsc(mtc_time(self.last_mtc)));
            self.encoder.put(&Packet::Mtc(self.last_mtc as u8));
        }
        self.next_mtc = mtc_time(tick + 1);
    }

    fn psb(&mut self, ip: Option<Ip>, now: Tsc) {
        self.returns.clear();
        self.cyc(now);
        self.last_psb = self.written + self.len();
        self.encoder.psb_plus(&PsbPlus {
            tsc: Some(now),
            tma: (self.settings.timing != Timing::Tsc).then(|| tma(now)),
            cbr: Some(BUS_RATIO),
            cr3: None,
            vmcs: None,
            mode_exec: Some((ExecMode::Bits64, true)),
            mode_tsx: None,
            ip,
        });
    }
}

/// Where calls return to, the last [`RETURN_DEPTH`] of them.
struct ReturnStack {
    calls: [Ip; RETURN_DEPTH],
    top: usize,
    len: usize,
}

impl Default for ReturnStack {
    fn default() -> Self {
        Self {
            calls: [Ip(0); RETURN_DEPTH],
            top: 0,
            len: 0,
        }
    }
}

impl ReturnStack {
    fn push(&mut self, return_to: Ip) {
        self.top = (self.top + 1) % RETURN_DEPTH;
        self.calls[self.top] = return_to;
        self.len = (self.len + 1).min(RETURN_DEPTH);
    }

    fn last(&self) -> Option<Ip> {
        (self.len > 0).then(|| self.calls[self.top])
    }

    fn pop(&mut self) {
        self.top = (self.top + RETURN_DEPTH - 1) % RETURN_DEPTH;
        self.len -= 1;
    }

    fn clear(&mut self) {
        self.len = 0;
    }
}

/// How many MTC periods the crystal clock has counted.
fn mtc_tick(now: Tsc) -> u64 {
    (now.0 / TICKS_PER_CRYSTAL) >> MTC_FREQ
}

/// When an MTC period begins, in ticks of the TSC.
fn mtc_time(tick: u64) -> u64 {
    (tick * TICKS_PER_CRYSTAL) << MTC_FREQ
}

/// The payload of TMA: crystal clock, and TSC ticks since its last tick.
fn tma(now: Tsc) -> (u16, u16) {
    (
        (now.0 / TICKS_PER_CRYSTAL) as u16,
        (now.0 % TICKS_PER_CRYSTAL) as u16,
    )
}
