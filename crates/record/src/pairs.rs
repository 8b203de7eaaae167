//! Calls of a function, from breakpoints at its entry and where it returns to.
//!
//! At the entry the stack pointer points to the return address; behind the return it is one word higher.
//! So a hit at the return address is the end of a call only if the stack pointer says so: not of an inner
//! one, and not if the caller comes there by itself. Calls whose place on the stack is used again were
//! left without returning (longjmp, exceptions), or their return was not seen.
//!
//! Stacks grow downwards; a thread that runs on several of them in turn (fibers) has its calls mixed up.

use std::collections::HashMap;

/// Bytes of a return address.
const WORD: u64 = 8;
/// As many breakpoints as there are beside the one at the entry.
const SITES: usize = 3;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// Calls under way, by thread, the innermost last.
    open: HashMap<u32, Vec<Open>>,
    /// Where calls return to.
    sites: Vec<u64>,
    /// Calls whose end was not seen.
    unseen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    stack: u64,
    begin: u64,
}

/// A call that has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// When it was entered, nanoseconds.
    pub begin: u64,
    /// When it returned, nanoseconds.
    pub end: u64,
}

impl Pairs {
    /// The function was entered. Returns where a breakpoint is to be armed, if one is missing; beyond
    /// three return addresses there is no room for more, and those calls' ends are not seen.
    pub fn entered(&mut self, tid: u32, time: u64, stack: u64, return_to: u64) -> Option<u64> {
        let open = self.open.entry(tid).or_default();
        let before = open.len();
        open.retain(|call| call.stack > stack);
        self.unseen += (before - open.len()) as u64;
        open.push(Open { stack, begin: time });
        if self.sites.contains(&return_to) || self.sites.len() == SITES {
            return None;
        }
        self.sites.push(return_to);
        Some(return_to)
    }

    /// Execution came to a return address: the call that ended by that, if one did.
    pub fn came_back(&mut self, tid: u32, time: u64, stack: u64) -> Option<Returned> {
        let open = self.open.get_mut(&tid)?;
        while let Some(&call) = open.last()
            && call.stack + WORD <= stack
        {
            open.pop();
            if call.stack + WORD == stack {
                return Some(Returned {
                    begin: call.begin,
                    end: time,
                });
            }
            self.unseen += 1;
        }
        None
    }

    /// Calls whose end was not seen, so far.
    #[must_use]
    pub fn unseen(&self) -> u64 {
        self.unseen
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sites_are_armed_once_and_up_to_three() {
        let mut pairs = Pairs::default();
        let armed: Vec<_> = [10, 10, 20, 30, 40, 20]
            .into_iter()
            .map(|site| pairs.entered(1, 0, 1000, site))
            .collect();
        assert_eq!(armed, [Some(10), None, Some(20), Some(30), None, None]);
        assert_eq!(pairs.unseen(), 5);
    }

    #[test]
    fn a_loop_of_the_caller_is_no_return() {
        let mut pairs = Pairs::default();
        pairs.entered(1, 5, 1000, 10);
        // Another thread, and the caller's caller's frame size.
        assert_eq!(pairs.came_back(2, 6, 1008), None);
        assert_eq!(pairs.came_back(1, 6, 900), None);
        let returned = Returned { begin: 5, end: 7 };
        assert_eq!(pairs.came_back(1, 7, 1008), Some(returned));
        assert_eq!(pairs.came_back(1, 8, 1008), None);
        assert_eq!(pairs.unseen(), 0);
    }

    /// What a thread does: it calls (with a frame of so many words), returns, or leaves so many frames.
    #[derive(Clone, Debug)]
    enum Step {
        Call(u64),
        Return,
        Unwind(usize),
    }

    proptest! {
        /// Against a stack of the thread itself: every return is that of the innermost call, every call
        /// returns or counts as unseen.
        #[test]
        fn returns_are_those_of_their_calls(
            steps in prop::collection::vec(
                prop_oneof![
                    4 => (0..20_u64).prop_map(Step::Call),
                    4 => Just(Step::Return),
                    1 => (1..4_usize).prop_map(Step::Unwind),
                ],
                0..200,
            ),
        ) {
            let mut pairs = Pairs::default();
            let mut stack = vec![];
            let mut top = 1 << 20;
            let (mut calls, mut returns) = (0_u64, 0_u64);
            for (step, time) in steps.iter().zip(1..) {
                match step {
                    Step::Call(words) => {
                        let at = top - WORD * (words + 1);
                        pairs.entered(1, time, at, 10);
                        stack.push((top, at, time));
                        top = at;
                        calls += 1;
                    }
                    Step::Return => {
                        let Some((before, at, begin)) = stack.pop() else { continue };
                        let returned = pairs.came_back(1, time, at + WORD);
                        prop_assert_eq!(returned, Some(Returned { begin, end: time }));
                        top = before;
                        returns += 1;
                    }
                    Step::Unwind(frames) => {
                        for _ in 0..*frames {
                            if let Some((before, ..)) = stack.pop() {
                                top = before;
                            }
                        }
                    }
                }
            }
            let open = pairs.open.get(&1).map_or(0, Vec::len) as u64;
            prop_assert_eq!(calls, returns + pairs.unseen() + open);
        }
    }
}
