//! Random programs and random damage.

use proptest::prelude::*;
use ptrail_image::Timeline;
use ptrail_pt::{Encoder, ExecMode, Ip, IpPayload, Packet, PtConfig, Tnt};

use crate::model::{Block, End, Habits, Program, run};
use crate::program::{Decoded, decode_with, hex, intel, program, psb};

fn block() -> impl Strategy<Value = Block> {
    let end = prop_oneof![
        4 => any::<u8>().prop_map(End::Conditional),
        1 => any::<u8>().prop_map(End::Jump),
        1 => Just(End::JumpIndirect),
        2 => any::<u8>().prop_map(End::Call),
        1 => Just(End::CallNext),
        1 => Just(End::CallIndirect),
        3 => Just(End::Return),
        1 => Just(End::Syscall),
        1 => Just(End::None),
    ];
    (0..4u8, end)
}

fn habits() -> impl Strategy<Value = Habits> {
    (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        prop_oneof![Just(0), 0..30u8],
    )
        .prop_map(|(compress_returns, long_tnt, defer_tips, events)| Habits {
            compress_returns,
            long_tnt,
            defer_tips,
            events,
        })
}

fn config(habits: Habits) -> PtConfig {
    PtConfig {
        no_return_compression: !habits.compress_returns,
        ..PtConfig::default()
    }
}

/// Decodes damaged data; what must hold for any data is checked inside.
fn survive(timeline: &Timeline, code: u64, config: &PtConfig, bytes: &[u8]) -> Decoded {
    let decoded = decode_with(timeline, config, bytes);
    // Each byte holds at most 8 decisions, and between two the walk is straight: it takes each
    // address once, or is found out after a few rounds.
    let most = (8 * bytes.len() as u64 + 2) * 4 * code;
    assert!(decoded.instructions.len() as u64 <= most);
    decoded
}

