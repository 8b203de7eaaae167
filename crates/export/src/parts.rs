//! Where a track's late begins belong.
//!
//! A track falls into parts: from its start or the end of a loss to the next loss. Each part
//! begins on an empty stack, behind a loss or with a function whose call was not seen. A caller found late
//! encloses its part from the start, so its begin belongs in front of the part's first event, in
//! the file as in time: viewers break ties by the order in the file, and some do not sort at all.

use std::collections::VecDeque;

use ptrail_pt::Picos;
use ptrail_trace::{Opened, Span, SpanFlags};

/// Parts that are remembered. One would do for a stream that closes everything before a new part;
/// a few more keep the order right when a function with an unseen call is entered in the middle.
const REMEMBERED: usize = 16;

struct Part {
    /// File position of its first event.
    place: u64,
    /// Time of the last event before it, so the earliest begin that may stand there.
    earliest: Picos,
}

/// The parts of one track, and how many functions are open on it.
#[derive(Default)]
pub(crate) struct Parts {
    parts: VecDeque<Part>,
    open: u32,
    last: Picos,
    /// A loss came, so the next event is a part's first.
    lost: bool,
}

impl Parts {
    /// Takes in an `open` whose event will stand at `position`. The result is its level: the
    /// number of spans around it, not counting late ones.
    pub(crate) fn open(&mut self, opened: &Opened, position: u64) -> u32 {
        let unseen = self.open == 0 && opened.flags.contains(SpanFlags::INFERRED);
        if unseen || self.lost || self.parts.is_empty() {
            self.start(position);
        }
        self.last = self.last.max(opened.begin);
        let level = self.open;
        self.open += 1;
        level
    }

    /// Takes in a span that had an `open`. The result is the level that its `open` had; `None`
    /// if nothing is open.
    pub(crate) fn close(&mut self, span: &Span) -> Option<u32> {
        self.last = self.last.max(span.end);
        self.open = self.open.checked_sub(1)?;
        Some(self.open)
    }

    /// Takes in a loss. If it cuts the track, everything was closed before.
    pub(crate) fn lose(&mut self) {
        self.lost = self.open == 0;
    }

    /// Takes in a late span whose end will stand at `position`. The result is the place of its
    /// begin.
    pub(crate) fn late(&mut self, span: &Span, position: u64) -> u64 {
        if self.lost || self.parts.is_empty() {
            self.start(position);
        }
        self.last = self.last.max(span.end);
        let fitting = self
            .parts
            .iter()
            .rev()
            .find(|part| part.earliest <= span.begin);
        fitting
            .or(self.parts.front())
            .map_or(position, |part| part.place)
    }

    fn start(&mut self, place: u64) {
        self.lost = false;
        if self.parts.len() == REMEMBERED {
            self.parts.pop_front();
        }
        self.parts.push_back(Part {
            place,
            earliest: self.last,
        });
    }
}

#[cfg(test)]
mod tests {
    use ptrail_trace::{FunctionId, TrackId};

    use super::*;

    fn opened(begin: u64, flags: SpanFlags) -> Opened {
        Opened {
            track: TrackId(0),
            function: FunctionId(0),
            begin: Picos(begin),
            call_site: None,
            flags,
        }
    }

    fn span(begin: u64, end: u64) -> Span {
        Span {
            track: TrackId(0),
            function: FunctionId(0),
            begin: Picos(begin),
            end: Picos(end),
            depth: 0,
            call_site: None,
            instructions: 0,
            self_instructions: 0,
            flags: SpanFlags::empty(),
        }
    }

    #[test]
    fn late_begins_go_to_the_start_of_their_own_part() {
        let mut parts = Parts::default();
        assert_eq!(parts.open(&opened(5, SpanFlags::INFERRED), 100), 0);
        assert_eq!(parts.close(&span(5, 8)), Some(0));
        assert_eq!(parts.open(&opened(8, SpanFlags::empty()), 200), 0);
        assert_eq!(parts.open(&opened(9, SpanFlags::empty()), 250), 1);
        assert_eq!(parts.close(&span(9, 9)), Some(1));
        assert_eq!(parts.close(&span(8, 10)), Some(0));
        assert_eq!(parts.late(&span(5, 10), 300), 100);
        // After a loss from 10 to 10: the new part starts at the old one's last time.
        assert_eq!(parts.open(&opened(10, SpanFlags::INFERRED), 400), 0);
        assert_eq!(parts.close(&span(10, 11)), Some(0));
        assert_eq!(parts.late(&span(10, 11), 500), 400);
        assert_eq!(parts.late(&span(5, 12), 600), 100);
        assert_eq!(parts.close(&span(5, 12)), None);
    }

    #[test]
    fn a_loss_ends_a_part_even_if_what_follows_it_was_left_out() {
        let mut parts = Parts::default();
        parts.open(&opened(5, SpanFlags::INFERRED), 100);
        parts.close(&span(5, 8));
        parts.lose();
        assert_eq!(parts.late(&span(8, 12), 200), 200);
        parts.lose();
        parts.open(&opened(13, SpanFlags::empty()), 300);
        // One that cuts nothing.
        parts.lose();
        parts.open(&opened(14, SpanFlags::empty()), 400);
        parts.close(&span(14, 14));
        parts.close(&span(13, 15));
        assert_eq!(parts.late(&span(12, 15), 500), 300);
    }

    #[test]
    fn a_track_may_begin_with_a_late_span() {
        let mut parts = Parts::default();
        assert_eq!(parts.late(&span(5, 6), 77), 77);
        assert_eq!(parts.late(&span(5, 7), 99), 77);
    }

    #[test]
    fn only_so_many_parts_are_remembered() {
        let mut parts = Parts::default();
        for part in 0..100 {
            parts.open(&opened(part * 10, SpanFlags::INFERRED), part * 1000);
            parts.close(&span(part * 10, part * 10 + 5));
        }
        assert_eq!(parts.parts.len(), REMEMBERED);
        assert_eq!(parts.late(&span(985, 999), 0), 99_000);
        assert_eq!(parts.late(&span(0, 999), 0), 84_000);
    }
}
