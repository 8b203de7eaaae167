//! Symbols that stand for code, from `.symtab`, `.dynsym` and the separate debug file.

use std::cmp::{Ordering, Reverse};

use object::LittleEndian;
use object::elf::{self, Sym64};
use object::read::elf::{SectionHeader, Sym};

use crate::elf::{CodeSection, Elf, LE, section_at};
use crate::name::{NameRef, Names};

/// A symbol inside a code section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) address: u64,
    /// Bytes, zero if unknown.
    pub(crate) size: u64,
    pub(crate) name: NameRef,
    pub(crate) binding: Binding,
    pub(crate) kind: SymbolKind,
    /// The source file it comes from, as far as `STT_FILE` symbols tell; for local symbols.
    pub(crate) unit: u32,
}

/// In order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Binding {
    Global,
    Local,
    Weak,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SymbolKind {
    Function,
    Ifunc,
    /// Untyped global name, as hand-written assembly has them.
    Label,
}

/// All code symbols, sorted by address; of several at one address the best name comes first.
pub(crate) fn read(
    elf: &Elf<'_>,
    debug: Option<&Elf<'_>>,
    sections: &[CodeSection],
    names: Names<'_>,
) -> Vec<Symbol> {
    let mut reader = Reader {
        names,
        sections,
        unit: 0,
        symbols: Vec::new(),
    };
    reader.table(elf, false, elf::SHT_SYMTAB);
    if let Some(debug) = debug {
        reader.table(debug, true, elf::SHT_SYMTAB);
    }
    reader.table(elf, false, elf::SHT_DYNSYM);
    let mut symbols = reader.symbols;
    symbols.sort_by(|a, b| {
        a.address
            .cmp(&b.address)
            .then_with(|| preference(a, b, names))
    });
    symbols
}

struct Reader<'a> {
    names: Names<'a>,
    sections: &'a [CodeSection],
    unit: u32,
    symbols: Vec<Symbol>,
}

impl Reader<'_> {
    fn table(&mut self, elf: &Elf<'_>, debug: bool, kind: elf::SectionType) {
        // A file has at most one of each kind.
        let Some(section) = elf
            .sections
            .iter()
            .find(|section| section.sh_type(LE) == kind)
        else {
            return;
        };
        let Some(strings) = elf.strings_of(section) else {
            return;
        };
        let Ok(symbols) = section.data_as_array::<Sym64<LittleEndian>, _>(LE, elf.data) else {
            return;
        };
        self.unit += 1;
        for symbol in symbols {
            self.add(symbol, debug, strings);
        }
    }

    fn add(&mut self, symbol: &Sym64<LittleEndian>, debug: bool, strings: (u64, u64)) {
        let binding = match symbol.st_bind() {
            elf::STB_LOCAL => Binding::Local,
            elf::STB_WEAK => Binding::Weak,
            _ => Binding::Global,
        };
        let kind = match symbol.st_type() {
            elf::STT_FILE => {
                self.unit += 1;
                return;
            }
            elf::STT_FUNC => SymbolKind::Function,
            elf::STT_GNU_IFUNC => SymbolKind::Ifunc,
            // Local labels are places inside functions.
            elf::STT_NOTYPE if binding != Binding::Local => SymbolKind::Label,
            _ => return,
        };
        if symbol.st_shndx(LE) == elf::SHN_UNDEF {
            return;
        }
        let address = symbol.st_value(LE);
        if section_at(self.sections, address).is_none() {
            return;
        }
        let Some(name) = self.names.locate(debug, strings, symbol.st_name(LE)) else {
            return;
        };
        self.symbols.push(Symbol {
            address,
            size: symbol.st_size(LE),
            name,
            binding,
            kind,
            unit: self.unit,
        });
    }
}

/// Typed before untyped; global, local, weak; fewer leading underscores; shorter; then by name, so
/// that the order of the tables does not matter.
fn preference(a: &Symbol, b: &Symbol, names: Names<'_>) -> Ordering {
    let key = |symbol: &Symbol| {
        let name = names.get(symbol.name);
        let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
        (
            symbol.kind == SymbolKind::Label,
            symbol.binding,
            underscores,
            name.len(),
            name,
            Reverse(symbol.size),
        )
    };
    key(a).cmp(&key(b))
}
