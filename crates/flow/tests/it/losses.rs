//! What is lost, where it is told, and where decoding goes on.

use ptrail_pt::{Encoder, Ip, IpPayload, LossCause, Packet, PtConfig};

use crate::program::{Decoded, decode, decode_with, hex, intel, program, psb, stop, stream, tnt};

/// 1000: nop, je 1004, nop, nop, jmp *rax, hlt.
const CODE: [u8; 8] = [0x90, 0x74, 0x01, 0x90, 0x90, 0xff, 0xe0, 0xf4];

/// The size of a PSB+ without times.
const PSB_PLUS: u64 = 27;

fn lossy(packets: impl FnOnce(&mut Encoder)) -> Decoded {
    decode(&program(&CODE), &stream(packets))
}

/// Cause, bytes and last address of the only loss.
#[track_caller]
fn only_loss(decoded: &Decoded) -> (LossCause, u64, Option<u64>) {
    assert_eq!(decoded.losses.len(), 1, "{:?}", decoded.losses);
    let loss = &decoded.losses[0];
    (loss.cause, loss.bytes, loss.ip.map(|ip| ip.0))
}

#[test]
fn an_overflow_ends_at_a_fup_which_is_no_event() {
    let decoded = lossy(|e| {
        tnt(e, "N");
        e.put(&Packet::Ovf);
        e.fup(Ip(0x1004));
        e.tip(Ip(0x1000));
        stop(e, 0x1001);
    });
    assert_eq!(only_loss(&decoded), (LossCause::Overflow, 0, Some(0x1003)));
    assert_eq!(decoded.losses[0].offset.0, PSB_PLUS + 1);
    assert_eq!(
        decoded.events,
        [
            "begin 1000",
            "loss overflow",
            "begin 1004",
            "jmp 1005>1000",
            "off-async 1001+0"
        ]
    );
    let expected = [0x1000, 0x1001, 0x1004, 0x1005, 0x1000];
    assert_eq!(hex(&decoded.instructions), hex(&expected));
}

#[test]
fn an_overflow_ends_at_a_tip_pge_if_tracing_was_off_by_then() {
    let decoded = lossy(|e| {
        e.put(&Packet::Ovf);
        e.put(&Packet::Mtc(3));
        e.tip_pge(Ip(0x1004));
        stop(e, 0x1005);
    });
    assert_eq!(only_loss(&decoded), (LossCause::Overflow, 0, Some(0x1000)));
    assert_eq!(
        decoded.events,
        ["begin 1000", "loss overflow", "on 1004", "off-async 1005+0"]
    );
}

#[test]
fn an_overflow_while_tracing_is_off_knows_no_address() {
    let decoded = lossy(|e| {
        stop(e, 0x1000);
        e.put(&Packet::Ovf);
        e.tip_pge(Ip(0x1000));
        stop(e, 0x1001);
    });
    assert_eq!(only_loss(&decoded), (LossCause::Overflow, 0, None));
    assert_eq!(
        decoded.events[1..],
        [
            "off-async 1000+0",
            "loss overflow",
            "on 1000",
            "off-async 1001+0"
        ]
    );
}

#[test]
fn a_tip_pgd_behind_an_overflow_means_that_tracing_is_off() {
    let decoded = lossy(|e| {
        e.put(&Packet::Ovf);
        e.tip_pgd(None);
        e.tip_pge(Ip(0x1000));
    });
    assert_eq!(decoded.events[1..], ["loss overflow", "on 1000"]);
}

#[test]
fn an_overflow_ends_status_packets() {
    let mut e = Encoder::new();
    e.put(&Packet::Psb);
    e.put(&Packet::Fup(ptrail_pt::IpPayload::whole(Ip(0x1000))));
    e.put(&Packet::Ovf);
    e.fup(Ip(0x1005));
    e.tip(Ip(0x1000));
    let decoded = decode(&program(&CODE), &e.take());
    assert_eq!(
        decoded.events,
        ["loss overflow", "begin 1005", "jmp 1005>1000"]
    );
}

