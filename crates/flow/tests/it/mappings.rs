//! Code that changes while the program runs, and the times at which instructions are met.

use ptrail_image::{Timeline, TimelineBuilder};
use ptrail_pt::{Encoder, Ip, Packet, PerfTime, PtConfig};

use crate::program::{PID, decode, decode_with, hex, program, psb_at, stop, tnt};

/// At 1000 first `nop; jmp *rax`, from 1000 ns on `jmp *rax`, from 2000 ns on two NOPs more.
fn changing() -> Timeline {
    let mut builder = TimelineBuilder::new();
    let versions: [(u64, &[u8]); 3] = [
        (0, &[0x90, 0xff, 0xe0]),
        (1000, &[0xff, 0xe0, 0xf4]),
        (2000, &[0x90, 0x90, 0xff, 0xe0]),
    ];
    for (time, code) in versions {
        builder.code(PID, PerfTime(time), 0x1000, "code", code.to_vec());
    }
    builder.build()
}

#[test]
fn code_is_that_of_the_time_by_tsc() {
    let mut e = Encoder::new();
    psb_at(&mut e, 500, Some(0x1000));
    e.tip(Ip(0x1000));
    e.put(&Packet::Tsc(999));
    e.tip(Ip(0x1000));
    e.put(&Packet::Tsc(1000));
    e.tip(Ip(0x1000));
    psb_at(&mut e, 2500, Some(0x1000));
    e.tip(Ip(0x1000));
    stop(&mut e, 0x1001);
    let decoded = decode(&changing(), &e.take());
    assert_eq!(decoded.losses, []);
    let expected = [
        0x1000, 0x1001, 0x1000, 0x1001, 0x1000, 0x1000, 0x1001, 0x1002, 0x1000,
    ];
    assert_eq!(hex(&decoded.instructions), hex(&expected));
}

#[test]
fn code_is_that_of_the_time_by_cyc() {
    let config = PtConfig {
        cyc: true,
        max_non_turbo_ratio: 10,
        ..PtConfig::default()
    };
    let mut e = Encoder::new();
    psb_at(&mut e, 900, Some(0x1000));
    e.put(&Packet::Cbr {
        ratio: 10,
        reserved: 0,
    });
    e.put(&Packet::Cyc(99));
    e.tip(Ip(0x1000));
    e.put(&Packet::Cyc(1));
    e.tip(Ip(0x1000));
    let decoded = decode_with(&changing(), &config, &e.take());
    assert_eq!(hex(&decoded.instructions), hex(&[0x1000, 0x1001, 0x1000]));
    assert_eq!(
        decoded.anchors,
        [(0, 900_000), (2, 999_000), (3, 1_000_000)]
    );
}

#[test]
fn a_segment_that_starts_late_starts_with_the_late_code() {
    let mut e = Encoder::new();
    psb_at(&mut e, 5000, Some(0x1000));
    e.tip(Ip(0x1000));
    let decoded = decode(&changing(), &e.take());
    assert_eq!(hex(&decoded.instructions), hex(&[0x1000, 0x1001, 0x1002]));
}

#[test]
fn without_cyc_a_time_holds_where_the_walk_stands() {
    // 1000: je 1000
    let mut e = Encoder::new();
    psb_at(&mut e, 100, Some(0x1000));
    tnt(&mut e, "TTT");
    e.put(&Packet::Tsc(200));
    tnt(&mut e, "T");
    e.put(&Packet::Tsc(300));
    e.put(&Packet::Tsc(400));
    tnt(&mut e, "T");
    let decoded = decode(&program(&[0x74, 0xfe]), &e.take());
    let times = [(0, 100), (3, 200), (4, 300), (4, 400)].map(|(n, ns)| (n, ns * 1000));
    assert_eq!(decoded.anchors, times);
}

#[test]
fn a_pause_is_between_two_anchors_with_one_count() {
    // 1000: syscall; 1002: syscall
    let mut e = Encoder::new();
    psb_at(&mut e, 100, Some(0x1000));
    e.tip_pgd(None);
    e.put(&Packet::Tsc(200));
    e.tip_pge(Ip(0x1002));
    e.tip_pgd(None);
    let decoded = decode(&program(&[0x0f, 0x05, 0x0f, 0x05]), &e.take());
    // The pause is from the first syscall, at 100 as far as is known, to 200.
    let times = [(0, 100), (1, 100), (1, 200), (2, 200)].map(|(n, ns)| (n, ns * 1000));
    assert_eq!(decoded.anchors, times);
}

#[test]
fn times_that_would_go_back_are_counted() {
    let mut e = Encoder::new();
    psb_at(&mut e, 1000, Some(0x1000));
    e.put(&Packet::Tsc(500));
    let decoded = decode(&program(&[0x90]), &e.take());
    assert_eq!(decoded.ends[0].clamps, 1);
    assert_eq!(decoded.anchors, [(0, 1_000_000)]);
}

/// The kernel came back by 1100, an MTC period behind 1000: code that was mapped before that is there,
/// not what was there before.
#[test]
fn what_changed_before_tracing_went_on_is_changed() {
    let config = PtConfig {
        mtc: true,
        mtc_freq: 0,
        tsc_ctc_n: 200,
        tsc_ctc_d: 1,
        ..PtConfig::default()
    };
    let changed = &[0x1000, 0x1000, 0x1001][..];
    for (mapped, expected) in [(1100, changed), (1300, &changed[..2])] {
        let mut builder = TimelineBuilder::new();
        // syscall, and later: nop; syscall
        builder.code(PID, PerfTime(0), 0x1000, "code", vec![0x0f, 0x05]);
        let later = vec![0x90, 0x0f, 0x05];
        builder.code(PID, PerfTime(mapped), 0x1000, "code", later);
        let mut e = Encoder::new();
        psb_at(&mut e, 1000, Some(0x1000));
        e.put(&Packet::Tma {
            ctc: 0,
            fast_counter: 0,
        });
        e.tip_pgd(None);
        e.tip_pge(Ip(0x1000));
        e.tip_pgd(None);
        let decoded = decode_with(&builder.build(), &config, &e.take());
        assert_eq!(decoded.losses, []);
        assert_eq!(hex(&decoded.instructions), hex(expected));
    }
}

/// Between 500 and 900 it can't be there yet; between 900 and 1100, as far as the clock tells, it can.
#[test]
fn code_that_is_added_later_is_missing_only_before() {
    let mut builder = TimelineBuilder::new();
    builder.code(PID, PerfTime(0), 0x1000, "code", vec![0xff, 0xe0]);
    builder.code(PID, PerfTime(1000), 0x2000, "more", vec![0x90, 0xff, 0xe0]);
    let mut e = Encoder::new();
    for time in [500, 900, 1100] {
        psb_at(&mut e, time, Some(0x1000));
        e.tip(Ip(0x2000));
        e.tip(Ip(0x1000));
    }
    stop(&mut e, 0x1000);
    let decoded = decode(&builder.build(), &e.take());
    assert_eq!(decoded.losses.len(), 1);
    assert_eq!(decoded.losses[0].ip, Some(Ip(0x2000)));
    let expected = [0x1000, 0x1000, 0x2000, 0x2001, 0x1000, 0x2000, 0x2001];
    assert_eq!(hex(&decoded.instructions), hex(&expected));
}
