//! Branches of real CPUs, decoded by perf, and the spans that magic-trace made of them.
//!
//! The cases are text: a line of `perf script` for each branch. What such a line does not tell is
//! made up here by rules that know nothing of stacks: a call's length is that to the nearest address
//! behind it that anything returns to; a call counts as one instruction and all else as none, for
//! magic-trace spreads calls evenly over the time to the next packet.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ptrail_flow::{Edge, EdgeKind, OffCause};
use ptrail_image::{KERNEL, Timeline, TimelineBuilder};
use ptrail_pt::{Ip, PerfTime, Picos};
use serde_json::Value;

use crate::contract::Contract;
use crate::script::{Event, PID, Script, play};

/// Longest call instruction, bytes.
const LONGEST_CALL: u64 = 7;

/// One end of a branch.
#[derive(Clone, Debug)]
struct Side {
    ip: u64,
    /// Function and where it begins, if perf knew.
    symbol: Option<(String, u64)>,
}

#[derive(Clone, Debug)]
enum Line {
    Branch {
        ns: u64,
        flags: String,
        from: Side,
        to: Side,
    },
    Error {
        ns: u64,
    },
}

impl Line {
    /// A line; `None` if it is no branch and no error.
    fn parse(text: &str) -> Option<Self> {
        if let Some(error) = text.trim_start().strip_prefix("instruction trace error") {
            let ns = nanoseconds(word_behind(error, "time")?)?;
            return Some(Self::Error { ns });
        }
        let (head, branch) = text.split_once("branches:")?;
        let ns = nanoseconds(head.split_whitespace().nth(1)?.strip_suffix(':')?)?;
        let (_, branch) = branch.split_once(':')?;
        let (from, to) = branch.split_once("=>")?;
        // The flags are words; the address behind them is the first with a digit in front of it.
        let words: Vec<_> = from.split_whitespace().collect();
        let is_address = |word: &&str| u64::from_str_radix(word, 16).is_ok();
        let address = words.iter().skip(1).position(is_address)? + 1;
        Some(Self::Branch {
            ns,
            flags: words[..address].join(" "),
            from: Side::parse(&words[address..])?,
            to: Side::parse(&to.split_whitespace().collect::<Vec<_>>())?,
        })
    }

    /// Whether it is more than a jump within one function.
    fn changes_stack(&self) -> bool {
        match self {
            Self::Branch {
                flags, from, to, ..
            } => !matches!(flags.as_str(), "jmp" | "jcc") || from.name() != to.name(),
            Self::Error { .. } => true,
        }
    }

    fn ns(&self) -> u64 {
        match *self {
            Self::Branch { ns, .. } | Self::Error { ns } => ns,
        }
    }
}

impl Side {
    fn name(&self) -> Option<&str> {
        self.symbol.as_ref().map(|(name, _)| name.as_str())
    }

    /// Address, `symbol+0xoffset`, module; or another word for the symbol where it has none.
    fn parse(words: &[&str]) -> Option<Self> {
        let ip = u64::from_str_radix(words.first()?, 16).ok()?;
        let symbol = words[1..words.len().saturating_sub(1)].join(" ");
        let symbol = symbol.rsplit_once("+0x").and_then(|(name, offset)| {
            let offset = u64::from_str_radix(offset, 16).ok()?;
            Some((name.to_owned(), ip - offset))
        });
        Some(Self { ip, symbol })
    }
}

fn nanoseconds(seconds: &str) -> Option<u64> {
    let (whole, fraction) = seconds.split_once('.')?;
    Some(whole.parse::<u64>().ok()? * 1_000_000_000 + fraction.parse::<u64>().ok()?)
}

fn word_behind<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let mut words = text.split_whitespace();
    words.find(|found| *found == word)?;
    words.next()
}

/// A function for each symbol, as far as it is known to reach.
fn functions(lines: &[Line]) -> Timeline {
    let mut known: HashMap<String, BTreeMap<u64, (u64, u32)>> = HashMap::new();
    for line in lines {
        let Line::Branch { from, to, .. } = line else {
            continue;
        };
        for side in [from, to] {
            if let Some((name, entry)) = &side.symbol {
                let last = known.entry(name.clone()).or_default();
                let (last, count) = last.entry(*entry).or_insert((side.ip, 0));
                *last = side.ip.max(*last);
                *count += 1;
            }
        }
    }
    let mut entries: BTreeMap<u64, (u64, String)> = BTreeMap::new();
    for (name, mut places) in known {
        // Some names were made unreadable before publication, and their offsets no longer agree:
        // what overlaps is one function, which begins where most say.
        while let Some((entry, (last, count))) = places.pop_first() {
            let (mut entry, mut last, mut count) = (entry, last, count);
            while let Some(next) = places.first_entry().filter(|next| *next.key() <= last) {
                let (other, (other_last, other_count)) = (*next.key(), *next.get());
                next.remove();
                last = last.max(other_last);
                if other_count > count {
                    (entry, count) = (other, other_count);
                }
            }
            entries.insert(entry, (last, name.clone()));
        }
    }
    let starts: BTreeSet<u64> = entries.keys().copied().collect();
    let mut builder = TimelineBuilder::new();
    for (entry, (last, name)) in entries {
        let next = starts.range(entry + 1..).next().copied();
        let end = (last + 16).min(next.unwrap_or(u64::MAX));
        let pid = if entry >> 63 == 1 { KERNEL } else { PID };
        let bytes = vec![0x90; (end - entry) as usize];
        builder.code(pid, PerfTime(0), entry, &name, bytes);
    }
    builder.build()
}

