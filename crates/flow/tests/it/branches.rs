//! Each kind of branch, and what the trace holds for it.

use ptrail_pt::{Encoder, Ip, Packet, PtConfig, Tnt};

use crate::program::{check, decode, decode_with, hex, program, stop, stream, tnt};

#[test]
fn conditional_branches_take_one_outcome_each() {
    let code = [
        0x74, 0x02, // 1000: je 1004
        0x90, 0x90, // 1002: nop, nop
        0xe2, 0xfa, // 1004: loop 1000
        0xe3, 0x01, // 1006: jrcxz 1009
        0xf4, 0xf4, // 1008: hlt, hlt
    ];
    check(
        &code,
        |e| {
            tnt(e, "TTNNT");
            stop(e, 0x1009);
        },
        &[0x1000, 0x1004, 0x1000, 0x1002, 0x1003, 0x1004, 0x1006],
        &[
            "jcc 1000>1004",
            "jcc 1004>1000",
            "jcc 1006>1009",
            "off-async 1009+0",
        ],
    );
}

#[test]
fn a_long_packet_is_the_same_as_short_ones() {
    // 1000: jne 1000
    let code = program(&[0x75, 0xfe, 0xf4]);
    let long = stream(|e| {
        e.put(&Packet::Tnt(Tnt::long((1 << 40) - 2, 40)));
        stop(e, 0x1002);
    });
    let short = stream(|e| {
        tnt(e, &format!("{}N", "T".repeat(39)));
        stop(e, 0x1002);
    });
    let decoded = decode(&code, &long);
    assert_eq!(decoded.instructions, vec![0x1000; 40]);
    assert_eq!(decode(&code, &short).events, decoded.events);
}

#[test]
fn direct_and_indirect_jumps_calls_and_compressed_returns() {
    let code = [
        0xeb, 0x01, // 1000: jmp 1003
        0xf4, // 1002
        0xe8, 0x04, 0, 0, 0, // 1003: call 100c
        0xff, 0xe0, // 1008: jmp *rax
        0xf4, 0xf4, // 100a
        0xff, 0xd3, // 100c: call *rbx
        0xc3, // 100e: ret
        0xf4, // 100f
        0xc3, // 1010: ret
    ];
    check(
        &code,
        |e| {
            e.tip(Ip(0x1010));
            tnt(e, "TT");
            e.tip(Ip(0x100a));
            stop(e, 0x100a);
        },
        &[0x1000, 0x1003, 0x100c, 0x1010, 0x100e, 0x1008],
        &[
            "jmp 1000>1003",
            "call 1003>100c",
            "call 100c>1010",
            "ret 1010>100e",
            "ret 100e>1008",
            "jmp 1008>100a",
            "off-async 100a+0",
        ],
    );
}

#[test]
fn a_return_that_is_not_compressed_moves_the_return_stack_all_the_same() {
    let code = [
        0xe8, 0x01, 0, 0, 0,    // 1000: call 1006
        0xf4, // 1005
        0xe8, 0x02, 0, 0, 0,    // 1006: call 100d
        0xf4, // 100b
        0xc3, // 100c: ret
        0xc3, // 100d: ret, but not to 100b
    ];
    check(
        &code,
        |e| {
            e.tip(Ip(0x100c));
            tnt(e, "T");
            stop(e, 0x1005);
        },
        &[0x1000, 0x1006, 0x100d, 0x100c],
        &[
            "call 1000>1006",
            "call 1006>100d",
            "ret 100d>100c",
            "ret 100c>1005",
            "off-async 1005+0",
        ],
    );
}

#[test]
fn a_call_to_the_next_instruction_is_not_on_the_return_stack() {
    let code = [
        0xe8, 0x01, 0, 0, 0,    // 1000: call 1006
        0xf4, // 1005
        0xe8, 0, 0, 0, 0,    // 1006: call 100b
        0x58, // 100b: pop rax
        0xc3, // 100c: ret
    ];
    check(
        &code,
        |e| {
            tnt(e, "T");
            stop(e, 0x1005);
        },
        &[0x1000, 0x1006, 0x100b, 0x100c],
        &[
            "call 1000>1006",
            "call 1006>100b",
            "ret 100c>1005",
            "off-async 1005+0",
        ],
    );
}

