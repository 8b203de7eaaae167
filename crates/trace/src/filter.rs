//! Leaving out what nobody wants to see, in front of any sink.
//!
//! ```
//! use ptrail_pt::Picos;
//! use ptrail_trace::{Fanout, Filter, Selection};
//!
//! let selection = Selection { min_duration: Picos(1_000_000), ..Selection::default() };
//! let mut sinks = Fanout::new();
//! let mut filter = Filter::new(&selection, &mut sinks);
//! // Feed it the span stream …
//! assert_eq!(filter.left_out().spans, 0);
//! ```
//!
//! What comes out is a span stream by the same rules as what goes in. Calls reach over the borders of
//! a time window, so they are cut there and say so (`inferred`, `cut`); their instructions are those
//! of the whole call. Depths stay those of the recording.
//!
//! *Flat memory.* How long a call takes is known when it ends, or when the time it must take at least
//! has passed. Until then its begin waits here: for each thread at most a stack's depth of them, and
//! the points and losses among them.

use std::collections::VecDeque;

use ptrail_pt::{Loss, Picos};

use crate::{
    Function, FunctionId, Opened, Point, Rate, Recording, SinkError, Span, SpanFlags, SpanSink,
    Track, TrackId, TrackKind,
};

/// What to keep. The default keeps everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Nothing before this time.
    pub from: Picos,
    /// Nothing from this time on.
    pub to: Option<Picos>,
    /// Only threads of which the name, or the number in digits, fits one of these.
    pub threads: Vec<Pattern>,
    /// Only calls of functions of which the name, readable or mangled, fits one of these, and
    /// everything within such calls. What a function had called before it was found as a late
    /// caller is not within.
    pub functions: Vec<Pattern>,
    /// Only calls that take at least so long, as a whole.
    pub min_duration: Picos,
}

impl Selection {
    /// Whether nothing is left out.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    fn wants(patterns: &[Pattern], names: &[&str]) -> bool {
        let fits = |pattern: &Pattern| names.iter().any(|name| pattern.fits(name));
        patterns.is_empty() || patterns.iter().any(fits)
    }

    /// The part of a time range in the window. A moment is in it, or at its begin.
    fn clip(&self, begin: Picos, end: Picos) -> Option<(Picos, Picos)> {
        let starts_before_end = self.to.is_none_or(|to| begin < to);
        let ends_after_begin = begin >= self.from || end > self.from;
        (starts_before_end && ends_after_begin).then(|| {
            let end = self.to.map_or(end, |to| end.min(to));
            (begin.max(self.from), end)
        })
    }
}

/// A name in which `*` stands for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Takes every text as it is.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether all of a name fits.
    #[must_use]
    pub fn fits(&self, name: &str) -> bool {
        let mut pieces = self.0.split('*');
        let first = pieces.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let Some(last) = pieces.next_back() else {
            return rest.is_empty();
        };
        for piece in pieces {
            match rest.find(piece) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

/// How much was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Threads.
    pub threads: u64,
    /// Spans.
    pub spans: u64,
    /// Of how many spans.
    pub of_spans: u64,
    /// Points.
    pub points: u64,
    /// Losses.
    pub losses: u64,
}

/// Passes on what a [`Selection`] keeps.
pub struct Filter<'a> {
    selection: &'a Selection,
    sink: &'a mut dyn SpanSink,
    /// By the number of the track; `None` for threads that are left out.
    threads: Vec<Option<Thread>>,
    kept_threads: u32,
    functions: Vec<Option<Known>>,
    said_functions: u32,
    left_out: LeftOut,
}

/// A function, and whether its calls are wanted.
struct Known {
    function: Function,
    wanted: bool,
    /// Its number behind the filter, once it was said there.
    said: Option<FunctionId>,
}

/// A thread that is kept.
struct Thread {
    /// Its number behind the filter.
    id: TrackId,
    /// What is open, outermost first.
    frames: Vec<Frame>,
    /// How many of it are wanted.
    wanted: usize,
    waiting: VecDeque<Waiting>,
}

struct Frame {
    wanted: bool,
    /// Its begin was passed on.
    said: bool,
}