/// The events, times from `start` nanoseconds on, and those at which a packet said the time.
fn script(lines: &[Line], start: u64) -> (Script, Vec<u64>) {
    let returned_to: BTreeSet<u64> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Branch { flags, to, .. } if flags == "return" => Some(to.ip),
            _ => None,
        })
        .collect();
    let behind_call = |from: u64| {
        let mut behind = returned_to.range(from + 2..=from + LONGEST_CALL);
        behind.next().copied().unwrap_or(from + 5)
    };
    let mut script = Script::new();
    if let Some(Line::Branch { flags, from, .. }) = lines.first()
        && flags != "tr strt"
    {
        script.at(0).begin(from.ip);
    }
    let mut times = vec![0];
    let mut broken = false;
    for (number, line) in lines.iter().enumerate() {
        let ns = line.ns() - start;
        let last = number + 1 == lines.len();
        if (line.changes_stack() || last) && times.last() != Some(&ns) {
            times.push(ns);
            script.at(ns);
        }
        let (flags, from, to) = match line {
            Line::Error { .. } => {
                let next = lines.get(number + 1).map_or(ns, |next| next.ns() - start);
                script.at(ns).loss(ns, next).at(next);
                broken = true;
                continue;
            }
            Line::Branch {
                flags, from, to, ..
            } => (flags.as_str(), from, to),
        };
        let edge = |kind, next| {
            Event::Edge(Edge {
                kind,
                from: Ip(from.ip),
                to: Ip(to.ip),
                next: Ip(next),
            })
        };
        script.push(match flags {
            "call" => edge(EdgeKind::Call, behind_call(from.ip)),
            "return" => edge(EdgeKind::Return, from.ip + 1),
            // Direct or not is not said.
            "jmp" => edge(EdgeKind::JumpIndirect, from.ip + 2),
            "jcc" => edge(EdgeKind::Conditional, from.ip + 2),
            "iret" => edge(EdgeKind::FarReturn, from.ip + 2),
            "tr strt" if std::mem::take(&mut broken) => Event::Begin(to.ip),
            "tr strt" => Event::On(to.ip),
            "tr end syscall" => Event::Off(from.ip, from.ip + 2, OffCause::Syscall),
            // Why is not said.
            "tr end" => Event::Off(from.ip, from.ip, OffCause::FarTransfer),
            other => panic!("a branch of a new kind: {other}"),
        });
        match flags {
            "tr end" | "tr end syscall" => script.at(ns),
            "call" | "jmp" if line.changes_stack() => script.run(1),
            _ => continue,
        };
    }
    (script, times)
}

/// A span of either side, with the number of those around it; nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    begin: u64,
    end: u64,
    depth: usize,
    name: String,
}

impl std::fmt::Display for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            begin,
            end,
            depth,
            name,
        } = self;
        write!(f, "@{depth} {name} {begin}..{end}")
    }
}

/// magic-trace's spans, those around others first.
fn published(case: &Value) -> Vec<Item> {
    let spans = case["spans"].as_array().unwrap().iter();
    let number = |span: &Value, key: &str| span[key].as_u64().unwrap();
    spans
        .filter(|span| span["instant"] != true)
        .map(|span| Item {
            begin: number(span, "start_ns"),
            end: number(span, "end_ns"),
            depth: number(span, "depth") as usize,
            name: span["name"].as_str().unwrap().to_owned(),
        })
        .map(|mut item| {
            if item.name.starts_with("[unknown @") {
                item.name = "[unknown]".to_owned();
            }
            item
        })
        .collect()
}

/// Our spans, those around others first.
fn built(contract: &Contract) -> Vec<Item> {
    // Spans come in the order of their ends: who ends last is around those behind it that began
    // in it at a greater depth.
    let mut around: Vec<(i32, Picos)> = Vec::new();
    let mut items = Vec::new();
    for span in contract.spans.iter().rev() {
        while around
            .last()
            .is_some_and(|&(depth, begin)| span.depth <= depth || span.begin < begin)
        {
            around.pop();
        }
        items.push(Item {
            begin: span.begin.0 / 1000,
            end: span.end.0 / 1000,
            depth: around.len(),
            name: contract.name(span.function).to_owned(),
        });
        around.push((span.depth, span.begin));
    }
    items.reverse();
    items.sort_by_key(|item| (item.begin, item.depth));
    items
}

