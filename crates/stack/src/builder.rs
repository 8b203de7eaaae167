//! The rules: what each branch event does to the stack.

use ptrail_flow::{Edge, EdgeKind, OffCause, Sink};
use ptrail_image::{AddressSpace, Timeline};
use ptrail_pt::{Ip, Loss, PerfTime, Picos, Time};
use ptrail_trace::{FunctionId, Point, PointKind, SinkError, SpanFlags, SpanSink, TrackId};

use crate::frames::{Frame, Frames, Kind, Moment};
use crate::names::{Names, Place, Pseudo};

/// Events that may wait for the next anchor; more than any sane distance between two timing
/// packets, so only a trace without time gets here.
const PENDING_LIMIT: usize = 1 << 16;

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
    names: Names<'a>,
    frames: Frames<'s>,
    track: TrackId,
    /// Times at which the process began to run a new image, still to come.
    execs: std::iter::Peekable<std::vec::IntoIter<Picos>>,
    pending: Vec<(u64, Event)>,
    /// Instructions of the segments before this one.
    before: u64,
    anchor: Moment,
    /// Where the path stood when the last event came; `None` before the first and after a loss.
    connected: bool,
    /// The stack is known from the program's first instruction on.
    complete: bool,
    first: Option<Picos>,
    failed: Option<SinkError>,
}

