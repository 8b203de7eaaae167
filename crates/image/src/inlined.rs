//! Inlined copies of a function, from DWARF: each `DW_TAG_inlined_subroutine` names the function that
//! it is a copy of and has the address where it begins.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, Dwarf, EndianSlice, LittleEndian,
    Unit, UnitOffset,
};
use object::{Object, ObjectSection};

use crate::file::map_file;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Die<'a> = DebuggingInformationEntry<Slice<'a>>;

/// How many names may stand behind each other (`DW_AT_abstract_origin`, `DW_AT_specification`).
const DEPTH: usize = 8;

/// Link addresses where copies of functions begin whose name fits, ascending; none where the debug
/// information is missing or broken.
pub(crate) fn copies(path: &Path, fits: &dyn Fn(&str) -> bool) -> Vec<u64> {
    let mut found = find(path, fits).unwrap_or_default();
    found.sort_unstable();
    found.dedup();
    found
}

fn find(path: &Path, fits: &dyn Fn(&str) -> bool) -> Option<Vec<u64>> {
    let map = map_file(path).ok()?;
    let file = object::File::parse(&*map).ok()?;
    let sections = gimli::DwarfSections::load(|id| {
        let section = file.section_by_name(id.name());
        let data = section.map_or(Ok(Cow::Borrowed(&[][..])), |section| {
            section.uncompressed_data()
        });
        Ok::<_, object::Error>(data.unwrap_or_default())
    })
    .ok()?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let mut finder = Finder {
        dwarf: &dwarf,
        fits,
        known: HashMap::new(),
    };
    let mut found = Vec::new();
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        // A broken unit does not hide the others.
        if let Ok(unit) = dwarf.unit(header) {
            let _ = finder.unit(&unit, &mut found);
        }
    }
    Some(found)
}

struct Finder<'a, 'f> {
    dwarf: &'a Dwarf<Slice<'a>>,
    fits: &'f dyn Fn(&str) -> bool,
    /// Functions whose name was looked at, by their place in `.debug_info`.
    known: HashMap<usize, bool>,
}

impl<'a> Finder<'a, '_> {
    fn unit(&mut self, unit: &Unit<Slice<'a>>, found: &mut Vec<u64>) -> gimli::Result<()> {
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() != gimli::DW_TAG_inlined_subroutine {
                continue;
            }
            let Some(origin) = entry.attr_value(gimli::DW_AT_abstract_origin) else {
                continue;
            };
            if self.is_wanted(unit, origin)?
                && let Some(begin) = self.begin(unit, entry)?
            {
                found.push(begin);
            }
        }
        Ok(())
    }

    fn is_wanted(
        &mut self,
        unit: &Unit<Slice<'a>>,
        origin: AttributeValue<Slice<'a>>,
    ) -> gimli::Result<bool> {
        let Some(place) = place_of(unit, &origin) else {
            return Ok(false);
        };
        if let Some(&known) = self.known.get(&place) {
            return Ok(known);
        }
        let wanted = self.has_name(unit, origin, DEPTH)?;
        self.known.insert(place, wanted);
        Ok(wanted)
    }

    /// Whether the function's own name fits, or that of the one that it refers to.
    fn has_name(
        &self,
        unit: &Unit<Slice<'a>>,
        at: AttributeValue<Slice<'a>>,
        depth: usize,
    ) -> gimli::Result<bool> {
        let other;
        let (unit, offset) = match at {
            AttributeValue::UnitRef(offset) => (unit, offset),
            AttributeValue::DebugInfoRef(offset) => {
                let Some(found) = self.unit_with(offset)? else {
                    return Ok(false);
                };
                other = found;
                (&other.0, other.1)
            }
            _ => return Ok(false),
        };
        let entry = unit.entry(offset)?;
        for attribute in [
            gimli::DW_AT_linkage_name,
            gimli::DW_AT_MIPS_linkage_name,
            gimli::DW_AT_name,
        ] {
            if let Some(value) = entry.attr_value(attribute) {
                let name = self.dwarf.attr_string(unit, value)?;
                if (self.fits)(&name.to_string_lossy()) {
                    return Ok(true);
                }
            }
        }
        let further = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification));
        match further {
            Some(further) if depth > 0 => self.has_name(unit, further, depth - 1),
            _ => Ok(false),
        }
    }

    fn unit_with(
        &self,
        offset: DebugInfoOffset,
    ) -> gimli::Result<Option<(Unit<Slice<'a>>, UnitOffset)>> {
        let mut headers = self.dwarf.units();
        while let Some(header) = headers.next()? {
            if let Some(inside) = offset.to_unit_offset(&header) {
                return Ok(Some((self.dwarf.unit(header)?, inside)));
            }
        }
        Ok(None)
    }

    /// `DW_AT_entry_pc` (an address, or bytes from the first one), else the first address.
    fn begin(&self, unit: &Unit<Slice<'a>>, entry: &Die<'a>) -> gimli::Result<Option<u64>> {
        let mut ranges = self.dwarf.die_ranges(unit, entry)?;
        let mut lowest: Option<u64> = None;
        while let Some(range) = ranges.next()? {
            if range.begin < range.end {
                lowest = Some(lowest.map_or(range.begin, |low| low.min(range.begin)));
            }
        }
        let Some(entry_pc) = entry.attr_value(gimli::DW_AT_entry_pc) else {
            return Ok(lowest);
        };
        if let Some(address) = self.dwarf.attr_address(unit, entry_pc)? {
            return Ok(Some(address));
        }
        Ok(lowest.map(|low| low.wrapping_add(entry_pc.udata_value().unwrap_or(0))))
    }
}

/// Where an entry stands in `.debug_info`.
fn place_of(unit: &Unit<Slice<'_>>, at: &AttributeValue<Slice<'_>>) -> Option<usize> {
    match at {
        AttributeValue::UnitRef(offset) => Some(offset.to_debug_info_offset(&unit.header)?.0),
        AttributeValue::DebugInfoRef(offset) => Some(offset.0),
        _ => None,
    }
}
