//! The way back: from a function's name or a source line to the code that is meant by it.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::demangle::demangle;
use crate::elf::Elf;
use crate::inlined;
use crate::name::Names;
use crate::symbols::{self, SymbolKind};
use crate::{Image, Search};

/// How many similar names are told where one is not found.
const SIMILAR: usize = 3;

/// Functions by a name, or what comes near it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// Link addresses of the first instructions, ascending: several for static functions of one name,
    /// or templates.
    Functions(Vec<u64>),
    /// It is chosen among several functions when the program is loaded (a `GNU_IFUNC` symbol).
    Chosen,
    /// None is called that; the names that are most like it.
    Unknown(Vec<String>),
}

/// Code of a source line, or what comes near it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtLine {
    /// Link addresses where the line begins, ascending, one for each function that has it, and for
    /// each place it is inlined at.
    Code(Vec<u64>),
    /// The file is known, but has no code at that line; the next line that has some, if there is one.
    NoCode(Option<u32>),
    /// No such source file, or no debug information.
    UnknownFile,
}

impl Image {
    /// The code of a file as it lies here, with its separate debug file if this machine has it.
    #[must_use]
    pub fn at_path(path: &Path) -> Self {
        let search = Search {
            debuginfod: false,
            ..Search::of_this_machine()
        };
        Self::given(path.display().to_string(), Arc::new(search))
    }

    /// The offset in the file of the code at a link address.
    #[must_use]
    pub fn file_offset(&self, link_address: u64) -> Option<u64> {
        self.segments().iter().find_map(|segment| {
            let at = link_address.checked_sub(segment.address)?;
            (at < segment.file_size).then(|| segment.offset + at)
        })
    }

    /// The functions that `name` stands for. It may be the symbol itself, or its readable form: whole,
    /// without its arguments, or its last parts (`bar` or `foo::bar` for `foo::bar(int)`); the first of
    /// these kinds that matches counts.
    #[must_use]
    pub fn functions_named(&self, name: &str) -> Named {
        let mut ranked: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
        let mut chosen = false;
        let mut near = Nearest::new(name);
        self.each_symbol(&mut |raw, address, kind| {
            if raw.contains(".cold") {
                return;
            }
            let readable = demangle(raw);
            let Some(rank) = rank(name, raw, readable.as_deref()) else {
                near.add(readable.as_deref().unwrap_or(raw));
                return;
            };
            match kind {
                SymbolKind::Ifunc => chosen = true,
                SymbolKind::Function | SymbolKind::Label => {
                    ranked.entry(rank).or_default().push(address);
                }
            }
        });
        match (ranked.pop_first(), chosen) {
            (Some((_, mut addresses)), _) => {
                addresses.sort_unstable();
                addresses.dedup();
                Named::Functions(addresses)
            }
            (None, true) => Named::Chosen,
            (None, false) => Named::Unknown(near.finish()),
        }
    }

    /// Link addresses where an inlined copy of a function begins, ascending; from debug information in
    /// the file or its separate debug file (not from `.dwo` files).
    #[must_use]
    pub fn inlined_copies(&self, name: &str) -> Vec<u64> {
        let matches = |raw: &str| rank(name, raw, demangle(raw).as_deref()).is_some();
        self.debug_path()
            .map_or_else(Vec::new, |path| inlined::copies(&path, &matches))
    }

    /// The code of a line of a source file; `file` may leave out folders at its beginning.
    #[must_use]
    pub fn code_at_line(&self, file: &str, line: u32) -> AtLine {
        let Some(lines) = self.lines() else {
            return AtLine::UnknownFile;
        };
        let mut known = false;
        let mut next: Option<u32> = None;
        // By function, and the calls through which it is inlined there.
        let mut first: HashMap<Vec<_>, u64> = HashMap::new();
        for segment in self.segments().iter().filter(|segment| segment.executable) {
            let end = segment.address.saturating_add(segment.file_size);
            lines.each_range(segment.address, end, &mut |begin, source, number| {
                if !is_same_file(source, file) {
                    return;
                }
                known = true;
                if number > line {
                    next = Some(next.map_or(number, |next| next.min(number)));
                }
                if number == line {
                    let mut frames = lines.frames(begin);
                    if let Some(innermost) = frames.first_mut() {
                        (innermost.line, innermost.column) = (None, None);
                    }
                    let key = frames
                        .into_iter()
                        .map(|frame| (frame.function, frame.line, frame.column))
                        .collect();
                    let at = first.entry(key).or_insert(begin);
                    *at = begin.min(*at);
                }
            });
        }
        if !known {
            return AtLine::UnknownFile;
        }
        if first.is_empty() {
            return AtLine::NoCode(next);
        }
        let mut addresses: Vec<u64> = first.into_values().collect();
        addresses.sort_unstable();
        AtLine::Code(addresses)
    }

