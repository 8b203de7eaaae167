//! Decoding into files, and keeping them as small as was asked for.

use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use indicatif::{HumanBytes, HumanCount};
use ptrail_export::{Format, Packing, create_with};
use ptrail_pipeline::{Progress, Session, Summary};
use ptrail_pt::Picos;
use ptrail_trace::{
    Fanout, Filter, Function, LeftOut, Selection, SinkError, Span, SpanSink, Track,
};

use crate::outputs::{OutputArgs, Target};
use crate::progress::Line;
use crate::report::duration;

/// Passes to make a file fit; each comes nearer.
const PASSES: usize = 4;
/// Spans that Perfetto's trace processor, built for the browser, has loaded (see docs/viewers.md).
const PERFETTO_LOADS: u64 = 5_000_000;

/// What was written.
pub(crate) struct Written {
    pub(crate) summary: Summary,
    /// `None` if everything was wanted.
    pub(crate) left_out: Option<LeftOut>,
    /// What to know of the files.
    pub(crate) notes: Vec<String>,
}

/// Decodes a capture into all outputs in one pass; in further ones what has become too large.
pub(crate) fn write(
    session: &Session<'_>,
    targets: &[Target],
    args: &OutputArgs,
    quiet: bool,
) -> Result<Written> {
    let selection = args.selection.selection()?;
    let (mut written, durations) = pass(session, targets, args, &selection, quiet)?;
    for target in targets {
        let size = size(&target.path)?;
        let most = args.max_size.map(|most| most as u64);
        let too_large = most.filter(|&most| size > most && is_timeline(target.format));
        let kept = match too_large {
            Some(most) => {
                let (note, kept) = make_fit(
                    session,
                    target,
                    args,
                    &selection,
                    (size, most),
                    &durations,
                    quiet,
                )?;
                written.notes.push(note);
                kept
            }
            None => durations.total(),
        };
        if kept > PERFETTO_LOADS && is_for_perfetto(target.format) {
            written.notes.push(format!(
                "{} has {} calls; the viewer is known to load {}: --from, --to, --thread, --function, \
                 --min-duration or --max-size make it smaller",
                target.path.display(),
                HumanCount(kept),
                HumanCount(PERFETTO_LOADS),
            ));
        }
    }
    Ok(written)
}

/// One pass, and how long the calls took that came out.
fn pass(
    session: &Session<'_>,
    targets: &[Target],
    args: &OutputArgs,
    selection: &Selection,
    quiet: bool,
) -> Result<(Written, Durations)> {
    let settings = args.settings();
    let mut sinks: Vec<_> = targets
        .iter()
        .map(|target| create_with(target.format, &target.path, &settings))
        .collect::<Result<_, _>>()?;
    let mut durations = Durations::default();
    let mut fanout = Fanout::new();
    fanout.push(&mut durations);
    for sink in &mut sinks {
        fanout.push(sink.as_mut());
    }
    let mut line = Line::new(quiet);
    let mut progress = |progress: Progress| line.decoding(progress.done, progress.total);
    let (summary, left_out) = if selection.is_everything() {
        (session.run(&mut fanout, &mut progress)?, None)
    } else {
        let mut filter = Filter::new(selection, &mut fanout);
        let summary = session.run(&mut filter, &mut progress)?;
        (summary, Some(filter.left_out()))
    };
    drop(fanout);
    let written = Written {
        summary,
        left_out,
        notes: Vec::new(),
    };
    Ok((written, durations))
}

