//! `/tmp/perf-PID.map`: names for code that a JIT compiler made. Each line is an address, a size (both
//! hexadecimal, perhaps with `0x`) and a name. A line that is none is left out. Where lines overlap,
//! the last one wins: the compiler used the place again.

use std::collections::BTreeMap;

use crate::layout::Range;

/// Names by address.
pub(crate) struct PerfMap {
    ranges: Vec<Range>,
    names: Vec<String>,
}

impl PerfMap {
    pub(crate) fn read(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let lines: Vec<(u64, u64, &str)> = text.lines().filter_map(line).collect();
        let mut ranges: BTreeMap<u64, Range> = BTreeMap::new();
        for (number, &(start, end, _)) in lines.iter().enumerate() {
            let new = Range {
                start,
                end,
                function: number as u32,
            };
            replace(&mut ranges, new);
        }
        Self {
            ranges: ranges.into_values().collect(),
            names: lines
                .iter()
                .map(|(_, _, name)| (*name).to_owned())
                .collect(),
        }
    }

    /// `/proc/kallsyms`: address, type and name, then the module in brackets. A function goes on to
    /// the next symbol.
    pub(crate) fn read_kallsyms(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let mut symbols: Vec<(u64, &str)> = text.lines().filter_map(kernel_symbol).collect();
        // Of several names for an address the first one stays.
        symbols.sort_by_key(|(address, _)| *address);
        symbols.dedup_by_key(|(address, _)| *address);
        let ends = symbols.iter().skip(1).map(|(address, _)| *address);
        let ends: Vec<u64> = ends.chain([u64::MAX]).collect();
        let range = |(number, ((start, _), end)): (usize, (&(u64, &str), u64))| Range {
            start: *start,
            end,
            function: number as u32,
        };
        Self {
            ranges: symbols.iter().zip(ends).enumerate().map(range).collect(),
            names: symbols.iter().map(|(_, name)| (*name).to_owned()).collect(),
        }
    }

    /// The range at an address, with the number of its name.
    pub(crate) fn find(&self, address: u64) -> Option<Range> {
        let later = self.ranges.partition_point(|range| range.start <= address);
        let range = self.ranges[..later].last()?;
        (address < range.end).then_some(*range)
    }

    pub(crate) fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(String::as_str)
    }
}

/// Puts a range in the place of what it overlaps.
fn replace(ranges: &mut BTreeMap<u64, Range>, new: Range) {
    let before = ranges
        .range(..new.start)
        .next_back()
        .map(|(_, range)| *range);
    if let Some(old) = before.filter(|old| old.end > new.start) {
        ranges.insert(
            old.start,
            Range {
                end: new.start,
                ..old
            },
        );
        if old.end > new.end {
            ranges.insert(
                new.end,
                Range {
                    start: new.end,
                    ..old
                },
            );
        }
    }
    let inside: Vec<u64> = ranges
        .range(new.start..new.end)
        .map(|(start, _)| *start)
        .collect();
    for start in inside {
        if let Some(old) = ranges.remove(&start).filter(|old| old.end > new.end) {
            ranges.insert(
                new.end,
                Range {
                    start: new.end,
                    ..old
                },
            );
        }
    }
    ranges.insert(new.start, new);
}

fn line(line: &str) -> Option<(u64, u64, &str)> {
    let (start, rest) = line.trim_start().split_once(' ')?;
    let (size, name) = rest.trim_start().split_once(' ')?;
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
    let (start, size, name) = (hex(start)?, hex(size)?, name.trim());
    let end = start.checked_add(size)?;
    (start < end && !name.is_empty()).then_some((start, end, name))
}

fn kernel_symbol(line: &str) -> Option<(u64, &str)> {
    let (address, rest) = line.split_once(' ')?;
    let (kind, name) = rest.split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    // Data ends a function too; without the right to see them, all addresses are 0.
    let is_code = matches!(kind, "t" | "T" | "w" | "W");
    let name = if is_code {
        name.split('\t').next()?
    } else {
        ""
    };
    (address > 0).then_some((address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_symbols_go_on_to_the_next() {
        let map = PerfMap::read_kallsyms(
            b"ffffffff81000000 T _text\nffffffff81000000 T startup_64\nffffffff81000040 t helper\n\
              ffffffff82000000 D data\nffffffffc0000000 t probe\t[driver]\nbad\n0 T hidden\n",
        );
        let name = |address| map.find(address).and_then(|range| map.name(range.function));
        for (address, expected) in [
            (0xffff_ffff_80ff_ffff, None),
            (0xffff_ffff_8100_003f, Some("_text")),
            (0xffff_ffff_8100_0040, Some("helper")),
            (0xffff_ffff_8200_0010, Some("")),
            (0xffff_ffff_c000_0001, Some("probe")),
        ] {
            assert_eq!(name(address), expected, "{address:x}");
        }
    }

    #[test]
    fn the_latest_wins_and_what_is_no_line_is_left_out() {
        let map = PerfMap::read(
            b"1000 20 first\n0x1040 0x10 void second(int)\n1010 8 inside\nnonsense\n1 2\n\
              1000 zz bad\n1000 0 empty\nffffffffffffffff 10 over\n\xff 1 x\n1040 10 third",
        );
        let name = |address| map.find(address).and_then(|range| map.name(range.function));
        for (address, expected) in [
            (0xfff, None),
            (0x1000, Some("first")),
            (0x1010, Some("inside")),
            (0x1018, Some("first")),
            (0x1020, None),
            (0x1040, Some("third")),
            (0x1050, None),
        ] {
            assert_eq!(name(address), expected, "{address:x}");
        }
    }
}
