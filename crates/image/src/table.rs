//! The functions of one image, by link address.
//!
//! Four sources, best first; each fills only what the ones before left open:
//!
//! 1. PLT stubs.
//! 2. Typed symbols. Where they nest, the one that starts last wins for its range and the outer
//!    one goes on behind it. Cold parts belong to their function.
//! 3. Unwind frames: the rest of a symbol that is shorter than its frame, and functions without a
//!    symbol, called `sub_<address>`.
//! 4. Hints, which also rename those: untyped global names, `main`, `_start`, `_init`, `_fini`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::cold;
use crate::demangle::{bound, demangle};
use crate::elf::{CodeSection, CodeSectionKind, Elf, section_at};
use crate::entry;
use crate::frames::{self, Frame};
use crate::function::FunctionKind;
use crate::layout::{Layout, Range};
use crate::name::{NameRef, Names};
use crate::plt::{self, SlotTarget, Slots, Stub};
use crate::symbols::{self, Symbol, SymbolKind};

/// A function's entry and how to say its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Link address of the first instruction.
    pub(crate) entry: u64,
    name: Name,
    kind: FunctionKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Symbol(NameRef),
    Fixed(&'static str),
    /// `sub_` and the entry.
    Address,
    Stub(SlotTarget),
}

/// Finished table: disjoint sorted ranges, functions by ascending entry.
pub(crate) struct FunctionTable {
    ranges: Vec<Range>,
    functions: Vec<Entry>,
}

impl FunctionTable {
    /// One function over all bytes, for captured code without an ELF header.
    pub(crate) fn whole(len: u64) -> Self {
        Self {
            ranges: vec![Range {
                start: 0,
                end: len,
                function: 0,
            }],
            functions: vec![Entry {
                entry: 0,
                name: Name::Fixed(""),
                kind: FunctionKind::Jit,
            }],
        }
    }

    pub(crate) fn build(elf: &Elf<'_>, debug: Option<&Elf<'_>>) -> Self {
        let names = Names {
            main: elf.data,
            debug: debug.map_or(&[], |debug| debug.data),
        };
        let sections = elf.code_sections();
        let slots = Slots::read(elf, names);
        let symbols = symbols::read(elf, debug, &sections, names);
        let frames = frames::read(elf, &sections);
        let hints = hints(elf, &sections, &slots, &symbols, names);
        let mut builder = Builder {
            sections: &sections,
            functions: Vec::new(),
            layout: Layout::default(),
        };
        builder.add_stubs(&plt::stubs(elf, &sections, &slots));
        builder.add_symbols(&symbols, &frames, &cold::owners(&symbols, names));
        builder.add_frames(&frames, &hints);
        builder.add_hints(&hints);
        builder.finish()
    }

    /// The range and function at a link address.
    pub(crate) fn find(&self, address: u64) -> Option<(Range, &Entry)> {
        let later = self.ranges.partition_point(|range| range.start <= address);
        let range = self.ranges[..later]
            .last()
            .filter(|range| address < range.end)?;
        Some((*range, &self.functions[range.function as usize]))
    }

    /// Readable name, mangled name and kind.
    pub(crate) fn describe<'a>(
        &self,
        number: u32,
        names: Names<'a>,
    ) -> Option<(Cow<'a, str>, Option<Cow<'a, str>>, FunctionKind)> {
        let function = self.functions.get(number as usize)?;
        let (name, mangled) = match function.name {
            Name::Stub(target) => {
                let (name, mangled) = self.target(target, names);
                let stub = |name: Cow<'_, str>| bound(Cow::Owned(format!("{name}@plt")));
                (stub(name), mangled.map(stub))
            }
            Name::Symbol(name) => readable(name, names),
            Name::Fixed(name) => (Cow::Borrowed(name), None),
            Name::Address => (Cow::Owned(unnamed(function.entry)), None),
        };
        Some((name, mangled, function.kind))
    }

    fn target<'a>(
        &self,
        target: SlotTarget,
        names: Names<'a>,
    ) -> (Cow<'a, str>, Option<Cow<'a, str>>) {
        let address = match target {
            SlotTarget::Symbol(name) => return readable(name, names),
            SlotTarget::Resolver(address) => address,
        };
        match self.find(address).map(|(_, function)| function) {
            Some(&Entry {
                entry,
                name: Name::Symbol(name),
                ..
            }) if entry == address => readable(name, names),
            _ => (Cow::Owned(unnamed(address)), None),
        }
    }
}

