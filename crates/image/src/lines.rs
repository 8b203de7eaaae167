//! Source files, lines and inlined functions, from DWARF 2 to 5: also split (`.dwo`, `.dwp`), shared
//! between files (dwz's `.gnu_debugaltlink`) and compressed. On `addr2line`, which reads what a
//! question needs and keeps it.

use std::path::Path;

use addr2line::Loader;

use crate::demangle::{bound, demangle};

/// The debug information of one image; see [`crate::Image::lines`]. Made for one thread.
pub struct Lines {
    loader: Loader,
}

/// A function that an address belongs to, and the place in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFrame {
    /// Readable name, demangled.
    pub function: Option<String>,
    /// The name in the debug information, if `function` was demangled from it.
    pub mangled: Option<String>,
    /// Source file, as the compiler was given it.
    pub file: Option<String>,
    /// Line in it, from 1.
    pub line: Option<u32>,
    /// Column, from 1; `None` if it is not known.
    pub column: Option<u32>,
}

impl Lines {
    /// From an ELF file with debug information; `None` if it has none that can be read.
    pub(crate) fn open(path: &Path) -> Option<Self> {
        let loader = Loader::new(path).ok()?;
        Some(Self { loader })
    }

    /// Tells each stretch of code from one source line within a range of link addresses: its first
    /// address, the file and the line.
    pub(crate) fn each_range(&self, low: u64, high: u64, see: &mut dyn FnMut(u64, &str, u32)) {
        let Ok(ranges) = self.loader.find_location_range(low, high) else {
            return;
        };
        for (begin, _, location) in ranges {
            if let (Some(file), Some(line)) = (location.file, location.line) {
                see(begin, file, line);
            }
        }
    }

    /// The functions at a link address (see [`crate::AddressSpace::link_address`]): the innermost
    /// inlined one first, the one that has the code last. Empty if nothing is known; where the debug
    /// information is broken, what comes before.
    #[must_use]
    pub fn frames(&self, address: u64) -> Vec<SourceFrame> {
        let mut found = Vec::new();
        let Ok(mut frames) = self.loader.find_frames(address) else {
            return found;
        };
        while let Ok(Some(frame)) = frames.next() {
            let raw = frame.function.as_ref().and_then(|f| f.raw_name().ok());
            let readable = raw.as_deref().and_then(demangle);
            let raw = raw.map(|raw| bound(raw).into_owned());
            let (function, mangled) = match readable {
                Some(readable) => (Some(readable), raw),
                None => (raw, None),
            };
            let location = frame.location.as_ref();
            found.push(SourceFrame {
                function,
                mangled,
                file: location.and_then(|l| l.file).map(str::to_owned),
                line: location.and_then(|l| l.line).filter(|&line| line > 0),
                column: location.and_then(|l| l.column).filter(|&column| column > 0),
            });
        }
        found
    }
}
