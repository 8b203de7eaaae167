//! Far transfers, asynchronous events, packets that only name an address, transactions, modes.

use ptrail_pt::{Encoder, ExecMode, Ip, Packet, PsbPlus, PtConfig};

use crate::program::{
    check, decode, decode_with, hex, intel, program, programs, psb, stop, stream, tnt,
};

#[test]
fn a_system_call_switches_user_only_tracing_off() {
    let code = [
        0x90, // 1000
        0x0f, 0x05, // 1001: syscall
        0x90, // 1003
        0xcd, 0x80, // 1004: int 0x80
        0xf4, // 1006
    ];
    check(
        &code,
        |e| {
            e.tip_pgd(None);
            e.tip_pge(Ip(0x1003));
            e.tip_pgd(None);
            e.tip_pge(Ip(0x1006));
        },
        &[0x1000, 0x1001, 0x1003, 0x1004],
        &["off-syscall 1001+2", "on 1003", "off-far 1004+2", "on 1006"],
    );
}

#[test]
fn with_the_kernel_traced_a_system_call_has_a_target() {
    let code = [
        0x0f, 0x05, // 1000: syscall
        0xf4, // 1002
        0x0f, 0x07, // 1003: sysret
    ];
    check(
        &code,
        |e| {
            e.tip(Ip(0x1003));
            e.tip(Ip(0x1002));
            stop(e, 0x1002);
        },
        &[0x1000, 0x1003],
        &["far 1000>1003", "far-return 1003>1002", "off-async 1002+0"],
    );
}

#[test]
fn an_event_is_met_at_its_instruction() {
    let code = [
        0x90, 0x90, // 1000
        0x74, 0x02, // 1002: je 1006
        0xf4, 0xf4, // 1004
        0x90, 0xcf, // 1006: nop, iret
    ];
    check(
        &code,
        |e| {
            // In straight code, and back again.
            e.fup(Ip(0x1001));
            e.tip(Ip(0x1006));
            e.tip(Ip(0x1001));
            // Right at a branch that did not execute.
            e.fup(Ip(0x1002));
            e.tip(Ip(0x1007));
            e.tip(Ip(0x1002));
            tnt(e, "T");
            // Where execution stands already.
            stop(e, 0x1006);
            e.tip_pge(Ip(0x1006));
            stop(e, 0x1007);
        },
        &[0x1000, 0x1006, 0x1007, 0x1001, 0x1007, 0x1002, 0x1006],
        &[
            "async 1001>1006",
            "far-return 1007>1001",
            "async 1002>1007",
            "far-return 1007>1002",
            "jcc 1002>1006",
            "off-async 1006+0",
            "on 1006",
            "off-async 1007+0",
        ],
    );
}

#[test]
fn some_fups_only_name_an_address() {
    let begin = Packet::ModeTsx {
        in_tx: true,
        abort: false,
    };
    let commit = Packet::ModeTsx {
        in_tx: false,
        abort: false,
    };
    let ptw = Packet::Ptw {
        payload: 5,
        wide: false,
        ip: true,
    };
    let cfe = Packet::Cfe {
        kind: 10,
        vector: 0,
        ip: true,
    };
    let flag = Packet::ModeExec {
        mode: ExecMode::Bits64,
        interrupts: true,
    };
    let named = [
        ptw,
        Packet::Exstop { ip: true },
        Packet::Bep { ip: true },
        begin,
        commit,
        cfe,
        flag,
    ];
    // The TIP at the end is that of the jump at 1002, not of an event at 1001.
    for packet in named {
        check(
            &[0x90, 0x90, 0xff, 0xe0, 0xf4],
            |e| {
                e.put(&packet);
                e.fup(Ip(0x1001));
                e.tip(Ip(0x1004));
                stop(e, 0x1004);
            },
            &[0x1000, 0x1001, 0x1002],
            &["jmp 1002>1004", "off-async 1004+0"],
        );
    }
}

#[test]
fn a_name_without_its_fup_does_not_change_a_later_one() {
    let ptw = |ip| Packet::Ptw {
        payload: 5,
        wide: false,
        ip,
    };
    let begin = Packet::ModeTsx {
        in_tx: true,
        abort: false,
    };
    check(
        &[0x90, 0x74, 0x00, 0x90, 0xf4],
        |e| {
            e.put(&ptw(false));
            e.fup(Ip(0x1000));
            e.tip_pgd(None);
            // Without branch packets a transaction has no address.
            e.put(&begin);
            e.tip_pge(Ip(0x1000));
            stop(e, 0x1001);
            e.tip_pge(Ip(0x1001));
            e.put(&ptw(true));
            tnt(e, "N");
            stop(e, 0x1004);
        },
        &[0x1000, 0x1001, 0x1003],
        &[
            "off-async 1000+0",
            "on 1000",
            "off-async 1001+0",
            "on 1001",
            "off-async 1004+0",
        ],
    );
}

#[test]
fn an_aborted_transaction_goes_on_elsewhere() {
    let mode = |in_tx, abort| Packet::ModeTsx { in_tx, abort };
    check(
        &[0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xf4],
        |e| {
            e.put(&mode(true, false));
            e.fup(Ip(0x1001));
            e.put(&mode(false, true));
            e.fup(Ip(0x1003));
            e.tip(Ip(0x1005));
            // The next event is an ordinary one.
            e.fup(Ip(0x1006));
            e.tip(Ip(0x1000));
            // An abort may switch tracing off.
            e.put(&mode(false, true));
            e.fup(Ip(0x1001));
            e.tip_pgd(None);
            e.tip_pge(Ip(0x1001));
            e.fup(Ip(0x1002));
            e.tip(Ip(0x1000));
        },
        &[0x1000, 0x1001, 0x1002, 0x1005, 0x1000, 0x1001],
        &[
            "abort 1003>1005",
            "async 1006>1000",
            "off-async 1001+0",
            "on 1001",
            "async 1002>1000",
        ],
    );
}

