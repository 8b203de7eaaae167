//! The rules: what each branch event does to the stack.

use ptrail_flow::{Edge, EdgeKind};
use ptrail_pt::Ip;
use ptrail_trace::{SinkError, SpanFlags};

use super::{Builder, Event};
use crate::frames::{Frame, Frames, Kind, Moment};
use crate::index::Key;
use crate::names::{Place, Role};

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
                    EdgeKind::Jump | EdgeKind::Conditional | EdgeKind::JumpIndirect => {
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

    pub(super) fn place(&mut self, ip: Ip) -> Result<Place, SinkError> {
        self.names.place(self.space, ip, self.frames.sink)
    }

    /// A part of the recording begins in the middle of things, or at a program's first instruction.
    pub(super) fn start(&mut self, ip: Ip, now: Moment) -> Result<(), SinkError> {
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

    pub(super) fn enter(
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
        self.push(frame)
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

    pub(super) fn ret(&mut self, edge: &Edge, now: Moment) -> Result<(), SinkError> {
        let to = edge.to;
        if let Some(index) = self.frames.find(Key::Return(to)) {
            return self.leave(index, now, SpanFlags::empty());
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
        if self.go_back(to, place, now)? {
            return Ok(());
        }
        if (called(&self.frames) || self.complete)
            && let Some(index) = self.landing(to, place)
        {
            return self.land(index, place, now, SpanFlags::UNWOUND);
        }
        // Nothing called a program's first function: it went over to another stack.
        if self.complete {
            return self.replace(Some(edge.from), place, now, SpanFlags::GUESSED);
        }
        // It leaves the part of the stack whose calls were seen.
        self.leave(0, now, SpanFlags::empty())?;
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

    pub(super) fn jump(
        &mut self,
        edge: &Edge,
        now: Moment,
        flags: SpanFlags,
    ) -> Result<(), SinkError> {
        let Some(top) = self.frames.top() else {
            return self.start(edge.to, now);
        };
        if top.place.contains(edge.to) {
            return Ok(());
        }
        let Place {
            function: current,
            role,
            ..
        } = top.place;
        let place = self.place(edge.to)?;
        if place.function == current {
            self.move_to(place);
            return Ok(());
        }
        let is_entry = place.entry == Some(edge.to);
        if is_entry && role != Role::Switches {
            return self.replace(Some(edge.from), place, now, flags | SpanFlags::TAIL_CALL);
        }
        // Code that several functions share. But it may be a part of the function that jumped here,
        // of which nothing says so.
        if matches!(edge.kind, EdgeKind::Jump | EdgeKind::Conditional) {
            let mut flags = flags | SpanFlags::TAIL_CALL;
            if self
                .frames
                .top()
                .is_some_and(|top| top.instead_of == Some(place.function))
            {
                flags |= SpanFlags::GUESSED;
            }
            return self.replace(Some(edge.from), place, now, flags);
        }
        // Whoever goes to another stack may jump to where that one was left.
        if let Some(index) = self.frames.find(Key::Return(edge.to)) {
            return self.leave(index, now, flags);
        }
        if self.go_back(edge.to, place, now)? {
            return Ok(());
        }
        if is_entry {
            return self.replace(Some(edge.from), place, now, flags | SpanFlags::TAIL_CALL);
        }
        match self.landing(edge.to, place) {
            Some(index) => self.land(index, place, now, flags | SpanFlags::UNWOUND),
            None => self.replace(
                Some(edge.from),
                place,
                now,
                flags | SpanFlags::TAIL_CALL | SpanFlags::GUESSED,
            ),
        }
    }

    /// The innermost open frame that a non-local jump to `to` may land in: one that called setjmp
    /// there if there is any, else any of that function.
    pub(super) fn landing(&mut self, to: Ip, place: Place) -> Option<usize> {
        let key = Key::Function(place.function);
        let set = |frame: &Frame, _: Option<&Frame>| frame.landing == Some(to);
        let stays = |_: &Frame, callee: Option<&Frame>| {
            callee.is_none_or(|callee| callee.place.role != Role::ResumesUnwinding)
        };
        let set = self.frames.find_where(key, set);
        set.or_else(|| self.frames.find_where(key, stays))
    }

    /// Ends the frames from number `len` on: `to` is where that one returns to.
    fn leave(&mut self, len: usize, now: Moment, flags: SpanFlags) -> Result<(), SinkError> {
        let unwound = flags | SpanFlags::UNWOUND;
        let left = self.frames.pop_to(len, now, unwound, flags)?;
        self.suspended.keep(left);
        Ok(())
    }

    /// Ends the frames inside frame `index`; execution goes on there.
    pub(super) fn land(
        &mut self,
        index: usize,
        place: Place,
        now: Moment,
        flags: SpanFlags,
    ) -> Result<(), SinkError> {
        let left = self.frames.pop_to(index + 1, now, flags, flags)?;
        self.suspended.keep(left);
        self.move_to(place);
        Ok(())
    }

    /// Goes on on another stack that was left behind a call that returns to `to`, if there is one:
    /// it takes the place of the function that went there.
    pub(super) fn go_back(&mut self, to: Ip, place: Place, now: Moment) -> Result<bool, SinkError> {
        let Some(stack) = self.suspended.resume(to, place.function) else {
            return Ok(false);
        };
        let return_to = match self.wrong_stack() {
            Some(outermost) => self.put_back(outermost, now)?,
            None => self.frames.pop(now, SpanFlags::empty())?,
        }
        .and_then(|gone| gone.return_to);
        for (number, frame) in stack.into_iter().enumerate() {
            let mut frame = frame.resumed(now);
            if number == 0 {
                frame.return_to = return_to;
                frame.gone_back = Some(to);
            }
            self.frames.push(frame)?;
        }
        self.move_to(place);
        Ok(true)
    }

    /// If the innermost frame was gone back to, but does not return to where it came from: two stacks
    /// were left at the same place, and this is the wrong one. Number of its outermost frame.
    fn wrong_stack(&self) -> Option<usize> {
        let resumed = |number: &usize| {
            let frame = self.frames.get(*number);
            frame.is_some_and(|frame| frame.flags.contains(SpanFlags::RESUMED))
        };
        let mut frames = (0..self.frames.len()).rev().take_while(resumed);
        frames.find(|&number| {
            self.frames
                .get(number)
                .is_some_and(|frame| frame.gone_back.is_some())
        })
    }

    /// Leaves a stack that was gone back to by mistake as it was before; its outermost frame.
    fn put_back(&mut self, outermost: usize, now: Moment) -> Result<Option<Frame>, SinkError> {
        let frame = self.frames.get(outermost).copied();
        let waits = self
            .frames
            .top()
            .copied()
            .zip(frame.and_then(|frame| frame.gone_back));
        let mut left =
            self.frames
                .pop_to(outermost, now, SpanFlags::UNWOUND, SpanFlags::UNWOUND)?;
        left.extend(waits.map(|(top, to)| top.called_from(to, Some(to))));
        self.suspended.keep(left);
        Ok(frame)
    }

    /// The innermost frame goes on in another part of the same function.
    fn move_to(&mut self, place: Place) {
        if let Some(top) = self.frames.top_mut() {
            top.place = place;
        }
    }

    /// Tail call: the innermost frame ends, another takes over its return address.
    pub(super) fn replace(
        &mut self,
        call_site: Option<Ip>,
        place: Place,
        now: Moment,
        flags: SpanFlags,
    ) -> Result<(), SinkError> {
        let old = self.frames.pop(now, SpanFlags::empty())?;
        let mut frame = Frame::new(Kind::Call, place, now, flags);
        frame.call_site = call_site;
        frame.return_to = old.and_then(|old| old.return_to);
        frame.instead_of = old.map(|old| old.place.function);
        self.push(frame)
    }

    fn push(&mut self, mut frame: Frame) -> Result<(), SinkError> {
        if let Some(caller) = self.frames.top_mut() {
            match frame.place.role {
                Role::ReturnsTwice => caller.landing = frame.return_to,
                Role::RestartsCaller => frame.return_to = caller.place.entry,
                _ => {}
            }
        }
        self.frames.push(frame)
    }

    /// Execution may have run from one function into the next without a branch.
    pub(super) fn fall_through(&mut self, ip: Ip, now: Moment) -> Result<(), SinkError> {
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
}