fn unnamed(address: u64) -> String {
    format!("sub_{address:x}")
}

fn readable<'a>(name: NameRef, names: Names<'a>) -> (Cow<'a, str>, Option<Cow<'a, str>>) {
    let raw = String::from_utf8_lossy(names.get(name));
    match demangle(&raw) {
        Some(text) => (Cow::Owned(text), Some(bound(raw))),
        None => (bound(raw), None),
    }
}

/// Names for addresses that have no typed symbol; the first one said stays.
fn hints(
    elf: &Elf<'_>,
    sections: &[CodeSection],
    slots: &Slots,
    symbols: &[Symbol],
    names: Names<'_>,
) -> BTreeMap<u64, Name> {
    let mut hints = BTreeMap::new();
    for symbol in symbols
        .iter()
        .filter(|symbol| symbol.kind == SymbolKind::Label)
    {
        hints
            .entry(symbol.address)
            .or_insert(Name::Symbol(symbol.name));
    }
    let mut fixed = |address: Option<u64>, name| {
        if let Some(address) = address.filter(|&address| section_at(sections, address).is_some()) {
            hints.entry(address).or_insert(Name::Fixed(name));
        }
    };
    fixed(entry::find_main(elf, sections, slots, names), "main");
    fixed(entry::find_start(elf), "_start");
    let section = |kind| {
        sections
            .iter()
            .find(|section| section.kind == kind)
            .map(|section| section.start)
    };
    fixed(section(CodeSectionKind::Init), "_init");
    fixed(section(CodeSectionKind::Fini), "_fini");
    hints
}

struct Builder<'a> {
    sections: &'a [CodeSection],
    functions: Vec<Entry>,
    layout: Layout,
}