#[derive(Clone, Debug)]
enum Damage {
    Change(usize, u8),
    Cut(usize),
    Drop(usize, usize),
    Double(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<usize>();
    prop_oneof![
        3 => (at, any::<u8>()).prop_map(|(at, byte)| Damage::Change(at, byte)),
        1 => at.prop_map(Damage::Cut),
        1 => (at, 0..40usize).prop_map(|(at, len)| Damage::Drop(at, len)),
        1 => (at, 0..40usize).prop_map(|(at, len)| Damage::Double(at, len)),
    ]
}

fn apply(damage: &[Damage], bytes: &mut Vec<u8>) {
    for damage in damage {
        let len = bytes.len();
        if len == 0 {
            return;
        }
        match *damage {
            Damage::Change(at, byte) => bytes[at % len] = byte,
            Damage::Cut(at) => bytes.truncate(at % len),
            Damage::Drop(at, count) => {
                let at = at % len;
                bytes.drain(at..len.min(at + count));
            }
            Damage::Double(at, count) => {
                let at = at % len;
                let again = bytes[at..len.min(at + count)].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
}

/// Packets with addresses in and around a small program.
fn packet() -> impl Strategy<Value = Packet> {
    let ip = prop_oneof![9 => 0x1000..0x1020u64, 1 => any::<u64>()];
    let ip = ip.prop_map(|ip| IpPayload::whole(Ip(ip)));
    let mode = prop_oneof![
        Just(ExecMode::Bits16),
        Just(ExecMode::Bits32),
        Just(ExecMode::Bits64)
    ];
    prop_oneof![
        4 => (any::<u64>(), 1..=6u8).prop_map(|(bits, len)| Packet::Tnt(Tnt::short(bits, len))),
        1 => (any::<u64>(), 0..=47u8).prop_map(|(bits, len)| Packet::Tnt(Tnt::long(bits, len))),
        4 => ip.clone().prop_map(Packet::Tip),
        2 => ip.clone().prop_map(Packet::TipPge),
        1 => ip.clone().prop_map(Packet::TipPgd),
        1 => Just(Packet::TipPgd(IpPayload::SUPPRESSED)),
        1 => Just(Packet::Tip(IpPayload::SUPPRESSED)),
        4 => ip.prop_map(Packet::Fup),
        1 => (mode, any::<bool>())
            .prop_map(|(mode, interrupts)| Packet::ModeExec { mode, interrupts }),
        1 => (any::<bool>(), any::<bool>())
            .prop_map(|(in_tx, abort)| Packet::ModeTsx { in_tx, abort }),
        1 => Just(Packet::Psb),
        1 => Just(Packet::PsbEnd),
        1 => Just(Packet::Ovf),
        1 => any::<bool>().prop_map(|non_root| Packet::Pip { cr3: 0x5000, non_root }),
        1 => any::<bool>().prop_map(|ip| Packet::Bep { ip }),
        1 => any::<u64>().prop_map(Packet::Tsc),
        1 => any::<u8>().prop_map(Packet::Mtc),
        1 => any::<u64>().prop_map(Packet::Cyc),
    ]
}

/// A CPU with errata, or none, and a setting of its trace unit.
fn any_config() -> impl Strategy<Value = PtConfig> {
    // Broadwell, Skylake, a server, a hybrid, Goldmont.
    let model = prop::option::of(prop::sample::select(vec![0x3d, 0x5e, 0x55, 0x97, 0x5c]));
    let filter = prop::option::weighted(0.2, Just((Ip(0x1000), Ip(0x1010))));
    (model, any::<bool>(), any::<bool>(), filter).prop_map(|(model, cyc, whole, filter)| PtConfig {
        cpu: model.map(intel),
        cyc,
        no_return_compression: whole,
        filters: [filter, None, None, None],
        ..PtConfig::default()
    })
}

/// Branches of all kinds, some of which overlap.
const KNOT: [u8; 32] = [
    0x90, 0x74, 0xfd, 0xe8, 0x08, 0, 0, 0, 0xff, 0xe0, 0xff, 0xd3, 0xeb, 0xf2, 0x0f, 0x05, //
    0xc3, 0xe2, 0xf0, 0x0f, 0x22, 0xd8, 0x90, 0xcb, 0x40, 0xe8, 0, 0, 0, 0, 0x75, 0xe4,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn decoded_is_executed(
        blocks in prop::collection::vec(block(), 2..20),
        habits in habits(),
        seed in any::<u64>(),
    ) {
        let program = Program::new(&blocks);
        let ran = run(&program, habits, seed, 1000);
        let decoded = decode_with(&program.timeline(), &config(habits), &ran.stream);
        prop_assert_eq!(decoded.losses, vec![]);
        prop_assert_eq!(decoded.events, ran.events);
        prop_assert_eq!(hex(&decoded.instructions), hex(&ran.instructions));
    }

    #[test]
    fn a_stream_cut_off_anywhere_gives_the_first_part_of_what_ran(
        blocks in prop::collection::vec(block(), 2..20),
        habits in habits(),
        seed in any::<u64>(),
        at in any::<prop::sample::Index>(),
    ) {
        let program = Program::new(&blocks);
        let ran = run(&program, habits, seed, 300);
        let bytes = &ran.stream[..at.index(ran.stream.len())];
        let decoded = decode_with(&program.timeline(), &config(habits), bytes);
        prop_assert!(ran.instructions.starts_with(&decoded.instructions));
        // Only the packet at the end is lost.
        prop_assert!(decoded.losses.len() <= 1);
        prop_assert!(decoded.losses.iter().all(|loss| loss.bytes < 17));
    }

    #[test]
    fn damage_is_survived(
        blocks in prop::collection::vec(block(), 2..20),
        habits in habits(),
        seed in any::<u64>(),
        damage in prop::collection::vec(damage(), 1..6),
    ) {
        let program = Program::new(&blocks);
        let mut bytes = run(&program, habits, seed, 300).stream;
        apply(&damage, &mut bytes);
        survive(&program.timeline(), program.len(), &config(habits), &bytes);
    }

    #[test]
    fn random_packets_are_survived(
        packets in prop::collection::vec(packet(), 0..200),
        config in any_config(),
    ) {
        let mut encoder = Encoder::new();
        psb(&mut encoder, 0x1000);
        packets.iter().for_each(|packet| encoder.put(packet));
        survive(&program(&KNOT), 32, &config, &encoder.take());
    }

    #[test]
    fn random_bytes_are_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..500),
        start in 0x1000..0x1020u64,
        config in any_config(),
    ) {
        let mut encoder = Encoder::new();
        psb(&mut encoder, start);
        let bytes = [encoder.take(), bytes].concat();
        survive(&program(&KNOT), 32, &config, &bytes);
    }
}
