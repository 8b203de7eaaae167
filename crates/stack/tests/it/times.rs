//! Times between anchors, and the summary.

use ptrail_pt::Picos;

use crate::script::{F, G, MAIN, Script};

#[test]
fn events_between_two_anchors_are_spread_by_instruction_count() {
    // 100 instructions in 1000 ns.
    Script::new()
        .at(0)
        .begin(MAIN)
        .run(9)
        .call(MAIN + 0x20, F)
        .run(9)
        .call(F + 0x20, G)
        .run(39)
        .ret(G + 0x50, F + 0x25)
        .run(19)
        .ret(F + 0x50, MAIN + 0x25)
        .run(20)
        .at(1000)
        .check(&[
            "@2 g 200..600 40/40",
            "@1 f 100..800 70/30",
            "@0 main 0..1000 100/30 cut",
        ]);
}

#[test]
fn an_instruction_may_take_less_than_a_picosecond() {
    let mut script = Script::new();
    script.at(0).begin(MAIN);
    for _ in 0..5000 {
        script.call(MAIN + 0x20, F).ret(F + 0x50, MAIN + 0x25);
    }
    let contract = script.at(1).play();
    // Order and nesting are checked by the contract.
    assert_eq!(contract.spans.len(), 5001);
    assert_eq!(contract.spans[2499].end, Picos(500));
}

#[test]
fn a_time_that_goes_back_stands_still() {
    Script::new()
        .at(100)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(50)
        .ret(F + 0x50, MAIN + 0x25)
        .at(80)
        .run(1)
        .at(200)
        .check(&["@1 f 100..100 1/1", "@0 main 100..200 3/2 cut"]);
}

#[test]
fn a_pause_without_instructions_is_the_gaps() {
    // Off and on at one count, the anchors around them.
    Script::new()
        .at(0)
        .begin(MAIN)
        .run(10)
        .interrupt(MAIN + 0x10)
        .at(10)
        .at(500)
        .on(MAIN + 0x10)
        .run(10)
        .at(510)
        .check(&["@1 [interrupt] 10..500 0/0 gap", "@0 main 0..510 20/20 cut"]);
}

#[test]
fn without_any_time_everything_is_at_zero() {
    Script::new()
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .syscall(F + 0x10)
        .on(F + 0x12)
        .ret(F + 0x50, MAIN + 0x25)
        .check(&[
            "@2 [syscall] 0..0 0/0 gap",
            "@1 f 0..0 2/2",
            "@0 main 0..0 3/1 cut",
        ]);
}

#[test]
fn events_that_wait_for_a_time_are_not_hoarded() {
    let mut script = Script::new();
    script.at(5).begin(MAIN);
    for _ in 0..200_000 {
        script.call(MAIN + 0x20, F).ret(F + 0x50, MAIN + 0x25);
    }
    let contract = script.at(10).play();
    assert_eq!(contract.spans.len(), 200_001);
    assert_eq!(contract.spans.last().unwrap().end, Picos(10_000));
}

#[test]
fn the_summary_counts() {
    let mut script = Script::new();
    script
        .at(7)
        .begin(MAIN)
        .run(1)
        .call(MAIN + 0x20, F)
        .call(F + 0x20, G)
        .ret(G + 0x50, F + 0x25)
        .at(20)
        .run(3)
        .at(30);
    let (_, summary) = script.play_with(&[], &[]);
    assert_eq!(summary.instructions, 7);
    assert_eq!(summary.spans, 3);
    assert_eq!(summary.deepest, 3);
    assert_eq!((summary.begin, summary.end), (Picos(7000), Picos(30_000)));
}

/// At least 10 µs a piece, from the first time on, and what is left at the end.
#[test]
fn instructions_are_told_by_stretches_of_time() {
    let contract = Script::new()
        .at(5_000)
        .begin(MAIN)
        .run(100)
        .at(12_000)
        .run(200)
        .at(16_000)
        .run(50)
        .at(40_000)
        .run(7)
        .at(41_000)
        .play();
    let rates: Vec<_> = contract
        .rates
        .iter()
        .map(|rate| (rate.begin.0 / 1000, rate.end.0 / 1000, rate.instructions))
        .collect();
    assert_eq!(
        rates,
        [
            (5_000, 16_000, 300),
            (16_000, 40_000, 50),
            (40_000, 41_000, 7)
        ]
    );
    let per_microsecond = contract.rates[1].per_microsecond();
    assert!(
        (per_microsecond - 50.0 / 24.0).abs() < 1e-9,
        "{per_microsecond}"
    );
}
