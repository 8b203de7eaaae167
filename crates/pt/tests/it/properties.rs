//! What holds for any packets and any bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use ptrail_pt::{
    BadPacket, Clock, CpuId, Encoder, ExecMode, IpBytes, IpPayload, Lexed, Lexer, Packet,
    PacketSink, PerfTime, PtConfig, TimeConv, Tnt, TraceOffset, Tsc, Vendor, find_psb,
};

fn ip_payload() -> impl Strategy<Value = IpPayload> {
    (0..8_u8, any::<u64>()).prop_filter_map("reserved IPBytes", |(field, value)| {
        let bytes = IpBytes::from_field(field)?;
        let mask = if bytes.is_empty() {
            0
        } else {
            u64::MAX >> (64 - 8 * bytes.len())
        };
        Some(IpPayload {
            bytes,
            value: value & mask,
        })
    })
}

fn exec_mode() -> impl Strategy<Value = ExecMode> {
    prop_oneof![
        Just(ExecMode::Bits16),
        Just(ExecMode::Bits32),
        Just(ExecMode::Bits64)
    ]
}

fn flow() -> impl Strategy<Value = Packet> {
    prop_oneof![
        Just(Packet::Psb),
        Just(Packet::PsbEnd),
        Just(Packet::Ovf),
        Just(Packet::TraceStop),
        (any::<u64>(), 1..=6_u8).prop_map(|(bits, len)| Packet::Tnt(Tnt::short(bits, len))),
        (any::<u64>(), 0..=47_u8).prop_map(|(bits, len)| Packet::Tnt(Tnt::long(bits, len))),
        ip_payload().prop_map(Packet::Tip),
        ip_payload().prop_map(Packet::TipPge),
        ip_payload().prop_map(Packet::TipPgd),
        ip_payload().prop_map(Packet::Fup),
        (0..1_u64 << 47, any::<bool>()).prop_map(|(cr3, non_root)| Packet::Pip {
            cr3: cr3 << 5,
            non_root
        }),
        (exec_mode(), any::<bool>())
            .prop_map(|(mode, interrupts)| Packet::ModeExec { mode, interrupts }),
        any::<(bool, bool)>().prop_map(|(in_tx, abort)| Packet::ModeTsx { in_tx, abort }),
        (0..1_u64 << 40).prop_map(|pointer| Packet::Vmcs(pointer << 12)),
    ]
}

fn timing() -> impl Strategy<Value = Packet> {
    prop_oneof![
        (1..200_u32).prop_map(|run| Packet::Pad { run }),
        any::<(u8, u8)>().prop_map(|(ratio, reserved)| Packet::Cbr { ratio, reserved }),
        (0..1_u64 << 56).prop_map(Packet::Tsc),
        (any::<u16>(), 0..512_u16)
            .prop_map(|(ctc, fast_counter)| Packet::Tma { ctc, fast_counter }),
        (0..1_u64 << 40).prop_map(|payload| Packet::TmaInvalid(payload | 1 << 16)),
        any::<u8>().prop_map(Packet::Mtc),
        (any::<u64>(), 0..64).prop_map(|(cycles, shift)| Packet::Cyc(cycles >> shift)),
    ]
}

fn events() -> impl Strategy<Value = Packet> {
    prop_oneof![
        any::<u64>().prop_map(Packet::Mnt),
        any::<(u64, bool, bool)>().prop_map(|(payload, wide, ip)| {
            let payload = if wide { payload } else { payload & 0xffff_ffff };
            Packet::Ptw { payload, wide, ip }
        }),
        any::<bool>().prop_map(|ip| Packet::Exstop { ip }),
        (any::<u8>(), 0..4_u8).prop_map(|(hints, extensions)| Packet::Mwait { hints, extensions }),
        (0..16_u8, 0..16_u8, any::<bool>()).prop_map(|(state, sub_state, hardware)| {
            Packet::Pwre {
                state,
                sub_state,
                hardware,
            }
        }),
        (0..16_u8, 0..16_u8, 0..16_u8).prop_map(|(last, deepest, wake_reason)| {
            Packet::Pwrx {
                last,
                deepest,
                wake_reason,
            }
        }),
        any::<bool>().prop_map(|ip| Packet::Bep { ip }),
        (0..32_u8, any::<u8>(), any::<bool>()).prop_map(|(kind, vector, ip)| Packet::Cfe {
            kind,
            vector,
            ip
        }),
        (0..64_u8, any::<u64>()).prop_map(|(kind, payload)| Packet::Evd { kind, payload }),
        any::<(u8, bool, Option<u16>, bool)>().prop_map(
            |(triggers, multiple, instructions, ip)| Packet::Trig {
                triggers,
                multiple,
                instructions,
                ip
            }
        ),
    ]
}