#[test]
fn bytes_that_are_no_packet_lose_the_rest_of_the_segment() {
    let mut e = Encoder::new();
    psb(&mut e, 0x1000);
    tnt(&mut e, "N");
    let mut bytes = e.take();
    bytes.extend([0xc9, 0x42, 0x42]);
    psb(&mut e, 0x1005);
    e.tip(Ip(0x1007));
    stop(&mut e, 0x1007);
    bytes.extend(e.take());
    let decoded = decode(&program(&CODE), &bytes);
    assert_eq!(only_loss(&decoded), (LossCause::BadPacket, 3, Some(0x1003)));
    assert_eq!(decoded.losses[0].offset.0, PSB_PLUS + 1);
    let ends: Vec<_> = decoded.ends.iter().map(|end| end.lost_bytes).collect();
    assert_eq!(ends, [3, 0]);
    assert_eq!(
        decoded.events,
        [
            "begin 1000",
            "loss bad-packet",
            "begin 1005",
            "jmp 1005>1007",
            "off-async 1007+0"
        ]
    );
}

#[test]
fn the_last_packet_may_be_cut_off() {
    let mut bytes = stream(|e| {
        tnt(e, "N");
        e.put(&Packet::Tsc(5));
    });
    bytes.truncate(bytes.len() - 3);
    let decoded = decode(&program(&CODE), &bytes);
    assert_eq!(only_loss(&decoded), (LossCause::BadPacket, 5, Some(0x1003)));
    assert!(decoded.losses[0].reason.contains("inside a packet"));
}

#[test]
fn code_that_is_missing_is_one_loss_however_long_the_trace_stays_there() {
    let decoded = lossy(|e| {
        tnt(e, "T");
        e.tip(Ip(0x9000)); // reached, so not lost
        tnt(e, "TNT"); // 1 byte
        e.tip(Ip(0x9100)); // 3 bytes
        tnt(e, "N"); // 1 byte
        e.fup(Ip(0x9200)); // 3 bytes
        e.tip(Ip(0x1004)); // known code
        e.tip(Ip(0x1000));
    });
    let loss = &decoded.losses[0];
    assert_eq!(only_loss(&decoded), (LossCause::NoCode, 8, Some(0x9000)));
    assert!(loss.reason.contains("0x9000"), "{}", loss.reason);
    assert_eq!(
        decoded.events[1..],
        [
            "jcc 1001>1004",
            "jmp 1005>9000",
            "loss no-code",
            "begin 1004",
            "jmp 1005>1000"
        ]
    );
}

#[test]
fn a_target_where_the_code_has_none_is_still_an_address() {
    // At 1001 the code wants an outcome.
    let decoded = lossy(|e| {
        e.tip(Ip(0x1004));
        e.tip(Ip(0x1000));
    });
    assert_eq!(only_loss(&decoded), (LossCause::Desync, 0, Some(0x1001)));
    assert_eq!(
        decoded.events[1..],
        ["loss desync", "begin 1004", "jmp 1005>1000"]
    );
    // 1001 itself did not execute.
    let expected = [0x1000, 0x1004, 0x1005];
    assert_eq!(hex(&decoded.instructions), hex(&expected));
}

#[test]
fn an_event_at_an_unreachable_address_is_still_an_event() {
    let decoded = lossy(|e| {
        e.fup(Ip(0x1004));
        e.tip(Ip(0x1000));
    });
    assert_eq!(
        decoded.events[1..],
        ["loss desync", "begin 1004", "async 1004>1000"]
    );
    let abort = lossy(|e| {
        e.put(&Packet::ModeTsx {
            in_tx: false,
            abort: true,
        });
        e.fup(Ip(0x1004));
        e.tip(Ip(0x1000));
    });
    assert_eq!(abort.events[3], "abort 1004>1000");
    let name = lossy(|e| {
        e.put(&Packet::Bep { ip: true });
        e.fup(Ip(0x1004));
        e.tip(Ip(0x1000));
    });
    assert_eq!(name.events[3], "jmp 1005>1000");
}

