//! Events with times: what the decoder tells, put in order and given to the rules.

mod kernel;
mod rules;

use ptrail_flow::{Edge, OffCause, Sink};
use ptrail_image::{AddressSpace, Timeline};
use ptrail_pt::{Ip, Loss, PerfTime, Picos, Time};
use ptrail_trace::{Rate, SinkError, SpanFlags, SpanSink, TrackId};

use crate::frames::{Frames, Moment};
use crate::names::Names;
use crate::suspended::Suspended;

/// Events that may wait for the next anchor; more than any sane distance between two timing
/// packets, so only a trace without time gets here.
const PENDING_LIMIT: usize = 1 << 16;

/// The least stretch of time for which a rate is told.
const RATE_STEP: Picos = Picos(10_000_000);

/// What a thread's stream came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Instructions executed.
    pub instructions: u64,
    /// Spans reported.
    pub spans: u64,
    /// Most frames open at once.
    pub deepest: usize,
    /// Time of the first event.
    pub begin: Picos,
    /// Time of the last event.
    pub end: Picos,
}

enum Event {
    Edge(Edge),
    Begin(Ip),
    On(Ip),
    Off { ip: Ip, next: Ip, cause: OffCause },
    Loss(Box<Loss>, bool),
}

/// Turns one thread's branch events into spans.
pub struct Builder<'a, 's> {
    timeline: &'a Timeline,
    pid: u32,
    base: PerfTime,
    space: AddressSpace<'a>,
    names: &'s mut Names<'a>,
    frames: Frames<'s>,
    suspended: Suspended,
    track: TrackId,
    /// Times at which the process began to run a new image, still to come.
    execs: std::iter::Peekable<std::vec::IntoIter<Picos>>,
    pending: Vec<(u64, Event)>,
    /// Instructions of the segments before this one.
    before: u64,
    anchor: Moment,
    /// Up to when rates were told.
    rated: Moment,
    /// A time has been told; what came before it happened then.
    timed: bool,
    /// Where tracing was switched on last.
    last_on: Option<Ip>,
    /// The last event's; neither part ever goes back.
    last: Moment,
    /// The path is known up to the last event; not before the first and after a loss.
    connected: bool,
    /// The stack is known from the program's first instruction on.
    complete: bool,
    first: Option<Picos>,
    failed: Option<SinkError>,
}

impl<'a, 's> Builder<'a, 's> {
    /// A builder for the thread shown on `track`, of process `pid`, whose functions get their
    /// numbers from `names`. `base` is the perf-clock time of picosecond zero; `execs` are the times
    /// at which the process began to run a new image, its first one included.
    pub fn new(
        names: &'s mut Names<'a>,
        pid: u32,
        base: PerfTime,
        execs: Vec<Picos>,
        track: TrackId,
        sink: &'s mut dyn SpanSink,
    ) -> Self {
        names.enter_thread();
        let timeline = names.timeline;
        Self {
            timeline,
            pid,
            base,
            space: timeline.space(pid, base),
            names,
            frames: Frames::new(sink, track),
            suspended: Suspended::default(),
            track,
            execs: execs.into_iter().peekable(),
            pending: Vec::new(),
            before: 0,
            anchor: Moment::START,
            rated: Moment::START,
            timed: false,
            last_on: None,
            last: Moment::START,
            connected: false,
            complete: false,
            first: None,
            failed: None,
        }
    }

    /// A segment has ended after `instructions` instructions.
    ///
    /// # Errors
    /// What the sink said when it could not take a span.
    pub fn end_segment(&mut self, instructions: u64) -> Result<(), SinkError> {
        self.before += instructions;
        self.failed.take().map_or(Ok(()), Err)
    }

