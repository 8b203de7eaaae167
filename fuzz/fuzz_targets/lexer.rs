//! Any bytes: the lexer does not panic, its packets and bad stretches tile the input, `drain` says
//! the same as the iterator, and encoding the packets gives bytes that lex to the same packets.
//!
//! The first byte decides whether errata apply.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ptrail_pt::{
    BadPacket, CpuId, Encoder, Lexed, Lexer, Packet, PacketSink, TraceOffset, Vendor, find_psb,
};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let model = [0x5e, 0x55, 0x8f][usize::from(choice) % 3];
    let cpu = CpuId { vendor: Vendor::Intel, family: 6, model, stepping: 3 };
    let base = TraceOffset(u64::from(choice) << 40);
    let lexer = Lexer::new(bytes, base).for_cpu((choice >= 0x80).then_some(cpu));

    let mut check = Check { lexer: lexer.clone(), bytes, at: base.0, base: base.0 };
    lexer.drain(&mut check);
    assert!(check.lexer.next().is_none());
    assert_eq!(check.at - base.0, bytes.len() as u64, "lexed and skipped bytes are all there are");
});

struct Check<'a> {
    /// The iterator, which must say the same.
    lexer: Lexer<'a>,
    bytes: &'a [u8],
    at: u64,
    base: u64,
}

impl PacketSink for Check<'_> {
    fn packet(&mut self, lexed: Lexed) {
        assert_eq!(self.lexer.next(), Some(Ok(lexed)));
        assert_eq!(lexed.offset.0, self.at);
        assert!(lexed.len > 0);
        self.at += u64::from(lexed.len);
        round_trip(&lexed.packet);
    }

    fn bad(&mut self, bad: BadPacket) {
        assert_eq!(self.lexer.next(), Some(Err(bad.clone())));
        assert_eq!(bad.offset.0, self.at);
        assert!(bad.skipped > 0);
        self.at += bad.skipped;
        let rest = (self.at - self.base) as usize;
        assert!(rest == self.bytes.len() || find_psb(self.bytes, rest) == Some(rest));
    }
}

fn round_trip(packet: &Packet) {
    // Only a BBP makes it a BIP, and a long run of PADs takes time to write.
    if matches!(packet, Packet::Bip { .. } | Packet::Pad { .. }) {
        return;
    }
    let mut encoder = Encoder::new();
    encoder.put(packet);
    let again = Lexer::new(encoder.bytes(), TraceOffset(0)).next();
    assert_eq!(again.and_then(Result::ok).map(|lexed| lexed.packet), Some(*packet));
}
