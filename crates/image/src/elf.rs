//! The view of an ELF file that the rest of the crate needs, on top of `object`.
//!
//! Only 64-bit little-endian x86 files get through [`Elf::parse`]. Broken section headers are as
//! good as none (a captured vDSO may be cut before them); broken program headers are an error,
//! because without them no address means anything.

use std::ffi::CStr;

use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::{LittleEndian, SectionIndex};

use crate::error::ImageError;

pub(crate) type Header = FileHeader64<LittleEndian>;
pub(crate) type Section = SectionHeader64<LittleEndian>;
pub(crate) const LE: LittleEndian = LittleEndian;

/// A parsed file; holds references into its bytes only.
pub(crate) struct Elf<'d> {
    pub(crate) data: &'d [u8],
    header: &'d Header,
    programs: &'d [ProgramHeader64<LittleEndian>],
    pub(crate) sections: SectionTable<'d, Header>,
    section_names: &'d [u8],
}

/// Limits for what a file has a handful of; a hostile one could have us read the same megabytes
/// for each of a million entries.
const MAX_SECTION_NAME: usize = 64;
const MAX_NOTES: usize = 64;
pub(crate) const MAX_RELOCATION_TABLES: usize = 16;

/// A loaded piece of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) file_size: u64,
    pub(crate) executable: bool,
}

/// A range of link addresses that holds code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodeSection {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: CodeSectionKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeSectionKind {
    Text,
    /// `.init`, the body of `_init`.
    Init,
    /// `.fini`, the body of `_fini`.
    Fini,
    /// `.plt` and its relatives; the size of an entry in bytes as the header has it, zero in static
    /// programs.
    Plt(u64),
}

/// Why a file is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    NotElf,
    Unsupported(String),
    Damaged(String),
}

impl Problem {
    pub(crate) fn at(self, path: &str) -> ImageError {
        let path = path.to_owned();
        match self {
            Self::NotElf => ImageError::NotElf { path },
            Self::Unsupported(what) => ImageError::Unsupported { path, what },
            Self::Damaged(detail) => ImageError::Damaged { path, detail },
        }
    }
}

impl<'d> Elf<'d> {
    pub(crate) fn parse(data: &'d [u8]) -> Result<Self, Problem> {
        if !data.starts_with(&elf::ELFMAG) {
            return Err(Problem::NotElf);
        }
        match (data.get(4), data.get(5)) {
            (Some(2), Some(1)) => {}
            (Some(1), _) => return Err(Problem::Unsupported("a 32-bit program".to_owned())),
            (Some(2), Some(2)) => {
                return Err(Problem::Unsupported("a big-endian program".to_owned()));
            }
            _ => return Err(Problem::Damaged("unknown ELF class".to_owned())),
        }
        let damaged = |error: object::Error| Problem::Damaged(error.to_string());
        let header = Header::parse(data).map_err(damaged)?;
        let machine = header.e_machine(LE);
        if machine != elf::EM_X86_64 {
            return Err(Problem::Unsupported(format!(
                "a program for another machine (ELF machine {})",
                machine.0
            )));
        }
        let programs = header.program_headers(LE, data).map_err(damaged)?;
        let sections = header.sections(LE, data).unwrap_or_default();
        let name_index = header
            .section_strings_index(LE, data)
            .unwrap_or(SectionIndex(0));
        let section_names = sections
            .section(name_index)
            .and_then(|section| section.data(LE, data))
            .unwrap_or_default();
        Ok(Self {
            data,
            header,
            programs,
            sections,
            section_names,
        })
    }

    pub(crate) fn segments(&self) -> Vec<Segment> {
        self.loads()
            .map(|program| Segment {
                offset: program.p_offset(LE),
                address: program.p_vaddr(LE),
                file_size: program.p_filesz(LE),
                executable: program.p_flags(LE).contains(elf::PF_X),
            })
            .collect()
    }

