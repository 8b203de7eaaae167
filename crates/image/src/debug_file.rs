//! Separate debug files on this machine, for the symbols that were stripped off.
//!
//! The rules are gdb's ("Debugging Information in Separate Files"): by build-id under
//! `ROOT/.build-id/`, else by the name in `.gnu_debuglink` beside the program, in its `.debug`
//! folder, or under `ROOT` plus the program's folder. A file counts if its build-id is the
//! program's, or, for programs without one, if its CRC is the link's. Then perf's cache, then a
//! debuginfod server; last, the symbols that some distributions leave in the program itself.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::elf::Elf;
use crate::file::{hex, map_file};
use crate::search::{Fetched, Search};

/// A debug file.
pub(crate) enum DebugFile {
    Mapped {
        map: Mmap,
        path: PathBuf,
    },
    /// Unpacked from the program itself.
    Inside(Vec<u8>),
}

impl Deref for DebugFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped { map, .. } => map,
            Self::Inside(bytes) => bytes,
        }
    }
}

/// The debug file that belongs to the program at `path`.
pub(crate) fn find(elf: &Elf<'_>, path: &Path, search: &Search) -> Option<DebugFile> {
    let near = candidates(elf, path, search)
        .into_iter()
        .find_map(|candidate| open(elf, candidate));
    let far = || {
        // A program that has its symbols needs no file from elsewhere.
        let stripped = elf.section(b".symtab").is_none();
        let id = elf.build_id().filter(|_| stripped)?;
        open(elf, search.fetch(Fetched::DebugInfo, id)?)
    };
    near.or_else(far)
        .or_else(|| mini(elf).map(DebugFile::Inside))
}

fn open(elf: &Elf<'_>, path: PathBuf) -> Option<DebugFile> {
    let map = map_file(&path).ok()?;
    belongs(elf, &map).then_some(DebugFile::Mapped { map, path })
}

/// MiniDebugInfo: an ELF file with nothing but symbols in the section `.gnu_debugdata`, packed by xz
/// (gdb, "Debugging information in a special section").
fn mini(elf: &Elf<'_>) -> Option<Vec<u8>> {
    /// Symbols of the largest programs are some tens of megabytes.
    const LIMIT: u64 = 256 << 20;
    let packed = elf.section_data(elf.section(b".gnu_debugdata")?)?;
    let mut unpacked = Vec::new();
    /// So much may unpacking it need, KiB: xz's highest level needs 64 MiB.
    const MEMORY: u32 = 128 << 10;
    let reader = lzma_rust2::XzReader::new_mem_limit(packed, false, MEMORY);
    reader.take(LIMIT).read_to_end(&mut unpacked).ok()?;
    Some(unpacked)
}

fn candidates(elf: &Elf<'_>, path: &Path, search: &Search) -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    if let Some((first, rest)) = elf.build_id().and_then(<[u8]>::split_first) {
        let name = format!(".build-id/{}/{}", hex(&[*first]), hex(rest));
        let debug = format!("{name}.debug");
        candidates.extend(search.debug_roots.iter().map(|root| root.join(&debug)));
        let cached = |cache: &PathBuf| cache.join(&name).join("debug");
        candidates.extend(search.caches.iter().map(cached));
        if let Some(root) = &search.sysroot {
            candidates.push(root.join("usr/lib/debug").join(&debug));
        }
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
            for root in &search.debug_roots {
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
