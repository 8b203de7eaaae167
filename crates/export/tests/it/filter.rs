//! Filtered streams, against the same choice made span by span with everything known.

use ptrail_export::{Format, create};
use ptrail_pt::{Loss, Picos};
use ptrail_trace::{
    Filter, Function, LeftOut, Opened, Pattern, Point, Recording, Selection, SinkError, Span,
    SpanFlags, SpanSink, Track, TrackId, TrackKind,
};

use crate::{
    program,
    stream::Stream,
    viewer::{COMPLAINTS, query},
};

/// Keeps what it is told, and holds it to the rules of the span stream.
#[derive(Default)]
struct Told {
    tracks: Vec<Track>,
    functions: Vec<Function>,
    open: Vec<Vec<Opened>>,
    last: Vec<Picos>,
    spans: Vec<Span>,
    points: u64,
    losses: u64,
}

impl Told {
    fn at(&mut self, track: TrackId, at: Picos) {
        let last = &mut self.last[track.0 as usize];
        assert!(at >= *last, "time goes back from {last:?} to {at:?}");
        *last = at;
    }

    /// Thread, function, begin, end, depth, flags, instructions.
    fn rows(&self) -> Vec<(u32, String, u64, u64, i32, SpanFlags, u64)> {
        let row = |span: &Span| {
            let TrackKind::Thread { tid, .. } = self.tracks[span.track.0 as usize].kind;
            let name = self.functions[span.function.0 as usize].name.clone();
            let (begin, end) = (span.begin.0, span.end.0);
            (
                tid,
                name,
                begin,
                end,
                span.depth,
                span.flags,
                span.instructions,
            )
        };
        self.spans.iter().map(row).collect()
    }
}

impl SpanSink for Told {
    fn begin(&mut self, _recording: &Recording) -> Result<(), SinkError> {
        Ok(())
    }

    fn track(&mut self, track: &Track) -> Result<(), SinkError> {
        assert_eq!(track.id.0 as usize, self.tracks.len());
        self.tracks.push(track.clone());
        self.open.push(Vec::new());
        self.last.push(Picos(0));
        Ok(())
    }

    fn function(&mut self, function: &Function) -> Result<(), SinkError> {
        assert_eq!(function.id.0 as usize, self.functions.len());
        self.functions.push(function.clone());
        Ok(())
    }

    fn open(&mut self, opened: &Opened) -> Result<(), SinkError> {
        assert!((opened.function.0 as usize) < self.functions.len());
        self.at(opened.track, opened.begin);
        self.open[opened.track.0 as usize].push(*opened);
        Ok(())
    }

    fn span(&mut self, span: &Span) -> Result<(), SinkError> {
        self.at(span.track, span.end);
        if !span.flags.contains(SpanFlags::LATE) {
            let opened = self.open[span.track.0 as usize].pop().unwrap();
            assert_eq!(opened.function, span.function);
            assert_eq!(opened.begin, span.begin);
        }
        self.spans.push(*span);
        Ok(())
    }

    fn point(&mut self, point: &Point) -> Result<(), SinkError> {
        self.at(point.track, point.at);
        self.points += 1;
        Ok(())
    }

    fn loss(&mut self, track: TrackId, loss: &Loss) -> Result<(), SinkError> {
        self.at(track, loss.begin);
        self.losses += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        assert!(self.open.iter().all(Vec::is_empty));
        Ok(())
    }
}

fn told(stream: &Stream, selection: &Selection) -> (Told, LeftOut) {
    let mut told = Told::default();
    let mut filter = Filter::new(selection, &mut told);
    stream.play(&mut filter);
    let left_out = filter.left_out();
    (told, left_out)
}

/// The rows of everything that a selection keeps, given all rows in the order of their ends.
fn chosen(
    whole: &Told,
    selection: &Selection,
) -> Vec<(u32, String, u64, u64, i32, SpanFlags, u64)> {
    let rows = whole.rows();
    // A call lies in another if it ends before it on its thread, deeper, up to the other's begin.
    let inside = |index: usize| {
        let (tid, _, begin, _, depth, flags, _) = rows[index];
        let mut depth = depth;
        rows[index + 1..]
            .iter()
            .filter(|row| row.0 == tid && !row.5.contains(SpanFlags::LATE))
            .take_while(|row| row.4 >= 0 && !flags.contains(SpanFlags::LATE))
            .filter(|row| {
                let around = row.4 < depth && row.2 <= begin;
                depth = depth.min(row.4);
                around
            })
            .any(|row| selection.functions.iter().any(|f| f.fits(&row.1)))
    };
    let mut kept = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let (tid, name, begin, end, depth, flags, instructions) = row.clone();
        let thread = whole.tracks.iter().find(|track| {
            let TrackKind::Thread { tid: of, .. } = track.kind;
            of == tid
        });
        let thread = &thread.unwrap().name;
        let to = selection.to.map_or(u64::MAX, |to| to.0);
        let from = selection.from.0;
        let wanted = [
            end - begin >= selection.min_duration.0,
            begin < to && (end > from || begin >= from),
            selection.threads.is_empty()
                || (selection.threads.iter()).any(|t| t.fits(thread) || t.fits(&tid.to_string())),
            selection.functions.is_empty()
                || selection.functions.iter().any(|f| f.fits(&name))
                || inside(index),
        ];
        if wanted == [true; 4] {
            let mut flags = flags;
            if begin < from {
                flags |= SpanFlags::INFERRED;
            }
            if end > to {
                flags |= SpanFlags::CUT;
            }
            let (begin, end) = (begin.max(from), end.min(to));
            kept.push((tid, name, begin, end, depth, flags, instructions));
        }
    }
    kept
}

