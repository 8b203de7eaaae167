//! The spans of a dump, and what can be asked of them.

use std::collections::BTreeMap;

use serde_json::Value;

/// A span as `ptrail dump --spans --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) track: u64,
    pub(crate) function: String,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) depth: i64,
    pub(crate) instructions: u64,
    pub(crate) self_instructions: u64,
    pub(crate) flags: Vec<String>,
}

impl Span {
    /// Whether it stands for no function of the program.
    pub(crate) fn is_between(&self) -> bool {
        self.function.starts_with('[') || self.function.ends_with("@plt") || self.function == ".plt"
    }

    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }
}

/// The spans with their ancestors.
pub(crate) struct Spans {
    /// In the order of their ends.
    pub(crate) all: Vec<Span>,
    /// Index of the span around each.
    parents: Vec<Option<usize>>,
    pub(crate) losses: Vec<Value>,
}

impl Spans {
    pub(crate) fn from_dump(lines: &[Value]) -> Self {
        let (losses, spans): (Vec<_>, Vec<_>) =
            lines.iter().partition(|line| line.get("loss").is_some());
        let all: Vec<_> = spans.into_iter().map(parse).collect();
        let parents = parents(&all);
        Self {
            all,
            parents,
            losses: losses.into_iter().cloned().collect(),
        }
    }

    /// Calls of a function. The rest of one whose stack was left and gone back to is no other call.
    pub(crate) fn count(&self, function: &str) -> usize {
        self.all
            .iter()
            .filter(|span| span.function == function && !span.has("resumed"))
            .count()
    }

    /// All spans around span `index`, innermost first.
    fn around(&self, index: usize) -> impl Iterator<Item = &Span> {
        let next = move |&index: &usize| self.parents[index];
        std::iter::successors(self.parents[index], next).map(|index| &self.all[index])
    }

    /// Whether a call of `child` comes directly from `parent`.
    pub(crate) fn nests(&self, parent: &str, child: &str) -> bool {
        (0..self.all.len())
            .filter(|&index| self.all[index].function == child)
            .any(|index| {
                self.around(index)
                    .find(|span| !span.is_between())
                    .is_some_and(|span| span.function == parent)
            })
    }

    /// Whether every call of `inner` happens inside a call of `outer`.
    pub(crate) fn is_inside(&self, outer: &str, inner: &str) -> bool {
        (0..self.all.len())
            .filter(|&index| self.all[index].function == inner)
            .all(|index| self.around(index).any(|span| span.function == outer))
    }

    /// What breaks the rules that hold for all spans; empty if nothing does.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut inner = vec![0; self.all.len()];
        for (index, span) in self.all.iter().enumerate() {
            if span.end < span.begin {
                faults.push(format!("ends before it begins: {span:?}"));
            }
            if span.instructions != span.self_instructions + inner[index] {
                faults.push(format!(
                    "instructions don't add up: {span:?}, {} in calls",
                    inner[index]
                ));
            }
            match self.parents[index].map(|parent| (parent, &self.all[parent])) {
                Some((number, parent)) => {
                    inner[number] += span.instructions;
                    if span.begin < parent.begin || span.end > parent.end {
                        faults.push(format!("sticks out of its caller: {span:?} in {parent:?}"));
                    }
                }
                None if span.depth > 0 && !span.has("late") => {
                    faults.push(format!("has no caller: {span:?}"));
                }
                None => {}
            }
        }
        faults
    }
}

fn parse(line: &Value) -> Span {
    let number = |key: &str| line[key].as_u64().unwrap();
    let flags = line["flags"].as_array().unwrap();
    Span {
        track: number("track"),
        function: line["function"].as_str().unwrap().to_string(),
        begin: number("begin_ps"),
        end: number("begin_ps") + number("duration_ps"),
        depth: line["depth"].as_i64().unwrap(),
        instructions: number("instructions"),
        self_instructions: number("self_instructions"),
        flags: flags
            .iter()
            .map(|flag| flag.as_str().unwrap().to_string())
            .collect(),
    }
}

/// Spans come in the order of their ends: those that wait at a depth belong to the next span that
/// ends one above.
fn parents(all: &[Span]) -> Vec<Option<usize>> {
    let mut parents = vec![None; all.len()];
    let mut waiting: BTreeMap<(u64, i64), Vec<usize>> = BTreeMap::new();
    for (index, span) in all.iter().enumerate() {
        for child in waiting
            .remove(&(span.track, span.depth + 1))
            .unwrap_or_default()
        {
            parents[child] = Some(index);
        }
        waiting
            .entry((span.track, span.depth))
            .or_default()
            .push(index);
    }
    parents
}