/// 1000: call 1006, 1006: a function that calls itself until its branch is taken.
const RECURSION: [u8; 14] = [
    0xe8, 0x01, 0, 0, 0,    // 1000: call 1006
    0xf4, // 1005
    0x74, 0x05, // 1006: je 100d
    0xe8, 0xf9, 0xff, 0xff, 0xff, // 1008: call 1006
    0xc3, // 100d: ret
];

#[test]
fn the_return_stack_holds_64_calls() {
    let calls = |inner: usize, last: fn(&mut Encoder)| {
        let bytes = stream(|e| {
            tnt(e, &format!("{}T{}", "N".repeat(inner), "T".repeat(inner)));
            last(e);
            stop(e, 0x1005);
        });
        decode(&program(&RECURSION), &bytes)
    };
    let compressed = |e: &mut Encoder| tnt(e, "T");
    let by_tip = |e: &mut Encoder| e.tip(Ip(0x1005));

    let fits = calls(63, compressed);
    assert!(fits.losses.is_empty());
    assert_eq!(fits.events[fits.events.len() - 2], "ret 100d>1005");

    let dropped = calls(64, by_tip);
    assert!(dropped.losses.is_empty());
    assert_eq!(dropped.events[dropped.events.len() - 2], "ret 100d>1005");
    assert_eq!(dropped.instructions.len(), 1 + 64 * 2 + 1 + 65);

    // No CPU compresses the 65th return.
    let wrong = calls(64, compressed);
    assert_eq!(wrong.losses.len(), 1);
    assert_eq!(wrong.losses[0].ip, Some(Ip(0x100d)));
}

#[test]
fn targets_may_come_after_the_outcomes_of_later_branches() {
    let code = [
        0x75, 0xfe, // 1000: jne 1000
        0xff, 0xe2, // 1002: jmp *rdx
        0x75, 0x02, // 1004: jne 1008
        0xf4, 0xf4, // 1006
        0xff, 0xd3, // 1008: call *rbx
        0x74, 0x00, // 100a: je 100c
        0xf4, // 100c
        0xc3, // 100d: ret
    ];
    let deferred = |e: &mut Encoder| {
        tnt(e, "NTTT");
        e.tip(Ip(0x1004));
        e.tip(Ip(0x100d));
        stop(e, 0x100c);
    };
    let events = [
        "jmp 1002>1004",
        "jcc 1004>1008",
        "call 1008>100d",
        "ret 100d>100a",
        "jcc 100a>100c",
        "off-async 100c+0",
    ];
    let instructions = [0x1000, 0x1002, 0x1004, 0x1008, 0x100d, 0x100a];
    check(&code, deferred, &instructions, &events);
    let at_once = |e: &mut Encoder| {
        tnt(e, "N");
        e.tip(Ip(0x1004));
        tnt(e, "T");
        e.tip(Ip(0x100d));
        tnt(e, "TT");
        stop(e, 0x100c);
    };
    check(&code, at_once, &instructions, &events);
}

#[test]
fn without_return_compression_an_outcome_is_never_that_of_a_return() {
    let code = program(&[
        0xe8, 0x03, 0, 0, 0, // 1000: call 1008
        0x74, 0x00, // 1005: je 1007
        0xf4, // 1007
        0xc3, // 1008: ret
    ]);
    let bytes = stream(|e| {
        tnt(e, "T");
        e.tip(Ip(0x1005));
        stop(e, 0x1007);
    });
    let config = PtConfig {
        no_return_compression: true,
        ..PtConfig::default()
    };
    let decoded = decode_with(&code, &config, &bytes);
    assert_eq!(
        decoded.events[1..],
        [
            "call 1000>1008",
            "ret 1008>1005",
            "jcc 1005>1007",
            "off-async 1007+0"
        ]
    );
    assert_eq!(hex(&decoded.instructions), hex(&[0x1000, 0x1008, 0x1005]));
}

#[test]
fn straight_code_runs_only_as_far_as_the_trace_says() {
    // Three NOPs and the end of the data: nothing says that any of them ran.
    check(&[0x90, 0x90, 0x90], |_| {}, &[], &[]);
    check(&[0x74, 0x00, 0x90], |e| tnt(e, "N"), &[0x1000], &[]);
}
