//! Callgrind's output format, version 1.
//!
//! ```text
//! # callgrind format
//! version: 1
//! creator: ptrail 0.1.0
//! cmd: demo --fast
//! desc: Clock: hardware trace
//! positions: line
//! event: Ns : Nanoseconds
//! event: Ir : Instructions
//! events: Ns Ir
//!
//! ob=(1) demo
//! fl=(1) demo
//! fn=(1) main
//! 0 400 120
//! cob=(2) libc.so.6
//! cfi=(2) libc.so.6
//! cfn=(2) puts
//! calls=3 0
//! 0 700 250
//!
//! totals: 1100 370
//! ```
//!
//! Each function has its own cost, and for each function it called the number of calls and their
//! inclusive cost. Functions without a caller are called by one named after their thread, such as
//! `[thread demo 7]`.
//!
//! *Recursion.* A call's inclusive cost counts only if the callee is not on the stack already. So
//! the costs of all calls of a function add up to the time from its outermost entries to their
//! ends, which is what `callgrind_annotate --inclusive=yes` shows, and never to more than the whole.
//!
//! *Places.* A function's costs and calls all stand at the line of its first instruction. Without
//! debug information they stand at line 0 of a "file" that is named like the module, since readers
//! tell functions of one name apart by their files alone. Functions of one name in one file are one
//! to readers.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use ptrail_trace::{FunctionId, Recording, Track, TrackKind};

use crate::{
    calls::{Step, Sums},
    profile::{Profile, ThreadPaths},
    text::{one_line, provenance},
};

/// Who calls: a function, or the pseudo function of a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Caller {
    Thread(usize),
    Function(FunctionId),
}

#[derive(Default)]
struct Costs {
    own: BTreeMap<FunctionId, Sums>,
    calls: BTreeMap<(Caller, FunctionId), Sums>,
}

pub(crate) fn write(mut profile: Profile, output: &mut impl Write) -> io::Result<()> {
    let process = profile.only_process();
    let threads = profile.take_paths(|track: &Track| track.id);
    let mut costs = Costs::default();
    for (number, thread) in threads.iter().enumerate() {
        costs.add(number, thread);
    }
    header(process, profile.recording.as_ref(), output)?;
    let mut names = Names::new(&profile, &threads);
    for number in 0..threads.len() {
        let caller = Caller::Thread(number);
        if costs.calls_of(caller).next().is_some() {
            names.place("", caller, output)?;
            writeln!(output, "0 0 0")?;
            write_calls(&costs, caller, &mut names, output)?;
        }
    }
    let mut total = Sums::default();
    for (&function, own) in &costs.own {
        total.add(*own);
        let caller = Caller::Function(function);
        names.place("", caller, output)?;
        let line = names.line(caller);
        writeln!(output, "{line} {} {}", own.time, own.instructions)?;
        write_calls(&costs, caller, &mut names, output)?;
    }
    writeln!(output, "\ntotals: {} {}", total.time, total.instructions)
}

fn header(
    process: Option<u32>,
    recording: Option<&Recording>,
    output: &mut impl Write,
) -> io::Result<()> {
    writeln!(output, "# callgrind format\nversion: 1")?;
    writeln!(output, "creator: ptrail {}", env!("CARGO_PKG_VERSION"))?;
    if let Some(pid) = process {
        writeln!(output, "pid: {pid}")?;
    }
    if let Some(recording) = recording {
        writeln!(output, "cmd: {}", one_line(&recording.command.join(" ")))?;
        writeln!(output, "desc: Clock: {}", provenance(recording.source))?;
    }
    writeln!(output, "positions: line\nevent: Ns : Nanoseconds")?;
    writeln!(output, "event: Ir : Instructions\nevents: Ns Ir")
}

fn write_calls(
    costs: &Costs,
    caller: Caller,
    names: &mut Names<'_>,
    output: &mut impl Write,
) -> io::Result<()> {
    for (callee, sums) in costs.calls_of(caller) {
        let callee = Caller::Function(callee);
        names.place("c", callee, output)?;
        writeln!(output, "calls={} {}", sums.calls, names.line(callee))?;
        let line = names.line(caller);
        writeln!(output, "{line} {} {}", sums.time, sums.instructions)?;
    }
    Ok(())
}

/// A function on the stack.
struct Frame {
    function: FunctionId,
    calls: u64,
    inclusive: Sums,
}

