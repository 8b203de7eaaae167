//! Calls, returns, tail calls, and what only looks like one.

use ptrail_flow::EdgeKind;
use ptrail_pt::Ip;

use crate::script::{F, FIRST, G, H, MAIN, NOWHERE, SECOND, Script, THUNK};

#[test]
fn a_call_and_its_return() {
    let contract = Script::new()
        .at(0)
        .begin(MAIN + 0x10)
        .run(9)
        .call(MAIN + 0x20, F)
        .at(10)
        .run(4)
        .ret(F + 0x30, MAIN + 0x25)
        .at(20)
        .run(5)
        .at(30)
        .check(&["@1 f 10..20 5/5", "@0 main 0..30 20/15 inferred cut"]);
    assert_eq!(
        contract.call_sites(),
        [("main".into(), None), ("f".into(), Some(Ip(MAIN + 0x20)))]
    );
    assert_eq!(contract.functions[1].address, Ip(F));
}

#[test]
fn a_part_that_starts_at_a_first_instruction_is_a_whole_call() {
    Script::new()
        .at(5)
        .begin(F)
        .run(3)
        .at(8)
        .check(&["@0 f 5..8 3/3 cut"]);
}

#[test]
fn recursion_has_as_many_spans_as_calls() {
    let mut script = Script::new();
    script.at(0).begin(MAIN);
    for ns in [1, 2, 3] {
        let site = if ns == 1 { MAIN } else { F } + 0x20;
        script.call(site, F).at(ns);
    }
    for (ns, caller) in [(4, F), (5, F), (6, MAIN)] {
        script.ret(F + 0x90, caller + 0x25).at(ns);
    }
    script.check(&[
        "@3 f 3..4 1/1",
        "@2 f 2..5 3/2",
        "@1 f 1..6 5/2",
        "@0 main 0..6 6/1 cut",
    ]);
}

#[test]
fn a_call_to_the_first_instruction_of_the_same_function_is_recursion() {
    Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, MAIN)
        .at(1)
        .ret(MAIN + 0x90, MAIN + 0x25)
        .at(2)
        .check(&["@1 main 1..2 1/1", "@0 main 0..2 2/1 cut"]);
}

#[test]
fn a_jump_to_a_first_instruction_is_a_tail_call() {
    let contract = Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .run(2)
        .jump(F + 0x40, G)
        .at(2)
        .run(3)
        .edge(EdgeKind::Conditional, G + 0x10, H)
        .at(3)
        .ret(H + 0x50, MAIN + 0x25)
        .at(4)
        .check(&[
            "@1 f 1..2 3/3",
            "@1 g 2..3 4/4 tail-call",
            "@1 h 3..4 1/1 tail-call",
            "@0 main 0..4 9/1 cut",
        ]);
    assert_eq!(contract.call_sites()[2], ("g".into(), Some(Ip(F + 0x40))));
}

#[test]
fn a_jump_within_a_function_is_nothing() {
    Script::new()
        .at(0)
        .begin(MAIN)
        .jump(MAIN + 0x20, MAIN + 0x80)
        .jump(MAIN + 0x90, MAIN)
        .at(1)
        .check(&["@0 main 0..1 2/2 cut"]);
}

#[test]
fn a_jump_into_the_middle_of_a_function_that_is_not_open_is_a_guess() {
    Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .jump(F + 0x40, G + 0x10)
        .at(2)
        .ret(G + 0x50, MAIN + 0x25)
        .at(3)
        .check(&[
            "@1 f 1..2 1/1",
            "@1 g 2..3 1/1 guessed tail-call",
            "@0 main 0..3 3/1 cut",
        ]);
}

#[test]
fn functions_may_share_code_but_a_jump_back_may_be_a_part_of_one() {
    // A direct jump leaves the stack as it is, so it can be no longjmp, even into an open function.
    let mut script = Script::new();
    script.at(0).begin(MAIN).call(MAIN + 0x20, F).at(1);
    script.call(F + 0x20, G).at(2);
    script.edge(EdgeKind::Jump, G + 0x10, F + 0x40).at(3);
    script.ret(F + 0x50, F + 0x25).at(4);
    script.edge(EdgeKind::Jump, F + 0x30, H).at(5);
    script.edge(EdgeKind::Jump, H + 0x10, F + 0x40).at(6);
    script.ret(F + 0x50, MAIN + 0x25).at(7).check(&[
        "@2 g 2..3 1/1",
        "@2 f 3..4 1/1 tail-call",
        "@1 f 1..5 4/2",
        "@1 h 5..6 1/1 tail-call",
        "@1 f 6..7 1/1 guessed tail-call",
        "@0 main 0..7 7/1 cut",
    ]);
}