/// BBP, its items, BEP.
fn block() -> impl Strategy<Value = Vec<Packet>> {
    let items = vec((0..32_u8, any::<u64>()), 0..8);
    (any::<bool>(), 0..32_u8, items, any::<bool>()).prop_map(|(four_bytes, kind, items, ip)| {
        let mask = if four_bytes { 0xffff_ffff } else { u64::MAX };
        let item = |(id, payload)| Packet::Bip {
            id,
            payload: payload & mask,
            four_bytes,
        };
        let mut packets = vec![Packet::Bbp { four_bytes, kind }];
        packets.extend(items.into_iter().map(item));
        packets.push(Packet::Bep { ip });
        packets
    })
}

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    let one = prop_oneof![flow(), timing(), events()].prop_map(|packet| vec![packet]);
    vec(prop_oneof![9 => one, 1 => block()], 0..200).prop_map(|parts| {
        let mut packets = Vec::<Packet>::new();
        for packet in parts.into_iter().flatten() {
            // The lexer joins PADs.
            if let (Some(Packet::Pad { run }), Packet::Pad { run: more }) =
                (packets.last_mut(), packet)
            {
                *run += more;
            } else {
                packets.push(packet);
            }
        }
        packets
    })
}

fn encode(packets: &[Packet]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    packets.iter().for_each(|packet| encoder.put(packet));
    encoder.take()
}

/// Bytes that look like a trace often enough to get far into it.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let psb = Just([2, 0x82].repeat(8));
    let some = vec(any::<u8>(), 0..40);
    let extended = any::<u8>().prop_map(|code| vec![2, code]);
    let begun = (0..9_usize).prop_map(|pairs| [2, 0x82].repeat(pairs));
    let stream = packets().prop_map(|packets| encode(&packets));
    let part = prop_oneof![2 => psb, 4 => some, 4 => extended, 1 => begun, 1 => stream];
    vec(part, 0..20).prop_map(|parts| parts.concat())
}

const SKYLAKE: CpuId = CpuId {
    vendor: Vendor::Intel,
    family: 6,
    model: 0x5e,
    stepping: 3,
};

/// What `drain` gives.
struct Items(Vec<Result<Lexed, BadPacket>>);

impl PacketSink for Items {
    fn packet(&mut self, lexed: Lexed) {
        self.0.push(Ok(lexed));
    }

    fn bad(&mut self, bad: BadPacket) {
        self.0.push(Err(bad));
    }
}

