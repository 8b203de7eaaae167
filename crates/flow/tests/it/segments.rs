//! PSB+ in the middle of a stream: each segment stands alone, and the two sides must meet.

use ptrail_flow::cut;
use ptrail_pt::{Encoder, ExecMode, Ip, LossCause, Packet, PsbPlus, TraceOffset};

use crate::program::{decode, hex, program, psb, stop, tnt};

/// 1000: nop, nop, je 1000, call 1005, ret at 1005 … with HLTs around.
const CODE: [u8; 12] = [
    0x90, 0x90, // 1000
    0x74, 0xfc, // 1002: je 1000
    0xe8, 0x02, 0, 0, 0, // 1004: call 100b
    0x90, 0xf4, // 1009
    0xc3, // 100b: ret
];

#[test]
fn straight_code_across_a_psb_runs_once() {
    let mut e = Encoder::new();
    psb(&mut e, 0x1000);
    tnt(&mut e, "T");
    psb(&mut e, 0x1001);
    tnt(&mut e, "N");
    psb(&mut e, 0x100b);
    e.tip(Ip(0x1009));
    stop(&mut e, 0x100a);
    let decoded = decode(&program(&CODE), &e.take());
    assert_eq!(decoded.losses, []);
    let expected = [
        0x1000, 0x1001, 0x1002, 0x1000, 0x1001, 0x1002, 0x1004, 0x100b, 0x1009,
    ];
    assert_eq!(hex(&decoded.instructions), hex(&expected));
    assert_eq!(
        decoded.events,
        [
            "begin 1000",
            "jcc 1002>1000",
            "begin 1001",
            "call 1004>100b",
            "begin 100b",
            "ret 100b>1009",
            "off-async 100a+0"
        ]
    );
}

#[test]
fn a_return_across_a_psb_is_never_compressed() {
    let mut e = Encoder::new();
    psb(&mut e, 0x1004);
    psb(&mut e, 0x100b);
    tnt(&mut e, "T");
    stop(&mut e, 0x100a);
    let decoded = decode(&program(&CODE), &e.take());
    assert_eq!(decoded.losses.len(), 1);
    assert_eq!(decoded.losses[0].cause, LossCause::Desync);
    assert!(decoded.losses[0].reason.contains("return"));
    assert_eq!(hex(&decoded.instructions), hex(&[0x1004]));
}

#[test]
fn two_sides_that_do_not_meet_are_a_desync_without_bytes() {
    // Behind the branch at 1002, before it ran; another side of it; off here and on there.
    for (first, second) in [
        (Some(0x1000), Some(0x1004)),
        (Some(0x1000), None),
        (None, Some(0x1000)),
        (Some(0x1009), Some(0x1000)),
    ] {
        let mut e = Encoder::new();
        for ip in [first, second] {
            e.psb_plus(&PsbPlus {
                mode_exec: Some((ExecMode::Bits64, false)),
                ip: ip.map(Ip),
                ..PsbPlus::default()
            });
        }
        let decoded = decode(&program(&CODE), &e.take());
        assert_eq!(decoded.losses.len(), 1, "{first:x?} {second:x?}");
        let loss = &decoded.losses[0];
        assert!(matches!(loss.cause, LossCause::Desync | LossCause::NoCode));
        assert_eq!((loss.bytes, loss.offset.0 > 0), (0, true));
    }
}

#[test]
fn tracing_that_is_off_on_both_sides_meets() {
    let mut e = Encoder::new();
    psb(&mut e, 0x1000);
    stop(&mut e, 0x1001);
    e.psb_plus(&PsbPlus::default());
    e.tip_pge(Ip(0x1001));
    stop(&mut e, 0x1002);
    let decoded = decode(&program(&CODE), &e.take());
    assert_eq!(decoded.losses, []);
    assert_eq!(hex(&decoded.instructions), hex(&[0x1000, 0x1001]));
}

#[test]
fn addresses_are_never_compressed_across_a_psb() {
    let mut e = Encoder::new();
    psb(&mut e, 0x1000);
    e.psb_plus(&PsbPlus::default());
    // Against zero, not against 1000: bits 63 to 16 are those of the last address.
    e.tip_pge(Ip(0x1002));
    tnt(&mut e, "T");
    let bytes = e.take();
    let decoded = decode(&program(&CODE), &bytes);
    assert_eq!(decoded.events.last().unwrap(), "jcc 1002>1000");
}

#[test]
fn the_status_of_a_segment_is_told_to_the_one_before() {
    let mut e = Encoder::new();
    e.put(&Packet::Mtc(1));
    psb(&mut e, 0x1000);
    psb(&mut e, 0x1001);
    e.psb_plus(&PsbPlus::default());
    let bytes = e.take();
    let cut = cut(&bytes, TraceOffset(100));
    assert_eq!(cut.before_first_psb, 2);
    let starts: Vec<_> = cut.segments.iter().map(|s| s.offset.0).collect();
    assert_eq!(starts, [102, 129, 156]);
    let next: Vec<_> = cut.segments.iter().map(|s| s.next).collect();
    assert_eq!(next[0].unwrap().ip, Some(Ip(0x1001)));
    assert_eq!(next[0].unwrap().mode, Some(ExecMode::Bits64));
    assert_eq!(next[1].unwrap().ip, None);
    assert!(next[2].is_none());
}

#[test]
fn a_stream_without_a_psb_has_no_segments() {
    let cut = cut(&[0x02, 0x82, 0x02, 0x82], TraceOffset(0));
    assert!(cut.segments.is_empty());
    assert_eq!(cut.before_first_psb, 4);
}

#[test]
fn a_psb_whose_end_is_missing_starts_a_segment_all_the_same() {
    let mut e = Encoder::new();
    psb(&mut e, 0x1000);
    e.put(&Packet::Psb);
    e.put(&Packet::Fup(ptrail_pt::IpPayload::whole(Ip(0x1001))));
    psb(&mut e, 0x1002);
    tnt(&mut e, "N");
    let decoded = decode(&program(&CODE), &e.take());
    assert_eq!(decoded.losses, []);
    assert_eq!(decoded.events, ["begin 1000", "begin 1001", "begin 1002"]);
    assert_eq!(hex(&decoded.instructions), hex(&[0x1000, 0x1001, 0x1002]));
}

#[test]
fn status_packets_that_break_off_say_nothing_of_where_the_segment_starts() {
    let mut e = Encoder::new();
    psb(&mut e, 0x1000);
    e.put(&Packet::Psb);
    e.put(&Packet::Ovf);
    e.fup(Ip(0x1009));
    stop(&mut e, 0x100a);
    let decoded = decode(&program(&CODE), &e.take());
    assert_eq!(decoded.losses.len(), 1);
    assert_eq!(decoded.losses[0].cause, LossCause::Overflow);
    assert_eq!(hex(&decoded.instructions), hex(&[0x1009]));
}
