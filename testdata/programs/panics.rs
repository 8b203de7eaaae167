//! Rust panics caught by `catch_unwind`, with values dropped on the way.
//!
//! Calls: `main` -> `attempt`, 4 times (0 to 3); in it `catch_unwind` -> ... -> `outer` -> `inner`.
//! `inner` panics for 1 and 3. `outer` holds a `Guard`, so `Guard::drop` runs 4 times: twice by a
//! return, twice by unwinding. `recovered` is called twice, `finished` twice.

use std::panic;
use std::sync::atomic::{AtomicU32, Ordering};

static DROPPED: AtomicU32 = AtomicU32::new(0);

struct Guard;

impl Drop for Guard {
    #[inline(never)]
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

#[inline(never)]
fn inner(n: u32) -> u32 {
    if n % 2 == 1 {
        panic!("odd");
    }
    n * 10
}

#[inline(never)]
fn outer(n: u32) -> u32 {
    let _guard = Guard;
    std::hint::black_box(inner(n)) + 1
}

#[inline(never)]
fn recovered(n: u32) -> u32 {
    std::hint::black_box(n + 1000)
}

#[inline(never)]
fn finished(n: u32) -> u32 {
    std::hint::black_box(n + 1)
}

#[inline(never)]
fn attempt(n: u32) -> u32 {
    let answer = match panic::catch_unwind(|| outer(n)) {
        Ok(value) => finished(value),
        Err(_) => recovered(n),
    };
    std::hint::black_box(answer)
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let mut sum = 0;
    for n in 0..4 {
        sum += attempt(std::hint::black_box(n));
    }
    println!("sum {sum}, dropped {}", DROPPED.load(Ordering::Relaxed));
}
