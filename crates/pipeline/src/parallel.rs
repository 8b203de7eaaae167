//! Segments decoded on several threads, their events told in order.
//!
//! Each worker has a decoder of its own and takes the next segment that nobody has taken; what it
//! decodes is written down and told to the sink when its turn comes, by the thread that called. So
//! the sink sees the same for any number of threads. Workers stay at most [`AHEAD`] segments ahead
//! of the sink, which bounds the memory.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};

use ptrail_flow::{
    Context, Decoder, Detail, Edge, OffCause, Passed, Segment, SegmentEnd, Sink, Step,
};
use ptrail_pt::{Ip, Loss, Time};

/// Segments that may be decoded ahead of the sink, for each worker.
const AHEAD: usize = 16;

/// Decodes `segments` on `threads` threads. After each one `done` is told its place and how it
/// ended; an error from it ends the decode.
pub(crate) fn decode<S: Sink, E>(
    segments: &[Segment<'_>],
    context: Context<'_>,
    threads: usize,
    sink: &mut S,
    mut done: impl FnMut(&mut S, usize, SegmentEnd) -> Result<(), E>,
) -> Result<(), E> {
    if threads <= 1 || segments.len() <= 1 {
        let mut decoder = Decoder::new(context, sink);
        for (place, segment) in segments.iter().enumerate() {
            let end = decoder.segment(segment);
            done(decoder.sink(), place, end)?;
        }
        return Ok(());
    }
    let queue = Queue::new(segments.len(), AHEAD * threads);
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        for worker in 0..threads.min(segments.len()) {
            let (queue, sender) = (&queue, sender.clone());
            scope.spawn(move || work::<S>(worker, segments, context, queue, &sender));
        }
        drop(sender);
        let told = tell(segments.len(), &queue, &receiver, sink, &mut done);
        queue.close();
        told
    })
}

fn work<S: Sink>(
    worker: usize,
    segments: &[Segment<'_>],
    context: Context<'_>,
    queue: &Queue,
    sender: &Sender<Decoded>,
) {
    // If this thread panics, the others must not wait for what it has taken.
    let _close_on_panic = CloseOnPanic(queue);
    if S::DETAIL == Detail::Instructions {
        work_with::<Written<{ Detail::Instructions as usize }>>(
            worker, segments, context, queue, sender,
        );
    } else if S::DETAIL == Detail::Branches {
        work_with::<Written<{ Detail::Branches as usize }>>(
            worker, segments, context, queue, sender,
        );
    } else {
        work_with::<Written<{ Detail::Calls as usize }>>(worker, segments, context, queue, sender);
    }
}

fn work_with<W: Sink + Write>(
    worker: usize,
    segments: &[Segment<'_>],
    context: Context<'_>,
    queue: &Queue,
    sender: &Sender<Decoded>,
) {
    let mut decoder = Decoder::new(context, W::default());
    while let Some(place) = queue.take() {
        let end = decoder.segment(&segments[place]);
        let story = decoder.sink().take();
        let decoded = Decoded {
            worker,
            place,
            end,
            story,
        };
        if sender.send(decoded).is_err() {
            return;
        }
    }
}

/// Tells the sink in order what comes in any order.
fn tell<S: Sink, E>(
    count: usize,
    queue: &Queue,
    receiver: &Receiver<Decoded>,
    sink: &mut S,
    done: &mut impl FnMut(&mut S, usize, SegmentEnd) -> Result<(), E>,
) -> Result<(), E> {
    let mut early = HashMap::new();
    let mut tables: Vec<Vec<Edge>> = Vec::new();
    for place in 0..count {
        let decoded = loop {
            if let Some(decoded) = early.remove(&place) {
                break decoded;
            }
            // Without senders, a worker has panicked; the scope passes that on.
            let Ok(decoded) = receiver.recv() else {
                return Ok(());
            };
            early.insert(decoded.place, decoded);
        };
        if tables.len() <= decoded.worker {
            tables.resize_with(decoded.worker + 1, Vec::new);
        }
        let table = &mut tables[decoded.worker];
        table.extend(&decoded.story.new_edges);
        decoded.story.tell(table, sink);
        done(sink, place, decoded.end)?;
        queue.told(place + 1);
    }
    Ok(())
}

// ---- the queue ----

/// Which segment is next.
struct Queue {
    state: Mutex<State>,
    moved: Condvar,
    count: usize,
    ahead: usize,
}

struct State {
    /// The next segment to take.
    next: usize,
    /// Segments told to the sink.
    told: usize,
    closed: bool,
}

impl Queue {
    fn new(count: usize, ahead: usize) -> Self {
        Self {
            state: Mutex::new(State {
                next: 0,
                told: 0,
                closed: false,
            }),
            moved: Condvar::new(),
            count,
            ahead,
        }
    }

    /// Takes the next segment, as soon as it is not too far ahead; `None` if there is no more.
    fn take(&self) -> Option<usize> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let too_far = |state: &mut State| {
            !state.closed && state.next < self.count && state.next >= state.told + self.ahead
        };
        let mut state = self
            .moved
            .wait_while(state, too_far)
            .unwrap_or_else(PoisonError::into_inner);
        if state.closed || state.next >= self.count {
            return None;
        }
        state.next += 1;
        Some(state.next - 1)
    }

    fn told(&self, told: usize) {
        self.change(|state| state.told = told);
    }

    fn close(&self) {
        self.change(|state| state.closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.moved.notify_all();
    }
}

struct CloseOnPanic<'q>(&'q Queue);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

// ---- what was decoded, written down ----

/// A decoded segment.
struct Decoded {
    worker: usize,
    place: usize,
    end: SegmentEnd,
    story: Story,
}

/// All that a sink is told of a segment.
#[derive(Default)]
struct Story {
    events: Vec<Event>,
    steps: Vec<Step>,
    ips: Vec<Ip>,
    /// The part of the worker's table of edges that was added in this segment.
    new_edges: Vec<Edge>,
}

enum Event {
    /// So many instructions of `ips`.
    Instructions(usize),
    /// So many of `steps`, and the instructions before them.
    Edges(usize, u64),
    /// An edge that is not in the table.
    Edge(Box<Edge>, u64),
    Begin(Ip, u64),
    On(Ip, u64),
    Off(Box<(Ip, Ip, OffCause)>, u64),
    Anchor(u64, Time),
    Loss(Box<Loss>, bool, u64),
}

impl Story {
    fn tell(self, table: &[Edge], sink: &mut impl Sink) {
        let (mut steps, mut ips) = (&*self.steps, &*self.ips);
        for event in self.events {
            match event {
                Event::Instructions(count) => sink.instructions(front(&mut ips, count)),
                Event::Edges(count, before) => {
                    sink.edges(Passed::new(steps, count, before, table));
                    front(&mut steps, count);
                }
                Event::Edge(edge, instructions) => sink.edge(&edge, instructions),
                Event::Begin(ip, instructions) => sink.begin(ip, instructions),
                Event::On(ip, instructions) => sink.on(ip, instructions),
                Event::Off(off, instructions) => sink.off(off.0, off.1, off.2, instructions),
                Event::Anchor(instructions, time) => sink.anchor(instructions, time),
                Event::Loss(loss, broken, instructions) => sink.loss(*loss, broken, instructions),
            }
        }
    }
}

/// Cuts the first `count` off.
fn front<'a, T>(items: &mut &'a [T], count: usize) -> &'a [T] {
    let (front, rest) = items.split_at(count);
    *items = rest;
    front
}

