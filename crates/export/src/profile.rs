//! Profiles: the calls of a recording added up, without their order.
//!
//! All formats here are made from the same sums, a tree of call paths for each thread, when the
//! stream ends:
//!
//! * *Folded stacks*: a line for each call path, `demo;main;parse 1200`, with the time or the
//!   instructions spent in its innermost function alone. The first frame is the thread's name.
//! * *Callgrind*: each function's own time and instructions; for each pair of caller and callee the
//!   number of calls and their inclusive time and instructions. A call counts inclusively only if
//!   the callee is not on the stack already, so recursion never adds up to more than the whole.
//! * *pprof*: for each thread's call paths calls, own instructions and own time.
//!
//! Nothing is sampled and nothing is scaled: calls, nanoseconds and instructions are exact as far
//! as the spans are. Losses and points have no place in profiles. A function that was still open
//! when data was lost counts as one call.

use std::{io, path::Path};

use ptrail_pt::Loss;
use ptrail_trace::{
    Function, FunctionId, Opened, Recording, SinkError, Span, SpanSink, Track, TrackId, TrackKind,
};

use crate::{
    callgrind,
    calls::{Calls, Misuse, Paths},
    folded,
    output::Output,
    pprof,
};

/// A format for profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileKind {
    /// Folded stacks: nanoseconds in the innermost function.
    FoldedTime,
    /// Folded stacks: instructions in the innermost function.
    FoldedInstructions,
    /// Callgrind's output format.
    Callgrind,
    /// pprof's protobuf.
    Pprof,
}

/// Writes a profile.
pub struct ProfileWriter {
    output: Output,
    kind: ProfileKind,
    profile: Profile,
}

/// What a profile is written from.
#[derive(Default)]
pub(crate) struct Profile {
    pub(crate) recording: Option<Recording>,
    functions: Vec<Option<Function>>,
    tracks: Vec<(Track, Calls)>,
    /// Nanoseconds since the base of the last event.
    pub(crate) last: u64,
}

/// The calls of one thread, or of several.
pub(crate) struct ThreadPaths {
    /// The first of the threads.
    pub(crate) track: Track,
    pub(crate) paths: Paths,
}

impl ProfileWriter {
    /// Opens an output; the file appears under `path` in [`SpanSink::finish`].
    ///
    /// # Errors
    /// No temporary file can be made in the folder of `path`, or `path` is a folder.
    pub fn create(kind: ProfileKind, path: &Path) -> Result<Self, SinkError> {
        Ok(Self {
            output: Output::create(path)?,
            kind,
            profile: Profile::default(),
        })
    }

    /// The calls of a track, if it and the function were announced.
    fn calls(&mut self, track: TrackId, function: FunctionId) -> Result<&mut Calls, SinkError> {
        if self.profile.function(function).is_none() {
            return Err(self.output.unknown_function(function));
        }
        match self.profile.tracks.get_mut(track.0 as usize) {
            Some((_, calls)) => Ok(calls),
            None => Err(self.output.unknown_track(track)),
        }
    }
}

impl SpanSink for ProfileWriter {
    fn begin(&mut self, recording: &Recording) -> Result<(), SinkError> {
        self.profile.recording = Some(recording.clone());
        Ok(())
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        if track.id.0 as usize != self.profile.tracks.len() {
            return Err(self.output.track_out_of_order(track.id));
        }
        self.profile.tracks.push((track.clone(), Calls::new()));
        Ok(())
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        let functions = &mut self.profile.functions;
        let index = function.id.0 as usize;
        if functions.len() <= index {
            functions.resize_with(index + 1, || None);
        }
        functions[index] = Some(function.clone());
        Ok(())
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        self.calls(opened.track, opened.function)?.open(opened);
        Ok(())
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        self.profile.last = self.profile.last.max(span.end.0 / 1000);
        let taken = self.calls(span.track, span.function)?.span(span);
        taken.map_err(|misuse| match misuse {
            Misuse::NothingOpen => self.output.nothing_open(span.track),
            Misuse::StillOpen => self.output.still_open(span.track),
        })
    }

    fn loss(&mut self, track: TrackId, _loss: &Loss) -> Result<(), SinkError> {
        match self.profile.tracks.get_mut(track.0 as usize) {
            Some((_, calls)) => calls.lose(),
            None => return Err(self.output.unknown_track(track)),
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        let profile = std::mem::take(&mut self.profile);
        let written = match self.kind {
            ProfileKind::FoldedTime => {
                folded::write(profile, folded::Weight::Time, &mut self.output)
            }
            ProfileKind::FoldedInstructions => {
                folded::write(profile, folded::Weight::Instructions, &mut self.output)
            }
            ProfileKind::Callgrind => callgrind::write(profile, &mut self.output),
            ProfileKind::Pprof => pprof::write(profile, &mut self.output),
        };
        written.map_err(|error: io::Error| self.output.failed(error))?;
        self.output.finish()
    }
}

impl Profile {
    /// A function that was announced.
    pub(crate) fn function(&self, function: FunctionId) -> Option<&Function> {
        self.functions.get(function.0 as usize)?.as_ref()
    }

    /// Numbers of functions are below this.
    pub(crate) fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// All functions that were announced.
    pub(crate) fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().flatten()
    }

    /// Hands out the calls, those of tracks with equal keys as one, in the order of the tracks.
    pub(crate) fn take_paths<K: PartialEq>(
        &mut self,
        key: impl Fn(&Track) -> K,
    ) -> Vec<ThreadPaths> {
        let mut groups = Vec::<(Track, Vec<Calls>)>::new();
        for (track, calls) in std::mem::take(&mut self.tracks) {
            let same = |group: &&mut (Track, Vec<Calls>)| key(&group.0) == key(&track);
            match groups.iter_mut().find(same) {
                Some((_, group)) => group.push(calls),
                None => groups.push((track, vec![calls])),
            }
        }
        let paths = |(track, calls)| ThreadPaths {
            track,
            paths: Calls::finish(calls),
        };
        groups.into_iter().map(paths).collect()
    }

    /// The process, if there is but one.
    pub(crate) fn only_process(&self) -> Option<u32> {
        let mut pids = self.tracks.iter().map(|(track, _)| {
            let TrackKind::Thread { pid, .. } = track.kind;
            pid
        });
        let first = pids.next()?;
        pids.all(|pid| pid == first).then_some(first)
    }
}
