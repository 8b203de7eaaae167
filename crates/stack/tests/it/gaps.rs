//! Time outside of the traced code, and exec.

use ptrail_flow::OffCause;

use crate::script::{Event, F, G, MAIN, Script};

#[test]
fn a_system_call_is_a_gap_in_its_function() {
    Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(10)
        .run(4)
        .syscall(F + 0x30)
        .at(20)
        .at(90)
        .on(F + 0x32)
        .run(4)
        .ret(F + 0x40, MAIN + 0x25)
        .at(100)
        .check(&[
            "@2 [syscall] 20..90 0/0 gap",
            "@1 f 10..100 10/10",
            "@0 main 0..100 11/1 cut",
        ]);
}

#[test]
fn each_cause_has_its_name_and_a_system_call_may_be_made_again() {
    let mut script = Script::new();
    script
        .at(0)
        .begin(MAIN)
        .syscall(MAIN + 0x20)
        .at(1)
        .at(2)
        .on(MAIN + 0x20)
        .interrupt(MAIN + 0x20)
        .at(3)
        .at(4)
        .on(MAIN + 0x20);
    for (cause, ns) in [(OffCause::FarTransfer, 5), (OffCause::Filter, 7)] {
        let ip = MAIN + 0x30;
        script.run(1).push(Event::Off(ip, ip + 5, cause));
        script.at(ns).at(ns + 1).on(ip + 5);
    }
    script.check(&[
        "@1 [syscall] 1..2 0/0 gap",
        "@1 [interrupt] 3..4 0/0 gap",
        "@1 [untraced] 5..6 0/0 gap",
        "@1 [untraced] 7..8 0/0 gap",
        "@0 main 0..8 3/3 cut",
    ]);
}

#[test]
fn a_function_may_fault_twice_before_its_first_instruction() {
    // The second time the trace does not say where; it is taken to have run up to a branch.
    let mut script = Script::new();
    script.at(0).begin(MAIN).call(MAIN + 0x20, F).interrupt(F);
    script.at(1).at(2).on(F).run(3);
    script.push(Event::Off(F + 0x10, F + 0x12, OffCause::Filter));
    script.at(3).at(4).on(F).run(3).ret(F + 0x30, MAIN + 0x25);
    script.at(5).check(&[
        "@2 [interrupt] 1..2 0/0 gap",
        "@2 [untraced] 3..4 0/0 gap",
        "@1 f 1..5 7/7",
        "@0 main 0..5 8/1 cut",
    ]);
}

#[test]
fn a_gap_may_last_to_the_end() {
    Script::new()
        .at(0)
        .begin(MAIN)
        .syscall(MAIN + 0x20)
        .at(1)
        .at(9)
        .check(&["@1 [syscall] 1..9 0/0 cut gap", "@0 main 0..9 1/1 cut"]);
}

#[test]
fn tracing_that_goes_on_elsewhere_is_a_guess_or_a_landing() {
    // f is open further down: its callee ends.
    let mut script = Script::new();
    script
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .call(F + 0x20, G)
        .at(2)
        .syscall(G + 0x10)
        .at(3)
        .at(4);
    script.clone().on(F + 0x60).at(5).check(&[
        "@3 [syscall] 3..4 0/0 gap",
        "@2 g 2..4 1/1 unwound",
        "@1 f 1..5 2/1 cut",
        "@0 main 0..5 3/1 cut",
    ]);
    // Nothing of h is open.
    script.on(crate::script::H + 0x60).at(5).check(&[
        "@3 [syscall] 3..4 0/0 gap",
        "@2 g 2..4 1/1",
        "@2 h 4..5 0/0 cut guessed",
        "@1 f 1..5 2/1 cut",
        "@0 main 0..5 3/1 cut",
    ]);
}