impl Builder<'_> {
    fn add(&mut self, entry: u64, name: Name, kind: FunctionKind) -> u32 {
        self.functions.push(Entry { entry, name, kind });
        (self.functions.len() - 1) as u32
    }

    fn add_stubs(&mut self, stubs: &[Stub]) {
        let mut ranges = Vec::with_capacity(stubs.len());
        for stub in stubs {
            let name = stub.target.map_or(Name::Fixed(".plt"), Name::Stub);
            let function = self.add(stub.start, name, FunctionKind::PltStub);
            ranges.push(Range {
                start: stub.start,
                end: stub.end,
                function,
            });
        }
        self.layout.fill(&ranges);
    }

    fn add_symbols(
        &mut self,
        symbols: &[Symbol],
        frames: &[Frame],
        cold_owners: &HashMap<u64, u64>,
    ) {
        let typed: Vec<&[Symbol]> = symbols
            .chunk_by(|a, b| a.address == b.address)
            .filter(|same_address| same_address[0].kind != SymbolKind::Label)
            .collect();
        let mut ranges = Vec::with_capacity(typed.len());
        let mut numbers = HashMap::new();
        let is_owner: HashSet<u64> = cold_owners.values().copied().collect();
        for (index, same_address) in typed.iter().enumerate() {
            let best = &same_address[0];
            let size = same_address
                .iter()
                .filter(|s| s.kind != SymbolKind::Label)
                .map(|s| s.size)
                .max()
                .unwrap_or(0);
            let next = typed.get(index + 1).map(|next| next[0].address);
            let end = match size {
                0 => self.end_of_unsized(best.address, next, frames),
                _ => self
                    .section_end(best.address)
                    .min(best.address.saturating_add(size)),
            };
            let kind = match best.kind {
                SymbolKind::Ifunc => FunctionKind::IfuncResolver,
                SymbolKind::Function | SymbolKind::Label => FunctionKind::Code,
            };
            let function = self.add(best.address, Name::Symbol(best.name), kind);
            if is_owner.contains(&best.address) {
                numbers.insert(best.address, function);
            }
            ranges.push(Range {
                start: best.address,
                end,
                function,
            });
        }
        for range in &mut ranges {
            if let Some(&owner) = cold_owners
                .get(&range.start)
                .and_then(|owner| numbers.get(owner))
            {
                range.function = owner;
            }
        }
        self.layout.fill(&crate::layout::flatten(&ranges));
    }

    fn section_end(&self, address: u64) -> u64 {
        section_at(self.sections, address).map_or(address, |section| section.end)
    }

    /// To the next symbol, the next frame, the end of its own frame or of the section.
    fn end_of_unsized(&self, address: u64, next_symbol: Option<u64>, frames: &[Frame]) -> u64 {
        let later = frames.partition_point(|frame| frame.start <= address);
        let next_frame = frames.get(later).map(|frame| frame.start);
        let own_frame = frames[..later]
            .last()
            .map(|frame| frame.end)
            .filter(|&end| end > address);
        let ends = [
            Some(self.section_end(address)),
            next_symbol,
            next_frame,
            own_frame,
        ];
        ends.into_iter().flatten().min().unwrap_or(address)
    }

    fn add_frames(&mut self, frames: &[Frame], hints: &BTreeMap<u64, Name>) {
        let mut ranges = Vec::new();
        for frame in frames {
            // One frame covers a whole PLT, which says nothing about its entries.
            if section_at(self.sections, frame.start)
                .is_some_and(|s| matches!(s.kind, CodeSectionKind::Plt(_)))
            {
                continue;
            }
            if self.layout.covers(frame.start, frame.end) {
                continue;
            }
            let function = match self.layout.find(frame.start) {
                Some(range) => range.function,
                None => {
                    let name = hints.get(&frame.start).copied().unwrap_or(Name::Address);
                    self.add(frame.start, name, FunctionKind::Code)
                }
            };
            ranges.push(Range {
                start: frame.start,
                end: frame.end,
                function,
            });
        }
        self.layout.fill(&crate::layout::flatten(&ranges));
    }

    fn add_hints(&mut self, hints: &BTreeMap<u64, Name>) {
        let mut ranges = Vec::new();
        for (&address, &name) in hints {
            if self.layout.find(address).is_some() {
                continue;
            }
            let next_hint = hints.range(address + 1..).next().map(|(&next, _)| next);
            let ends = [
                Some(self.section_end(address)),
                next_hint,
                self.layout.next_start(address),
            ];
            let end = ends.into_iter().flatten().min().unwrap_or(address);
            let function = self.add(address, name, FunctionKind::Code);
            ranges.push(Range {
                start: address,
                end,
                function,
            });
        }
        self.layout.fill(&ranges);
    }

    /// Numbers the functions that kept a range by ascending entry.
    fn finish(self) -> FunctionTable {
        let mut ranges = self.layout.into_ranges();
        let mut order: Vec<u32> = ranges.iter().map(|range| range.function).collect();
        order.sort_unstable_by_key(|&function| (self.functions[function as usize].entry, function));
        order.dedup();
        let mut numbers = vec![0; self.functions.len()];
        for (number, &function) in order.iter().enumerate() {
            numbers[function as usize] = number as u32;
        }
        for range in &mut ranges {
            range.function = numbers[range.function as usize];
        }
        let functions = order
            .iter()
            .map(|&function| self.functions[function as usize])
            .collect();
        FunctionTable { ranges, functions }
    }
}
