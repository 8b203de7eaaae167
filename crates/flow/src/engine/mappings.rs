//! Which code lies where, as time goes on.

use ptrail_pt::{ExecMode, Ip, Packet, PerfTime, Picos};

use super::{Engine, take_graph};
use crate::Sink;

/// So many changes of mappings are tried where code is missing.
const LATER_MAPPINGS: usize = 256;

impl<S: Sink> Engine<'_, '_, S> {
    /// Goes over to the mappings that are valid by now.
    pub(super) fn follow_mappings(&mut self) {
        if self.space.changes_at().is_some() {
            self.follow_mappings_until(self.now());
        }
    }

    pub(super) fn follow_mappings_until(&mut self, time: Picos) {
        let time = self.perf_time(time);
        if self.space.changes_at().is_some_and(|change| change <= time) {
            self.space = self.context.timeline.space(self.context.pid, time);
            self.change_graph(self.graph.mode);
        }
    }

    /// Goes over to mappings that are as late as the time may be, if they have code at `ip` and those
    /// up to them have not: between two timing packets the clock stands still.
    pub(super) fn find_later_code(&mut self, ip: Ip) -> bool {
        if self.space.changes_at().is_none() {
            return false;
        }
        let latest = self.latest();
        let mut space = self.space;
        for _ in 0..LATER_MAPPINGS {
            let Some(change) = space.changes_at().filter(|&change| change <= latest) else {
                return false;
            };
            space = self.context.timeline.space(self.context.pid, change);
            if space.code(ip).is_ok() {
                self.space = space;
                self.change_graph(self.graph.mode);
                return true;
            }
        }
        false
    }

    /// The latest time that it may be.
    fn latest(&self) -> PerfTime {
        let by_next_segment = || {
            let mut clock = self.clock.clone();
            clock.eat(&Packet::Tsc(self.next_tsc?));
            Some(clock.now()?.at)
        };
        let latest = self.clock.latest().or_else(by_next_segment);
        latest.map_or(PerfTime(u64::MAX), |time| self.perf_time(time))
    }

    fn perf_time(&self, time: Picos) -> PerfTime {
        PerfTime(self.context.base.0.saturating_add(time.0 / 1000))
    }

    pub(super) fn change_graph(&mut self, mode: ExecMode) {
        self.expect();
        let graphs = &mut self.decoder.graphs;
        let known = graphs.contains_key(&(self.space.version(), mode));
        let extends = !known && mode == self.graph.mode && !self.graph.is_full();
        if extends && self.space.keeps(&self.graph.space) {
            return self.graph.extend(self.space);
        }
        let new = take_graph::<S>(graphs, self.space, mode);
        let old = std::mem::replace(&mut self.graph, new);
        self.returns.rename(|id| self.graph.node(old.start(id)));
        graphs.insert((old.space.version(), old.mode), old);
    }
}