/// Gives what was written.
trait Write: Default {
    fn take(&mut self) -> Story;
}

/// Writes down what it is told, with the [`Detail`] of this number.
#[derive(Default)]
struct Written<const DETAIL: usize> {
    story: Story,
    /// Edges of the decoder's table in this and earlier stories.
    edges: usize,
}

impl<const DETAIL: usize> Write for Written<DETAIL> {
    fn take(&mut self) -> Story {
        std::mem::take(&mut self.story)
    }
}

impl<const DETAIL: usize> Sink for Written<DETAIL> {
    const DETAIL: Detail = [Detail::Calls, Detail::Branches, Detail::Instructions][DETAIL];

    fn instructions(&mut self, ips: &[Ip]) {
        self.story.ips.extend_from_slice(ips);
        match self.story.events.last_mut() {
            Some(Event::Instructions(count)) => *count += ips.len(),
            _ => self.story.events.push(Event::Instructions(ips.len())),
        }
    }

    fn edge(&mut self, edge: &Edge, instructions: u64) {
        let edge = Box::new(*edge);
        self.story.events.push(Event::Edge(edge, instructions));
    }

    fn edges(&mut self, passed: Passed<'_>) {
        let table = passed.table;
        self.story.new_edges.extend_from_slice(&table[self.edges..]);
        self.edges = table.len();
        passed.append_to(&mut self.story.steps);
        let event = Event::Edges(passed.steps.len(), passed.before);
        self.story.events.push(event);
    }

    fn begin(&mut self, ip: Ip, instructions: u64) {
        self.story.events.push(Event::Begin(ip, instructions));
    }

    fn on(&mut self, ip: Ip, instructions: u64) {
        self.story.events.push(Event::On(ip, instructions));
    }

    fn off(&mut self, ip: Ip, next: Ip, cause: OffCause, instructions: u64) {
        let off = Box::new((ip, next, cause));
        self.story.events.push(Event::Off(off, instructions));
    }

    fn anchor(&mut self, instructions: u64, time: Time) {
        self.story.events.push(Event::Anchor(instructions, time));
    }

    fn loss(&mut self, loss: Loss, broken: bool, instructions: u64) {
        let loss = Box::new(loss);
        self.story
            .events
            .push(Event::Loss(loss, broken, instructions));
    }
}
