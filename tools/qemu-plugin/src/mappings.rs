//! The program's executable mappings.
//!
//! QEMU maps the program's files as they are, but never as executable; which pages the program may
//! execute, QEMU knows itself.

use std::fs;
use std::sync::{Mutex, PoisonError};

use crate::rings::halves;
use crate::shared::event;
use crate::{guest, rings};

const PAGE: usize = 4096;

#[derive(Clone, PartialEq, Eq)]
struct Mapping {
    begin: u64,
    end: u64,
    offset: u64,
    writable: bool,
    path: String,
}

impl Mapping {
    /// A line of `/proc/self/maps`.
    fn parse(line: &str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (mode, rest) = rest.split_once(' ')?;
        let (offset, rest) = rest.split_once(' ')?;
        let (_device, rest) = rest.split_once(' ')?;
        let path = rest
            .split_once(' ')
            .map_or("", |(_inode, path)| path.trim_start());
        let (begin, end) = range.split_once('-')?;
        Some(Self {
            begin: u64::from_str_radix(begin, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            offset: u64::from_str_radix(offset, 16).ok()?,
            writable: mode.as_bytes().get(1) == Some(&b'w'),
            path: path.to_owned(),
        })
    }

    /// Whether it is the program's, and a page of it is executable.
    fn is_executable(&self) -> bool {
        guest::is_mapped(self.begin)
            && (self.begin..self.end)
                .step_by(PAGE)
                .any(guest::is_executable)
    }
}

static KNOWN: Mutex<Option<Vec<Mapping>>> = Mutex::new(None);

/// The program starts, on the first virtual CPU: tells the mappings that it starts with.
pub(crate) fn follow_first() {
    if KNOWN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .is_none()
    {
        follow(0);
    }
}

/// Tells the executable mappings that are new.
pub(crate) fn follow(vcpu: u32) {
    let now: Vec<_> = read().filter(Mapping::is_executable).collect();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = known.replace(now.clone()).unwrap_or_default();
    drop(known);
    for mapping in now.iter().filter(|mapping| !before.contains(mapping)) {
        tell(vcpu, mapping);
    }
}

fn read() -> impl Iterator<Item = Mapping> {
    let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    text.lines()
        .filter_map(Mapping::parse)
        .collect::<Vec<_>>()
        .into_iter()
}

fn tell(vcpu: u32, mapping: &Mapping) {
    let mut words = Vec::new();
    words.extend(halves(mapping.begin));
    words.extend(halves(mapping.end - mapping.begin));
    words.extend(halves(mapping.offset));
    words.push(u32::from(mapping.writable));
    words.extend(rings::text(mapping.path.as_bytes()));
    rings::event(vcpu, event::MAPPED, &words);
}

/// Whether the code at an address is that of a file which the program does not write.
pub(crate) fn is_file(address: u64) -> bool {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.iter().flatten().any(|mapping| {
        mapping.path.starts_with('/')
            && !mapping.writable
            && (mapping.begin..mapping.end).contains(&address)
    })
}
