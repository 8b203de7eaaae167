//! Signals: delivery, handler, restorer, sigreturn.

use crate::script::{F, G, HANDLER, MAIN, RESTORER, Script};

/// The handler returns to the restorer, which makes the system call that ends the signal.
fn return_from(script: &mut Script, ns: u64) -> &mut Script {
    script
        .ret(HANDLER + 0x30, RESTORER)
        .at(ns)
        .run(1)
        .syscall(RESTORER + 7)
        .at(ns + 1)
        .at(ns + 2)
}

#[test]
fn a_signal_in_straight_code() {
    let mut script = Script::new();
    script
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .run(1)
        .interrupt(F + 0x10)
        .at(2)
        .at(3)
        .on(HANDLER)
        .call(HANDLER + 0x10, G)
        .at(4)
        .ret(G + 0x20, HANDLER + 0x15)
        .at(5);
    return_from(&mut script, 6)
        .on(F + 0x10)
        .ret(F + 0x20, MAIN + 0x25)
        .at(9)
        .check(&[
            "@2 [interrupt] 2..3 0/0 gap",
            "@4 g 4..5 1/1",
            "@3 handler 3..6 3/2 async",
            "@4 [syscall] 7..8 0/0 gap",
            "@3 restorer 6..8 2/2",
            "@2 [signal] 3..8 5/0 async",
            "@1 f 1..9 7/2",
            "@0 main 0..9 8/1 cut",
        ]);
}

#[test]
fn a_signal_in_a_system_call_that_fails_or_is_made_again() {
    for resumed in [MAIN + 0x32, MAIN + 0x30] {
        let mut script = Script::new();
        script
            .at(0)
            .begin(MAIN)
            .syscall(MAIN + 0x30)
            .at(1)
            .at(2)
            .on(HANDLER)
            .at(3);
        return_from(&mut script, 4)
            .on(resumed)
            .run(3)
            .at(7)
            .check(&[
                "@1 [syscall] 1..2 0/0 gap",
                "@2 handler 2..4 1/1 async",
                "@3 [syscall] 5..6 0/0 gap",
                "@2 restorer 4..6 2/2",
                "@1 [signal] 2..6 3/0 async",
                "@0 main 0..7 7/4 cut",
            ]);
    }
}

#[test]
fn a_handler_may_jump_out() {
    // siglongjmp from the handler into the function that was interrupted.
    Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .interrupt(F + 0x10)
        .at(2)
        .at(3)
        .on(HANDLER)
        .call(HANDLER + 0x10, G)
        .at(4)
        .jump(G + 0x50, F + 0x60)
        .at(5)
        .ret(F + 0x70, MAIN + 0x25)
        .at(6)
        .check(&[
            "@2 [interrupt] 2..3 0/0 gap",
            "@4 g 4..5 1/1 unwound",
            "@3 handler 3..5 2/1 unwound async",
            "@2 [signal] 3..5 2/0 unwound async",
            "@1 f 1..6 3/1",
            "@0 main 0..6 4/1 cut",
        ]);
}

#[test]
fn a_signal_may_interrupt_a_handler() {
    let mut script = Script::new();
    script
        .at(0)
        .begin(MAIN)
        .interrupt(MAIN + 0x10)
        .at(1)
        .at(2)
        .on(HANDLER)
        .run(1)
        .interrupt(HANDLER + 0x20)
        .at(3)
        .at(4)
        .on(HANDLER)
        .at(5);
    return_from(&mut script, 6).on(HANDLER + 0x20).at(9);
    return_from(&mut script, 10).on(MAIN + 0x10).at(13).check(&[
        "@1 [interrupt] 1..2 0/0 gap",
        "@3 [interrupt] 3..4 0/0 gap",
        "@4 handler 4..6 1/1 async",
        "@5 [syscall] 7..8 0/0 gap",
        "@4 restorer 6..8 2/2",
        "@3 [signal] 4..8 3/0 async",
        "@2 handler 2..10 5/2 async",
        "@3 [syscall] 11..12 0/0 gap",
        "@2 restorer 10..12 2/2",
        "@1 [signal] 2..12 7/0 async",
        "@0 main 0..13 7/0 cut",
    ]);
}

#[test]
fn two_signals_may_come_at_once() {
    // The second is delivered before the first one's handler runs its first instruction.
    let mut script = Script::new();
    script
        .at(0)
        .begin(MAIN)
        .interrupt(MAIN + 0x10)
        .at(1)
        .at(2)
        .on(HANDLER)
        .interrupt(HANDLER)
        .at(3)
        .at(4)
        .on(G)
        .run(1)
        .ret(G + 0x30, RESTORER)
        .at(5)
        .syscall(RESTORER + 7)
        .at(6)
        .at(7)
        .on(HANDLER)
        .at(8);
    return_from(&mut script, 9).on(MAIN + 0x10).at(12).check(&[
        "@1 [interrupt] 1..2 0/0 gap",
        "@3 [interrupt] 3..4 0/0 gap",
        "@4 g 4..5 2/2 async",
        "@5 [syscall] 6..7 0/0 gap",
        "@4 restorer 5..7 1/1",
        "@3 [signal] 4..7 3/0 async",
        "@2 handler 2..9 4/1 async",
        "@3 [syscall] 10..11 0/0 gap",
        "@2 restorer 9..11 2/2",
        "@1 [signal] 2..11 6/0 async",
        "@0 main 0..12 6/0 cut",
    ]);
}

#[test]
fn a_handlers_own_system_calls_are_its_own() {
    let mut script = Script::new();
    script
        .at(0)
        .begin(MAIN)
        .interrupt(MAIN + 0x10)
        .at(1)
        .at(2)
        .on(HANDLER)
        .syscall(HANDLER + 0x10)
        .at(3)
        .at(4)
        .on(HANDLER + 0x12)
        .at(5);
    return_from(&mut script, 6).on(MAIN + 0x10).at(9).check(&[
        "@1 [interrupt] 1..2 0/0 gap",
        "@3 [syscall] 3..4 0/0 gap",
        "@2 handler 2..6 2/2 async",
        "@3 [syscall] 7..8 0/0 gap",
        "@2 restorer 6..8 2/2",
        "@1 [signal] 2..8 4/0 async",
        "@0 main 0..9 4/0 cut",
    ]);
}