#[test]
fn outcomes_without_branches_for_them_are_a_desync() {
    // Left over where tracing ends.
    let off = lossy(|e| {
        tnt(e, "TN");
        e.tip_pgd(None);
        e.tip_pge(Ip(0x1000));
    });
    assert_eq!(off.events[1..], ["jcc 1001>1004", "loss desync", "on 1000"]);
    // Left over at an event.
    let event = lossy(|e| {
        tnt(e, "TN");
        e.fup(Ip(0x1005));
        e.tip(Ip(0x1000));
    });
    assert_eq!(
        event.events[1..],
        [
            "jcc 1001>1004",
            "loss desync",
            "begin 1005",
            "async 1005>1000"
        ]
    );
    // More than any CPU holds back: 66 behind the one used.
    let many = lossy(|e| tnt(e, &"T".repeat(67)));
    assert_eq!(only_loss(&many).0, LossCause::Desync);
    // Between an event's address and its target.
    let between = lossy(|e| {
        e.fup(Ip(0x1001));
        tnt(e, "T");
        e.tip(Ip(0x1004));
    });
    assert_eq!(between.events[1..], ["loss desync", "begin 1004"]);
    assert_eq!(between.losses[0].bytes, 1);
}

#[test]
fn packets_of_traced_code_while_tracing_is_off_are_a_desync() {
    let decoded = lossy(|e| {
        stop(e, 0x1000);
        tnt(e, "T");
        e.tip(Ip(0x1005));
        e.tip_pge(Ip(0x1000));
        stop(e, 0x1001);
    });
    assert_eq!(
        decoded.events[1..],
        [
            "off-async 1000+0",
            "loss desync",
            "begin 1005",
            "loss desync",
            "on 1000",
            "off-async 1001+0"
        ]
    );
    assert_eq!(decoded.losses[0].bytes, 1);
}

#[test]
fn a_packet_that_lacks_its_address_is_lost() {
    let decoded = lossy(|e| {
        e.put(&Packet::Tip(ptrail_pt::IpPayload::SUPPRESSED));
        e.tip(Ip(0x1005));
        stop(e, 0x1005);
    });
    assert_eq!(only_loss(&decoded), (LossCause::Desync, 1, Some(0x1000)));
}

#[test]
fn a_branch_does_not_leave_for_where_it_does_not_go() {
    let decoded = lossy(|e| {
        e.tip_pgd(Some(Ip(0x5000)));
        e.tip_pge(Ip(0x1000));
    });
    assert_eq!(decoded.events[1..], ["loss desync", "on 1000"]);
    assert_eq!(hex(&decoded.instructions), hex(&[0x1000]));
}

#[test]
fn bytes_that_are_no_instruction_are_a_desync() {
    let code = program(&[0x90, 0x06, 0x06]);
    let decoded = decode(&code, &stream(|e| tnt(e, "T")));
    assert_eq!(only_loss(&decoded), (LossCause::Desync, 1, Some(0x1001)));
    assert!(decoded.losses[0].reason.contains("0x1001"));
}

#[test]
fn code_that_goes_round_without_a_decision_is_left_at_once() {
    // jmp to itself; a ring of three; a call to itself.
    let ring = [0xeb, 0x02, 0xf4, 0xf4, 0xeb, 0x02, 0xf4, 0xf4, 0xeb, 0xf6];
    let call = [0xe8, 0xfb, 0xff, 0xff, 0xff];
    for code in [&[0xeb, 0xfe][..], &ring, &call] {
        let bytes = stream(|e| tnt(e, "T"));
        let decoded = decode(&program(code), &bytes);
        assert_eq!(only_loss(&decoded).0, LossCause::Desync);
        assert!(decoded.instructions.len() < 10, "{}", decoded.events.len());
        // Waiting there for an event is fine.
        let bytes = stream(|e| stop(e, 0x1000));
        assert_eq!(decode(&program(code), &bytes).losses, []);
    }
}

