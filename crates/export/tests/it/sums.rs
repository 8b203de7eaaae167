//! What profiles must say, added up from the slices of the truth.

use std::collections::BTreeMap;

use crate::stream::Slice;

/// Calls, nanoseconds, instructions.
pub(crate) type Sums = (u64, u64, u64);

/// A slice with what was spent in it alone.
pub(crate) struct Own<'a> {
    pub(crate) slice: &'a Slice,
    pub(crate) time: u64,
    pub(crate) instructions: u64,
}

pub(crate) fn arg(slice: &Slice, key: &str) -> String {
    let arg = slice.args.iter().find(|(name, _)| name == key);
    arg.map(|(_, value)| value.clone()).unwrap_or_default()
}

pub(crate) fn own(slices: &[Slice]) -> Vec<Own<'_>> {
    let mut all = Vec::<Own<'_>>::new();
    let mut path = Vec::<usize>::new();
    for slice in slices {
        path.truncate(slice.depth as usize);
        let time = slice.dur as u64;
        if let Some(&caller) = path.last() {
            all[caller].time -= time;
        }
        path.push(all.len());
        let instructions = arg(slice, "self_instructions").parse().unwrap();
        all.push(Own {
            slice,
            time,
            instructions,
        });
    }
    all
}

pub(crate) fn add(sums: &mut Sums, more: Sums) {
    *sums = (sums.0 + more.0, sums.1 + more.1, sums.2 + more.2);
}

/// The sums by thread and call path, outermost first, with a name for each slice and each thread.
pub(crate) fn by_path(
    slices: &[Slice],
    thread: impl Fn(&Slice) -> String,
    name: impl Fn(&Slice) -> String,
) -> BTreeMap<Vec<String>, Sums> {
    let mut paths = BTreeMap::new();
    let mut path = Vec::new();
    for own in own(slices) {
        path.truncate(own.slice.depth as usize + 1);
        if own.slice.depth == 0 {
            path = vec![thread(own.slice)];
        }
        path.push(name(own.slice));
        let sums = paths.entry(path.clone()).or_default();
        add(sums, (1, own.time, own.instructions));
    }
    paths
}
