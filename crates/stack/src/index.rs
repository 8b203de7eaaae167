//! Finding a frame in a deep stack.
//!
//! Nearly always the frame that is looked for is among the innermost ones. Where it is not, and in a
//! deep stack, an index saves looking through all of them again and again. It costs nothing until it
//! is needed first.

use std::collections::HashMap;

use ptrail_pt::Ip;
use ptrail_trace::FunctionId;
use rustc_hash::FxBuildHasher;

/// No frame.
const NONE: u32 = u32::MAX;

/// What a frame is looked for by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// The address it returns to.
    Return(Ip),
    /// Its function.
    Function(FunctionId),
    /// An address at which the code goes on that a signal interrupted.
    Interrupted(Ip),
}

/// What a frame can be found by.
pub(crate) type Keys = [Option<Key>; 2];

/// For each key the innermost frame that has it, and for each frame those with its keys outside of it.
#[derive(Default)]
pub(crate) struct Index {
    innermost: HashMap<Key, u32, FxBuildHasher>,
    outside: Vec<[u32; 2]>,
}

impl Index {
    /// Another innermost frame.
    pub(crate) fn push(&mut self, keys: Keys) {
        let number = u32::try_from(self.outside.len()).unwrap_or(NONE);
        self.outside.push(keys.map(|key| {
            key.and_then(|key| self.innermost.insert(key, number))
                .unwrap_or(NONE)
        }));
    }

    /// The innermost frame, which has these keys, is gone.
    pub(crate) fn pop(&mut self, keys: Keys) {
        let outside = self.outside.pop().unwrap_or([NONE; 2]);
        for (key, outside) in keys.into_iter().zip(outside) {
            match key {
                Some(key) if outside == NONE => drop(self.innermost.remove(&key)),
                Some(key) => drop(self.innermost.insert(key, outside)),
                None => {}
            }
        }
    }

    /// The frames with a key, innermost first; `keys` tells those of each frame.
    pub(crate) fn frames(
        &self,
        key: Key,
        keys: impl Fn(usize) -> Keys,
    ) -> impl Iterator<Item = usize> {
        let mut next = self.innermost.get(&key).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let number = (next != NONE).then_some(next as usize)?;
            let which = keys(number).iter().position(|own| *own == Some(key));
            let outside = self.outside.get(number).zip(which);
            next = outside.map_or(NONE, |(outside, which)| outside[which]);
            Some(number)
        })
    }
}