/// A whole program that execs another: on at its first instruction, off in execve, on again.
fn two_images() -> Script {
    let mut script = Script::new();
    script
        .at(0)
        .at(10)
        .on(MAIN)
        .call(MAIN + 0x20, F)
        .at(20)
        .syscall(F + 0x10)
        .at(30)
        .at(50)
        .on(G)
        .run(2)
        .at(60);
    script
}

#[test]
fn exec_ends_all_and_starts_anew() {
    let (contract, _) = two_images().play_with(&[5, 40], &[]);
    assert_eq!(
        contract.lines(),
        [
            "@2 [syscall] 30..50 0/0 gap",
            "@1 f 20..50 1/1",
            "@0 main 10..50 2/1",
            "@0 g 50..60 2/2 cut"
        ]
    );
    assert_eq!(contract.execs(), [50]);
}

#[test]
fn an_exec_whose_time_is_between_the_same_anchors_is_seen() {
    // No timing packet came between the exec at 45 and the second image's first instructions.
    let mut script = Script::new();
    script
        .at(0)
        .on(MAIN)
        .syscall(MAIN + 0x10)
        .at(30)
        .on(G)
        .run(2)
        .at(60);
    let (contract, _) = script.play_with(&[0, 45], &[]);
    assert_eq!(
        contract.lines(),
        [
            "@1 [syscall] 30..30 0/0 gap",
            "@0 main 0..30 1/1",
            "@0 g 30..60 2/2 cut"
        ]
    );
    assert_eq!(contract.execs(), [30]);
}

#[test]
fn an_exec_before_the_recording_does_not_end_a_system_call() {
    let mut script = Script::new();
    script
        .at(1000)
        .begin(MAIN + 0x10)
        .syscall(MAIN + 0x20)
        .at(1010)
        .at(1020)
        .on(MAIN + 0x22)
        .ret(MAIN + 0x30, F + 0x25)
        .at(1030);
    let (contract, _) = script.play_with(&[5], &[]);
    assert_eq!(
        contract.lines(),
        [
            "@1 [syscall] 1010..1020 0/0 gap",
            "@0 main 1000..1030 2/2 inferred",
            "@-1 f 1000..1030 2/0 inferred late cut"
        ]
    );
    assert!(contract.execs().is_empty());
}

#[test]
fn a_recording_that_starts_in_a_system_call_knows_no_callers() {
    let mut script = Script::new();
    script
        .at(1000)
        .on(F + 0x22)
        .ret(F + 0x30, MAIN + 0x25)
        .at(1010);
    let (contract, _) = script.play_with(&[5], &[]);
    assert_eq!(
        contract.lines(),
        [
            "@0 f 1000..1010 1/1 inferred",
            "@-1 main 1000..1010 1/0 inferred late cut"
        ]
    );
}

#[test]
fn an_exec_that_was_lost_does_not_end_a_later_system_call() {
    let mut script = Script::new();
    script
        .at(0)
        .on(MAIN)
        .run(1)
        .at(10)
        .loss(10, 50)
        .at(50)
        .begin(F + 0x10)
        .syscall(F + 0x20)
        .at(60)
        .at(70)
        .on(F + 0x22)
        .run(1)
        .at(80);
    let (contract, _) = script.play_with(&[0, 30], &[]);
    assert_eq!(
        contract.lines(),
        [
            "@0 main 0..10 1/1 cut",
            "@1 [syscall] 60..70 0/0 gap",
            "@0 f 50..80 2/2 inferred cut"
        ]
    );
    assert!(contract.execs().is_empty());
}

#[test]
fn nothing_called_a_programs_first_function() {
    // It goes over to another stack, as a loader does, by a return.
    let mut script = Script::new();
    script
        .at(0)
        .on(MAIN)
        .run(1)
        .ret(MAIN + 0x40, G + 0x10)
        .at(10)
        .run(1)
        .at(20);
    let (contract, _) = script.play_with(&[0], &[]);
    assert_eq!(
        contract.lines(),
        ["@0 main 0..10 2/2", "@0 g 10..20 1/1 cut guessed"]
    );
}