/// What can't be passed on before it is known if an open call takes long enough.
enum Waiting {
    /// With the place of its frame.
    Open(usize, Opened),
    Point(Point),
    Loss(Loss),
}

impl<'a> Filter<'a> {
    /// In front of a sink.
    pub fn new(selection: &'a Selection, sink: &'a mut dyn SpanSink) -> Self {
        Self {
            selection,
            sink,
            threads: Vec::new(),
            kept_threads: 0,
            functions: Vec::new(),
            said_functions: 0,
            left_out: LeftOut::default(),
        }
    }

    /// How much was left out so far.
    #[must_use]
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    fn thread(&mut self, track: TrackId) -> Option<&mut Thread> {
        self.threads.get_mut(track.0 as usize)?.as_mut()
    }

    fn wanted(&self, function: FunctionId) -> bool {
        let known = self.functions.get(function.0 as usize);
        matches!(known, Some(Some(known)) if known.wanted)
    }

    /// The number of a function behind the filter. One that was never announced keeps its own, for
    /// the sink to complain about.
    fn say_function(&mut self, id: FunctionId) -> Result<FunctionId, SinkError> {
        let Some(Some(known)) = self.functions.get_mut(id.0 as usize) else {
            return Ok(id);
        };
        if let Some(said) = known.said {
            return Ok(said);
        }
        let new = FunctionId(self.said_functions);
        self.said_functions += 1;
        known.said = Some(new);
        self.sink.function(&Function {
            id: new,
            ..known.function.clone()
        })?;
        Ok(new)
    }

    /// Passes on what is certain at a time of a track.
    fn settle(&mut self, track: TrackId, now: Picos) -> Result<(), SinkError> {
        let selection = self.selection;
        loop {
            let Some(thread) = self.thread(track) else {
                return Ok(());
            };
            let certain = match thread.waiting.front() {
                None => return Ok(()),
                Some(Waiting::Open(_, opened)) => {
                    let long = now.0 >= opened.begin.0.saturating_add(selection.min_duration.0);
                    long && selection.clip(opened.begin, now).is_some()
                }
                Some(Waiting::Point(_) | Waiting::Loss(_)) => true,
            };
            if !certain {
                return Ok(());
            }
            let id = thread.id;
            match thread.waiting.pop_front() {
                Some(Waiting::Open(place, mut opened)) => {
                    thread.frames[place].said = true;
                    if opened.begin < selection.from {
                        opened.begin = selection.from;
                        opened.flags |= SpanFlags::INFERRED;
                    }
                    opened.track = id;
                    opened.function = self.say_function(opened.function)?;
                    self.sink.open(&opened)?;
                }
                Some(Waiting::Point(point)) => self.sink.point(&point)?,
                Some(Waiting::Loss(loss)) => self.sink.loss(id, &loss)?,
                None => return Ok(()),
            }
        }
    }

    fn pass_span(&mut self, span: &Span, track: TrackId) -> Result<(), SinkError> {
        let (begin, end) = self
            .selection
            .clip(span.begin, span.end)
            .unwrap_or((span.begin, span.end));
        let mut flags = span.flags;
        flags.set(
            SpanFlags::INFERRED,
            flags.contains(SpanFlags::INFERRED) || begin > span.begin,
        );
        flags.set(
            SpanFlags::CUT,
            flags.contains(SpanFlags::CUT) || end < span.end,
        );
        let function = self.say_function(span.function)?;
        self.sink.span(&Span {
            track,
            function,
            begin,
            end,
            flags,
            ..*span
        })
    }

    /// A late caller has no frame here.
    fn late(&mut self, span: &Span) -> Result<(), SinkError> {
        let selection = self.selection;
        let long = span.end.0 - span.begin.0.min(span.end.0) >= selection.min_duration.0;
        let kept = long && selection.clip(span.begin, span.end).is_some();
        let inside = self
            .thread(span.track)
            .is_some_and(|thread| thread.wanted > 0);
        match self.thread(span.track).map(|thread| thread.id) {
            Some(track) if kept && (inside || self.wanted(span.function)) => {
                self.pass_span(span, track)
            }
            _ => {
                self.left_out.spans += 1;
                Ok(())
            }
        }
    }
}

