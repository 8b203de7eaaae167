//! Several stacks in one thread, and where longjmp lands.

use ptrail_flow::EdgeKind;

use crate::script::{F, G, GOGO, H, MAIN, MORESTACK, NOWHERE, SETJMP, SWITCH, Script};

/// main calls the function that switches, which goes to the first instruction of `to`: a new stack.
fn to_new_stack(kind: EdgeKind, to: u64) -> Script {
    let mut script = Script::new();
    script.at(0).begin(MAIN).call(MAIN + 0x20, SWITCH).at(1);
    script.edge(kind, SWITCH + 0x40, to).at(2);
    script
}

#[test]
fn a_stack_that_was_left_is_gone_back_to() {
    // The switch is made by a jump (fibers) or by a return (swapcontext).
    for kind in [EdgeKind::JumpIndirect, EdgeKind::Return] {
        let mut script = to_new_stack(kind, F);
        // f calls g, which goes back to main, behind main's call of the switch.
        script.call(F + 0x20, G).at(3).call(G + 0x20, SWITCH).at(4);
        script.edge(kind, SWITCH + 0x40, MAIN + 0x25).at(5);
        // main goes on, and to g again, from another place.
        script.run(1).call(MAIN + 0x60, SWITCH).at(6);
        script.edge(kind, SWITCH + 0x40, G + 0x25).at(7);
        // g returns to f, and f goes to main.
        script.ret(G + 0x50, F + 0x25).at(8);
        script.call(F + 0x40, SWITCH).at(9);
        script.edge(kind, SWITCH + 0x40, MAIN + 0x65).at(10);
        script.run(1).at(11).check(&[
            "@1 switch 1..2 1/1",
            "@3 switch 4..5 1/1 unwound",
            "@2 g 3..5 2/1 unwound",
            "@1 f 2..5 3/1 tail-call",
            "@1 switch 6..7 1/1",
            "@2 g 7..8 1/1 resumed",
            "@2 switch 9..10 1/1 unwound",
            "@1 f 7..10 3/1 tail-call resumed",
            "@0 main 0..11 12/4 cut",
        ]);
    }
}

#[test]
fn three_stacks_take_turns() {
    let jump = EdgeKind::JumpIndirect;
    let mut script = to_new_stack(jump, F);
    script.call(F + 0x20, SWITCH).at(3);
    script.jump(SWITCH + 0x40, G).at(4);
    script.call(G + 0x20, SWITCH).at(5);
    for round in 0..2 {
        let ns = 6 + 6 * round;
        script.jump(SWITCH + 0x40, MAIN + 0x25).at(ns);
        script.call(MAIN + 0x20, SWITCH).at(ns + 1);
        script.jump(SWITCH + 0x40, F + 0x25).at(ns + 2);
        script.call(F + 0x20, SWITCH).at(ns + 3);
        script.jump(SWITCH + 0x40, G + 0x25).at(ns + 4);
        script.call(G + 0x20, SWITCH).at(ns + 5);
    }
    let contract = script.play();
    let guessed = |line: &String| line.contains("guessed") || line.contains("inferred");
    assert!(
        !contract.lines().iter().any(guessed),
        "{:?}",
        contract.lines()
    );
    // In each round each stack's function goes on once.
    for name in ["f", "g"] {
        let spans = contract.spans.iter();
        let spans = spans.filter(|span| contract.name(span.function) == name);
        let resumed = spans.filter(|span| span.flags.names().any(|flag| flag == "resumed"));
        assert_eq!(resumed.count(), 2, "{name}: {:?}", contract.lines());
    }
}

#[test]
fn where_two_stacks_wait_at_one_place_the_next_return_tells_which() {
    // Two stacks, f's and h's, wait in g for each other (a scheduler's "park"). main made both.
    let mut script = to_new_stack(EdgeKind::JumpIndirect, F);
    script.call(F + 0x20, G).at(3).call(G + 0x20, SWITCH).at(4);
    script.jump(SWITCH + 0x40, MAIN + 0x25).at(5);
    script.call(MAIN + 0x30, SWITCH).at(6);
    script.jump(SWITCH + 0x40, H).at(7);
    script.call(H + 0x20, G).at(8).call(G + 0x20, SWITCH).at(9);
    script.jump(SWITCH + 0x40, MAIN + 0x35).at(10);
    script.call(MAIN + 0x40, SWITCH).at(11);
    // Back in g: on the stack that was left last, so it seems. But it returns to f.
    script.jump(SWITCH + 0x40, G + 0x25).at(12);
    script.ret(G + 0x50, F + 0x25).at(13);
    script.run(1).at(14).check(&[
        "@1 switch 1..2 1/1",
        "@3 switch 4..5 1/1 unwound",
        "@2 g 3..5 2/1 unwound",
        "@1 f 2..5 3/1 tail-call",
        "@1 switch 6..7 1/1",
        "@3 switch 9..10 1/1 unwound",
        "@2 g 8..10 2/1 unwound",
        "@1 h 7..10 3/1 tail-call",
        "@1 switch 11..12 1/1",
        "@2 g 12..13 1/1 unwound resumed",
        "@1 h 12..13 1/0 unwound tail-call resumed",
        "@1 f 13..14 1/1 cut tail-call resumed",
        "@0 main 0..14 14/3 cut",
    ]);
}

#[test]
fn longjmp_lands_in_the_frame_that_called_setjmp() {
    // f calls setjmp, then itself, and that one g, which jumps to behind the call of setjmp: not in
    // the inner f, although that is nearer.
    Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .call(F + 0x10, SETJMP)
        .at(2)
        .ret(SETJMP + 0x20, F + 0x15)
        .at(3)
        .call(F + 0x30, F)
        .at(4)
        .call(F + 0x50, G)
        .at(5)
        .jump(G + 0x20, F + 0x15)
        .at(6)
        .ret(F + 0x80, MAIN + 0x25)
        .at(7)
        .check(&[
            "@2 _setjmp 2..3 1/1",
            "@3 g 5..6 1/1 unwound",
            "@2 f 4..6 2/1 unwound",
            "@1 f 1..7 6/3",
            "@0 main 0..7 7/1 cut",
        ]);
}

#[test]
fn a_function_of_go_that_needs_more_stack_starts_again() {
    Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .call(F + 0x80, MORESTACK)
        .at(2)
        .call(MORESTACK + 0x20, GOGO)
        .at(3)
        .jump(GOGO + 0x20, F)
        .at(4)
        .ret(F + 0x60, MAIN + 0x25)
        .at(5)
        .check(&[
            "@3 gogo 3..4 1/1 unwound",
            "@2 runtime.morestack.abi0 2..4 2/1",
            "@1 f 1..5 4/2",
            "@0 main 0..5 5/1 cut",
        ]);
}

/// If each return looked through the whole stack, this would take hours.
#[test]
fn returns_that_match_nothing_are_no_search_through_a_deep_stack() {
    const DEPTH: u64 = 200_000;
    let mut script = Script::new();
    script.at(0).on(MAIN).call(MAIN + 0x20, F);
    for _ in 1..DEPTH {
        script.call(F + 0x20, F);
    }
    for number in 0..DEPTH {
        // Elsewhere, where nothing is open and nothing was left.
        script.ret(F + 0x90, NOWHERE + number % 0x800);
        script.jump(NOWHERE + 0x10, F);
    }
    let (contract, summary) = script.play_with(&[0], &[]);
    assert_eq!(summary.deepest as u64, DEPTH + 1);
    assert_eq!(contract.spans.len() as u64, 3 * DEPTH + 1);
}
