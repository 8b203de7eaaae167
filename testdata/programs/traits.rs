//! Rust trait objects, generics, closures and recursion: names that need demangling.
//!
//! Calls: `main` -> `describe`, 4 times -> `<Cat as Animal>::legs` twice, `<Bird as Animal>::legs`
//! twice; `main` -> `largest::<u8>` and `largest::<u64>`, once each; `main` -> `apply`, once -> a
//! closure of `main`, 3 times; `main` -> `tree::depth`, once, which calls itself: 15 calls in all.

use std::hint::black_box;

trait Animal {
    fn legs(&self) -> u32;
}

struct Cat;
struct Bird;

impl Animal for Cat {
    #[inline(never)]
    fn legs(&self) -> u32 {
        black_box(4)
    }
}

impl Animal for Bird {
    #[inline(never)]
    fn legs(&self) -> u32 {
        black_box(2)
    }
}

#[inline(never)]
fn describe(animal: &dyn Animal) -> u32 {
    black_box(animal.legs()) + 1
}

#[inline(never)]
fn largest<T: PartialOrd + Copy>(values: &[T]) -> T {
    let mut best = values[0];
    for &value in values {
        if value > best {
            best = value;
        }
    }
    black_box(best)
}

#[inline(never)]
fn apply(step: &dyn Fn(u32) -> u32, start: u32) -> u32 {
    let mut value = start;
    for _ in 0..3 {
        value = black_box(step(value));
    }
    value
}

mod tree {
    /// The depth of a full binary tree with `levels` levels, by visiting every node.
    #[inline(never)]
    pub fn depth(levels: u32) -> u32 {
        if levels == 1 {
            return 1;
        }
        let left = std::hint::black_box(depth(levels - 1));
        let right = std::hint::black_box(depth(levels - 1));
        left.max(right) + 1
    }
}

fn main() {
    let animals: [&dyn Animal; 4] = [&Cat, &Bird, &Bird, &Cat];
    let mut legs = 0;
    for animal in black_box(animals) {
        legs += describe(animal);
    }
    let small = largest(black_box(&[3u8, 9, 4]));
    let wide = largest(black_box(&[30u64, 90, 40]));
    let add = black_box(7);
    let applied = apply(&|value| black_box(value + add), 1);
    println!("{legs} {small} {wide} {applied} {}", tree::depth(black_box(4)));
}
