//! Who owns which addresses: disjoint ranges, filled source by source.

/// Link addresses that belong to one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u64,
    /// Exclusive.
    pub(crate) end: u64,
    pub(crate) function: u32,
}

/// Disjoint sorted ranges.
#[derive(Default)]
pub(crate) struct Layout {
    ranges: Vec<Range>,
}

impl Layout {
    pub(crate) fn into_ranges(self) -> Vec<Range> {
        self.ranges
    }

    pub(crate) fn find(&self, address: u64) -> Option<Range> {
        let later = self.ranges.partition_point(|range| range.start <= address);
        self.ranges[..later]
            .last()
            .copied()
            .filter(|range| address < range.end)
    }

    /// The first start behind `address`.
    pub(crate) fn next_start(&self, address: u64) -> Option<u64> {
        let later = self.ranges.partition_point(|range| range.start <= address);
        self.ranges.get(later).map(|range| range.start)
    }

    /// Whether all of `start..end` is owned.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            match self.find(at) {
                Some(range) => at = range.end,
                None => return false,
            }
        }
        true
    }

    /// Gives what is still free to `new`, which is disjoint and sorted.
    pub(crate) fn fill(&mut self, new: &[Range]) {
        if new.is_empty() {
            return;
        }
        let mut pieces = Vec::new();
        let mut owned = self.ranges.iter().peekable();
        for range in new {
            let mut at = range.start;
            while at < range.end {
                while owned.next_if(|owner| owner.end <= at).is_some() {}
                match owned.peek() {
                    Some(owner) if owner.start <= at => at = owner.end,
                    Some(owner) if owner.start < range.end => {
                        pieces.push(Range {
                            start: at,
                            end: owner.start,
                            ..*range
                        });
                        at = owner.end;
                    }
                    _ => {
                        pieces.push(Range {
                            start: at,
                            ..*range
                        });
                        at = range.end;
                    }
                }
            }
        }
        self.ranges.append(&mut pieces);
        self.ranges.sort_unstable_by_key(|range| range.start);
        self.ranges.dedup_by(|later, earlier| {
            let same = earlier.function == later.function && earlier.end == later.start;
            if same {
                earlier.end = later.end;
            }
            same
        });
    }
}

/// Makes nested and overlapping ranges disjoint: the one that starts last wins, the outer one goes
/// on behind it. `ranges` is sorted by start, starts are unique.
pub(crate) fn flatten(ranges: &[Range]) -> Vec<Range> {
    let mut flat = Vec::with_capacity(ranges.len());
    let mut open: Vec<Range> = Vec::new();
    let mut at = 0;
    let mut emit = |start: u64, end: u64, range: &Range| {
        if start < end {
            flat.push(Range {
                start,
                end,
                function: range.function,
            });
        }
    };
    for range in ranges {
        while let Some(top) = open.pop_if(|top| top.end <= range.start) {
            emit(at, top.end, &top);
            at = at.max(top.end);
        }
        if let Some(top) = open.last() {
            emit(at, range.start, top);
        }
        at = range.start;
        open.push(*range);
    }
    while let Some(top) = open.pop() {
        emit(at, top.end, &top);
        at = at.max(top.end);
    }
    flat
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPACE: u64 = 80;

    fn ranges() -> impl Strategy<Value = Vec<Range>> {
        prop::collection::btree_map(0..SPACE - 20, 0..20u64, 0..12).prop_map(|map| {
            let ranges = map.into_iter().enumerate();
            ranges
                .map(|(index, (start, len))| Range {
                    start,
                    end: start + len,
                    function: index as u32,
                })
                .collect()
        })
    }

    fn owner(ranges: &[Range], address: u64) -> Option<u32> {
        let mut owners = ranges
            .iter()
            .filter(|r| (r.start..r.end).contains(&address));
        let owner = owners.next().map(|r| r.function);
        assert!(owners.next().is_none(), "two owners at {address}");
        owner
    }

    proptest! {
        #[test]
        fn flattening_gives_each_address_to_the_last_start(ranges in ranges()) {
            let flat = flatten(&ranges);
            prop_assert!(flat.windows(2).all(|pair| pair[0].end <= pair[1].start));
            for address in 0..SPACE {
                let expected = ranges.iter().rfind(|r| (r.start..r.end).contains(&address)).map(|r| r.function);
                prop_assert_eq!(owner(&flat, address), expected, "at {}", address);
            }
        }

        #[test]
        fn filling_never_takes_what_is_owned(first in ranges(), second in ranges()) {
            let second: Vec<Range> = second.iter().map(|r| Range { function: r.function + 100, ..*r }).collect();
            let (first, second) = (flatten(&first), flatten(&second));
            let mut layout = Layout::default();
            layout.fill(&first);
            layout.fill(&second);
            for address in 0..SPACE {
                let expected = owner(&first, address).or_else(|| owner(&second, address));
                prop_assert_eq!(layout.find(address).map(|r| r.function), expected);
            }
            for (start, end) in [(0, 10), (5, 40), (30, SPACE)] {
                let all = (start..end).all(|address| layout.find(address).is_some());
                prop_assert_eq!(layout.covers(start, end), all);
            }
            let ranges = layout.into_ranges();
            prop_assert!(ranges.windows(2).all(|p| p[0].end <= p[1].start && p[0].start < p[0].end));
        }
    }
}