fn bytes_of(item: &Result<ptrail_pt::Lexed, BadPacket>) -> u64 {
    item.as_ref()
        .map_or_else(|bad| bad.skipped, |lexed| lexed.len.into())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn lexing_gives_back_what_was_encoded(packets in packets()) {
        let bytes = encode(&packets);
        let lexed: Vec<_> = Lexer::new(&bytes, TraceOffset(0)).map(|l| l.unwrap().packet).collect();
        prop_assert_eq!(&lexed, &packets);
        prop_assert_eq!(encode(&lexed), bytes);
    }

    #[test]
    fn any_bytes_are_tiled_and_psbs_are_found(bytes in bytes(), base in 0..1_u64 << 40) {
        let mut at = base;
        for item in Lexer::new(&bytes, TraceOffset(base)) {
            let offset = item.as_ref().map_or_else(|bad| bad.offset, |lexed| lexed.offset);
            prop_assert_eq!(offset.0, at);
            prop_assert!(bytes_of(&item) > 0);
            at += bytes_of(&item);
            // After a bad stretch comes a PSB or nothing.
            if item.is_err() {
                let rest = (at - base) as usize;
                prop_assert!(rest == bytes.len() || find_psb(&bytes, rest) == Some(rest));
            }
        }
        prop_assert_eq!(at, base + bytes.len() as u64);
    }

    #[test]
    fn draining_gives_what_iterating_gives(bytes in bytes(), tnts in vec(2..64_u8, 0..80), base in 0..1_u64 << 40) {
        // Whole words of short TNTs, too.
        let tnts = tnts.iter().map(|byte| 2 * byte).collect::<Vec<_>>();
        let bytes = [&bytes[..], &tnts, &bytes].concat();
        for cpu in [None, Some(SKYLAKE)] {
            let lexer = Lexer::new(&bytes, TraceOffset(base)).for_cpu(cpu);
            let mut items = Items(Vec::new());
            lexer.clone().drain(&mut items);
            prop_assert_eq!(items.0, lexer.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_stream_cut_at_a_psb_lexes_the_same(bytes in bytes(), which in 0..8_usize) {
        let mut cut = find_psb(&bytes, 0);
        for _ in 0..which {
            cut = cut.and_then(|at| find_psb(&bytes, at + 16)).or(cut);
        }
        let (head, tail) = bytes.split_at(cut.unwrap_or(0));
        let whole: Vec<_> = Lexer::new(&bytes, TraceOffset(0)).collect();
        let mut parts: Vec<_> = Lexer::new(head, TraceOffset(0)).collect();
        parts.extend(Lexer::new(tail, TraceOffset(head.len() as u64)));
        prop_assert_eq!(parts, whole);
    }

    #[test]
    fn a_stream_cut_anywhere_goes_on_where_it_was_truncated(packets in packets(), cut in any::<prop::sample::Index>()) {
        let bytes = encode(&packets);
        let end = cut.index(bytes.len() + 1);
        // Where the data ends with more of the PSB pattern than one PSB, its place is a guess.
        let pattern = |skip| {
            let pairs = bytes[..end - skip].rchunks(2);
            pairs.take_while(|pair| *pair == [2, 0x82]).count()
        };
        prop_assume!(end == 0 || pattern(0).max(pattern(1)) <= 8);
        let mut at = 0;
        for item in Lexer::new(&bytes[..end], TraceOffset(0)) {
            match item {
                Ok(lexed) => at += lexed.len as usize,
                Err(bad) => {
                    prop_assert!(bad.truncated && at as u64 == bad.offset.0);
                    prop_assert_eq!(at as u64 + bad.skipped, end as u64);
                }
            }
        }
        prop_assert!(end - at < 16);
    }

    #[test]
    fn the_clock_takes_anything_and_never_goes_back(
        bytes in bytes(),
        stream in vec(prop_oneof![4 => timing(), 1 => flow(), 1 => events()], 0..300),
        (n, d, ratio, mtc_freq) in any::<(u32, u32, u8, u8)>(),
        (shift, mult, zero, cycles, mask, base) in any::<(u16, u32, u64, u64, u64, u64)>(),
        short in any::<bool>(),
    ) {
        let config = PtConfig {
            tsc: true, mtc: true, cyc: true, mtc_freq,
            tsc_ctc_n: n, tsc_ctc_d: d, max_non_turbo_ratio: ratio,
            ..PtConfig::default()
        };
        let conv = TimeConv {
            shift, mult, zero, cycles, mask, cap_user_time_zero: true, cap_user_time_short: short,
        };
        let mut clock = Clock::new(&config, Some(conv), PerfTime(base));
        let mut last = Tsc(0);
        let lexed = Lexer::new(&bytes, TraceOffset(0)).filter_map(Result::ok).map(|l| l.packet);
        for packet in lexed.chain(stream) {
            clock.eat(&packet);
            let now = clock.now();
            prop_assert_eq!(now.is_some(), clock.tsc().is_some());
            let tsc = clock.tsc().unwrap_or(last);
            prop_assert!(tsc >= last);
            last = tsc;
        }
    }

    #[test]
    fn perf_time_and_tsc_are_inverse(
        tsc in 0..1_u64 << 40, shift in 10..=32_u16, mult in 1_u32.., zero in any::<u64>(),
    ) {
        let conv = TimeConv { shift, mult, zero, cap_user_time_zero: true, ..TimeConv::default() };
        let back = conv.to_tsc(conv.to_perf(Tsc(tsc))).0;
        let tick_per_ns = (1_u128 << shift).div_ceil(u128::from(mult)) as u64;
        prop_assert!(back <= tsc && tsc - back <= tick_per_ns, "{back} {tsc}");
    }
}
