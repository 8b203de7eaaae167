//! libipt's packet decoder.

use libipt::enc_dec_builder::PtEncoderDecoder;
use libipt::packet::PacketDecoder;
use std::hint::black_box;

/// Number of packets.
pub(crate) fn lex(bytes: &[u8]) -> u64 {
    let builder = PacketDecoder::<()>::builder();
    // SAFETY: libipt's packet decoder only reads the buffer, and is gone before `bytes` is.
    let builder = unsafe { builder.buffer_from_raw(bytes.as_ptr().cast_mut(), bytes.len()) };
    let mut decoder = builder.build().unwrap();
    let mut packets = 0;
    while decoder.sync_forward().is_ok() {
        for packet in decoder.by_ref() {
            let Ok(packet) = packet else { break };
            black_box(&packet);
            packets += 1;
        }
    }
    packets
}
