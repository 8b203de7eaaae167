//! Names as places in the file's own string tables, so that a table of a million functions holds
//! no text.

use std::ffi::CStr;

/// Longest name that is read, bytes. Without a limit, a damaged string table that never ends would
/// be walked once for each symbol.
const MAX_LEN: usize = 32 * 1024;

/// Where a name stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameRef {
    /// In the separate debug file rather than the image's own.
    debug: bool,
    len: u16,
    offset: u64,
}

/// The bytes of the files that names stand in.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) main: &'a [u8],
    pub(crate) debug: &'a [u8],
}

impl<'a> Names<'a> {
    /// The name at an offset of a string table with these bounds; `None` if it is empty or outside.
    pub(crate) fn locate(self, debug: bool, table: (u64, u64), index: u32) -> Option<NameRef> {
        let offset = table
            .0
            .checked_add(u64::from(index))
            .filter(|&offset| offset < table.1)?;
        let file = if debug { self.debug } else { self.main };
        let rest = file.get(usize::try_from(offset).ok()?..usize::try_from(table.1).ok()?)?;
        let rest = &rest[..rest.len().min(MAX_LEN)];
        let mut len = CStr::from_bytes_until_nul(rest).map_or(rest.len(), CStr::count_bytes);
        // `name@VERSION` and `name@@VERSION` stand for `name`.
        if let Some(version) = rest[..len].iter().skip(1).position(|&byte| byte == b'@')
            && !rest[version + 1..len].starts_with(b"@plt")
        {
            len = version + 1;
        }
        let len = u16::try_from(len).ok().filter(|&len| len > 0)?;
        Some(NameRef { debug, len, offset })
    }

    pub(crate) fn get(self, name: NameRef) -> &'a [u8] {
        let file = if name.debug { self.debug } else { self.main };
        let start = name.offset as usize;
        file.get(start..start + usize::from(name.len))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_cut_and_bounds_kept() {
        let main = b"puts@@GLIBC_2.2.5\0memcpy@GLIBC_2.14\0puts@plt\0@odd\0tail";
        let names = Names { main, debug: b"" };
        let at = |index| {
            names
                .locate(false, (0, main.len() as u64), index)
                .map(|name| names.get(name))
        };
        assert_eq!(at(0), Some(&b"puts"[..]));
        assert_eq!(at(18), Some(&b"memcpy"[..]));
        assert_eq!(at(36), Some(&b"puts@plt"[..]));
        assert_eq!(at(45), Some(&b"@odd"[..]));
        assert_eq!(at(50), Some(&b"tail"[..]));
        assert_eq!(at(17), None);
        assert_eq!(at(1000), None);
        assert_eq!(names.locate(true, (0, 4), 0), None);
    }
}