#[test]
fn very_long_straight_code_is_fine() {
    let code = vec![0x90; 500_000];
    let bytes = stream(|e| stop(e, 0x1000 + 499_999));
    let decoded = decode(&program(&code), &bytes);
    assert_eq!(decoded.losses, []);
    assert_eq!(decoded.instructions.len(), 499_999);
}

#[test]
fn a_loss_lasts_from_the_last_time_before_to_the_first_behind() {
    let decoded = lossy(|e| {
        e.put(&Packet::Tsc(1000));
        e.put(&Packet::Ovf);
        e.put(&Packet::Tsc(3000));
        e.fup(Ip(0x1005));
        e.put(&Packet::Tsc(4000));
        e.put(&Packet::Ovf);
    });
    let times: Vec<_> = decoded
        .losses
        .iter()
        .map(|loss| (loss.begin.0, loss.end.0))
        .collect();
    assert_eq!(times, [(1_000_000, 3_000_000), (4_000_000, 4_000_000)]);
    // No moment of the loss is taken for one of the instructions around it.
    let anchors: Vec<_> = decoded.anchors.iter().map(|anchor| anchor.1).collect();
    assert_eq!(anchors, [1_000_000, 3_000_000, 4_000_000]);
}

#[test]
fn an_address_in_a_psb_before_tracing_is_switched_on_is_none_on_cpus_with_bdm70() {
    let mut e = Encoder::new();
    psb(&mut e, 0x1000);
    e.tip_pge(Ip(0x1004));
    stop(&mut e, 0x1005);
    // The segment before ends with tracing off.
    let bytes = [stream(|e| stop(e, 0x1001)), e.take()].concat();
    let decode = |cpu| {
        let config = PtConfig {
            cpu,
            ..PtConfig::default()
        };
        decode_with(&program(&CODE), &config, &bytes)
    };
    let broadwell = decode(Some(intel(0x3d)));
    assert_eq!(broadwell.losses, []);
    assert_eq!(
        broadwell.events,
        [
            "begin 1000",
            "off-async 1001+0",
            "on 1004",
            "off-async 1005+0"
        ]
    );
    assert_eq!(decode(None).losses.len(), 2);
}

#[test]
fn a_tip_pge_without_its_address_is_a_loss_on_cpus_with_bdm70_too() {
    let mut e = Encoder::new();
    psb(&mut e, 0x1000);
    e.put(&Packet::TipPge(IpPayload::SUPPRESSED));
    let mut off = Encoder::new();
    off.put(&Packet::Psb);
    off.put(&Packet::PsbEnd);
    let config = PtConfig {
        cpu: Some(intel(0x3d)),
        ..PtConfig::default()
    };
    let bytes = [e.take(), off.take()].concat();
    let decoded = decode_with(&program(&CODE), &config, &bytes);
    assert_eq!(only_loss(&decoded), (LossCause::Desync, 1, Some(0x1000)));
}

#[test]
fn a_psb_without_its_address_is_a_loss_on_cpus_with_bdm70_too() {
    let mut e = Encoder::new();
    e.put(&Packet::Psb);
    e.put(&Packet::Fup(IpPayload::SUPPRESSED));
    e.put(&Packet::PsbEnd);
    e.tip_pge(Ip(0x1004));
    stop(&mut e, 0x1005);
    let config = PtConfig {
        cpu: Some(intel(0x3d)),
        ..PtConfig::default()
    };
    let decoded = decode_with(&program(&CODE), &config, &e.take());
    assert_eq!(only_loss(&decoded), (LossCause::Desync, 1, None));
    assert_eq!(
        decoded.events,
        ["loss desync", "on 1004", "off-async 1005+0"]
    );
}
