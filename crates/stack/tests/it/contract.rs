//! A sink that checks the contract of the span stream while it takes it down.

use ptrail_pt::{Ip, Loss, Picos};
use ptrail_trace::{
    Function, FunctionId, Opened, Point, PointKind, Rate, SinkError, Span, SpanFlags, SpanSink,
    Track, TrackId,
};

/// What is known of an open span, or of the outermost level.
#[derive(Debug, Default)]
struct Level {
    opened: Option<Opened>,
    /// Depths, instructions and begins of the spans directly inside that were not yet enclosed.
    inside: Vec<(i32, u64, Picos)>,
}

/// What came, checked.
#[derive(Debug, Default)]
pub(crate) struct Contract {
    pub(crate) functions: Vec<Function>,
    pub(crate) spans: Vec<Span>,
    pub(crate) opens: Vec<Opened>,
    pub(crate) points: Vec<Point>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) rates: Vec<Rate>,
    /// Open spans, outermost first; the first level is the track itself.
    levels: Vec<Level>,
    now: Picos,
    /// A new image runs; what opens next does not hang together with what was before.
    exec: bool,
}

impl Contract {
    pub(crate) fn new() -> Self {
        Self {
            levels: vec![Level::default()],
            ..Self::default()
        }
    }

    fn pass(&mut self, to: Picos) {
        assert!(to >= self.now, "{to:?} comes behind {:?}", self.now);
        self.now = to;
    }

    fn known(&self, function: FunctionId) {
        assert!((function.0 as usize) < self.functions.len());
    }

    pub(crate) fn name(&self, function: FunctionId) -> &str {
        &self.functions[function.0 as usize].name
    }

    /// A part that hangs together is over.
    fn new_part(&mut self) {
        assert_eq!(self.levels.len(), 1, "open spans do not outlive a part");
        self.levels[0].inside.clear();
    }

    pub(crate) fn check_end(&self) {
        assert_eq!(self.levels.len(), 1, "all spans are closed");
        assert_eq!(self.opens.len(), {
            let early = |span: &&Span| !span.flags.contains(SpanFlags::LATE);
            self.spans.iter().filter(early).count()
        });
    }

    fn late(&mut self, span: &Span) -> Vec<(i32, u64, Picos)> {
        assert!(span.flags.contains(SpanFlags::INFERRED));
        assert!(span.depth < 0 && span.call_site.is_none());
        assert_eq!(self.levels.len(), 1, "a late caller is the outermost");
        let inside = std::mem::take(&mut self.levels[0].inside);
        assert!(inside.iter().all(|&(_, _, begin)| begin >= span.begin));
        inside
    }

    fn seen(&mut self, span: &Span) -> Vec<(i32, u64, Picos)> {
        let level = self.levels.pop().unwrap();
        let opened = level.opened.expect("a span that closes was open");
        assert_eq!(opened.function, span.function);
        assert_eq!(opened.begin, span.begin);
        assert_eq!(opened.call_site, span.call_site);
        assert!(span.flags.contains(opened.flags));
        level.inside
    }
}

impl SpanSink for Contract {
    fn rate(&mut self, rate: &Rate) -> Result<(), SinkError> {
        assert!(rate.begin < rate.end, "{rate:?}");
        let follows = |last: &Rate| last.end == rate.begin;
        assert!(self.rates.last().is_none_or(follows), "{rate:?}");
        self.rates.push(*rate);
        Ok(())
    }

    fn track(&mut self, _: &Track) -> Result<(), SinkError> {
        unreachable!("tracks are not announced by the builder")
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        assert_eq!(
            function.id.0 as usize,
            self.functions.len(),
            "ids are dense"
        );
        self.functions.push(function.clone());
        Ok(())
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        self.known(opened.function);
        self.pass(opened.begin);
        assert!(!opened.flags.contains(SpanFlags::LATE));
        if std::mem::take(&mut self.exec) {
            self.new_part();
        }
        self.opens.push(*opened);
        self.levels.push(Level {
            opened: Some(*opened),
            inside: Vec::new(),
        });
        Ok(())
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        self.known(span.function);
        self.pass(span.end);
        assert!(span.begin <= span.end);
        let inside = if span.flags.contains(SpanFlags::LATE) {
            self.late(span)
        } else {
            self.seen(span)
        };
        let mut sum = span.self_instructions;
        for (depth, instructions, _) in inside {
            // A late caller encloses earlier ones of its depth and deeper, where tail calls were.
            assert!(depth == span.depth + 1 || span.flags.contains(SpanFlags::LATE));
            assert!(depth > span.depth);
            sum += instructions;
        }
        assert_eq!(sum, span.instructions, "{span:?}");
        let around = self.levels.last_mut().unwrap();
        around
            .inside
            .push((span.depth, span.instructions, span.begin));
        self.spans.push(*span);
        Ok(())
    }

    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        self.pass(point.at);
        self.exec |= point.kind == PointKind::Exec;
        self.points.push(point.clone());
        Ok(())
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        assert_eq!(track, TrackId(0));
        self.pass(loss.begin);
        self.pass(loss.end);
        if self.levels.len() == 1 {
            self.new_part();
        }
        self.losses.push(loss.clone());
        Ok(())
    }
}

impl Contract {
    /// Each span as `@depth name begin..end inclusive/self flags`, times in nanoseconds.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.spans.iter().map(|span| self.line(span)).collect()
    }

    fn line(&self, span: &Span) -> String {
        let ns = |at: Picos| at.0 as f64 / 1000.0;
        let mut line = format!(
            "@{} {} {}..{} {}/{}",
            span.depth,
            self.name(span.function),
            ns(span.begin),
            ns(span.end),
            span.instructions,
            span.self_instructions
        );
        for flag in span.flags.names() {
            line += " ";
            line += flag;
        }
        line
    }

    /// Call sites of the spans that were opened, in that order.
    pub(crate) fn call_sites(&self) -> Vec<(String, Option<Ip>)> {
        let site = |opened: &Opened| (self.name(opened.function).to_owned(), opened.call_site);
        self.opens.iter().map(site).collect()
    }

    pub(crate) fn execs(&self) -> Vec<u64> {
        let exec = |point: &&Point| point.kind == PointKind::Exec;
        self.points
            .iter()
            .filter(exec)
            .map(|point| point.at.0 / 1000)
            .collect()
    }
}
