//! Any bytes, any settings, lexed and given to the clock: no panic, the bytes add up, and time never
//! goes backwards.
//!
//! The first 40 bytes are the settings.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ptrail_pt::{Clock, CpuId, Lexer, PerfTime, PtConfig, TimeConv, TraceOffset, Tsc, Vendor};

fuzz_target!(|data: &[u8]| {
    let Some((head, bytes)) = data.split_first_chunk::<40>() else { return };
    let byte = |at: usize| head[at];
    let word = |at: usize| u32::from_le_bytes([byte(at), byte(at + 1), byte(at + 2), byte(at + 3)]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let flag = |bit: u8| byte(0) >> bit & 1 == 1;

    let cpu = CpuId { vendor: Vendor::Intel, family: 6, model: byte(1), stepping: 3 };
    let config = PtConfig {
        cpu: flag(0).then_some(cpu),
        tsc: true,
        mtc: flag(1),
        mtc_freq: byte(2),
        cyc: flag(2),
        no_return_compression: false,
        tsc_ctc_n: word(4),
        tsc_ctc_d: if flag(3) { 2 } else { word(8) },
        max_non_turbo_ratio: byte(3),
        filters: [None; 4],
    };
    let conversion = TimeConv {
        shift: u16::from(byte(12)),
        mult: word(13),
        zero: long(17),
        cycles: if flag(4) { long(25) } else { 0 },
        mask: if flag(5) { u64::MAX >> (byte(33) % 64) } else { 0 },
        cap_user_time_zero: true,
        cap_user_time_short: flag(6),
    };
    let base = PerfTime(u64::from(word(34)));
    let mut clock = Clock::new(&config, flag(7).then_some(conversion), base);

    let (mut total, mut last) = (0, Tsc(0));
    for item in Lexer::new(bytes, TraceOffset(0)).for_cpu(config.cpu) {
        match item {
            Ok(lexed) => {
                total += u64::from(lexed.len);
                clock.eat(&lexed.packet);
                assert_eq!(clock.now().is_some(), clock.tsc().is_some());
                let now = clock.tsc().unwrap_or(last);
                assert!(now >= last, "time went back from {last:?} to {now:?}");
                last = now;
            }
            Err(bad) => total += bad.skipped,
        }
    }
    assert_eq!(total, bytes.len() as u64, "lexed and skipped bytes are all there are");
});
