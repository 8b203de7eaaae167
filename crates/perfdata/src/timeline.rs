//! The sideband as a whole: in order, and with what the header knows about its files.

use crate::features::BuildIds;
use crate::{Record, Sideband};

/// Older perfs have no build-ids in the records, only by path in the header.
pub(crate) fn add_build_ids(sideband: &mut [Sideband], build_ids: &BuildIds) {
    for event in sideband {
        if let Record::Mmap2 {
            path,
            build_id: build_id @ None,
            ..
        } = &mut event.record
        {
            // The kernel's mapping carries the name of its first symbol: `[kernel.kallsyms]_text`.
            let kernel = path
                .strip_suffix("_text")
                .or_else(|| path.strip_suffix("_stext"));
            let kernel = kernel.filter(|name| name.ends_with(']'));
            *build_id = build_ids.get(kernel.unwrap_or(path)).cloned();
        }
    }
}

/// Buffers of several CPUs stand one behind the other. A record without time stays behind the one
/// that stands before it in the file.
pub(crate) fn sort_by_time(sideband: &mut Vec<Sideband>) {
    let mut last = 0;
    let mut timed: Vec<(u64, Sideband)> = std::mem::take(sideband)
        .into_iter()
        .map(|event| {
            last = event.time.unwrap_or(last);
            (last, event)
        })
        .collect();
    timed.sort_by_key(|(time, _)| *time);
    sideband.extend(timed.into_iter().map(|(_, event)| event));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: Option<u64>, count: u64) -> Sideband {
        Sideband {
            time,
            pid: None,
            tid: None,
            cpu: None,
            record: Record::Lost(count),
        }
    }

    #[test]
    fn records_are_sorted_and_those_without_time_stay_behind_their_neighbour() {
        let mut events = vec![
            event(None, 0),
            event(Some(9), 1),
            event(None, 2),
            event(Some(3), 3),
            event(Some(9), 4),
        ];
        sort_by_time(&mut events);
        let order: Vec<_> = events.iter().map(|e| e.record.clone()).collect();
        assert_eq!(order, [0, 3, 1, 2, 4].map(Record::Lost));
    }

    #[test]
    fn a_record_keeps_its_own_build_id_and_the_kernel_is_found_by_its_name() {
        let map = |path: &str, build_id| Sideband {
            record: Record::Mmap2 {
                address: 0,
                len: 0,
                file_offset: 0,
                executable: true,
                path: path.to_owned(),
                build_id,
            },
            ..event(None, 0)
        };
        let ids = BuildIds::from([
            ("/bin/a".to_owned(), vec![1]),
            ("[kernel.kallsyms]".to_owned(), vec![2]),
        ]);
        let mut events = [
            map("/bin/a", Some(vec![9])),
            map("/bin/a", None),
            map("[kernel.kallsyms]_text", None),
        ];
        add_build_ids(&mut events, &ids);
        let expected = [
            map("/bin/a", Some(vec![9])),
            map("/bin/a", Some(vec![1])),
            map("[kernel.kallsyms]_text", Some(vec![2])),
        ];
        assert_eq!(events, expected);
    }
}
