//! The rules for what goes on outside of the program: tracing off and on, signals, exec, the kernel's
//! returns, losses.

use ptrail_flow::{Edge, OffCause};
use ptrail_pt::{Ip, Loss, Picos};
use ptrail_trace::{Point, PointKind, SinkError, SpanFlags};

use super::Builder;
use crate::frames::{Frame, Kind, Moment, is_kernel};
use crate::index::Key;
use crate::names::{Place, Pseudo, Role};

/// So many calls that a loss cuts short are named, the innermost ones.
const CUT_SHOWN: usize = 8;

impl Builder<'_, '_> {
    /// IRET, SYSRET or the like.
    pub(super) fn far_return(&mut self, edge: &Edge, now: Moment) -> Result<(), SinkError> {
        if self.frames.find(Key::Return(edge.to)).is_some() {
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
                self.frames
                    .pop_to(0, now, SpanFlags::UNWOUND, SpanFlags::empty())?;
                let place = self.place(edge.to)?;
                self.frames.push_late(place, now);
                Ok(())
            }
        }
    }

    /// Passes the times of new images up to `until`; whether there were any.
    pub(super) fn pass_execs(&mut self, until: Picos) -> bool {
        let mut any = false;
        while self.execs.next_if(|&at| at <= until).is_some() {
            any = true;
        }
        any
    }

    pub(super) fn switched_off(
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
            role: Role::Plain,
        };
        let kind = Kind::Gap {
            from: ip,
            resume: next,
            again: self.last_on.filter(|_| cause == OffCause::Filter),
        };
        self.frames
            .push(Frame::new(kind, place, now, SpanFlags::GAP))
    }

    pub(super) fn switched_on(&mut self, ip: Ip, now: Moment) -> Result<(), SinkError> {
        let (gap, again) = match self.frames.top().map(|top| top.kind) {
            Some(Kind::Gap {
                from,
                resume,
                again,
            }) => (Some((from, resume)), again),
            _ => (None, None),
        };
        self.last_on = Some(ip);
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
            Some((from, resume)) if again != Some(ip) => self.resume(ip, from, resume, now),
            _ => Ok(()),
        }
    }

    /// The kernel, entered at `from`, goes back to `ip`; without special things that is `resume`.
    fn resume(&mut self, ip: Ip, from: Ip, resume: Ip, now: Moment) -> Result<(), SinkError> {
        // A system call that goes on, is made again, or an interrupt that returned.
        if ip == resume || ip == from {
            return Ok(());
        }
        if let Some(index) = self.frames.find(Key::Interrupted(ip)) {
            let none = SpanFlags::empty();
            return self.frames.pop_to(index, now, none, none).map(drop);
        }
        let place = self.place(ip)?;
        if place.entry == Some(ip) {
            return self.deliver_signal(ip, [from, resume], now);
        }
        if self.go_back(ip, place, now)? {
            return Ok(());
        }
        match self.landing(ip, place) {
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
        self.suspended.clear();
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
            role: Role::Plain,
        };
        self.frames.push(Frame::new(
            Kind::Signal(resume),
            place,
            now,
            SpanFlags::ASYNC,
        ))?;
        self.enter(handler, None, now, SpanFlags::ASYNC)
    }

    pub(super) fn lost(
        &mut self,
        mut loss: Loss,
        broken: bool,
        now: Moment,
    ) -> Result<(), SinkError> {
        // Between the anchors around it, like all events.
        loss.begin = loss.begin.clamp(now.at, self.anchor.at);
        loss.end = loss.end.clamp(loss.begin, self.anchor.at);
        self.last.at = loss.end;
        if broken {
            loss.reason += &self.cut_short();
            self.frames.pop_all(now, SpanFlags::CUT)?;
            self.suspended.clear();
            self.connected = false;
            self.complete = false;
        }
        self.frames.sink.loss(self.track, &loss)
    }

    /// Names the calls that a loss cuts short, those around others first; nothing if there is none.
    fn cut_short(&self) -> String {
        let calls = self
            .frames
            .innermost()
            .filter(|frame| frame.kind == Kind::Call);
        let mut names: Vec<_> = calls
            .take(CUT_SHOWN + 1)
            .map(|frame| self.names.name(frame.place.function))
            .collect();
        if names.is_empty() {
            return String::new();
        }
        if let Some(more) = names.get_mut(CUT_SHOWN) {
            *more = "…".into();
        }
        names.reverse();
        format!("; these calls may be longer: {}", names.join(" > "))
    }
}