#[test]
fn a_return_to_a_first_instruction_is_a_jump() {
    Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .ret(F + 0x40, G)
        .at(2)
        .ret(G + 0x50, MAIN + 0x25)
        .at(3)
        .check(&[
            "@1 f 1..2 1/1",
            "@1 g 2..3 1/1 tail-call",
            "@0 main 0..3 3/1 cut",
        ]);
}

#[test]
fn running_into_the_next_function_is_seen_at_its_first_branch() {
    let contract = Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, FIRST)
        .at(1)
        .run(4)
        .ret(SECOND + 0x20, MAIN + 0x25)
        .at(2)
        .check(&[
            "@1 first 1..2 5/5",
            "@1 second 2..2 0/0 guessed tail-call",
            "@0 main 0..2 6/1 cut",
        ]);
    assert_eq!(contract.call_sites()[2], ("second".into(), None));
}

#[test]
fn a_call_that_only_wants_its_own_address_is_nothing() {
    Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .call(F + 0x10, F + 0x15)
        .at(2)
        .ret(F + 0x30, MAIN + 0x25)
        .at(3)
        .check(&["@1 f 1..3 2/2", "@0 main 0..3 3/1 cut"]);
    // The same where no function is known.
    Script::new()
        .at(0)
        .begin(NOWHERE)
        .call(NOWHERE + 0x10, NOWHERE + 0x15)
        .at(1)
        .check(&["@0 [unknown] 0..1 1/1 inferred cut"]);
}

#[test]
fn a_last_call_that_never_returns_may_call_the_next_function() {
    assert_eq!(FIRST + 0x0b + 5, SECOND);
    Script::new()
        .at(0)
        .begin(FIRST)
        .call(FIRST + 0x0b, SECOND)
        .at(1)
        .run(1)
        .at(2)
        .check(&["@1 second 1..2 1/1 cut", "@0 first 0..2 2/1 cut"]);
}

#[test]
fn a_call_into_the_middle_of_the_same_function_is_part_of_it() {
    Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .call(F + 0x10, F + 0x80)
        .run(3)
        .call(F + 0x88, G)
        .at(2)
        .ret(G + 0x10, F + 0x8d)
        .at(3)
        .ret(F + 0x90, F + 0x15)
        .run(1)
        .ret(F + 0x30, MAIN + 0x25)
        .at(4)
        .check(&["@2 g 2..3 1/1", "@1 f 1..4 9/8", "@0 main 0..4 10/1 cut"]);
}

#[test]
fn a_retpoline_is_a_jump_to_its_target() {
    // main calls the thunk; the thunk calls its middle, which puts the target in the place of the
    // return address and returns there.
    let thunk = |script: &mut Script, to: u64| {
        script
            .call(THUNK, THUNK + 0x10)
            .run(1)
            .ret(THUNK + 0x14, to);
    };
    let mut script = Script::new();
    script.at(0).begin(MAIN).call(MAIN + 0x20, THUNK).at(1);
    thunk(&mut script, G);
    script.at(2).ret(G + 0x50, MAIN + 0x25).at(3).check(&[
        "@1 thunk 1..2 3/3",
        "@1 g 2..3 1/1 tail-call",
        "@0 main 0..3 5/1 cut",
    ]);

    // A switch: f jumps to the thunk, which goes on in the middle of f.
    let mut script = Script::new();
    script.at(0).begin(MAIN).call(MAIN + 0x20, F).at(1);
    script.jump(F + 0x10, THUNK).at(2);
    thunk(&mut script, F + 0x60);
    script.at(3).ret(F + 0x70, MAIN + 0x25).at(4).check(&[
        "@1 f 1..2 1/1",
        "@1 thunk 2..3 3/3 tail-call",
        "@1 f 3..4 1/1 guessed tail-call",
        "@0 main 0..4 6/1 cut",
    ]);
}

#[test]
fn code_of_no_known_function_is_one_function() {
    Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, NOWHERE)
        .at(1)
        .jump(NOWHERE + 0x10, NOWHERE + 0x40)
        .edge(EdgeKind::Conditional, NOWHERE + 0x50, NOWHERE + 0x20)
        .ret(NOWHERE + 0x30, MAIN + 0x25)
        .at(2)
        .check(&["@1 [unknown] 1..2 3/3", "@0 main 0..2 4/1 cut"]);
}