    /// The stream has ended: closes what is open.
    ///
    /// # Errors
    /// What the sink said when it could not take a span.
    pub fn finish(mut self) -> Result<Summary, SinkError> {
        self.settle(Moment {
            at: self.anchor.at,
            instructions: self.before,
        });
        let end = Moment {
            at: self.anchor.at,
            instructions: self.before.max(self.last.instructions),
        };
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.frames.pop_all(end, SpanFlags::CUT)?;
        self.tell_rate(Picos(1))?;
        Ok(Summary {
            instructions: end.instructions,
            spans: self.frames.spans,
            deepest: self.frames.deepest,
            begin: self.first.unwrap_or_default(),
            end: end.at,
        })
    }

    // ---- time ----

    fn wait(&mut self, instructions: u64, event: Event) {
        self.pending.push((self.before + instructions, event));
        if self.pending.len() >= PENDING_LIMIT {
            let now = Moment {
                at: self.anchor.at,
                instructions: self.before + instructions,
            };
            self.settle(now);
        }
    }

    /// Gives the waiting events their times, between the last anchor and `now`, and applies them.
    fn settle(&mut self, now: Moment) {
        let from = self.anchor;
        self.anchor = Moment {
            at: now.at.max(from.at),
            instructions: now.instructions,
        };
        let span = u128::from(self.anchor.at.0 - from.at.0);
        let count = u128::from(now.instructions.saturating_sub(from.instructions));
        for (instructions, event) in std::mem::take(&mut self.pending) {
            if self.failed.is_some() {
                return;
            }
            let done = u128::from(instructions.saturating_sub(from.instructions)).min(count);
            let at = match (count, &event) {
                (0, Event::Off { .. }) => self.anchor.at,
                (0, _) => from.at,
                _ => Picos(from.at.0 + (span * done / count) as u64),
            };
            self.last = Moment {
                at: at.max(self.last.at),
                instructions: instructions.max(self.last.instructions),
            };
            self.follow_mappings(self.last.at);
            if let Err(error) = self.apply(event, self.last) {
                self.failed = Some(error);
            }
        }
        self.follow_mappings(self.anchor.at);
        if let Err(error) = self.tell_rate(RATE_STEP) {
            self.failed = Some(error);
        }
    }

    /// Tells how many instructions ran up to the anchor, if it is so late.
    fn tell_rate(&mut self, step: Picos) -> Result<(), SinkError> {
        let (from, to) = (self.rated, self.anchor);
        if to.at.0 - from.at.0 < step.0 {
            return Ok(());
        }
        self.rated = to;
        self.frames.sink.rate(&Rate {
            track: self.track,
            begin: from.at,
            end: to.at,
            instructions: to.instructions.saturating_sub(from.instructions),
        })
    }

    fn follow_mappings(&mut self, at: Picos) {
        let now = PerfTime(self.base.0 + at.0 / 1000);
        if self.space.changes_at().is_some_and(|change| now >= change) {
            self.space = self.timeline.space(self.pid, now);
        }
    }
}

impl Sink for Builder<'_, '_> {
    fn edge(&mut self, edge: &Edge, instructions: u64) {
        self.wait(instructions, Event::Edge(*edge));
    }

    fn begin(&mut self, ip: Ip, instructions: u64) {
        self.wait(instructions, Event::Begin(ip));
    }

    fn on(&mut self, ip: Ip, instructions: u64) {
        self.wait(instructions, Event::On(ip));
    }

    fn off(&mut self, ip: Ip, next: Ip, cause: OffCause, instructions: u64) {
        self.wait(instructions, Event::Off { ip, next, cause });
    }

    fn anchor(&mut self, instructions: u64, time: Time) {
        if !std::mem::replace(&mut self.timed, true) {
            self.anchor.at = time.at;
            self.rated.at = time.at;
        }
        self.settle(Moment {
            at: time.at,
            instructions: self.before + instructions,
        });
    }

    fn loss(&mut self, loss: Loss, broken: bool, instructions: u64) {
        self.wait(instructions, Event::Loss(Box::new(loss), broken));
    }
}