fn selections() -> Vec<Selection> {
    let everything = Selection::default;
    let patterns = |texts: &[&str]| texts.iter().map(|&text| Pattern::new(text)).collect();
    vec![
        Selection {
            from: Picos(300_000),
            ..everything()
        },
        Selection {
            to: Some(Picos(900_000)),
            ..everything()
        },
        Selection {
            from: Picos(300_000),
            to: Some(Picos(301_000)),
            ..everything()
        },
        Selection {
            min_duration: Picos(2_500),
            ..everything()
        },
        Selection {
            threads: patterns(&["1001", "thread 3"]),
            ..everything()
        },
        Selection {
            functions: patterns(&["core::*", "größe*"]),
            ..everything()
        },
        Selection {
            from: Picos(200_000),
            to: Some(Picos(1_100_000)),
            min_duration: Picos(130),
            functions: patterns(&["parse"]),
            threads: patterns(&["thread *"]),
        },
    ]
}

#[test]
fn what_is_kept_is_what_was_asked_for() {
    for seed in [0x5eed_0010, 0x5eed_0011] {
        let stream = program::random(seed, 20_000);
        let everything = Selection::default();
        let (whole, left_out) = told(&stream, &everything);
        assert_eq!(left_out.spans, 0);
        for selection in selections() {
            let (told, left_out) = told(&stream, &selection);
            let truth = chosen(&whole, &selection);
            assert!(!truth.is_empty() && truth.len() < whole.spans.len());
            assert_eq!(told.rows(), truth, "{selection:?}");
            let all = whole.spans.len() as u64;
            assert_eq!(
                (left_out.of_spans, left_out.spans),
                (all, all - truth.len() as u64)
            );
            assert_eq!(
                left_out.threads as usize,
                whole.tracks.len() - told.tracks.len()
            );
            assert_eq!(left_out.losses, whole.losses - told.losses);
            assert_eq!(left_out.points, whole.points - told.points);
        }
    }
}

/// The first call of each part is short and left out; its late callers still lie behind the loss.
#[test]
fn parts_stay_apart_where_their_first_calls_are_left_out() {
    let mut stream = program::random(0x5eed_0012, 20_000);
    let whole = stream.slices();
    let selection = Selection {
        min_duration: Picos(1_000),
        ..Selection::default()
    };
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.pftrace", "a.json", "a.speedscope.json", "a.folded"] {
        let path = dir.path().join(name);
        let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
        stream.play(&mut Filter::new(&selection, sink.as_mut()));
    }
    let (told, _) = told(&stream, &selection);
    let kept = told.spans.len();
    assert!(kept > 100 && kept < whole.len());
    let slices = "select count(*) as count, sum(dur) as time from slice s join thread_track k on s.track_id = k.id where k.name is null";
    for name in ["a.pftrace", "a.json"] {
        let [complaints, rows] = query(&dir.path().join(name), [COMPLAINTS, slices]);
        assert!(complaints.is_empty(), "{name}: {complaints:?}");
        assert_eq!(rows[0]["count"].as_u64(), Some(kept as u64), "{name}");
        let time = |span: &Span| span.end.0 / 1000 - span.begin.0 / 1000;
        let time: u64 = told.spans.iter().map(time).sum();
        assert_eq!(rows[0]["time"].as_u64(), Some(time), "{name}");
    }
    // Times of one thread never go back in speedscope's files.
    let file = std::fs::read(dir.path().join("a.speedscope.json")).unwrap();
    let file: serde_json::Value = serde_json::from_slice(&file).unwrap();
    for profile in file["profiles"].as_array().unwrap() {
        let events = profile["events"].as_array().unwrap();
        let times: Vec<_> = events.iter().map(|event| event["at"].as_u64()).collect();
        assert!(times.is_sorted());
    }
}