/// Writes a file again, without its shortest calls; says what was done, and how many are left.
fn make_fit(
    session: &Session<'_>,
    target: &Target,
    args: &OutputArgs,
    selection: &Selection,
    (whole, most): (u64, u64),
    durations: &Durations,
    quiet: bool,
) -> Result<(String, u64)> {
    let (mut now, mut share, mut kept) = (whole, 1.0, durations.total());
    let mut least = selection.min_duration;
    for _ in 0..PASSES {
        share *= most as f64 / now as f64 * 0.95;
        least = durations.shortest(share).max(least);
        let coarse = Selection {
            min_duration: least,
            ..selection.clone()
        };
        let one = std::slice::from_ref(target);
        let (_, durations) = pass(session, one, args, &coarse, quiet)?;
        (now, kept) = (size(&target.path)?, durations.total());
        if now <= most || kept == 0 {
            break;
        }
    }
    let still = if now > most {
        format!("; it still has {}", HumanBytes(now))
    } else {
        String::new()
    };
    let note = format!(
        "{} would have had {}: calls shorter than {} are left out of it, {} of {}{still}",
        target.path.display(),
        HumanBytes(whole),
        duration(least),
        HumanCount(durations.total() - kept.min(durations.total())),
        HumanCount(durations.total()),
    );
    Ok((note, kept))
}

/// Whether single calls stand in it, so that leaving some out makes it smaller.
fn is_timeline(format: Format) -> bool {
    !matches!(
        format,
        Format::FoldedTime | Format::FoldedInstructions | Format::Callgrind | Format::Pprof
    )
}

fn is_for_perfetto(format: Format) -> bool {
    matches!(
        format,
        Format::Perfetto | Format::Chrome | Format::Fxt(Packing::Plain | Packing::Gzip)
    )
}

/// Bytes of a file, or of the files in a folder. A device has none.
fn size(path: &Path) -> Result<u64> {
    let of = || -> io::Result<u64> {
        let metadata = path.metadata()?;
        if !metadata.is_dir() {
            return Ok(if metadata.is_file() {
                metadata.len()
            } else {
                0
            });
        }
        path.read_dir()?
            .map(|entry| Ok(entry?.metadata()?.len()))
            .sum()
    };
    of().with_context(|| path.display().to_string())
}

/// How many spans took how long: four steps for each doubling of the time.
struct Durations {
    counts: [u64; 64 * 4],
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            counts: [0; 64 * 4],
        }
    }
}

impl Durations {
    fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn step(picos: u64) -> usize {
        let power = picos.max(1).ilog2();
        let quarter = (picos >> power.saturating_sub(2)) & 3;
        power as usize * 4 + if power < 2 { 0 } else { quarter as usize }
    }

    /// The shortest duration of a step.
    fn of_step(step: usize) -> Picos {
        let (power, quarter) = (step / 4, step as u64 % 4);
        Picos(match power {
            0 | 1 => 1 << power,
            2..64 => (4 + quarter) << (power - 2),
            _ => u64::MAX,
        })
    }

    /// The least duration that at most this share of the spans have.
    fn shortest(&self, share: f64) -> Picos {
        let wanted = (self.total() as f64 * share) as u64;
        let mut kept = 0;
        for step in (0..self.counts.len()).rev() {
            kept += self.counts[step];
            if kept > wanted {
                return Self::of_step(step + 1);
            }
        }
        Picos(0)
    }
}

impl SpanSink for Durations {
    fn track(&mut self, _track: &Track) -> Result<(), SinkError> {
        Ok(())
    }

    fn function(&mut self, _function: &Function) -> Result<(), SinkError> {
        Ok(())
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        let took = span.end.0.saturating_sub(span.begin.0);
        self.counts[Self::step(took)] += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_where_they_say() {
        for step in 9..63 * 4 {
            let Picos(first) = Durations::of_step(step);
            assert_eq!(Durations::step(first), step);
            assert_eq!(Durations::step(first - 1), step - 1);
        }
        assert_eq!(Durations::step(0), 0);
        assert_eq!(Durations::step(u64::MAX), 255);
    }

    #[test]
    fn the_longest_share_is_kept() {
        let mut durations = Durations::default();
        for picos in 1..=1000_u64 {
            durations.counts[Durations::step(picos)] += 1;
        }
        assert_eq!(durations.total(), 1000);
        let Picos(shortest) = durations.shortest(0.25);
        assert!((750..900).contains(&shortest), "{shortest}");
        assert_eq!(durations.shortest(1.0), Picos(0));
        assert!(durations.shortest(0.0).0 > 1000);
    }
}
