//! The executable mappings of a process, from `/proc/PID/maps`.

use std::collections::BTreeMap;
use std::fs;

use object::{Object, ReadCache};

/// One executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecMapping {
    pub(crate) address: u64,
    pub(crate) len: u64,
    pub(crate) file_offset: u64,
    pub(crate) writable: bool,
    /// File, or a name in brackets; `//anon` where the kernel gives none, as perf says it.
    pub(crate) path: String,
}

impl ExecMapping {
    pub(crate) fn holds(&self, address: u64) -> bool {
        address
            .checked_sub(self.address)
            .is_some_and(|offset| offset < self.len)
    }

    pub(crate) fn is_file(&self) -> bool {
        self.path.starts_with('/') && !self.path.starts_with("//")
    }
}

/// Reads the executable mappings; empty once the process is gone.
pub(crate) fn executable(pid: u32) -> Vec<ExecMapping> {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(parse)
        .collect()
}

/// The command line of a process.
pub(crate) fn command(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|&byte| byte == 0);
    words
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

fn parse(line: &str) -> Option<ExecMapping> {
    let (range, rest) = line.split_once(' ')?;
    let (mode, rest) = rest.split_once(' ')?;
    if mode.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let (offset, rest) = rest.split_once(' ')?;
    let (_device, rest) = rest.split_once(' ')?;
    let path = rest
        .split_once(' ')
        .map_or("", |(_inode, path)| path.trim_start());
    let (begin, end) = range.split_once('-')?;
    let address = u64::from_str_radix(begin, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    Some(ExecMapping {
        address,
        len: end.checked_sub(address)?,
        file_offset: u64::from_str_radix(offset, 16).ok()?,
        writable: mode.as_bytes()[1] == b'w',
        path: if path.is_empty() {
            "//anon".to_string()
        } else {
            path.to_string()
        },
    })
}

/// Build-ids of files, each read once.
#[derive(Default)]
pub(crate) struct BuildIds(BTreeMap<String, Option<Vec<u8>>>);

impl BuildIds {
    /// The build-id of the file mapped as `path` in process `pid`.
    pub(crate) fn of(&mut self, pid: u32, path: &str) -> Option<Vec<u8>> {
        self.0
            .entry(path.to_string())
            .or_insert_with(|| read_build_id(pid, path))
            .clone()
    }
}

/// Reads the build-id note through the process's own view of the file system.
fn read_build_id(pid: u32, path: &str) -> Option<Vec<u8>> {
    let file = fs::File::open(format!("/proc/{pid}/root{path}"))
        .or_else(|_| fs::File::open(path))
        .ok()?;
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).ok()?;
    object.build_id().ok()?.map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_kernels_lines() {
        let file = "7f3a7c020000-7f3a7c175000 r-xp 00026000 fe:00 1183                       /usr/lib/a b.so";
        assert_eq!(
            parse(file),
            Some(ExecMapping {
                address: 0x7f3a_7c02_0000,
                len: 0x15_5000,
                file_offset: 0x26000,
                writable: false,
                path: "/usr/lib/a b.so".into(),
            })
        );
        let anonymous = "7f3a7c020000-7f3a7c021000 rwxp 00000000 00:00 0 ";
        assert_eq!(
            parse(anonymous).map(|m| (m.path, m.writable)),
            Some(("//anon".into(), true))
        );
        assert_eq!(
            parse("7ffd000-7ffe000 rw-p 00000000 00:00 0   [stack]"),
            None
        );
        assert_eq!(parse("nonsense"), None);
    }
}
