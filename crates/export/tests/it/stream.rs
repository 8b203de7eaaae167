//! Span streams with their truth: what is said to a sink, and the call tree it means.
//!
//! The builder plays the decoder: functions are entered and left, callers show themselves late,
//! losses end parts. It keeps the tree by adoption (a late caller takes all roots of its part),
//! which is another way round than any writer goes.

use std::collections::HashMap;

use ptrail_pt::{Ip, Loss, LossCause, PerfTime, Picos, TraceOffset};
use ptrail_trace::{
    Function, FunctionId, Opened, Point, PointKind, Rate, Recording, Source, SourceLine, Span,
    SpanFlags, SpanSink, Track, TrackId, TrackKind,
};

/// A base that needs all of a 64-bit time: 21 hours, in nanoseconds.
pub(crate) const BASE: u64 = 75_632_123_456_789;

/// One slice of the truth.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) track: TrackId,
    pub(crate) function: FunctionId,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) call_site: Option<Ip>,
    pub(crate) instructions: u64,
    pub(crate) self_instructions: u64,
    pub(crate) flags: SpanFlags,
    children: Vec<Node>,
}

/// A slice as a viewer should show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) thread: (u32, u32, String),
    pub(crate) name: String,
    /// Perf-clock nanoseconds.
    pub(crate) ts: i64,
    pub(crate) dur: i64,
    pub(crate) depth: i64,
    pub(crate) args: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
enum Call {
    Track(Track),
    Function(Function),
    Open(Opened),
    Span(Span),
    Point(Point),
    Loss(TrackId, Loss),
    Rate(Rate),
}

#[derive(Default)]
struct Thread {
    open: Vec<Node>,
    /// Roots of the part, in order.
    part: Vec<Node>,
    /// The base or the end of the last loss.
    part_begin: u64,
    late: i32,
    done: Vec<Node>,
}

pub(crate) struct Stream {
    pub(crate) recording: Recording,
    calls: Vec<Call>,
    threads: Vec<Thread>,
    pub(crate) tracks: Vec<Track>,
    pub(crate) functions: Vec<Function>,
    by_name: HashMap<String, FunctionId>,
    counter: u64,
}

impl Stream {
    pub(crate) fn new(source: Source) -> Self {
        let command = vec!["demo".to_owned(), "--fast".to_owned()];
        Self {
            recording: Recording {
                base: PerfTime(BASE),
                wall_clock: Some(1_700_000_000_123_456_789),
                source,
                command,
            },
            calls: Vec::new(),
            threads: Vec::new(),
            tracks: Vec::new(),
            functions: Vec::new(),
            by_name: HashMap::new(),
            counter: 0,
        }
    }

    pub(crate) fn thread(&mut self, pid: u32, tid: u32, name: &str) -> TrackId {
        let id = TrackId(self.tracks.len() as u32);
        let kind = TrackKind::Thread { pid, tid };
        let track = Track {
            id,
            kind,
            name: name.to_owned(),
            process: format!("process {pid}"),
        };
        self.tracks.push(track.clone());
        self.calls.push(Call::Track(track));
        self.threads.push(Thread::default());
        id
    }

