//! Losing the way and finding it again.
//!
//! A loss begins where trace and code do not fit, where bytes are no packet and at an overflow. It
//! ends at the next packet with an address of known code, where TIP.PGD switches tracing off, or with
//! the segment.

use ptrail_pt::{Ip, Lexed, Loss, LossCause, Packet, TraceOffset};

use super::{Engine, Position, Stray};
use crate::Sink;

impl<S: Sink> Engine<'_, '_, S> {
    pub(super) fn lose(&mut self, offset: TraceOffset, bytes: u64, stray: Stray) {
        self.make_sure();
        self.end_loss();
        self.anchor();
        let ip = self.here();
        let now = self.now();
        let Stray { cause, reason } = stray;
        self.position = Position::Lost(Box::new(Loss {
            cause,
            bytes,
            offset,
            begin: now,
            end: now,
            ip,
            reason,
        }));
        self.lost_bytes += bytes;
        self.outcomes.clear();
        self.returns.clear();
        self.interrupted = None;
        self.fup_is_address = false;
        self.tsx_abort = false;
    }

    /// Ends a loss, if there is one, at the present time.
    pub(super) fn end_loss(&mut self) {
        if !self.is_lost() {
            return;
        }
        if let Position::Lost(mut loss) = std::mem::replace(&mut self.position, Position::Off) {
            loss.end = self.now();
            self.decoder.sink.loss(*loss, true, self.instructions);
            self.tick = true;
        }
    }

    /// A loss ends at the address of a packet, if there is code.
    pub(super) fn recover(&mut self, lexed: &Lexed, ip: Ip) {
        let is_fup = matches!(lexed.packet, Packet::Fup(_));
        let is_address = std::mem::take(&mut self.fup_is_address);
        if !is_fup {
            self.tsx_abort = false;
            self.take_next_mode();
        }
        // Else each address in code that is not known would be a loss of its own.
        let known = self.fetch(ip).is_ok();
        if let Position::Lost(loss) = &mut self.position
            && !known
        {
            loss.bytes += u64::from(lexed.len);
            self.lost_bytes += u64::from(lexed.len);
            return;
        }
        // SDM, "Internal Buffer Overflow": the FUP behind an OVF tells where execution goes on.
        // A later one is an event again.
        let resolves = matches!(
            &self.position,
            Position::Lost(loss) if loss.cause == LossCause::Overflow && loss.bytes == 0
        );
        self.end_loss();
        self.position = Position::At(ip);
        self.anchor();
        if matches!(lexed.packet, Packet::TipPge(_)) {
            self.decoder.sink.on(ip, self.instructions);
        } else {
            self.unsure = true;
            if !(is_fup && resolves && self.errata.apl12) {
                self.make_sure();
            }
        }
        if is_fup {
            self.at_fup(ip, is_address || resolves);
        }
    }
}
