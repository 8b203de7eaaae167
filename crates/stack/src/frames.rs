//! The stack of open frames, and the spans that leave it.

use ptrail_pt::{Ip, Picos};
use ptrail_trace::{FunctionId, Opened, SinkError, Span, SpanFlags, SpanSink, TrackId};

use crate::index::{Index, Key, Keys};
use crate::names::Place;

/// So many innermost frames are looked through without an index.
const NEAR: usize = 64;
/// Of a larger number of frames left at once it is not told which they were.
pub(crate) const MOST_LEFT: usize = 1 << 16;
/// At most so many frames of one function are looked at.
const CANDIDATES: usize = 1024;

/// A moment: time and instructions executed so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) at: Picos,
    pub(crate) instructions: u64,
}

impl Moment {
    /// Before anything.
    pub(crate) const START: Self = Self {
        at: Picos(0),
        instructions: 0,
    };
}

/// How a frame came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A function that runs or waits for a callee.
    Call,
    /// A call into the middle of the function that makes it (a thunk that only wants its own
    /// address, a retpoline): matched like a call, but no span.
    Hidden,
    /// Time outside the traced code, with the address at which it began and the one behind it.
    Gap {
        /// The instruction that left, or that was interrupted.
        from: Ip,
        /// Where execution goes on if nothing special happens.
        resume: Ip,
        /// If it is not said what switched tracing off: where it was switched on before. If it is
        /// there again, nothing had executed.
        again: Option<Ip>,
    },
    /// A signal, with the two addresses at which the interrupted code may go on.
    Signal([Ip; 2]),
}

/// An open frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) place: Place,
    pub(crate) begin: Moment,
    /// Where it returns to, if its call was seen.
    pub(crate) return_to: Option<Ip>,
    pub(crate) call_site: Option<Ip>,
    pub(crate) flags: SpanFlags,
    /// Where a function returned that may return there again (setjmp), if it called one.
    pub(crate) landing: Option<Ip>,
    /// The function whose place it took, by a jump.
    pub(crate) instead_of: Option<FunctionId>,
    /// The outermost frame of a stack that was gone back to: at this address.
    pub(crate) gone_back: Option<Ip>,
    depth: i32,
    /// Instructions executed by the frames it called.
    called: u64,
}

impl Frame {
    pub(crate) fn new(kind: Kind, place: Place, begin: Moment, flags: SpanFlags) -> Self {
        Self {
            kind,
            place,
            begin,
            return_to: None,
            call_site: None,
            flags,
            landing: None,
            instead_of: None,
            gone_back: None,
            depth: 0,
            called: 0,
        }
    }

    pub(crate) fn called_from(mut self, call_site: Ip, return_to: Option<Ip>) -> Self {
        self.call_site = Some(call_site);
        self.return_to = return_to;
        self
    }

    /// The rest of it, from now on.
    pub(crate) fn resumed(mut self, now: Moment) -> Self {
        self.begin = now;
        self.called = 0;
        self.gone_back = None;
        self.flags = (self.flags - SpanFlags::INFERRED - SpanFlags::LATE) | SpanFlags::RESUMED;
        self
    }

    /// What it can be found by.
    fn keys(&self) -> Keys {
        let return_to = self.return_to.map(Key::Return);
        match self.kind {
            Kind::Call => [return_to, Some(Key::Function(self.place.function))],
            Kind::Hidden | Kind::Gap { .. } => [return_to, None],
            Kind::Signal([one, other]) => {
                let other = (other != one).then_some(Key::Interrupted(other));
                [Some(Key::Interrupted(one)), other]
            }
        }
    }

    /// Whether it runs in the kernel.
    pub(crate) fn is_kernel(&self) -> bool {
        is_kernel(self.place.range.0)
    }
}

/// Whether this is the kernel's half of the address space.
pub(crate) fn is_kernel(ip: Ip) -> bool {
    ip.0 >> 63 == 1
}

/// The open frames of one thread, outermost first.
pub(crate) struct Frames<'s> {
    pub(crate) sink: &'s mut dyn SpanSink,
    track: TrackId,
    frames: Vec<Frame>,
    /// Of all frames, since one far from the innermost was looked for.
    index: Option<Index>,
    /// Depth of the next outermost frame; callers found late go below zero.
    base_depth: i32,
    /// When the part of the recording that hangs together began.
    base: Moment,
    pub(crate) deepest: usize,
    pub(crate) spans: u64,
}

impl<'s> Frames<'s> {
    pub(crate) fn new(sink: &'s mut dyn SpanSink, track: TrackId) -> Self {
        let base = Moment::START;
        Self {
            sink,
            track,
            frames: Vec::new(),
            index: None,
            base_depth: 0,
            base,
            deepest: 0,
            spans: 0,
        }
    }

    pub(crate) fn top(&self) -> Option<&Frame> {
        self.frames.last()
    }

    pub(crate) fn top_mut(&mut self) -> Option<&mut Frame> {
        self.frames.last_mut()
    }

