//! What a recording knows of a process: its executable mappings, and code that stands in no file.

use std::collections::HashMap;

use crate::maps::ExecMapping;

/// Size of a page.
pub(crate) const PAGE: u64 = 4096;

#[derive(Clone, Default)]
pub(crate) struct Process {
    pub(crate) mappings: Vec<ExecMapping>,
    /// Pages of code as they were last recorded, by address.
    pages: HashMap<u64, Vec<u8>>,
}

impl Process {
    /// Writable code at `ip`; its mapping.
    pub(crate) fn writable(&self, ip: u64) -> Option<&ExecMapping> {
        self.mapping(ip).filter(|mapping| mapping.writable)
    }

    /// The mapping at an address.
    pub(crate) fn mapping(&self, address: u64) -> Option<&ExecMapping> {
        self.mappings
            .iter()
            .rev()
            .find(|mapping| mapping.holds(address))
    }

    /// Whether a page is not what was last recorded; from now on this is.
    pub(crate) fn page_changed(&mut self, page: u64, bytes: &[u8]) -> bool {
        let changed = self.pages.get(&page).is_none_or(|known| known != bytes);
        if changed {
            self.pages.insert(page, bytes.to_vec());
        }
        changed
    }

    /// Whether the pages last recorded have these bytes at an address.
    pub(crate) fn has_code(&self, address: u64, bytes: &[u8]) -> bool {
        bytes.iter().zip(address..).all(|(&byte, address)| {
            self.pages
                .get(&(address & !(PAGE - 1)))
                .and_then(|page| page.get((address % PAGE) as usize))
                == Some(&byte)
        })
    }
}
