//! Static probes (USDT): places that a program's author has marked, a NOP each.
//!
//! Each is a note of type 3 and the name `stapsdt` in the section `.note.stapsdt`
//! (systemtap, `includes/sys/sdt.h`): `u64` address of the NOP, `u64` address of the section
//! `.stapsdt.base` when that was linked, `u64` address of a semaphore, then provider, name and arguments,
//! each ended by a NUL. If the base moved since (prelink), so did the NOP.

use object::read::elf::SectionHeader;

use crate::elf::{Elf, LE};
use crate::{Image, Named};

/// The type of such a note.
const STAPSDT: u32 = 3;
/// So many probes of a file are looked at.
const MAX_PROBES: usize = 1 << 16;

/// A probe as its note has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe<'a> {
    address: u64,
    base: u64,
    provider: &'a [u8],
    name: &'a [u8],
}

impl Image {
    /// Link addresses of the static probes of this name, ascending; if there are none, the probes that
    /// there are, as `PROVIDER:NAME`.
    #[must_use]
    pub fn probes_named(&self, provider: &str, name: &str) -> Named {
        let probes = self.probes();
        let mut addresses: Vec<u64> = probes
            .iter()
            .filter(|(theirs, of, _)| theirs == provider && of == name)
            .map(|&(_, _, address)| address)
            .collect();
        if addresses.is_empty() {
            let mut known: Vec<String> = probes
                .iter()
                .map(|(provider, name, _)| format!("{provider}:{name}"))
                .collect();
            known.sort();
            known.dedup();
            return Named::Unknown(known);
        }
        addresses.sort_unstable();
        Named::Functions(addresses)
    }

    fn probes(&self) -> Vec<(String, String, u64)> {
        let Some(elf) = self.bytes().ok().and_then(|bytes| Elf::parse(bytes).ok()) else {
            return Vec::new();
        };
        let Some(notes) = elf
            .section(b".note.stapsdt")
            .and_then(|section| elf.section_data(section))
        else {
            return Vec::new();
        };
        let base = elf.section(b".stapsdt.base");
        let base = base.map(|section| section.sh_addr(LE));
        read(notes)
            .map(|probe| {
                let moved = base.map_or(0, |base| base.wrapping_sub(probe.base));
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let address = probe.address.wrapping_add(moved);
                (text(probe.provider), text(probe.name), address)
            })
            .collect()
    }
}

/// The probes in a section of notes; damaged ones are left out.
fn read(mut notes: &[u8]) -> impl Iterator<Item = Probe<'_>> {
    std::iter::from_fn(move || {
        let (head, rest) = notes.split_at_checked(12)?;
        let word = |at: usize| {
            let bytes = head.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let (name_len, desc_len) = (word(0)? as usize, word(4)? as usize);
        let kind = word(8)?;
        let (name, rest) = rest.split_at_checked(name_len.checked_next_multiple_of(4)?)?;
        let padded = desc_len.checked_next_multiple_of(4)?.min(rest.len());
        let (desc, rest) = rest.split_at_checked(padded)?;
        notes = rest;
        let is_probe = kind == STAPSDT && name.starts_with(b"stapsdt\0");
        Some(is_probe.then(|| probe(desc)).flatten())
    })
    .take(MAX_PROBES)
    .flatten()
}

fn probe(desc: &[u8]) -> Option<Probe<'_>> {
    let word = |at: usize| {
        let bytes = desc.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let mut texts = desc.get(24..)?.split(|&byte| byte == 0);
    Some(Probe {
        address: word(0)?,
        base: word(8)?,
        provider: texts.next()?,
        name: texts.next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, name: &[u8], desc: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [name.len() as u32, desc.len() as u32, kind] {
            note.extend(word.to_le_bytes());
        }
        for part in [name, desc] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    fn desc(address: u64) -> Vec<u8> {
        let mut desc = Vec::new();
        for word in [address, 0x2000, 0] {
            desc.extend(word.to_le_bytes());
        }
        desc.extend(b"app\0begin\08@%rdi\0");
        desc
    }

    #[test]
    fn probes_among_other_notes() {
        let mut notes = note(1, b"GNU\0", &[1, 2, 3]);
        notes.extend(note(3, b"stapsdt\0", &desc(0x1000)));
        notes.extend(note(3, b"stapsdt\0", b"short"));
        notes.extend(note(3, b"stapsdt\0", &desc(0x1010)));
        let addresses: Vec<u64> = read(&notes).map(|probe| probe.address).collect();
        assert_eq!(addresses, [0x1000, 0x1010]);
        let first = read(&notes).next().unwrap();
        assert_eq!((first.provider, first.name), (&b"app"[..], &b"begin"[..]));
        // Cut anywhere, it ends.
        for len in 0..notes.len() {
            assert!(read(&notes[..len]).count() <= 2);
        }
    }

    #[test]
    fn lengths_beyond_everything_end_the_walk() {
        let mut notes = note(3, b"stapsdt\0", &desc(1));
        notes[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&notes).count(), 0);
    }
}
