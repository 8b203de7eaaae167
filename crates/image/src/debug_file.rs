//! Separate debug files on this machine, for the symbols that were stripped off.
//!
//! The rules are gdb's ("Debugging Information in Separate Files"): by build-id under
//! `ROOT/.build-id/`, else by the name in `.gnu_debuglink` beside the program, in its `.debug`
//! folder, or under `ROOT` plus the program's folder. A file counts if its build-id is the
//! program's, or, for programs without one, if its CRC is the link's.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::elf::Elf;
use crate::file::{hex, map_file};

/// The debug file that belongs to the program at `path`.
pub(crate) fn find(elf: &Elf<'_>, path: &Path, roots: &[PathBuf]) -> Option<Mmap> {
    candidates(elf, path, roots).iter().find_map(|candidate| {
        let file = map_file(candidate).ok()?;
        belongs(elf, &file).then_some(file)
    })
}

fn candidates(elf: &Elf<'_>, path: &Path, roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    if let Some((first, rest)) = elf.build_id().and_then(<[u8]>::split_first) {
        let name = format!(".build-id/{}/{}.debug", hex(&[*first]), hex(rest));
        candidates.extend(roots.iter().map(|root| root.join(&name)));
    }
    let link = elf.debug_link().map(|(name, _)| name);
    if let Some(name) = link.filter(|name| !name.is_empty() && !name.contains(&b'/')) {
        let name = OsStr::from_bytes(name);
        // Links such as `/lib` to `/usr/lib`: the debug file lies under the true folder.
        let real = fs::canonicalize(path).ok();
        for folder in [Some(path), real.as_deref()]
            .into_iter()
            .flatten()
            .filter_map(Path::parent)
        {
            candidates.push(folder.join(name));
            candidates.push(folder.join(".debug").join(name));
            for root in roots {
                candidates.push(
                    root.join(folder.strip_prefix("/").unwrap_or(folder))
                        .join(name),
                );
            }
        }
    }
    candidates
}

fn belongs(elf: &Elf<'_>, file: &[u8]) -> bool {
    let Ok(debug) = Elf::parse(file) else {
        return false;
    };
    match (elf.build_id(), elf.debug_link()) {
        (Some(id), _) => debug.build_id() == Some(id),
        (None, Some((_, crc))) => crc32(file) == crc,
        (None, None) => false,
    }
}

/// CRC-32 as in IEEE 802.3, which `.gnu_debuglink` uses.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = crc_table();
    !bytes.iter().fold(!0, |crc, &byte| {
        (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)]
    })
}

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 {
                (value >> 1) ^ 0xedb8_8320
            } else {
                value >> 1
            };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc_check_value() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}