    /// All frames, the innermost first.
    pub(crate) fn innermost(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter().rev()
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Frame> {
        self.frames.get(index)
    }

    /// Number of the innermost frame with this key.
    pub(crate) fn find(&mut self, key: Key) -> Option<usize> {
        self.find_where(key, |_, _| true)
    }

    /// Number of the innermost frame with this key for which `fits` holds: it is given the frame and
    /// the one that it called.
    pub(crate) fn find_where(
        &mut self,
        key: Key,
        fits: impl Fn(&Frame, Option<&Frame>) -> bool,
    ) -> Option<usize> {
        let frames = &self.frames;
        let keys = |number: usize| frames.get(number).map_or([None; 2], Frame::keys);
        let fits = |&number: &usize| {
            let frame = frames
                .get(number)
                .filter(|_| keys(number).contains(&Some(key)));
            frame.is_some_and(|frame| fits(frame, frames.get(number + 1)))
        };
        let far = frames.len().saturating_sub(NEAR);
        let near = (far..frames.len()).rev().find(fits);
        if near.is_some() || far == 0 {
            return near;
        }
        let index = self.index.get_or_insert_with(|| {
            let mut index = Index::default();
            frames.iter().for_each(|frame| index.push(frame.keys()));
            index
        });
        index.frames(key, keys).take(CANDIDATES).find(fits)
    }

    /// A new part begins: nothing before `base` is connected with it.
    pub(crate) fn restart(&mut self, base: Moment) {
        debug_assert!(self.frames.is_empty(), "a part begins with an empty stack");
        self.base = base;
        self.base_depth = 0;
    }

    /// Enters a frame.
    pub(crate) fn push(&mut self, mut frame: Frame) -> Result<(), SinkError> {
        frame.depth = match self.frames.last() {
            Some(parent) => parent.depth + i32::from(parent.kind != Kind::Hidden),
            None => self.base_depth,
        };
        if frame.is_kernel() {
            frame.flags |= SpanFlags::KERNEL;
        }
        if frame.kind != Kind::Hidden {
            self.sink.open(&Opened {
                track: self.track,
                function: frame.place.function,
                begin: frame.begin.at,
                call_site: frame.call_site,
                flags: frame.flags,
            })?;
        }
        self.add(frame);
        Ok(())
    }

    fn add(&mut self, frame: Frame) {
        if let Some(index) = &mut self.index {
            index.push(frame.keys());
        }
        self.frames.push(frame);
        self.deepest = self.deepest.max(self.frames.len());
    }

    /// A caller shows itself that was entered before this part began: it becomes the outermost
    /// frame, from the part's beginning on.
    pub(crate) fn push_late(&mut self, place: Place, now: Moment) {
        debug_assert!(
            self.frames.is_empty(),
            "a late caller is found when all it called are gone"
        );
        self.base_depth -= 1;
        let mut frame = Frame::new(
            Kind::Call,
            place,
            self.base,
            SpanFlags::INFERRED | SpanFlags::LATE,
        );
        if frame.is_kernel() {
            frame.flags |= SpanFlags::KERNEL;
        }
        frame.depth = self.base_depth;
        frame.called = now.instructions - self.base.instructions;
        self.add(frame);
    }

    /// Leaves the innermost frame.
    pub(crate) fn pop(
        &mut self,
        now: Moment,
        flags: SpanFlags,
    ) -> Result<Option<Frame>, SinkError> {
        let Some(frame) = self.frames.pop() else {
            return Ok(None);
        };
        match &mut self.index {
            Some(index) if self.frames.len() > NEAR => index.pop(frame.keys()),
            index => *index = None,
        }
        let instructions = now.instructions - frame.begin.instructions;
        let hidden = frame.kind == Kind::Hidden;
        if let Some(parent) = self.frames.last_mut() {
            parent.called += if hidden { frame.called } else { instructions };
        }
        if hidden {
            return Ok(Some(frame));
        }
        self.spans += 1;
        self.sink.span(&Span {
            track: self.track,
            function: frame.place.function,
            begin: frame.begin.at,
            end: now.at,
            depth: frame.depth,
            call_site: frame.call_site,
            instructions,
            self_instructions: instructions - frame.called,
            flags: frame.flags | flags,
        })?;
        Ok(Some(frame))
    }

    /// Leaves the innermost frames as far as they are hidden; whether there were any.
    pub(crate) fn pop_hidden(&mut self, now: Moment) -> Result<bool, SinkError> {
        let mut any = false;
        while self.top().is_some_and(|top| top.kind == Kind::Hidden) {
            self.pop(now, SpanFlags::empty())?;
            any = true;
        }
        Ok(any)
    }

    /// Leaves frames until `len` are left; all but the outermost of them, which gets `outermost`,
    /// get `flags`. Tells which they were, outermost first, if there were several.
    pub(crate) fn pop_to(
        &mut self,
        len: usize,
        now: Moment,
        flags: SpanFlags,
        outermost: SpanFlags,
    ) -> Result<Vec<Frame>, SinkError> {
        let count = self.frames.len().saturating_sub(len);
        let left = match count {
            2..=MOST_LEFT => self.frames.get(len..).map_or_else(Vec::new, <[_]>::to_vec),
            _ => Vec::new(),
        };
        for number in (0..count).rev() {
            self.pop(now, if number == 0 { outermost } else { flags })?;
        }
        Ok(left)
    }

    /// Leaves all frames, each with `flags`.
    pub(crate) fn pop_all(&mut self, now: Moment, flags: SpanFlags) -> Result<(), SinkError> {
        while self.pop(now, flags)?.is_some() {}
        Ok(())
    }
}