    fn loads(&self) -> impl Iterator<Item = &'d ProgramHeader64<LittleEndian>> {
        self.programs
            .iter()
            .filter(|program| program.p_type(LE) == elf::PT_LOAD)
    }

    /// The file's bytes from a link address to the end of its segment.
    pub(crate) fn at(&self, address: u64) -> Option<&'d [u8]> {
        self.loads().find_map(|program| {
            let inside = address.checked_sub(program.p_vaddr(LE))?;
            let len = program
                .p_filesz(LE)
                .checked_sub(inside)
                .filter(|&len| len > 0)?;
            let rest = self
                .data
                .get(usize::try_from(program.p_offset(LE).checked_add(inside)?).ok()?..)?;
            Some(&rest[..usize::try_from(len).ok()?.min(rest.len())])
        })
    }

    pub(crate) fn section_name(&self, section: &Section) -> &'d [u8] {
        let rest = self
            .section_names
            .get(section.sh_name(LE) as usize..)
            .unwrap_or_default();
        let rest = &rest[..rest.len().min(MAX_SECTION_NAME)];
        CStr::from_bytes_until_nul(rest).map_or(rest, CStr::to_bytes)
    }

    pub(crate) fn section(&self, name: &[u8]) -> Option<&'d Section> {
        self.sections
            .iter()
            .find(|section| self.section_name(section) == name)
    }

    pub(crate) fn section_data(&self, section: &Section) -> Option<&'d [u8]> {
        section.data(LE, self.data).ok()
    }

    /// Code by sections, or by segments where there are no sections. Sorted, disjoint.
    pub(crate) fn code_sections(&self) -> Vec<CodeSection> {
        let wanted = elf::SHF_ALLOC | elf::SHF_EXECINSTR;
        let mut found: Vec<CodeSection> = self
            .sections
            .iter()
            .filter(|section| {
                section.sh_flags(LE).contains(wanted) && section.sh_type(LE) == elf::SHT_PROGBITS
            })
            .map(|section| CodeSection {
                start: section.sh_addr(LE),
                end: section.sh_addr(LE).saturating_add(section.sh_size(LE)),
                kind: self.kind_of(section),
            })
            .collect();
        if found.is_empty() {
            found.extend(
                self.segments()
                    .iter()
                    .filter(|segment| segment.executable)
                    .map(|segment| CodeSection {
                        start: segment.address,
                        end: segment.address.saturating_add(segment.file_size),
                        kind: CodeSectionKind::Text,
                    }),
            );
        }
        found.sort_by_key(|section| (section.start, section.end));
        let mut at = 0;
        for section in &mut found {
            section.start = section.start.max(at);
            at = at.max(section.end);
        }
        found.retain(|section| section.start < section.end);
        found
    }

    fn kind_of(&self, section: &Section) -> CodeSectionKind {
        let name = self.section_name(section);
        match name {
            b".init" => CodeSectionKind::Init,
            b".fini" => CodeSectionKind::Fini,
            _ if name.starts_with(b".plt") || name == b".iplt" => {
                CodeSectionKind::Plt(section.sh_entsize(LE))
            }
            _ => CodeSectionKind::Text,
        }
    }

    /// Section and segment notes of type `NT_GNU_BUILD_ID`.
    pub(crate) fn build_id(&self) -> Option<&'d [u8]> {
        let in_segments = self
            .programs
            .iter()
            .filter_map(|program| program.notes(LE, self.data).ok().flatten());
        // Debug files keep the section but their segments are empty.
        let in_sections = self
            .sections
            .iter()
            .filter_map(|section| section.notes(LE, self.data).ok().flatten());
        in_segments
            .chain(in_sections)
            .take(MAX_NOTES)
            .find_map(|mut notes| {
                while let Ok(Some(note)) = notes.next() {
                    if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
                        return Some(note.desc()).filter(|id| !id.is_empty());
                    }
                }
                None
            })
    }

    /// File name and CRC of the separate debug file (`.gnu_debuglink`).
    pub(crate) fn debug_link(&self) -> Option<(&'d [u8], u32)> {
        // A name that ends in NUL, zeros up to a multiple of 4, the CRC.
        let data = self.section_data(self.section(b".gnu_debuglink")?)?;
        let len = data.iter().position(|&byte| byte == 0)?;
        let crc = data.get((len + 1).next_multiple_of(4)..)?.first_chunk()?;
        Some((&data[..len], u32::from_le_bytes(*crc)))
    }

    pub(crate) fn entry(&self) -> u64 {
        self.header.e_entry(LE)
    }

    /// Whether the kernel may start this file as a program, rather than only load it as a library.
    pub(crate) fn is_program(&self) -> bool {
        let interpreted = self
            .programs
            .iter()
            .any(|program| program.p_type(LE) == elf::PT_INTERP);
        let tag = |wanted| {
            self.dynamic()
                .iter()
                .find(|entry| entry.d_tag(LE) == wanted)
                .map(|entry| entry.d_val(LE))
        };
        self.header.e_type(LE) == elf::ET_EXEC
            || tag(elf::DT_FLAGS_1).is_some_and(|flags| flags & elf::DF_1_PIE.0 != 0)
            || (interpreted && tag(elf::DT_SONAME).is_none())
    }

    fn dynamic(&self) -> &'d [elf::Dyn64<LittleEndian>] {
        self.programs
            .iter()
            .find_map(|program| program.dynamic(LE, self.data).ok().flatten())
            .unwrap_or_default()
    }

    /// Address of `.eh_frame_hdr` by its segment, for files without sections.
    pub(crate) fn frame_header(&self) -> Option<u64> {
        self.programs
            .iter()
            .find(|program| program.p_type(LE) == elf::PT_GNU_EH_FRAME)
            .map(|program| program.p_vaddr(LE))
    }

    /// File offset of the string table that belongs to a symbol table, and its end.
    pub(crate) fn strings_of(&self, symbols: &Section) -> Option<(u64, u64)> {
        let strings = self
            .sections
            .section(SectionIndex(symbols.sh_link(LE) as usize))
            .ok()?;
        let start = strings.sh_offset(LE);
        let end = start.checked_add(strings.sh_size(LE))?;
        (end <= self.data.len() as u64).then_some((start, end))
    }
}

/// The code section that holds an address.
pub(crate) fn section_at(sections: &[CodeSection], address: u64) -> Option<&CodeSection> {
    let later = sections.partition_point(|section| section.start <= address);
    sections[..later]
        .last()
        .filter(|section| address < section.end)
}
