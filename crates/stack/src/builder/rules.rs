//! The rules: what each branch event does to the stack.

use ptrail_flow::{Edge, EdgeKind, OffCause};
use ptrail_pt::{Ip, Loss, Picos};
use ptrail_trace::{FunctionId, Point, PointKind, SinkError, SpanFlags};

use super::{Builder, Event};
use crate::frames::{Frame, Frames, Kind, Moment, is_kernel};
use crate::names::{Place, Pseudo};

impl Builder<'_, '_> {
    pub(super) fn apply(&mut self, event: Event, now: Moment) -> Result<(), SinkError> {
        self.first.get_or_insert(now.at);
        match event {
            Event::Begin(ip) if !self.connected => {
                // What is before the part that was recorded is over.
                self.pass_execs(now.at);
                self.start(ip, now)
            }
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
                    EdgeKind::FarReturn => self.far_return(&edge, now),
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

    /// Passes the times of new images up to `until`; whether there were any.
    fn pass_execs(&mut self, until: Picos) -> bool {
        let mut any = false;
        while self.execs.next_if(|&at| at <= until).is_some() {
            any = true;
        }
        any
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
        let place = self.place(edge.to)?;
        let is_entry = place.entry == Some(edge.to);
        // A call to the next instruction only wants its own address; it never returns. (A call that
        // never returns may be the last of its function, and the next function be called.)
        if edge.to == edge.next && !is_entry {
            return Ok(());
        }
        let top = self.frames.top().map(|top| top.place.function);
        if place.entry.is_some() && !is_entry && top == Some(place.function) {
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
        // A call into the middle of a function whose return goes elsewhere made room for a target
        // (retpoline): the function jumps there.
        let called = |frames: &Frames<'_>| frames.top().is_some_and(|top| top.return_to.is_some());
        if self.frames.pop_hidden(now)? && called(&self.frames) {
            return self.jump(edge, now, SpanFlags::empty());
        }
        let place = self.place(to)?;
        // A return used as a jump: to a function's first instruction, or (unwinders) into the
        // middle of an open one. But a frame whose call was not seen just returns to its caller,
        // which may well be the same function.
        if place.entry == Some(to) {
            return self.replace(Some(edge.from), place, now, SpanFlags::TAIL_CALL);
        }
        if (called(&self.frames) || self.complete)
            && let Some(index) = self.landing(place.function)
        {
            return self.land(index, place, now, SpanFlags::UNWOUND);
        }
        // Nothing called a program's first function: it went over to another stack.
        if self.complete {
            return self.replace(Some(edge.from), place, now, SpanFlags::GUESSED);
        }
        // It leaves the part of the stack whose calls were seen.
        self.frames.pop_to(0, now, SpanFlags::UNWOUND)?;
        self.frames.push_late(place, now);
        Ok(())
    }

    /// IRET, SYSRET or the like.
    fn far_return(&mut self, edge: &Edge, now: Moment) -> Result<(), SinkError> {
        let matched = |frame: &Frame| frame.return_to == Some(edge.to);
        if self.frames.innermost(matched).is_some() {
            return self.ret(edge, now);
        }
        if !is_kernel(edge.from) {
            return self.jump(edge, now, SpanFlags::empty());
        }
        // Some entry into the kernel is over, and not by going on behind it.
        let mut entry = None;
        while self.frames.top().is_some_and(Frame::is_kernel) {
            entry = self.frames.pop(now, SpanFlags::empty())?;
        }
        let from = entry.and_then(|entry| entry.call_site.zip(entry.return_to));
        match from {
            Some((from, resume)) => self.resume(edge.to, from, resume, now),
            None => {
                self.frames.pop_to(0, now, SpanFlags::UNWOUND)?;
                let place = self.place(edge.to)?;
                self.frames.push_late(place, now);
                Ok(())
            }
        }
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
            return self.replace(Some(edge.from), place, now, flags | SpanFlags::TAIL_CALL);
        }
        match self.landing(place.function) {
            Some(index) => self.land(index, place, now, flags | SpanFlags::UNWOUND),
            None => self.replace(
                Some(edge.from),
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
        call_site: Option<Ip>,
        place: Place,
        now: Moment,
        flags: SpanFlags,
    ) -> Result<(), SinkError> {
        let old = self.frames.pop(now, SpanFlags::empty())?;
        let mut frame = Frame::new(Kind::Call, place, now, flags);
        frame.call_site = call_site;
        frame.return_to = old.and_then(|frame| frame.return_to);
        self.frames.push(frame)
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
                self.replace(None, place, now, SpanFlags::TAIL_CALL | SpanFlags::GUESSED)
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
        let gap = match self.frames.top().map(|top| top.kind) {
            Some(Kind::Gap { from, resume }) => Some((from, resume)),
            _ => None,
        };
        if self.execs_at(ip, gap, now) {
            self.leave_image(now)?;
            // Else the image began to run before the recording, or while data was lost.
            self.complete = self.place(ip)?.entry == Some(ip);
        } else if gap.is_some() {
            self.frames.pop(now, SpanFlags::empty())?;
        }
        if !self.connected {
            return self.start(ip, now);
        }
        match gap {
            Some((from, resume)) => self.resume(ip, from, resume, now),
            None => Ok(()),
        }
    }

    /// The kernel, entered at `from`, goes back to `ip`; without special things that is `resume`.
    fn resume(&mut self, ip: Ip, from: Ip, resume: Ip, now: Moment) -> Result<(), SinkError> {
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
            None => self.replace(Some(from), place, now, SpanFlags::GUESSED),
        }
    }

    /// Whether a new image begins to run where tracing is switched on at `ip`.
    fn execs_at(&mut self, ip: Ip, gap: Option<(Ip, Ip)>, now: Moment) -> bool {
        match gap {
            // A system call that comes back, or an interrupt, is no exec. One of this time was
            // before, where a loss is.
            Some((from, resume)) if ip == resume || from == resume => {
                self.pass_execs(now.at);
                false
            }
            // It was somewhere between the anchors.
            _ => self.pass_execs(self.anchor.at),
        }
    }

    /// All that was open ends with the old image.
    fn leave_image(&mut self, now: Moment) -> Result<(), SinkError> {
        if self.connected {
            self.frames.sink.point(&Point {
                track: self.track,
                at: now.at,
                kind: PointKind::Exec,
                text: "exec".to_string(),
            })?;
        }
        self.connected = false;
        self.frames.pop_all(now, SpanFlags::empty())
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
        // Between the anchors around it, like all events.
        loss.begin = loss.begin.clamp(now.at, self.anchor.at);
        loss.end = loss.end.clamp(loss.begin, self.anchor.at);
        self.last.at = loss.end;
        if broken {
            self.frames.pop_all(now, SpanFlags::CUT)?;
            self.connected = false;
            self.complete = false;
        }
        self.frames.sink.loss(self.track, &loss)
    }
}
