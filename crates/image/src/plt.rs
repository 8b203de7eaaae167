//! Stubs of the procedure linkage table, named after what they jump to.
//!
//! Every layout ends in an indirect jump through a GOT slot, and a relocation says what the slot
//! will hold. With IBT there are two tables: `.plt.sec` has those jumps, while `.plt` holds lazy
//! entries that push a relocation's number and jump to the table's head:
//!
//! ```text
//! .plt, .plt.got          .plt with IBT         .plt.sec
//!   jmp *SLOT(%rip)         endbr64               endbr64
//!   push NUMBER             push NUMBER           bnd jmp *SLOT(%rip)
//!   jmp HEAD                bnd jmp HEAD          nop
//! ```

use std::collections::HashMap;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use object::elf::{self, Rela64};
use object::read::elf::{Rela, SectionHeader, Sym};
use object::{LittleEndian, SectionIndex};

use crate::elf::{CodeSection, CodeSectionKind, Elf, LE, MAX_RELOCATION_TABLES, Section};
use crate::name::{NameRef, Names};

/// What a GOT slot will hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotTarget {
    /// The symbol's address.
    Symbol(NameRef),
    /// What the resolver at this link address returns (IFUNC).
    Resolver(u64),
}

/// A stub's range of link addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stub {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `None` for the head, which calls the dynamic linker.
    pub(crate) target: Option<SlotTarget>,
}

/// The file's relocations of GOT slots.
pub(crate) struct Slots {
    by_address: HashMap<u64, SlotTarget>,
    /// In the order that lazy entries count.
    lazy: Vec<Option<SlotTarget>>,
}

impl Slots {
    pub(crate) fn read(elf: &Elf<'_>, names: Names<'_>) -> Self {
        let mut slots = Self {
            by_address: HashMap::new(),
            lazy: Vec::new(),
        };
        for (section, relocations, link) in relocation_tables(elf) {
            let symbols = SymbolNames::new(elf, names, link);
            let lazy = elf.section_name(section) == b".rela.plt";
            for relocation in relocations {
                let target = symbols.target(relocation);
                if let Some(target) = target {
                    slots.by_address.insert(relocation.r_offset(LE), target);
                }
                if lazy {
                    slots.lazy.push(target);
                }
            }
        }
        slots
    }

    /// What the slot at this link address will hold.
    pub(crate) fn get(&self, address: u64) -> Option<SlotTarget> {
        self.by_address.get(&address).copied()
    }
}

/// The link address that the loader writes to the slot at `address` (`R_X86_64_RELATIVE`). There can
/// be millions of those, and one is asked for.
pub(crate) fn relative(elf: &Elf<'_>, address: u64) -> Option<u64> {
    let mut relocations = relocation_tables(elf).flat_map(|(_, relocations, _)| relocations);
    relocations
        .find(|r| r.r_type(LE, false) == elf::R_X86_64_RELATIVE && r.r_offset(LE) == address)
        .map(|r| r.r_addend(LE) as u64)
}

/// The tables that the loader works through, each with the number of its symbol table.
fn relocation_tables<'d>(
    elf: &Elf<'d>,
) -> impl Iterator<Item = (&'d Section, &'d [Rela64<LittleEndian>], SectionIndex)> {
    let loaded = elf
        .sections
        .iter()
        .filter(|section| section.sh_flags(LE).contains(elf::SHF_ALLOC));
    let data = elf.data;
    let tables = loaded.filter_map(move |section| {
        let (relocations, link) = section.rela(LE, data).ok().flatten()?;
        Some((section, relocations, link))
    });
    tables.take(MAX_RELOCATION_TABLES)
}

struct SymbolNames<'d> {
    symbols: &'d [elf::Sym64<LittleEndian>],
    strings: (u64, u64),
    names: Names<'d>,
}

impl<'d> SymbolNames<'d> {
    fn new(elf: &Elf<'d>, names: Names<'d>, link: SectionIndex) -> Self {
        let found = elf.sections.section(link).ok().and_then(|table| {
            let symbols = table.data_as_array(LE, elf.data).ok()?;
            Some((symbols, elf.strings_of(table)?))
        });
        // Static programs have relocations without symbols.
        let (symbols, strings) = found.unwrap_or((&[], (0, 0)));
        Self {
            symbols,
            strings,
            names,
        }
    }

    fn target(&self, relocation: &Rela64<LittleEndian>) -> Option<SlotTarget> {
        match relocation.r_type(LE, false) {
            elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => {
                let symbol = self.symbols.get(relocation.r_sym(LE, false) as usize)?;
                self.names
                    .locate(false, self.strings, symbol.st_name(LE))
                    .map(SlotTarget::Symbol)
            }
            elf::R_X86_64_IRELATIVE => Some(SlotTarget::Resolver(relocation.r_addend(LE) as u64)),
            _ => None,
        }
    }
}

/// All stubs that can be named, sorted.
pub(crate) fn stubs(elf: &Elf<'_>, sections: &[CodeSection], slots: &Slots) -> Vec<Stub> {
    let mut stubs = Vec::new();
    for section in sections {
        let CodeSectionKind::Plt(entry_size) = section.kind else {
            continue;
        };
        let Some(bytes) = elf.at(section.start) else {
            continue;
        };
        let section_size = usize::try_from(section.end - section.start).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(section_size)];
        let mut start = section.start;
        for entry in bytes.chunks(entry_len(entry_size, bytes, start, slots)) {
            let end = start + entry.len() as u64;
            if let Some(target) = read_entry(entry, start, slots) {
                stubs.push(Stub { start, end, target });
            }
            start = end;
        }
    }
    stubs
}

/// Bytes of an entry: what the section header says, else 8 if a second entry follows that close.
fn entry_len(header: u64, bytes: &[u8], address: u64, slots: &Slots) -> usize {
    match header {
        8 => 8,
        16 => 16,
        _ => match bytes.get(8..16) {
            Some(second) if read_entry(second, address.wrapping_add(8), slots).is_some() => 8,
            _ => 16,
        },
    }
}

/// What an entry jumps to: `Some(None)` is the head, `None` an entry of an unknown kind.
fn read_entry(entry: &[u8], address: u64, slots: &Slots) -> Option<Option<SlotTarget>> {
    let mut decoder = Decoder::with_ip(64, entry, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut number = None;
    let mut head = false;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        match instruction.code() {
            Code::Jmp_rm64 if instruction.is_ip_rel_memory_operand() => {
                let slot = slots.get(instruction.ip_rel_memory_address());
                return if head { Some(None) } else { slot.map(Some) };
            }
            Code::Jmp_rel32_64 | Code::Jmp_rel8_64 => {
                let lazy = slots.lazy.get(usize::try_from(number?).ok()?)?;
                return lazy.map(Some);
            }
            Code::Pushq_imm32 | Code::Pushq_imm8 => number = Some(instruction.immediate(0)),
            Code::Push_rm64 if instruction.op0_kind() == OpKind::Memory => head = true,
            _ if matches!(
                instruction.mnemonic(),
                Mnemonic::Endbr64 | Mnemonic::Mov | Mnemonic::Nop
            ) => {}
            _ => return None,
        }
    }
    None
}