#[test]
fn the_same_bytes_are_other_instructions_in_32_bit_code() {
    let mode = |mode| Packet::ModeExec {
        mode,
        interrupts: false,
    };
    // 2000: 64-bit: rex; jmp *rcx. 32-bit: inc eax; jmp *ecx.
    let code = programs(&[(0x1000, &[0xff, 0x28]), (0x2000, &[0x40, 0xff, 0xe1])]);
    let bytes = stream(|e| {
        e.tip(Ip(0x2000));
        e.tip(Ip(0x1000));
        e.put(&mode(ExecMode::Bits32));
        e.tip(Ip(0x2000));
        e.tip(Ip(0x1000));
        e.put(&mode(ExecMode::Bits64));
        e.tip(Ip(0x2000));
        e.tip(Ip(0x1000));
    });
    let decoded = decode(&code, &bytes);
    let expected = [0x1000, 0x2000, 0x1000, 0x2000, 0x2001, 0x1000, 0x2000];
    assert_eq!(hex(&decoded.instructions), hex(&expected));
    assert!(decoded.losses.is_empty());
}

#[test]
fn the_mode_in_a_psb_holds_at_once_and_that_of_a_tip_pge_at_its_target() {
    // 64-bit: rex jmp; 32-bit: inc eax, jmp.
    let code = program(&[0x40, 0xff, 0xe1]);
    let mut e = Encoder::new();
    e.psb_plus(&PsbPlus {
        mode_exec: Some((ExecMode::Bits32, false)),
        ip: Some(Ip(0x1000)),
        ..PsbPlus::default()
    });
    e.tip(Ip(0x1000));
    stop(&mut e, 0x1000);
    e.put(&Packet::ModeExec {
        mode: ExecMode::Bits64,
        interrupts: false,
    });
    e.tip_pge(Ip(0x1000));
    e.tip(Ip(0x1000));
    let decoded = decode(&code, &e.take());
    assert_eq!(hex(&decoded.instructions), hex(&[0x1000, 0x1001, 0x1000]));
}

#[test]
fn an_address_filter_ends_tracing_at_any_branch() {
    // By a direct call, the second of two.
    check(
        &[0xe8, 0x01, 0, 0, 0, 0xf4, 0xe8, 0x01, 0, 0, 0, 0xf4, 0xf4],
        |e| {
            e.tip_pgd(Some(Ip(0x100c)));
            e.tip_pge(Ip(0x100b));
        },
        &[0x1000, 0x1006],
        &["call 1000>1006", "off-filter 1006+5", "on 100b"],
    );
    // By a direct jump.
    check(
        &[0x90, 0xeb, 0x70],
        |e| e.tip_pgd(Some(Ip(0x1073))),
        &[0x1000, 0x1001],
        &["off-filter 1001+2"],
    );
    // By running straight out.
    check(
        &[0x90, 0x90, 0x90],
        |e| e.tip_pgd(Some(Ip(0x1002))),
        &[0x1000, 0x1001],
        &["off-filter 1001+1"],
    );
    // By a conditional branch, taken or not, with or without its target; it has no outcome.
    for target in [Some(0x1070), Some(0x1004), None] {
        check(
            &[0x74, 0x00, 0x74, 0x6c],
            |e| {
                tnt(e, "N");
                e.tip_pgd(target.map(Ip));
            },
            &[0x1000, 0x1002],
            &["off-filter 1002+2"],
        );
    }
    // By an indirect jump, call and return.
    for branch in [&[0xff, 0xe0][..], &[0xff, 0xd0], &[0xc3]] {
        let decoded = decode(&program(branch), &stream(|e| e.tip_pgd(Some(Ip(0x4000)))));
        assert_eq!(decoded.instructions, [0x1000]);
        assert_eq!(
            decoded.events[1],
            format!("off-filter 1000+{}", branch.len())
        );
    }
}

#[test]
fn a_vm_entry_that_switches_tracing_off_has_executed_on_cpus_with_skd022() {
    let code = program(&[0x0f, 0x01, 0xc2, 0xf4]); // vmlaunch
    let bytes = stream(|e| stop(e, 0x1000));
    let skylake = intel(0x5e);
    let config = PtConfig {
        cpu: Some(skylake),
        ..PtConfig::default()
    };
    let decoded = decode_with(&code, &config, &bytes);
    assert_eq!(decoded.events[1..], ["off-far 1000+3"]);
    assert_eq!(decoded.instructions, [0x1000]);
    assert_eq!(decode(&code, &bytes).events[1..], ["off-async 1000+0"]);
}

#[test]
fn an_instruction_across_two_pieces_of_code_is_put_together() {
    let code = programs(&[(0x1000, &[0x90, 0xeb]), (0x1002, &[0x01, 0xf4, 0x90, 0xf4])]);
    let mut e = Encoder::new();
    psb(&mut e, 0x1000);
    stop(&mut e, 0x1005);
    let decoded = decode(&code, &e.take());
    assert_eq!(hex(&decoded.instructions), hex(&[0x1000, 0x1001, 0x1004]));
}
