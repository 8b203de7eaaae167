//! Progress lines on standard error; nothing if that is no terminal or the work is short.

use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

/// Work that ends sooner shows no progress.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two changes of the line.
const INTERVAL: Duration = Duration::from_millis(100);

/// A line that says how far the work is.
pub(crate) struct Line {
    quiet: bool,
    begin: Instant,
    drawn: Instant,
    bar: Option<ProgressBar>,
}

impl Line {
    pub(crate) fn new(quiet: bool) -> Self {
        let now = Instant::now();
        Self {
            quiet,
            begin: now,
            drawn: now,
            bar: None,
        }
    }

    /// While recording.
    pub(crate) fn recording(&mut self, instructions: u64, elapsed: Duration) {
        if !self.due() {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            ProgressBar::new_spinner()
                .with_style(style("{spinner} recording {msg} — Ctrl-C ends it"))
        });
        let rate = instructions as f64 / elapsed.as_secs_f64();
        let (count, rate) = (HumanCount(instructions), HumanCount(rate as u64));
        bar.set_message(format!("{count} instructions, {rate}/s"));
        bar.tick();
    }

    /// While decoding.
    pub(crate) fn decoding(&mut self, done: u64, total: u64) {
        if !self.due() {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let template = "decoding {wide_bar} {bytes}/{total_bytes}, {eta} left";
            ProgressBar::new(total).with_style(style(template))
        });
        bar.set_position(done);
    }

    fn due(&mut self) -> bool {
        let now = Instant::now();
        let due = !self.quiet && now - self.begin >= PATIENCE && now - self.drawn >= INTERVAL;
        if due {
            self.drawn = now;
        }
        due
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
