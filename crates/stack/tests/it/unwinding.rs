//! Frames that end without their own return: exceptions, longjmp, aborted transactions.

use ptrail_flow::EdgeKind;

use crate::script::{F, G, H, MAIN, RESUME, Script};

/// main calls f calls g calls h, at 1, 2 and 3 ns.
fn three_calls() -> Script {
    let mut script = Script::new();
    script
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .call(F + 0x20, G)
        .at(2)
        .call(G + 0x20, H)
        .at(3);
    script
}

#[test]
fn a_return_to_a_deeper_frame_ends_those_above_it() {
    three_calls().ret(H + 0x50, MAIN + 0x25).at(4).check(&[
        "@3 h 3..4 1/1 unwound",
        "@2 g 2..4 2/1 unwound",
        "@1 f 1..4 3/1",
        "@0 main 0..4 4/1 cut",
    ]);
}

#[test]
fn a_jump_into_the_middle_of_an_open_function_goes_on_there() {
    three_calls()
        .jump(H + 0x50, F + 0x60)
        .at(4)
        .ret(F + 0x80, MAIN + 0x25)
        .at(5)
        .check(&[
            "@3 h 3..4 1/1 unwound",
            "@2 g 2..4 2/1 unwound",
            "@1 f 1..5 4/2",
            "@0 main 0..5 5/1 cut",
        ]);
}

#[test]
fn a_return_into_the_middle_of_an_open_function_goes_on_there() {
    // As an unwinder does it.
    three_calls()
        .ret(H + 0x50, G + 0x60)
        .at(4)
        .ret(G + 0x80, F + 0x25)
        .at(5)
        .check(&[
            "@3 h 3..4 1/1 unwound",
            "@2 g 2..5 3/2",
            "@1 f 1..5 4/1 cut",
            "@0 main 0..5 5/1 cut",
        ]);
}

#[test]
fn who_resumed_unwinding_is_left_whatever_it_is() {
    // f calls itself; the inner f resumes, and the landing is in f: the outer one.
    Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .call(F + 0x20, F)
        .at(2)
        .call(F + 0x70, RESUME)
        .at(3)
        .jump(RESUME + 0x50, F + 0x60)
        .at(4)
        .ret(F + 0x80, MAIN + 0x25)
        .at(5)
        .check(&[
            "@3 _Unwind_Resume 3..4 1/1 unwound",
            "@2 f 2..4 2/1 unwound",
            "@1 f 1..5 4/2",
            "@0 main 0..5 5/1 cut",
        ]);
}

#[test]
fn an_exception_may_leave_tail_called_functions() {
    three_calls()
        .jump(H + 0x10, RESUME)
        .at(4)
        .jump(RESUME + 0x50, F + 0x60)
        .at(5)
        .check(&[
            "@3 h 3..4 1/1",
            "@3 _Unwind_Resume 4..5 1/1 unwound tail-call",
            "@2 g 2..5 3/1 unwound",
            "@1 f 1..5 4/1 cut",
            "@0 main 0..5 5/1 cut",
        ]);
}

#[test]
fn an_aborted_transaction_takes_back_the_calls_made_in_it() {
    three_calls()
        .edge(EdgeKind::TsxAbort, H + 0x30, F + 0x60)
        .at(4)
        .check(&[
            "@3 h 3..3 0/0 unwound aborted",
            "@2 g 2..3 1/1 unwound aborted",
            "@1 f 1..4 2/1 cut",
            "@0 main 0..4 3/1 cut",
        ]);
    // In the function that began it nothing ends.
    three_calls()
        .edge(EdgeKind::TsxAbort, H + 0x30, H + 0x60)
        .at(4)
        .check(&[
            "@3 h 3..4 0/0 cut",
            "@2 g 2..4 1/1 cut",
            "@1 f 1..4 2/1 cut",
            "@0 main 0..4 3/1 cut",
        ]);
}
