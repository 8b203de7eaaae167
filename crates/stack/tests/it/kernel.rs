//! A traced kernel: system calls, faults and signals from entry to return.

use ptrail_flow::EdgeKind::{Async, Far, FarReturn};

use crate::script::{ENTRY, F, FAULT, HANDLER, MAIN, Script};

#[test]
fn a_system_call_and_a_fault_in_it() {
    Script::new()
        .at(0)
        .begin(MAIN)
        .edge(Far, MAIN + 0x20, ENTRY)
        .at(1)
        .edge(Async, ENTRY + 0x10, FAULT)
        .at(2)
        .edge(FarReturn, FAULT + 0x20, ENTRY + 0x10)
        .at(3)
        .edge(FarReturn, ENTRY + 0x40, MAIN + 0x22)
        .at(4)
        .check(&[
            "@2 fault 1..3 1/1 kernel async",
            "@1 entry 1..4 2/1 kernel",
            "@0 main 0..4 3/1 cut",
        ]);
}

#[test]
fn a_fault_that_ends_in_a_signal() {
    // The kernel returns to the handler, and later from it to the instruction that faulted.
    let mut script = Script::new();
    script.at(0).begin(MAIN);
    script.edge(Async, MAIN + 0x10, FAULT).at(1);
    script.edge(FarReturn, FAULT + 0x20, HANDLER).at(2);
    script.edge(Far, HANDLER + 0x20, ENTRY).at(3);
    script.edge(FarReturn, ENTRY + 0x40, MAIN + 0x10).at(4);
    script.run(1).at(5).check(&[
        "@1 fault 0..2 1/1 kernel async",
        "@3 entry 3..4 1/1 kernel",
        "@2 handler 2..4 2/1 async",
        "@1 [signal] 2..4 2/0 async",
        "@0 main 0..5 4/1 cut",
    ]);
}

#[test]
fn a_part_that_starts_in_the_kernel_goes_back_to_the_program() {
    Script::new()
        .at(0)
        .begin(FAULT)
        .call(FAULT + 0x10, ENTRY)
        .at(1)
        .ret(ENTRY + 0x20, FAULT + 0x15)
        .at(2)
        // Even to the first instruction of a function: it had faulted.
        .edge(FarReturn, FAULT + 0x20, F)
        .at(3)
        .ret(F + 0x20, MAIN + 0x25)
        .at(4)
        .check(&[
            "@1 entry 1..2 1/1 kernel",
            "@0 fault 0..3 3/2 kernel",
            "@-1 f 0..4 4/1 inferred late",
            "@-2 main 0..4 4/0 inferred late cut",
        ]);
}

#[test]
fn an_interrupt_whose_entry_was_lost_goes_back_to_the_kernel() {
    Script::new()
        .at(0)
        .begin(FAULT + 0x10)
        .edge(FarReturn, FAULT + 0x20, ENTRY + 0x10)
        .at(1)
        .edge(FarReturn, ENTRY + 0x40, MAIN + 0x22)
        .at(2)
        .check(&[
            "@0 fault 0..1 1/1 inferred kernel",
            "@-1 entry 0..2 2/1 inferred late kernel",
            "@-2 main 0..2 2/0 inferred late cut",
        ]);
}

#[test]
fn a_far_return_within_a_program_is_a_jump() {
    Script::new()
        .at(0)
        .begin(MAIN)
        .call(MAIN + 0x20, F)
        .at(1)
        .edge(FarReturn, F + 0x10, HANDLER)
        .at(2)
        .edge(FarReturn, HANDLER + 0x10, MAIN + 0x25)
        .at(3)
        .check(&[
            "@1 f 1..2 1/1",
            "@1 handler 2..3 1/1 tail-call",
            "@0 main 0..3 3/1 cut",
        ]);
}