impl Costs {
    fn add(&mut self, number: usize, thread: &ThreadPaths) {
        let mut stack = Vec::<Frame>::new();
        let mut active = BTreeMap::<FunctionId, u32>::new();
        let walked = thread.paths.walk(|step| {
            match step {
                Step::Enter(function, own) => {
                    self.own.entry(function).or_default().add(own);
                    *active.entry(function).or_default() += 1;
                    stack.push(Frame {
                        function,
                        calls: own.calls,
                        inclusive: own,
                    });
                }
                Step::Leave(function) => {
                    let count = active.entry(function).or_default();
                    *count -= 1;
                    let outermost = *count == 0;
                    if let Some(frame) = stack.pop() {
                        self.left(number, &frame, stack.last_mut(), outermost);
                    }
                }
            }
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(()) = walked;
    }

    fn left(&mut self, thread: usize, frame: &Frame, caller: Option<&mut Frame>, outermost: bool) {
        let mut sums = Sums {
            calls: frame.calls,
            ..Sums::default()
        };
        if outermost {
            sums.time = frame.inclusive.time;
            sums.instructions = frame.inclusive.instructions;
        }
        let from = match caller {
            Some(caller) => {
                caller.inclusive.add(frame.inclusive);
                Caller::Function(caller.function)
            }
            None => Caller::Thread(thread),
        };
        let edge = self.calls.entry((from, frame.function)).or_default();
        edge.add(sums);
    }

    fn calls_of(&self, caller: Caller) -> impl Iterator<Item = (FunctionId, Sums)> + '_ {
        let (first, last) = (FunctionId(0), FunctionId(u32::MAX));
        let range = self.calls.range((caller, first)..=(caller, last));
        range.map(|(&(_, callee), &sums)| (callee, sums))
    }
}

/// Names by number, each said in full once.
struct Names<'a> {
    profile: &'a Profile,
    threads: &'a [ThreadPaths],
    /// Numbers of modules and source files, from 1.
    files: BTreeMap<&'a str, usize>,
    /// By number, what was said: objects, files, functions.
    said: [Vec<bool>; 3],
}

impl<'a> Names<'a> {
    fn new(profile: &'a Profile, threads: &'a [ThreadPaths]) -> Self {
        Self {
            profile,
            threads,
            files: BTreeMap::new(),
            said: [const { Vec::new() }; 3],
        }
    }

    /// Says where the following costs belong; `prefix` is `c` for a callee.
    fn place(&mut self, prefix: &str, what: Caller, output: &mut impl Write) -> io::Result<()> {
        let (number, name, module, file) = match what {
            Caller::Thread(index) => {
                let track = &self.threads[index].track;
                let TrackKind::Thread { tid, .. } = track.kind;
                let name = format!("[thread {} {tid}]", track.name);
                (self.profile.function_count() + index + 1, name, "", "")
            }
            Caller::Function(id) => {
                let function = self.profile.function(id);
                let module = function.map_or("", |function| &function.module);
                let name = function.map_or("", |function| &function.name);
                let source = function.and_then(|function| function.source.as_ref());
                let file = source.map_or(module, |source| &source.file);
                (id.0 as usize + 1, name.to_owned(), module, file)
            }
        };
        let object = self.file(module);
        let source = self.file(file);
        if prefix.is_empty() {
            writeln!(output)?;
        }
        let key = if prefix.is_empty() { "fl" } else { "cfi" };
        self.say(0, &format!("{prefix}ob"), object.0, object.1, output)?;
        self.say(1, key, source.0, source.1, output)?;
        self.say(2, &format!("{prefix}fn"), number, &name, output)
    }

    fn file(&mut self, name: &'a str) -> (usize, &'a str) {
        let next = self.files.len() + 1;
        let number = *self.files.entry(name).or_insert(next);
        (number, if name.is_empty() { "???" } else { name })
    }

    /// The line of a function; 0 if it is not known.
    fn line(&self, what: Caller) -> u32 {
        let Caller::Function(id) = what else { return 0 };
        let source = self.profile.function(id).and_then(|f| f.source.as_ref());
        source.map_or(0, |source| source.line)
    }

    fn say(
        &mut self,
        table: usize,
        key: &str,
        number: usize,
        name: &str,
        output: &mut impl Write,
    ) -> io::Result<()> {
        let said = &mut self.said[table];
        if said.len() <= number {
            said.resize(number + 1, false);
        }
        if std::mem::replace(&mut said[number], true) {
            writeln!(output, "{key}=({number})")
        } else {
            writeln!(output, "{key}=({number}) {}", one_line(name))
        }
    }
}
