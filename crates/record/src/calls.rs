//! The calls of one thread that are under way, followed by its calls and returns.
//!
//! Each call pushes where it returns to. A return pops it, and with it whatever was left without
//! returning (longjmp, exceptions). A function that is entered by a jump returns where its caller's
//! call does.

/// Deeper than this, the oldest half is forgotten: a program that never returns must not eat memory.
const DEEPEST: usize = 1 << 16;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Where the calls under way return to, the innermost last.
    returns: Vec<u64>,
    /// So many outer ones were forgotten.
    forgotten: usize,
    /// Calls whose end somebody waits for, the innermost last; with the depth at which they are.
    awaited: Vec<(usize, Call)>,
}

/// A call whose end somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Who waits: the number of a trigger.
    pub trigger: usize,
    /// Address of the function.
    pub function: u64,
    /// When it was entered, nanoseconds.
    pub begin: u64,
}

impl Calls {
    /// A call that returns to this address.
    pub fn called(&mut self, return_to: u64) {
        if self.returns.len() == DEEPEST {
            self.returns.drain(..DEEPEST / 2);
            self.forgotten += DEEPEST / 2;
            let gone = self.forgotten;
            self.awaited.retain(|&(depth, _)| depth > gone);
        }
        self.returns.push(return_to);
    }

    /// The function that was just entered is awaited.
    pub fn wait_for(&mut self, call: Call) {
        self.awaited.push((self.depth(), call));
    }

    /// A return to this address: the awaited calls that end by it, the innermost first.
    pub fn returned(&mut self, to: u64) -> Vec<Call> {
        let ended = self.depth();
        match self.returns.iter().rposition(|&known| known == to) {
            Some(place) => self.returns.truncate(place),
            // The call was before anything was seen.
            None if self.returns.is_empty() => {}
            // Not a function's return: a jump by RET, or the end of a signal handler.
            None => return Vec::new(),
        }
        let ended = match self.returns.len() + self.forgotten {
            depth if depth < ended => depth + 1,
            _ => ended,
        };
        let mut calls = Vec::new();
        while let Some(&(depth, call)) = self.awaited.last()
            && depth >= ended
        {
            if depth == ended {
                calls.push(call);
            }
            self.awaited.pop();
        }
        calls
    }

    fn depth(&self) -> usize {
        self.returns.len() + self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(trigger: usize) -> Call {
        Call {
            trigger,
            function: 0x1000,
            begin: 7,
        }
    }

    #[test]
    fn recursion_ends_innermost_first() {
        let mut calls = Calls::default();
        for trigger in 0..3 {
            calls.called(0x10);
            calls.wait_for(call(trigger));
        }
        for trigger in (0..3).rev() {
            assert_eq!(calls.returned(0x10), [call(trigger)]);
        }
        assert_eq!(calls.returned(0x10), []);
    }

    #[test]
    fn a_tail_call_ends_with_its_callers_return() {
        let mut calls = Calls::default();
        calls.called(0x10);
        calls.wait_for(call(0));
        calls.wait_for(call(1));
        assert_eq!(calls.returned(0x10), [call(1), call(0)]);
    }

    #[test]
    fn what_is_jumped_out_of_does_not_return() {
        let mut calls = Calls::default();
        calls.called(0x10);
        calls.called(0x20);
        calls.wait_for(call(0));
        calls.called(0x30);
        calls.wait_for(call(1));
        assert_eq!(calls.returned(0x10), []);
        assert_eq!(calls.awaited, []);
    }

    #[test]
    fn a_return_that_is_none_changes_nothing() {
        let mut calls = Calls::default();
        calls.called(0x10);
        calls.wait_for(call(0));
        assert_eq!(calls.returned(0x99), []);
        assert_eq!(calls.returned(0x10), [call(0)]);
    }

    #[test]
    fn a_call_from_before_the_beginning_ends_too() {
        let mut calls = Calls::default();
        calls.wait_for(call(0));
        calls.called(0x10);
        assert_eq!(calls.returned(0x10), []);
        assert_eq!(calls.returned(0x99), [call(0)]);
    }

    #[test]
    fn endless_recursion_stays_small() {
        let mut calls = Calls::default();
        for _ in 0..3 * DEEPEST {
            calls.called(0x10);
            calls.wait_for(call(0));
        }
        assert!(calls.returns.len() <= DEEPEST && calls.awaited.len() <= DEEPEST);
        assert_eq!(calls.returned(0x10), [call(0)]);
    }
}