/// Code of no known function is one function, whichever addresses of it are jumped to.
fn join_unknown(items: Vec<Item>) -> Vec<Item> {
    let mut joined: Vec<Item> = Vec::new();
    for item in items {
        let before = joined.iter_mut().rev().find(|it| it.depth <= item.depth);
        match before {
            Some(before)
                if (before.depth, before.end) == (item.depth, item.begin)
                    && before.name == "[unknown]"
                    && item.name == "[unknown]" =>
            {
                before.end = item.end;
            }
            _ => joined.push(item),
        }
    }
    joined
}

/// What only one of the sides has, `-` being theirs and `+` ours; and how many of the others have
/// other times than theirs, between the same two packets.
fn differences(theirs: Vec<Item>, ours: Vec<Item>, times: &[u64]) -> (Vec<String>, usize) {
    let (mut theirs, mut ours) = (join_unknown(theirs), join_unknown(ours));
    let mut common: BTreeMap<Item, usize> = BTreeMap::new();
    for item in &theirs {
        *common.entry(item.clone()).or_default() += 1;
    }
    ours.retain(|item| match common.get_mut(item) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    });
    theirs.retain(|item| match common.get_mut(item) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    });
    let between = |a: u64, b: u64| {
        let after = times.partition_point(|&time| time <= a.min(b));
        times.get(after).is_none_or(|&time| a.max(b) <= time)
    };
    let mut elsewhen = 0;
    theirs.retain(|theirs| {
        let same = ours.iter().position(|ours| {
            (ours.depth, &ours.name) == (theirs.depth, &theirs.name)
                && between(ours.begin, theirs.begin)
                && between(ours.end, theirs.end)
        });
        if let Some(same) = same {
            ours.remove(same);
            elsewhen += 1;
        }
        same.is_none()
    });
    let theirs = theirs.iter().map(|item| (item, '-'));
    let mut all: Vec<_> = theirs.chain(ours.iter().map(|item| (item, '+'))).collect();
    all.sort();
    let lines = all.iter().map(|(item, side)| format!("{side}{item}"));
    (lines.collect(), elsewhen)
}

fn check(name: &str, spans: usize, elsewhen: usize, expected: &[&str]) {
    let Some(folder) = xtask::reference_data("magic-trace") else {
        return;
    };
    let path = folder.join(name);
    let case: Value = if name.ends_with(".gz") {
        serde_json::from_slice(&xtask::gunzip(&path).unwrap()).unwrap()
    } else {
        xtask::read_json(&path).unwrap()
    };
    let lines = case["input"].as_array().unwrap().iter();
    let lines: Vec<_> = lines
        .filter_map(|line| Line::parse(line.as_str().unwrap()))
        .collect();
    let samples = case["n_point_samples"].as_u64().unwrap();
    assert!(lines.len() as u64 + samples >= case["input"].as_array().unwrap().len() as u64 - 3);
    let (script, times) = script(&lines, case["t0_ns"].as_u64().unwrap());
    let (contract, _) = play(&functions(&lines), &script, &[], &[]);
    let theirs = published(&case);
    assert_eq!(theirs.len(), spans, "{name}");
    let found = differences(theirs, built(&contract), &times);
    assert_eq!(
        (found.0, found.1),
        (expected.iter().map(ToString::to_string).collect(), elsewhen),
        "{name}"
    );
}

macro_rules! cases {
    ($($name:ident $file:literal $spans:literal $elsewhen:literal [$($line:literal)*];)*) => {
        $(#[test] fn $name() { check($file, $spans, $elsewhen, &[$($line),*]); })*
    };
}

// File, spans of magic-trace, spans whose times are not theirs but lie between the same two packets,
// and the other differences; docs/stacks.md has the reasons.
cases! {
    memmove_decode_error "memmove_decode_error.json" 5 1 [];
    btree_rebalance_decode_error "btree_rebalance_decode_error.json" 17 2 [];
    simple_gogo "simple_gogo.json" 16 4 ["-@3 runtime.gopark 70970..70982"];
    ocaml_exceptions "ocaml_exceptions.json" 22 6 [];
    ocaml_poptrap "ocaml_exceptions_poptrap_corner_case.json" 2 0 [];
    ocaml_poptrap_without_table "ocaml_exceptions_poptrap_corner_case_noinfo.json" 2 0 [];
    page_fault "page_fault.json" 168 2 [
        "+@0 call_destructors 0..0"
        "+@2 native_irq_return_iret 1347..1347"
    ];
    hello_world "hello_world_userspace.json.gz" 946 2 [
        "+@6 __write 147679..148489"
        "-@6 __write 147679..153843"
        "+@6 __write_nocancel 148489..153843"
    ];
    demo_with_branch_misses "demo_with_branch_misses.json.gz" 1403 8 [
        "+@12 [unknown] 112622840..112622841"
        "-@12 [unknown] 112622840..112622881"
        "+@12 [unknown] 112622846..112622865"
    ];
    demo_with_branch_and_cache_misses
        "demo_with_branch_misses_and_cache_misses.json.gz" 1607 12 [
        "+@12 [unknown] 12473425..12473426"
        "-@12 [unknown] 12473425..12473450"
        "+@12 [unknown] 12473427..12473444"
    ];
}
