//! From where on, and how far, a program is recorded.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use object::{Object, ObjectSegment, ObjectSymbol, ReadCache};

use crate::maps::ExecMapping;

/// Part of a run. The default is all of it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Window {
    /// Where it begins, when that is reached first.
    pub start: Option<Start>,
    /// At most so many instructions are recorded, of all threads together.
    pub limit: Option<u64>,
}

/// A place in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// An address of the running program.
    Address(u64),
    /// The entry of a function, by its symbol.
    Symbol(String),
}

impl FromStr for Start {
    type Err = String;

    /// `0xADDRESS` or a symbol.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16)
                .map(Self::Address)
                .map_err(|_| format!("{text:?} is no hexadecimal address")),
            None if text.is_empty() => Err("a function's name, or 0xADDRESS, is missing".into()),
            None => Ok(Self::Symbol(text.to_owned())),
        }
    }
}

impl Start {
    /// Its address, if this mapping has it.
    pub(crate) fn resolve(&self, pid: u32, mapping: &ExecMapping) -> Option<u64> {
        match self {
            Self::Address(address) => mapping.holds(*address).then_some(*address),
            Self::Symbol(name) if mapping.is_file() => {
                let offset = symbol_offset(pid, &mapping.path, name)?;
                let address = mapping.address + offset.checked_sub(mapping.file_offset)?;
                mapping.holds(address).then_some(address)
            }
            Self::Symbol(_) => None,
        }
    }
}

/// The offset in the file of the code of a function.
fn symbol_offset(pid: u32, path: &str, name: &str) -> Option<u64> {
    let rooted = format!("/proc/{pid}/root{path}");
    let file = fs::File::open(rooted)
        .or_else(|_| fs::File::open(Path::new(path)))
        .ok()?;
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).ok()?;
    let symbol = object
        .symbols()
        .chain(object.dynamic_symbols())
        .find(|symbol| symbol.is_definition() && symbol.name() == Ok(name))?;
    object.segments().find_map(|segment| {
        let offset = symbol.address().checked_sub(segment.address())?;
        let (start, size) = segment.file_range();
        (offset < size).then(|| start + offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_addresses_or_symbols() {
        assert_eq!("0x401000".parse(), Ok(Start::Address(0x40_1000)));
        assert_eq!("main".parse(), Ok(Start::Symbol("main".into())));
        assert!("0xmain".parse::<Start>().is_err());
        assert!("".parse::<Start>().is_err());
    }
}