impl SpanSink for Filter<'_> {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        self.sink.begin(recording)
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        let TrackKind::Thread { tid, .. } = track.kind;
        let names = [track.name.as_str(), &tid.to_string()];
        if !Selection::wants(&self.selection.threads, &names) {
            self.left_out.threads += 1;
            self.threads.push(None);
            return Ok(());
        }
        let id = TrackId(self.kept_threads);
        self.kept_threads += 1;
        self.threads.push(Some(Thread {
            id,
            frames: Vec::new(),
            wanted: 0,
            waiting: VecDeque::new(),
        }));
        self.sink.track(&Track {
            id,
            ..track.clone()
        })
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        let mangled = function.mangled.as_deref().unwrap_or(&function.name);
        let wanted = Selection::wants(&self.selection.functions, &[&function.name, mangled]);
        let index = function.id.0 as usize;
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, || None);
        }
        self.functions[index] = Some(Known {
            function: function.clone(),
            wanted,
            said: None,
        });
        Ok(())
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        let wanted = self.wanted(opened.function);
        let in_time = self.selection.to.is_none_or(|to| opened.begin < to);
        let Some(thread) = self.thread(opened.track) else {
            return Ok(());
        };
        thread.wanted += usize::from(wanted);
        if in_time && thread.wanted > 0 {
            let place = thread.frames.len();
            thread.waiting.push_back(Waiting::Open(place, *opened));
        }
        thread.frames.push(Frame {
            wanted,
            said: false,
        });
        self.settle(opened.track, opened.begin)
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        self.left_out.of_spans += 1;
        self.settle(span.track, span.end)?;
        if span.flags.contains(SpanFlags::LATE) {
            return self.late(span);
        }
        let Some(thread) = self.thread(span.track) else {
            self.left_out.spans += 1;
            return Ok(());
        };
        let id = thread.id;
        let Some(frame) = thread.frames.pop() else {
            // For the sink to complain about.
            return self.pass_span(span, id);
        };
        thread.wanted -= usize::from(frame.wanted);
        if frame.said {
            return self.pass_span(span, id);
        }
        let place = thread.frames.len();
        thread
            .waiting
            .retain(|waiting| !matches!(waiting, Waiting::Open(of, _) if *of == place));
        self.left_out.spans += 1;
        self.settle(span.track, span.end)
    }

    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        let kept = self.selection.clip(point.at, point.at).is_some();
        match self.thread(point.track).filter(|_| kept) {
            Some(thread) => {
                let point = Point {
                    track: thread.id,
                    ..point.clone()
                };
                thread.waiting.push_back(Waiting::Point(point));
            }
            None => self.left_out.points += 1,
        }
        self.settle(point.track, point.at)
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        let clipped = self.selection.clip(loss.begin, loss.end.max(loss.begin));
        match (self.thread(track), clipped) {
            (Some(thread), Some((begin, end))) => {
                let loss = Loss {
                    begin,
                    end,
                    ..loss.clone()
                };
                thread.waiting.push_back(Waiting::Loss(loss));
            }
            _ => self.left_out.losses += 1,
        }
        self.settle(track, loss.begin)
    }

    fn rate(&mut self, rate: &Rate) -> Result<(), SinkError> {
        let within = self.selection.clip(rate.begin, rate.end) == Some((rate.begin, rate.end));
        match self.thread(rate.track).map(|thread| thread.id) {
            Some(track) if within => self.sink.rate(&Rate { track, ..*rate }),
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.sink.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, fits) in [
            ("main", "main", true),
            ("main", "main2", false),
            ("", "", true),
            ("", "x", false),
            ("*", "", true),
            ("std::*", "std::fmt::write", true),
            ("*::write", "std::fmt::write", true),
            ("std::*::write", "std::write", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*b*b*", "abcb", true),
            ("*b*b*", "abc", false),
            ("größe*", "größe::計算", true),
        ] {
            assert_eq!(Pattern::new(pattern).fits(name), fits, "{pattern} {name}");
        }
    }
}
