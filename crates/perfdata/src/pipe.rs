//! The pipe form (`perf record -o -`): the header is 16 bytes, then all is a row of records, what the
//! other form has in sections too.
//!
//! | type | body |
//! | --- | --- |
//! | `HEADER_ATTR` | a `perf_event_attr` (its own size is its second word), then the event's ids |
//! | `HEADER_FEATURE` | `u64` number of a feature, then what its section would hold |
//! | `HEADER_BUILD_ID` | as in the build-id feature |

use std::collections::{BTreeMap, HashMap};

use linux_perf_data::Feature;

use crate::attributes::{Attribute, Attributes};
use crate::damage::Damage;
use crate::features::{self, BuildIds};
use crate::layout;
use crate::records::Records;
use crate::wire::Bytes;

/// What the records say that are no events.
pub(crate) struct Head<'a> {
    pub(crate) attributes: Attributes,
    pub(crate) features: BTreeMap<Feature, &'a [u8]>,
    pub(crate) build_ids: BuildIds,
}

/// Reads all records once, for what must be known before the events are read.
pub(crate) fn head<'a>(file: &'a [u8], damage: &mut Damage) -> Head<'a> {
    let (mut list, mut by_id) = (Vec::new(), HashMap::new());
    let mut head_features = BTreeMap::new();
    let mut build_ids = BuildIds::new();
    for record in Records::new(file, layout::PIPE_HEADER_SIZE..file.len() as u64) {
        match record.kind {
            layout::HEADER_ATTR => match attribute(record.body) {
                Some((attribute, ids)) => {
                    by_id.extend(ids.map(|id| (id, list.len())));
                    list.push(attribute);
                }
                None => damage.malformed(record.offset, "an event's attribute is broken; left out"),
            },
            layout::HEADER_FEATURE => {
                let mut body = Bytes(record.body);
                if let Some(number) = body.u64().and_then(|number| u32::try_from(number).ok()) {
                    head_features.insert(Feature(number), body.0);
                }
            }
            layout::HEADER_BUILD_ID => {
                if let Some((path, id)) = features::build_id(record.misc, record.body) {
                    build_ids.insert(path, id);
                }
            }
            _ => {}
        }
    }
    Head {
        attributes: Attributes::new(list, by_id),
        features: head_features,
        build_ids,
    }
}

fn attribute(body: &[u8]) -> Option<(Attribute, impl Iterator<Item = u64>)> {
    let size = { Bytes(body.get(4..)?) }.u32()?;
    let (attr, ids) = body.split_at_checked(usize::try_from(size).ok()?)?;
    let mut ids = Bytes(ids);
    Some((
        Attribute::read(attr)?,
        std::iter::from_fn(move || ids.u64()),
    ))
}
