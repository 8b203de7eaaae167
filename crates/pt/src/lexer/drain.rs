//! All packets of a lexer, pushed into a sink.
//!
//! What an iterator gives has one type, so whoever takes it branches on the packet's kind once
//! more. Here each kind has its own call, made where the kind is known, and whole words of short
//! TNTs are told from other packets at once.

use super::{BadPacket, Lexed, Lexer, TraceOffset};
use crate::{IpPayload, Packet, Tnt, opcode, word};

/// Takes what [`Lexer::drain`] finds, in order.
///
/// The frequent kinds of packets have calls of their own, which by default end in
/// [`PacketSink::packet`]. Offsets are those of the packet's first byte in the stream, lengths are
/// bytes, as in [`Lexed`].
pub trait PacketSink {
    /// A packet.
    fn packet(&mut self, lexed: Lexed);

    /// Bytes that are no packet.
    fn bad(&mut self, bad: BadPacket);

    /// A short or long TNT.
    #[inline]
    fn tnt(&mut self, offset: TraceOffset, len: u32, tnt: Tnt) {
        let packet = Packet::Tnt(tnt);
        self.packet(Lexed {
            offset,
            len,
            packet,
        });
    }

    /// A TIP.
    #[inline]
    fn tip(&mut self, offset: TraceOffset, len: u32, payload: IpPayload) {
        let packet = Packet::Tip(payload);
        self.packet(Lexed {
            offset,
            len,
            packet,
        });
    }

    /// A CYC: core clocks since the last one.
    #[inline]
    fn cyc(&mut self, offset: TraceOffset, len: u32, cycles: u64) {
        let packet = Packet::Cyc(cycles);
        self.packet(Lexed {
            offset,
            len,
            packet,
        });
    }

    /// An MTC: 8 bits of the crystal clock.
    #[inline]
    fn mtc(&mut self, offset: TraceOffset, len: u32, ctc: u8) {
        let packet = Packet::Mtc(ctc);
        self.packet(Lexed {
            offset,
            len,
            packet,
        });
    }

    /// A run of PADs, `run` bytes long.
    #[inline]
    fn pad(&mut self, offset: TraceOffset, run: u32) {
        let (len, packet) = (run, Packet::Pad { run });
        self.packet(Lexed {
            offset,
            len,
            packet,
        });
    }
}

impl Lexer<'_> {
    /// Gives all packets to `sink`.
    ///
    /// ```
    /// use ptrail_pt::{BadPacket, Lexed, Lexer, PacketSink, Tnt, TraceOffset};
    ///
    /// /// Counts conditional branches and compressed returns.
    /// struct Outcomes(u64);
    ///
    /// impl PacketSink for Outcomes {
    ///     fn packet(&mut self, _lexed: Lexed) {}
    ///     fn bad(&mut self, _bad: BadPacket) {}
    ///
    ///     fn tnt(&mut self, _offset: TraceOffset, _len: u32, tnt: Tnt) {
    ///         self.0 += u64::from(tnt.len());
    ///     }
    /// }
    ///
    /// let mut outcomes = Outcomes(0);
    /// Lexer::new(&[0x59, 0x12, 0x06, 0xfe], TraceOffset(0)).drain(&mut outcomes);
    /// assert_eq!(outcomes.0, 1 + 6);
    /// ```
    // Inlined for the reason that the iterator is.
    #[inline(always)]
    pub fn drain<S: PacketSink>(mut self, sink: &mut S) {
        loop {
            while let Some(window) = self.body.first_chunk() {
                let word = u64::from_le_bytes(*window);
                if word::is_short_tnt(word as u8) && word::are_short_tnts(word) {
                    self.short_tnts(word, sink);
                } else if word == 0 {
                    let run = opcode::pads(self.body);
                    let offset = self.advance(run);
                    sink.pad(offset, run as u32);
                } else {
                    let lexer = &mut self;
                    if !word::packet(word, lexer.quirks, Delivery { lexer, sink }) {
                        break;
                    }
                }
            }
            match self.take_other() {
                Some(Ok(lexed)) => deliver(sink, lexed),
                Some(Err(bad)) => sink.bad(bad),
                None => return,
            }
        }
    }

    /// Eight short TNTs.
    #[inline(always)]
    fn short_tnts<S: PacketSink>(&mut self, word: u64, sink: &mut S) {
        let TraceOffset(offset) = self.advance(8);
        for i in 0..8 {
            let byte = (word >> (8 * i)) as u8;
            sink.tnt(
                TraceOffset(offset + i),
                1,
                Tnt::from_short_payload(byte >> 1),
            );
        }
    }
}

#[inline(always)]
fn deliver<S: PacketSink>(sink: &mut S, lexed: Lexed) {
    let Lexed {
        offset,
        len,
        packet,
    } = lexed;
    match packet {
        Packet::Tnt(tnt) => sink.tnt(offset, len, tnt),
        Packet::Tip(payload) => sink.tip(offset, len, payload),
        Packet::Cyc(cycles) => sink.cyc(offset, len, cycles),
        Packet::Mtc(ctc) => sink.mtc(offset, len, ctc),
        Packet::Pad { run } => sink.pad(offset, run),
        _ => sink.packet(lexed),
    }
}

/// Hands a packet over; `false` if it is not one that fits into a word.
struct Delivery<'l, 'a, S> {
    lexer: &'l mut Lexer<'a>,
    sink: &'l mut S,
}

impl<S: PacketSink> word::Take for Delivery<'_, '_, S> {
    type Taken = bool;

    #[inline(always)]
    fn take(self, packet: Packet, len: usize) -> bool {
        let offset = self.lexer.advance(len);
        let len = len as u32;
        deliver(
            self.sink,
            Lexed {
                offset,
                len,
                packet,
            },
        );
        true
    }

    #[inline(always)]
    fn none(self) -> bool {
        false
    }
}