    fn function(&mut self, name: &str) -> FunctionId {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        let id = FunctionId(self.functions.len() as u32);
        let mangled =
            id.0.is_multiple_of(2)
                .then(|| format!("_Z{}{name}", name.len()));
        let module = ["demo", "libc.so.6", "[vdso]", ""][id.0 as usize % 4].to_owned();
        let address = Ip(0xffff_8000_0000_0000 + u64::from(id.0) * 0x10);
        let source = (id.0 % 3 == 1).then(|| SourceLine {
            file: format!("/src/größe {}.c", id.0 % 2),
            line: id.0 + 10,
        });
        let function = Function {
            id,
            name: name.to_owned(),
            mangled,
            module,
            address,
            source,
        };
        self.functions.push(function.clone());
        self.calls.push(Call::Function(function));
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// Enters a function at a time in picoseconds since the base.
    pub(crate) fn enter(&mut self, track: TrackId, name: &str, at: u64) {
        let function = self.function(name);
        self.counter += 1;
        let thread = &mut self.threads[track.0 as usize];
        let first = thread.open.is_empty() && thread.part.is_empty();
        let flags = if first {
            SpanFlags::INFERRED
        } else {
            SpanFlags::empty()
        };
        let call_site =
            (!first && self.counter.is_multiple_of(3)).then_some(Ip(0x40_0000 + self.counter));
        thread.open.push(Node {
            track,
            function,
            begin: at,
            end: at,
            call_site,
            instructions: self.counter * 7,
            self_instructions: self.counter % 11,
            flags,
            children: Vec::new(),
        });
        self.calls.push(Call::Open(Opened {
            track,
            function,
            begin: Picos(at),
            call_site,
            flags,
        }));
    }

    /// Leaves the innermost open function.
    pub(crate) fn leave(&mut self, track: TrackId, at: u64, flags: SpanFlags) {
        let thread = &mut self.threads[track.0 as usize];
        let mut node = thread.open.pop().expect("something is open");
        node.end = at;
        node.flags |= flags;
        let depth = thread.open.len() as i32;
        self.calls.push(Call::Span(span(&node, depth)));
        thread
            .open
            .last_mut()
            .map_or(&mut thread.part, |parent| &mut parent.children)
            .push(node);
    }

    /// A caller that was entered before the part began is left.
    pub(crate) fn late(&mut self, track: TrackId, name: &str, at: u64, flags: SpanFlags) {
        let function = self.function(name);
        self.counter += 1;
        let thread = &mut self.threads[track.0 as usize];
        assert!(thread.open.is_empty());
        thread.late += 1;
        let node = Node {
            track,
            function,
            begin: thread.part_begin,
            end: at,
            call_site: None,
            instructions: self.counter * 7,
            self_instructions: self.counter % 11,
            flags: flags | SpanFlags::INFERRED | SpanFlags::LATE,
            children: std::mem::take(&mut thread.part),
        };
        self.calls.push(Call::Span(span(&node, -thread.late)));
        thread.part.push(node);
    }

    /// Cuts what is open, then says that something is missing up to `end`.
    pub(crate) fn lose(
        &mut self,
        track: TrackId,
        begin: u64,
        end: u64,
        cause: LossCause,
        reason: &str,
    ) {
        while !self.threads[track.0 as usize].open.is_empty() {
            self.leave(track, begin, SpanFlags::CUT);
        }
        self.end_part(track);
        self.threads[track.0 as usize].part_begin = end;
        self.loss(track, begin, end, cause, reason);
    }

    /// A loss that cuts nothing.
    pub(crate) fn loss(
        &mut self,
        track: TrackId,
        begin: u64,
        end: u64,
        cause: LossCause,
        reason: &str,
    ) {
        let (begin, end) = (Picos(begin), Picos(end));
        let (bytes, offset, ip) = (4096, TraceOffset(0x1234), Some(Ip(0x401_000)));
        self.calls.push(Call::Loss(
            track,
            Loss {
                cause,
                bytes,
                offset,
                begin,
                end,
                ip,
                reason: reason.to_owned(),
            },
        ));
    }

    pub(crate) fn point(&mut self, track: TrackId, at: u64, kind: PointKind, text: &str) {
        self.calls.push(Call::Point(Point {
            track,
            at: Picos(at),
            kind,
            text: text.to_owned(),
        }));
    }

    pub(crate) fn rate(&mut self, track: TrackId, begin: u64, end: u64, instructions: u64) {
        let (begin, end) = (Picos(begin), Picos(end));
        self.calls.push(Call::Rate(Rate {
            track,
            begin,
            end,
            instructions,
        }));
    }

    pub(crate) fn is_open(&self, track: TrackId) -> bool {
        !self.threads[track.0 as usize].open.is_empty()
    }

    pub(crate) fn open_count(&self, track: TrackId) -> usize {
        self.threads[track.0 as usize].open.len()
    }

    fn end_part(&mut self, track: TrackId) {
        let thread = &mut self.threads[track.0 as usize];
        thread.done.append(&mut thread.part);
        thread.late = 0;
    }

    /// Says everything to a sink.
    pub(crate) fn play(&self, sink: &mut dyn SpanSink) {
        sink.begin(&self.recording).unwrap();
        for call in &self.calls {
            match call {
                Call::Track(track) => sink.track(track),
                Call::Function(function) => sink.function(function),
                Call::Open(opened) => sink.open(opened),
                Call::Span(span) => sink.span(span),
                Call::Point(point) => sink.point(point),
                Call::Loss(track, loss) => sink.loss(*track, loss),
                Call::Rate(rate) => sink.rate(rate),
            }
            .unwrap();
        }
        sink.finish().unwrap();
    }

    /// The slices of all tracks, each track's in the order of execution, parents first.
    pub(crate) fn slices(&mut self) -> Vec<Slice> {
        let mut slices = Vec::new();
        for track in 0..self.threads.len() as u32 {
            self.end_part(TrackId(track));
            // Not by recursion: some trees are deep.
            let roots = self.threads[track as usize].done.iter().rev();
            let mut rest: Vec<(&Node, i64)> = roots.map(|node| (node, 0)).collect();
            while let Some((node, depth)) = rest.pop() {
                slices.push(self.slice(node, depth));
                rest.extend(node.children.iter().rev().map(|child| (child, depth + 1)));
            }
        }
        slices
    }

    fn slice(&self, node: &Node, depth: i64) -> Slice {
        let track = &self.tracks[node.track.0 as usize];
        let function = &self.functions[node.function.0 as usize];
        let TrackKind::Thread { pid, tid } = track.kind;
        let ns = |ps: u64| (BASE + ps / 1000) as i64;
        let mut args = vec![
            ("address", format!("{:#x}", function.address.0)),
            ("instructions", node.instructions.to_string()),
            ("self_instructions", node.self_instructions.to_string()),
        ];
        args.extend(
            node.call_site
                .map(|ip| ("call_site", format!("{:#x}", ip.0))),
        );
        args.extend((!function.module.is_empty()).then(|| ("module", function.module.clone())));
        args.extend(
            function
                .mangled
                .clone()
                .map(|mangled| ("mangled_name", mangled)),
        );
        if let Some(source) = &function.source {
            args.push(("source.file_name", source.file.clone()));
            args.push(("source.line_number", source.line.to_string()));
        }
        if !node.flags.is_empty() {
            args.push(("flags", node.flags.names().collect::<Vec<_>>().join(", ")));
        }
        let mut args: Vec<_> = args
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        args.sort();
        Slice {
            thread: (pid, tid, track.name.clone()),
            name: function.name.clone(),
            ts: ns(node.begin),
            dur: ns(node.end) - ns(node.begin),
            depth,
            args,
        }
    }
}

fn span(node: &Node, depth: i32) -> Span {
    Span {
        track: node.track,
        function: node.function,
        begin: Picos(node.begin),
        end: Picos(node.end),
        depth,
        call_site: node.call_site,
        instructions: node.instructions,
        self_instructions: node.self_instructions,
        flags: node.flags,
    }
}
