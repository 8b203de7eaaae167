//! Recordings that start in the middle, and losses.

use crate::script::{F, G, H, MAIN, Script};

#[test]
fn callers_show_themselves_when_they_are_returned_to() {
    Script::new()
        .at(0)
        .begin(H + 0x10)
        .run(2)
        .ret(H + 0x50, G + 0x25)
        .at(10)
        .call(G + 0x30, H)
        .at(20)
        .ret(H + 0x50, G + 0x35)
        .at(30)
        .ret(G + 0x50, F + 0x25)
        .at(40)
        .run(1)
        .ret(F + 0x50, MAIN + 0x25)
        .at(50)
        .run(1)
        .at(60)
        .check(&[
            "@0 h 0..10 3/3 inferred",
            "@0 h 20..30 1/1",
            "@-1 g 0..40 6/2 inferred late",
            "@-2 f 0..50 8/2 inferred late",
            "@-3 main 0..60 9/1 inferred late cut",
        ]);
}

#[test]
fn a_caller_may_be_the_same_function() {
    Script::new()
        .at(0)
        .begin(F + 0x10)
        .run(1)
        .ret(F + 0x90, F + 0x25)
        .at(10)
        .call(F + 0x30, F)
        .at(20)
        .ret(F + 0x90, F + 0x35)
        .at(30)
        .ret(F + 0x90, F + 0x25)
        .at(40)
        .ret(F + 0x90, MAIN + 0x25)
        .at(50)
        .check(&[
            "@0 f 0..10 2/2 inferred",
            "@0 f 20..30 1/1",
            "@-1 f 0..40 5/2 inferred late",
            "@-2 f 0..50 6/1 inferred late",
            "@-3 main 0..50 6/0 inferred late cut",
        ]);
}

#[test]
fn a_return_over_frames_to_a_caller_before_the_part_unwinds_them() {
    Script::new()
        .at(0)
        .begin(F + 0x10)
        .call(F + 0x20, G)
        .at(1)
        .call(G + 0x20, H)
        .at(2)
        .ret(H + 0x50, MAIN + 0x25)
        .at(3)
        .check(&[
            "@2 h 2..3 1/1 unwound",
            "@1 g 1..3 2/1 unwound",
            "@0 f 0..3 3/1 inferred",
            "@-1 main 0..3 3/0 inferred late cut",
        ]);
}

#[test]
fn tail_calls_of_functions_that_were_not_called_here() {
    Script::new()
        .at(0)
        .begin(F + 0x10)
        .jump(F + 0x20, G)
        .at(1)
        .ret(G + 0x50, F + 0x25)
        .at(2)
        .jump(F + 0x30, H)
        .at(3)
        .ret(H + 0x50, MAIN + 0x25)
        .at(4)
        .check(&[
            "@0 f 0..1 1/1 inferred",
            "@0 g 1..2 1/1 tail-call",
            "@-1 f 0..3 3/1 inferred late",
            "@-1 h 3..4 1/1 tail-call",
            "@-2 main 0..4 4/0 inferred late cut",
        ]);
}

#[test]
fn a_loss_cuts_what_is_open_and_a_new_part_begins() {
    let contract = Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(10)
        .call(F + 0x20, G)
        .at(20)
        .run(3)
        .at(30)
        .loss(30, 50)
        .at(50)
        .begin(G + 0x10)
        .run(2)
        .ret(G + 0x50, F + 0x25)
        .at(60)
        .ret(F + 0x50, MAIN + 0x25)
        .at(70)
        .check(&[
            "@2 g 20..30 3/3 cut",
            "@1 f 10..30 4/1 cut",
            "@0 main 0..30 5/1 cut",
            "@0 g 50..60 3/3 inferred",
            "@-1 f 50..70 4/1 inferred late",
            "@-2 main 50..70 4/0 inferred late cut",
        ]);
    assert_eq!(contract.losses.len(), 1);
    let reason = "for a test; these calls may be longer: main > f > g";
    assert_eq!(contract.losses[0].reason, reason);
}

#[test]
fn a_loss_names_the_innermost_calls_that_it_cuts() {
    let mut script = Script::new();
    script.at(0).begin(MAIN).call(MAIN + 0x20, F);
    for _ in 0..7 {
        script.call(F + 0x20, F);
    }
    script.call(F + 0x30, G).at(10).loss(10, 20).at(20);
    let contract = script.play();
    let reason = "for a test; these calls may be longer: … > f > f > f > f > f > f > f > g";
    assert_eq!(contract.losses[0].reason, reason);
}

#[test]
fn a_loss_that_breaks_nothing_cuts_nothing() {
    let mut script = Script::new();
    script.at(0).begin(MAIN).run(1);
    script.push(crate::script::Event::Loss(1, 2, false));
    let contract = script.run(1).at(4).check(&["@0 main 0..4 2/2 cut"]);
    assert_eq!(contract.losses.len(), 1);
}

#[test]
fn a_loss_at_the_start_and_two_in_a_row() {
    let contract = Script::new()
        .at(10)
        .loss(10, 20)
        .at(20)
        .loss(20, 30)
        .at(30)
        .begin(MAIN + 0x10)
        .run(1)
        .at(40)
        .check(&["@0 main 30..40 1/1 inferred cut"]);
    assert_eq!(contract.losses.len(), 2);
}

#[test]
fn the_known_beginning_of_a_program_does_not_outlast_a_loss() {
    let mut script = Script::new();
    script
        .at(0)
        .on(MAIN)
        .run(1)
        .at(10)
        .loss(10, 20)
        .at(20)
        .begin(G + 0x10)
        .ret(G + 0x50, F + 0x25)
        .at(30);
    let (contract, _) = script.play_with(&[0], &[]);
    assert_eq!(
        contract.lines(),
        [
            "@0 main 0..10 1/1 cut",
            "@0 g 20..30 1/1 inferred",
            "@-1 f 20..30 1/0 inferred late cut"
        ]
    );
}
