//! Decoded times against the recorder's own clock.

#![allow(clippy::print_stdout)]

use std::io;

use ptrail_flow::{Edge, OffCause, Sink};
use ptrail_perfdata::Capture;
use ptrail_pipeline::Session;
use ptrail_pt::{Ip, Loss, PerfTime, Time};
use xtask::Corpus;

use crate::recorded::{Recorded, engines};

/// Ticks of the recorder's clock are half a nanosecond.
const PICOS_PER_TICK: u64 = 500;

/// A time that the decoder gives, and which one it is.
struct Event {
    /// Instructions that executed before.
    instructions: u64,
    time: Time,
    /// It is when tracing was switched on; else, when the last instruction ended.
    is_on: bool,
}

#[derive(Default)]
struct Events {
    events: Vec<Event>,
    /// Instructions of the segments before.
    before: u64,
    losses: usize,
}

impl Sink for Events {
    fn anchor(&mut self, instructions: u64, time: Time) {
        let instructions = self.before + instructions;
        self.events.push(Event {
            instructions,
            time,
            is_on: false,
        });
    }

    fn on(&mut self, _ip: Ip, _instructions: u64) {
        self.events.last_mut().unwrap().is_on = true;
    }

    fn edge(&mut self, _edge: &Edge, _instructions: u64) {}
    fn begin(&mut self, _ip: Ip, _instructions: u64) {}
    fn off(&mut self, _ip: Ip, _next: Ip, _cause: OffCause, _instructions: u64) {}

    fn loss(&mut self, _loss: Loss, _broken: bool, _instructions: u64) {
        self.losses += 1;
    }
}

fn events(capture: &Capture) -> (Vec<Event>, PerfTime) {
    let session = Session::new(capture).unwrap();
    let mut sink = Events::default();
    let stream = &session.streams()[0];
    session
        .walk(stream, &mut sink, |sink, end, _| {
            sink.before += end.instructions;
            Ok::<_, io::Error>(())
        })
        .unwrap();
    assert_eq!(sink.losses, 0);
    (sink.events, session.base())
}

/// When each event was by the recorder's clock, in picoseconds since the base; `None` for the last
/// word of the recording, after the program's end.
fn truths(events: &[Event], tsc: &[u64], base: PerfTime) -> Vec<Option<u64>> {
    let truth = |event: &Event| {
        let count = event.instructions as usize;
        let ticks = match event.is_on {
            // The instruction behind it takes one tick.
            true => tsc.get(count)? - 1,
            false if count == tsc.len() => return None,
            false => *tsc.get(count.checked_sub(1)?)?,
        };
        Some(ticks * PICOS_PER_TICK - base.0 * 1000)
    };
    events.iter().map(truth).collect()
}

#[test]
fn every_time_is_within_its_error_of_the_recorders_clock() {
    let corpus = Corpus::load().unwrap();
    let names = [
        "fib",
        "exceptions",
        "nested_signals",
        "library_calls",
        "vdso",
    ];
    let recordings = names
        .iter()
        .flat_map(|name| engines().iter().map(move |engine| (*name, *engine)));
    for (name, engine) in recordings {
        let program = corpus
            .programs()
            .iter()
            .find(|program| program.name == name)
            .unwrap();
        let executable = corpus.build(program, &program.variants[0]).unwrap();
        let mut words = vec![executable.into_os_string()];
        words.extend(program.args.iter().map(Into::into));
        let recorded = Recorded::new(
            &["--timing", "cyc", "--source", engine],
            &words,
            &program.stdin,
        );
        let bytes = std::fs::read(recorded.capture().with_file_name("truth.tsc")).unwrap();
        let tsc: Vec<_> = bytes
            .chunks_exact(8)
            .map(|tsc| u64::from_le_bytes(tsc.try_into().unwrap()))
            .collect();
        assert_eq!(tsc.len(), recorded.truth.len());

        let capture = Capture::open(&recorded.capture()).unwrap();
        let (events, base) = events(&capture);
        let (mut compared, mut exact, mut bound) = (0, 0, 0);
        for (event, truth) in events.iter().zip(truths(&events, &tsc, base)) {
            let Some(truth) = truth else { continue };
            let Time { at, error } = event.time;
            assert!(
                at.0.abs_diff(truth) <= error.0,
                "{name}: after {} instructions {:?}, but it was {truth} ps",
                event.instructions,
                event.time,
            );
            compared += 1;
            exact += u64::from(at.0 == truth);
            bound = bound.max(error.0);
        }
        println!(
            "{name} with {engine}: {compared} times, {exact} to the tick, errors at most {bound} ps"
        );
        assert!(compared > 100 && compared + 4 >= events.len() && exact > 100);
        // An error bound that is never reached would be no statement: it must stay small, too.
        assert!(bound < 50_000, "{name}: {bound} ps");
    }
}