    fn each_symbol(&self, see: &mut dyn FnMut(&str, u64, SymbolKind)) {
        let Ok(bytes) = self.bytes() else { return };
        let Ok(elf) = Elf::parse(bytes) else { return };
        let debug = self.debug_bytes();
        let debug_elf = debug.and_then(|bytes| Elf::parse(bytes).ok());
        let names = Names {
            main: bytes,
            debug: debug.unwrap_or_default(),
        };
        let sections = elf.code_sections();
        for symbol in symbols::read(&elf, debug_elf.as_ref(), &sections, names) {
            let raw = String::from_utf8_lossy(names.get(symbol.name));
            see(&raw, symbol.address, symbol.kind);
        }
    }

    /// The file with its debug information.
    fn debug_path(&self) -> Option<PathBuf> {
        let own = self.found()?.to_owned();
        Some(self.debug_file().map_or(own, |(_, path)| path.to_owned()))
    }
}

/// How well a name fits a function: the lower, the better.
fn rank(name: &str, raw: &str, readable: Option<&str>) -> Option<u8> {
    if raw == name {
        return Some(0);
    }
    let readable = readable?;
    let bare = without_arguments(readable);
    if readable == name || bare == name {
        return Some(1);
    }
    let end = bare.strip_suffix(name)?;
    end.ends_with("::").then_some(2)
}

/// `foo::bar` of `foo::bar(int) const`; `operator()` keeps its parentheses.
fn without_arguments(readable: &str) -> &str {
    let from = readable.find("operator()").map_or(0, |at| at + 10);
    let mut depth = 0_u32;
    for (at, letter) in readable.char_indices().skip_while(|&(at, _)| at < from) {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 && at > 0 && !readable[at..].starts_with("(anonymous") => {
                return &readable[..at];
            }
            _ => {}
        }
    }
    readable
}

/// Whether a source file's path ends in the parts of another one.
fn is_same_file(source: &str, wanted: &str) -> bool {
    let wanted = wanted.trim_start_matches("./");
    source
        .strip_suffix(wanted)
        .is_some_and(|folder| folder.is_empty() || folder.ends_with('/') || wanted.starts_with('/'))
}

/// The names most like one.
struct Nearest<'a> {
    wanted: &'a str,
    /// By how far off they are.
    found: BTreeMap<(usize, String), ()>,
}

impl<'a> Nearest<'a> {
    /// Names longer than this are compared by their beginning, bytes.
    const COMPARED: usize = 48;

    fn new(wanted: &'a str) -> Self {
        Self {
            wanted,
            found: BTreeMap::new(),
        }
    }

    fn add(&mut self, name: &str) {
        let bare = without_arguments(name);
        let last = bare.rsplit("::").next().unwrap_or(bare);
        let limit = self.wanted.len() / 3 + 1;
        let off = distance(self.wanted, last).min(distance(self.wanted, bare));
        if off <= limit {
            self.found.insert((off, bare.to_owned()), ());
            if self.found.len() > SIMILAR {
                self.found.pop_last();
            }
        }
    }

    fn finish(self) -> Vec<String> {
        self.found.into_keys().map(|(_, name)| name).collect()
    }
}

/// Levenshtein's distance of two names, by bytes.
fn distance(a: &str, b: &str) -> usize {
    let cut = |text: &'_ str| text.len().min(Nearest::COMPARED);
    let (a, b) = (&a.as_bytes()[..cut(a)], &b.as_bytes()[..cut(b)]);
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let best = (diagonal + usize::from(x != y)).min(row[j].min(row[j + 1]) + 1);
            diagonal = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_leave_out_what_is_around_it() {
        let raw = "_ZN3foo3barEi";
        let rank = |name| rank(name, raw, demangle(raw).as_deref());
        assert_eq!(rank("_ZN3foo3barEi"), Some(0));
        assert_eq!(rank("foo::bar(int)"), Some(1));
        assert_eq!(rank("foo::bar"), Some(1));
        assert_eq!(rank("bar"), Some(2));
        assert_eq!(rank("ar"), None);
        assert_eq!(rank("foo"), None);
    }

    #[test]
    fn arguments_are_what_stands_in_the_last_parentheses() {
        let cases = [
            ("f(int)", "f"),
            ("a::b<c(d)>::e(f) const", "a::b<c(d)>::e"),
            ("a::operator()(int)", "a::operator()"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("plain", "plain"),
        ];
        for (readable, bare) in cases {
            assert_eq!(without_arguments(readable), bare);
        }
    }

    #[test]
    fn files_are_the_same_by_their_last_parts() {
        assert!(is_same_file("/src/a/b.c", "b.c"));
        assert!(is_same_file("/src/a/b.c", "a/b.c"));
        assert!(is_same_file("/src/a/b.c", "/src/a/b.c"));
        assert!(is_same_file("b.c", "./b.c"));
        assert!(!is_same_file("/src/a/bb.c", "b.c"));
    }

    #[test]
    fn distances() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
