//! The vDSO of this machine, which is in no file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// No vDSO is longer.
const LIMIT: u64 = 1 << 20;

/// Its bytes, from our own memory; `None` if the kernel gives us none.
pub(crate) fn read() -> Option<Vec<u8>> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let (start, end) = (
        u64::from_str_radix(start, 16).ok()?,
        u64::from_str_radix(end, 16).ok()?,
    );
    let len = end.checked_sub(start).filter(|&len| len <= LIMIT)?;
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    File::open("/proc/self/mem")
        .ok()?
        .read_exact_at(&mut bytes, start)
        .ok()?;
    Some(bytes)
}