impl<'a, 's> Builder<'a, 's> {
    /// A builder for the thread shown on `track`, of process `pid`, whose functions are found in
    /// `timeline`. `base` is the perf-clock time of picosecond zero; `execs` are the times at which
    /// the process began to run a new image, its first one included.
    pub fn new(
        timeline: &'a Timeline,
        pid: u32,
        base: PerfTime,
        execs: Vec<Picos>,
        track: TrackId,
        sink: &'s mut dyn SpanSink,
    ) -> Self {
        Self {
            timeline,
            pid,
            base,
            space: timeline.space(pid, base),
            names: Names::new(timeline),
            frames: Frames::new(sink, track),
            track,
            execs: execs.into_iter().peekable(),
            pending: Vec::new(),
            before: 0,
            anchor: Moment {
                at: Picos(0),
                instructions: 0,
            },
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
        let end = Moment {
            at: self.anchor.at,
            instructions: self.before,
        };
        self.settle(end);
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.frames.pop_all(end, SpanFlags::CUT)?;
        Ok(Summary {
            instructions: self.before,
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
            self.follow_mappings(at);
            if let Err(error) = self.apply(event, Moment { at, instructions }) {
                self.failed = Some(error);
            }
        }
        self.follow_mappings(self.anchor.at);
    }

    fn follow_mappings(&mut self, at: Picos) {
        let now = PerfTime(self.base.0 + at.0 / 1000);
        if self.space.changes_at().is_some_and(|change| now >= change) {
            self.space = self.timeline.space(self.pid, now);
        }
    }

    // ---- rules ----

    fn apply(&mut self, event: Event, now: Moment) -> Result<(), SinkError> {
        self.first.get_or_insert(now.at);
        match event {
            Event::Begin(ip) if !self.connected => self.start(ip, now),
            Event::Begin(_) => Ok(()),
            Event::On(ip) => self.switched_on(ip, now),
            Event::Off { ip, next, cause } => self.switched_off(ip, next, cause, now),
            Event::Loss(loss, broken) => self.lost(*loss, broken, now),
            Event::Edge(edge) => {
                self.fall_through(edge.from, now)?;
                match edge.kind {
                    EdgeKind::Call => self.call(&edge, now),
                    EdgeKind::Return => self.ret(&edge, now),
                    EdgeKind::Jump | EdgeKind::Conditional => {
                        self.jump(&edge, now, SpanFlags::empty())
                    }
                    EdgeKind::Far
                        if self
                            .frames
                            .innermost(|f| f.return_to == Some(edge.to))
                            .is_some() =>
                    {
                        self.ret(&edge, now)
                    }
                    EdgeKind::Far if self.stays(edge.to) => Ok(()),
                    EdgeKind::Far => self.enter(
                        edge.to,
                        Some((edge.from, edge.next)),
                        now,
                        SpanFlags::empty(),
                    ),
                    EdgeKind::Async => {
                        self.enter(edge.to, Some((edge.from, edge.next)), now, SpanFlags::ASYNC)
                    }
                    EdgeKind::TsxAbort => self.jump(&edge, now, SpanFlags::ABORTED),
                }
            }
        }
    }

    /// Whether `ip` lies in the function that runs.
    fn stays(&self, ip: Ip) -> bool {
        self.frames.top().is_some_and(|top| top.place.contains(ip))
    }

    fn place(&mut self, ip: Ip) -> Result<Place, SinkError> {
        self.names.place(self.space, ip, self.frames.sink)
    }

    /// A part of the recording begins in the middle of things, or at a program's first instruction.
    fn start(&mut self, ip: Ip, now: Moment) -> Result<(), SinkError> {
        self.connected = true;
        self.frames.restart(now);
        let place = self.place(ip)?;
        let flags = if place.entry == Some(ip) {
            SpanFlags::empty()
        } else {
            SpanFlags::INFERRED
        };
        self.frames.push(Frame::new(Kind::Call, place, now, flags))
    }

    fn enter(
        &mut self,
        to: Ip,
        call: Option<(Ip, Ip)>,
        now: Moment,
        flags: SpanFlags,
    ) -> Result<(), SinkError> {
        let place = self.place(to)?;
        let mut frame = Frame::new(Kind::Call, place, now, flags);
        if let Some((call_site, return_to)) = call {
            frame = frame.called_from(call_site, Some(return_to));
        }
        self.frames.push(frame)
    }

    fn call(&mut self, edge: &Edge, now: Moment) -> Result<(), SinkError> {
        // A call to the next instruction only wants its own address; it never returns.
        if edge.to == edge.next {
            return Ok(());
        }
        let within = self
            .frames
            .top()
            .map(|top| top.place)
            .filter(|place| place.contains(edge.to) && place.entry != Some(edge.to));
        if let Some(place) = within {
            let frame = Frame::new(Kind::Hidden, place, now, SpanFlags::empty());
            return self
                .frames
                .push(frame.called_from(edge.from, Some(edge.next)));
        }
        self.enter(
            edge.to,
            Some((edge.from, edge.next)),
            now,
            SpanFlags::empty(),
        )
    }

    fn ret(&mut self, edge: &Edge, now: Moment) -> Result<(), SinkError> {
        let to = edge.to;
        if let Some(index) = self.frames.innermost(|frame| frame.return_to == Some(to)) {
            return self.frames.pop_to(index, now, SpanFlags::UNWOUND);
        }
        if self.returns_from_handler() {
            self.frames.pop(now, SpanFlags::empty())?;
            return self.enter(to, None, now, SpanFlags::empty());
        }
        let place = self.place(to)?;
        // A return used as a jump: to a function's first instruction, or (unwinders) into the
        // middle of an open one.
        if place.entry == Some(to) {
            return self.replace(edge.from, place, now, SpanFlags::TAIL_CALL);
        }
        if let Some(index) = self.landing(place.function) {
            return self.land(index, place, now, SpanFlags::UNWOUND);
        }
        // Nothing called a program's first function: it went over to another stack.
        if self.complete {
            return self.replace(edge.from, place, now, SpanFlags::GUESSED);
        }
        // It leaves the part of the stack whose calls were seen.
        self.frames.pop_all(now, SpanFlags::empty())?;
        self.frames.push_late(place, now);
        Ok(())
    }

    /// Whether the innermost frame is a signal handler itself, whose return address the kernel set.
    fn returns_from_handler(&self) -> bool {
        let parent = self
            .frames
            .len()
            .checked_sub(2)
            .and_then(|index| self.frames.get(index));
        self.frames.top().is_some_and(|top| top.return_to.is_none())
            && parent.is_some_and(|parent| matches!(parent.kind, Kind::Signal(_)))
    }

    fn jump(&mut self, edge: &Edge, now: Moment, flags: SpanFlags) -> Result<(), SinkError> {
        let Some(top) = self.frames.top() else {
            return self.start(edge.to, now);
        };
        if top.place.contains(edge.to) {
            return Ok(());
        }
        let current = top.place.function;
        let place = self.place(edge.to)?;
        if place.function == current {
            self.move_to(place);
            return Ok(());
        }
        if place.entry == Some(edge.to) {
            return self.replace(edge.from, place, now, flags | SpanFlags::TAIL_CALL);
        }
        match self.landing(place.function) {
            Some(index) => self.land(index, place, now, flags | SpanFlags::UNWOUND),
            None => self.replace(
                edge.from,
                place,
                now,
                flags | SpanFlags::TAIL_CALL | SpanFlags::GUESSED,
            ),
        }
    }

    /// The innermost open frame of `function` that a non-local jump may land in.
    fn landing(&self, function: FunctionId) -> Option<usize> {
        let mut leaving = false;
        (0..self.frames.len()).rev().find(|&index| {
            let Some(frame) = self.frames.get(index) else {
                return false;
            };
            let candidate =
                !leaving && frame.kind == Kind::Call && frame.place.function == function;
            leaving = self.names.resumes_unwinding(frame.place.function);
            candidate
        })
    }

    /// Ends the frames inside frame `index`; execution goes on there.
    fn land(
        &mut self,
        index: usize,
        place: Place,
        now: Moment,
        flags: SpanFlags,
    ) -> Result<(), SinkError> {
        while self.frames.len() > index + 1 {
            self.frames.pop(now, flags)?;
        }
        self.move_to(place);
        Ok(())
    }

    /// The innermost frame goes on in another part of the same function.
    fn move_to(&mut self, place: Place) {
        if let Some(top) = self.frames.top_mut() {
            top.place = place;
        }
    }

    /// Tail call: the innermost frame ends, another takes over its return address.
    fn replace(
        &mut self,
        from: Ip,
        place: Place,
        now: Moment,
        flags: SpanFlags,
    ) -> Result<(), SinkError> {
        let return_to = self
            .frames
            .pop(now, SpanFlags::empty())?
            .and_then(|frame| frame.return_to);
        self.frames
            .push(Frame::new(Kind::Call, place, now, flags).called_from(from, return_to))
    }

    /// Execution may have run from one function into the next without a branch.
    fn fall_through(&mut self, ip: Ip, now: Moment) -> Result<(), SinkError> {
        match self.frames.top() {
            None => self.start(ip, now),
            Some(top) if top.place.contains(ip) => Ok(()),
            Some(top) => {
                let current = top.place.function;
                let place = self.place(ip)?;
                if place.function == current {
                    self.move_to(place);
                    return Ok(());
                }
                self.replace(ip, place, now, SpanFlags::TAIL_CALL | SpanFlags::GUESSED)
            }
        }
    }

    fn switched_off(
        &mut self,
        ip: Ip,
        next: Ip,
        cause: OffCause,
        now: Moment,
    ) -> Result<(), SinkError> {
        self.fall_through(ip, now)?;
        let pseudo = match cause {
            OffCause::Syscall => Pseudo::Syscall,
            OffCause::Async => Pseudo::Interrupt,
            OffCause::FarTransfer | OffCause::Filter => Pseudo::Untraced,
        };
        let function = self.names.pseudo(pseudo, self.frames.sink)?;
        let place = Place {
            function,
            entry: None,
            range: (ip, ip),
        };
        let kind = Kind::Gap {
            from: ip,
            resume: next,
        };
        self.frames
            .push(Frame::new(kind, place, now, SpanFlags::GAP))
    }

    fn switched_on(&mut self, ip: Ip, now: Moment) -> Result<(), SinkError> {
        if self.execs.next_if(|&at| at <= now.at).is_some() {
            if self.connected {
                let (track, at, text) = (self.track, now.at, "exec".to_string());
                self.frames.sink.point(&Point {
                    track,
                    at,
                    kind: PointKind::Exec,
                    text,
                })?;
            }
            self.frames.pop_all(now, SpanFlags::empty())?;
            self.connected = false;
            self.complete = true;
        }
        let gap = match self.frames.top().map(|top| top.kind) {
            Some(Kind::Gap { from, resume }) => {
                self.frames.pop(now, SpanFlags::empty())?;
                Some((from, resume))
            }
            _ => None,
        };
        if !self.connected {
            return self.start(ip, now);
        }
        let Some((from, resume)) = gap else {
            return Ok(());
        };
        // A system call that goes on, is made again, or an interrupt that returned.
        if ip == resume || ip == from {
            return Ok(());
        }
        if let Some(index) = self
            .frames
            .innermost(|frame| matches!(frame.kind, Kind::Signal(at) if at.contains(&ip)))
        {
            return self.frames.pop_to(index, now, SpanFlags::empty());
        }
        let place = self.place(ip)?;
        if place.entry == Some(ip) {
            return self.deliver_signal(ip, [from, resume], now);
        }
        match self.landing(place.function) {
            Some(index) => self.land(index, place, now, SpanFlags::UNWOUND),
            None => self.replace(from, place, now, SpanFlags::GUESSED),
        }
    }

    /// The kernel entered a signal handler.
    fn deliver_signal(
        &mut self,
        handler: Ip,
        resume: [Ip; 2],
        now: Moment,
    ) -> Result<(), SinkError> {
        let function = self.names.pseudo(Pseudo::Signal, self.frames.sink)?;
        let place = Place {
            function,
            entry: None,
            range: (resume[0], resume[0]),
        };
        self.frames.push(Frame::new(
            Kind::Signal(resume),
            place,
            now,
            SpanFlags::ASYNC,
        ))?;
        self.enter(handler, None, now, SpanFlags::ASYNC)
    }

    fn lost(&mut self, mut loss: Loss, broken: bool, now: Moment) -> Result<(), SinkError> {
        loss.begin = loss.begin.max(now.at);
        loss.end = loss.end.max(loss.begin);
        if broken {
            self.frames.pop_all(now, SpanFlags::CUT)?;
            self.connected = false;
            self.complete = false;
        }
        self.frames.sink.loss(self.track, &loss)
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
        self.settle(Moment {
            at: time.at,
            instructions: self.before + instructions,
        });
    }

    fn loss(&mut self, loss: Loss, broken: bool, instructions: u64) {
        self.wait(instructions, Event::Loss(Box::new(loss), broken));
    }
}
