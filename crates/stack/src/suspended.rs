//! Stacks that were left, and may be gone back to.
//!
//! A thread may have several stacks: coroutines, fibers, goroutines. To leave one, code calls a
//! function that stores where it stands and goes to where another one stood, by a return or a jump.
//! So each stack that was left waits at the address behind a call; whoever goes there goes back to it,
//! whatever the function is called that does so. Frames that longjmp or an exception ended look the
//! same when they are left, but nobody goes back to them.

use std::collections::{HashMap, VecDeque};

use ptrail_pt::Ip;
use ptrail_trace::FunctionId;
use rustc_hash::FxBuildHasher;

use crate::frames::{Frame, MOST_LEFT};

/// Frames kept, all stacks together; the oldest stacks are forgotten first.
const FRAMES: usize = MOST_LEFT;

#[derive(Default)]
pub(crate) struct Suspended {
    /// In the order in which they were left; empty ones were gone back to.
    stacks: VecDeque<Vec<Frame>>,
    /// Number of the first one.
    first: u64,
    frames: usize,
    /// By return address, the frame that was left last: number of its stack, and place in it.
    waiting: HashMap<Ip, (u64, usize), FxBuildHasher>,
}

impl Suspended {
    /// Frames that were left, outermost first.
    pub(crate) fn keep(&mut self, frames: Vec<Frame>) {
        if frames.len() < 2 {
            return;
        }
        let number = self.first + self.stacks.len() as u64;
        // The outermost one's caller is not of this stack.
        for (place, frame) in frames.iter().enumerate().skip(1) {
            if let Some(return_to) = frame.return_to {
                self.waiting.insert(return_to, (number, place));
            }
        }
        self.frames += frames.len();
        self.stacks.push_back(frames);
        while self.frames > FRAMES
            && let Some(oldest) = self.stacks.pop_front()
        {
            self.frames -= oldest.len();
            self.first += 1;
        }
        if self.waiting.len() > 2 * FRAMES {
            let first = self.first;
            self.waiting.retain(|_, (number, _)| *number >= first);
        }
    }

    /// The frames that go on if execution goes to `to`, in `function`: outermost first, at least one.
    pub(crate) fn resume(&mut self, to: Ip, function: FunctionId) -> Option<Vec<Frame>> {
        let (number, place) = self.waiting.remove(&to)?;
        let stack = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let stack = self.stacks.get_mut(stack)?;
        let goes_on = stack.get(place.checked_sub(1)?)?.place.function == function;
        if !goes_on || stack.get(place)?.return_to != Some(to) {
            return None;
        }
        let mut stack = std::mem::take(stack);
        self.frames -= stack.len();
        // What lies above may be a stack of its own, which was gone to from here.
        let above = stack.split_off(place);
        self.keep(above);
        Some(stack)
    }

    /// Nothing that was left is gone back to.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            first: self.first + self.stacks.len() as u64,
            ..Self::default()
        };
    }
}
