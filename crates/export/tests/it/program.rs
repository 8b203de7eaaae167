//! Made-up programs.

use ptrail_pt::LossCause;
use ptrail_trace::{Source, SpanFlags, TrackId};

use crate::stream::Stream;

const NONE: SpanFlags = SpanFlags::empty();

/// Numbers that look random and are the same in every run (Marsaglia's xorshift64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Threads that call, return, recurse, lose data and show late callers, with several events in
/// most nanoseconds, interleaved as a decoder of segments would.
pub(crate) fn random(seed: u64, steps: usize) -> Stream {
    const NAMES: [&str; 6] = [
        "main",
        "parse",
        "run",
        "core::fmt::write",
        "größe::計算<T>",
        "f\"\\\n\t/",
    ];
    let mut dice = Dice(seed);
    let mut stream = Stream::new(Source::Hardware);
    let threads: Vec<_> = (0..4)
        .map(|n| stream.thread(100 + n / 2, 1000 + n, &format!("thread {n}")))
        .collect();
    let mut now = [0; 4];
    let mut which = 0;
    for _ in 0..steps {
        if dice.below(20) == 0 {
            which = dice.below(4) as usize;
        }
        let track = threads[which];
        now[which] += [0, 0, 1, 130, 700, 2500][dice.below(6) as usize];
        let at = now[which];
        match dice.below(100) {
            0 => {
                now[which] += [0, 0, 400, 9000][dice.below(4) as usize];
                stream.lose(
                    track,
                    at,
                    now[which],
                    LossCause::Overflow,
                    "the buffer was full",
                );
            }
            1..45 => stream.enter(track, NAMES[dice.below(6) as usize], at),
            45..80 if stream.is_open(track) => {
                let flags =
                    [NONE, NONE, SpanFlags::UNWOUND, SpanFlags::TAIL_CALL][dice.below(4) as usize];
                stream.leave(track, at, flags);
            }
            80.. if stream.open_count(track) > 3 => {
                while stream.is_open(track) {
                    stream.leave(track, at, NONE);
                }
                if dice.below(2) == 0 {
                    stream.late(track, NAMES[dice.below(6) as usize], at, NONE);
                }
            }
            _ => {}
        }
    }
    for (track, now) in threads.into_iter().zip(now) {
        close(&mut stream, track, now);
    }
    stream
}

fn close(stream: &mut Stream, track: TrackId, at: u64) {
    while stream.is_open(track) {
        stream.leave(track, at, SpanFlags::CUT);
    }
}

/// Late callers at the start and after a loss, all at the same nanosecond.
pub(crate) fn late_ties() -> Stream {
    let mut stream = Stream::new(Source::Software);
    let track = stream.thread(7, 7, "tied");
    for part in 0..3 {
        for name in ["leaf", "leaf", "branch"] {
            stream.enter(track, name, 5_100 + part);
            stream.enter(track, name, 5_100 + part);
            stream.leave(track, 5_200 + part, NONE);
            stream.leave(track, 5_300 + part, NONE);
        }
        stream.late(track, "caller", 5_400, NONE);
        stream.enter(track, "sibling", 5_400);
        stream.leave(track, 5_400, NONE);
        stream.late(track, "caller", 5_400, NONE);
        stream.late(track, "_start", 5_500, SpanFlags::CUT);
        stream.lose(track, 5_500, 5_500, LossCause::Overflow, "full");
    }
    stream
}

/// One function within itself, `depth` times, and then `late` callers around it.
pub(crate) fn deep(depth: u64, late: u64) -> Stream {
    let mut stream = Stream::new(Source::Hardware);
    let track = stream.thread(1, 1, "deep");
    for level in 0..depth {
        stream.enter(
            track,
            if level % 3 == 0 { "even" } else { "recurse" },
            level / 2 * 1000,
        );
    }
    for level in 0..depth {
        stream.leave(track, (depth + level / 2) * 1000, NONE);
    }
    for level in 0..late {
        stream.late(track, "recurse", (2 * depth + level / 2) * 1000, NONE);
    }
    stream
}

/// Names that encoders trip over, zero-length spans, and many threads.
pub(crate) fn odd_names() -> Stream {
    let mut stream = Stream::new(Source::Hardware);
    let long = "long ".repeat(2_000);
    let names = [
        "",
        "\u{1}\u{1f}",
        "\u{2028}\u{feff}",
        "a\\b\"c</script>",
        "日本語 🦀 naïve",
        "{}",
        "null",
        &long,
    ];
    for tid in 0..200 {
        let track = stream.thread(50 + tid / 100, 500 + tid, &format!("工 {tid}"));
        for (index, name) in names.iter().enumerate() {
            stream.enter(track, name, (index as u64) * 999);
        }
        for _ in names {
            stream.leave(track, 999 * 7, NONE);
        }
    }
    stream
}
