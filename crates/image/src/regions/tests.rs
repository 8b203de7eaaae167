//! The tree against a naive model: one entry for each address.

use proptest::prelude::*;

use super::*;

const SPACE: usize = 64;

/// Image, offset and capture time of each address.
type Model = [Option<(u32, u64, Option<PerfTime>)>; SPACE];

fn region(start: u64, len: u64, image: u32, captured: bool) -> Region {
    let captured = captured.then_some(PerfTime(u64::from(image)));
    Region {
        start,
        end: (start + len).min(SPACE as u64),
        image,
        offset: start * 3,
        captured,
    }
}

fn replace_in_model(model: &mut Model, new: &Region, keep: impl Fn(Option<PerfTime>) -> bool) {
    for address in new.start..new.end {
        let slot = &mut model[address as usize];
        if slot.is_some_and(|(_, _, captured)| keep(captured)) {
            continue;
        }
        *slot = Some((new.image, new.offset + address - new.start, new.captured));
    }
}

/// Checks order, disjointness and balance, returns the height and the regions.
fn check(tree: &Regions, root: Root) -> Vec<Region> {
    fn height(tree: &Regions, root: Root) -> u8 {
        if root == Root::EMPTY {
            return 0;
        }
        let node = tree.node(root);
        let (l, r) = (height(tree, node.left), height(tree, node.right));
        assert!(l.abs_diff(r) <= 1, "unbalanced");
        assert_eq!(node.height, 1 + l.max(r));
        node.height
    }
    height(tree, root);
    let mut regions = Vec::new();
    tree.collect(root, &mut regions);
    for region in &regions {
        assert!(region.start < region.end);
    }
    for pair in regions.windows(2) {
        assert!(pair[0].end <= pair[1].start);
        assert!(
            !pair[1].continues(&pair[0]),
            "neighbours not joined: {pair:?}"
        );
    }
    regions
}

fn compare(tree: &Regions, root: Root, model: &Model) {
    for (address, expected) in model.iter().enumerate() {
        let found = tree
            .find(root, address as u64)
            .map(|r| (r.image, r.offset + address as u64 - r.start, r.captured));
        assert_eq!(found, *expected, "at {address}");
    }
}

proptest! {
    #[test]
    fn all_versions_stay_as_the_model_says(
        changes in prop::collection::vec((0..SPACE as u64, 1..20u64, 0..4u32, any::<bool>()), 1..60),
    ) {
        let mut tree = Regions::new();
        let mut root = Root::EMPTY;
        let mut model: Model = [None; SPACE];
        let mut versions = vec![(root, model)];
        for (start, len, image, captured) in changes {
            let new = region(start, len, image, captured);
            let keep = |old: Option<PerfTime>| !captured && old.is_some();
            let before = model;
            replace_in_model(&mut model, &new, keep);
            let next = tree.replace(root, new, |old| keep(old.captured));
            prop_assert_eq!(next == root, model == before, "same root exactly if nothing changed");
            root = next;
            check(&tree, root);
            versions.push((root, model));
        }
        for (place, (root, model)) in versions.iter().enumerate() {
            compare(&tree, *root, model);
            for (later, later_model) in &versions[place..] {
                // The same bytes, whenever they were captured.
                let kept = model.iter().zip(later_model).all(|(old, new)| {
                    let bytes = |slot: &Option<(u32, u64, _)>| slot.map(|(image, offset, _)| (image, offset));
                    old.is_none() || bytes(old) == bytes(new)
                });
                prop_assert_eq!(tree.keeps(*later, *root), kept);
            }
        }
    }
}

#[test]
fn many_versions_stay_small() {
    let mut tree = Regions::new();
    let mut root = Root::EMPTY;
    let count = 20_000;
    for i in 0..count {
        // A fixed permutation, gaps between the regions.
        let start = (i * 7919 % count) * 64;
        let new = Region {
            start,
            end: start + 32,
            image: i as u32,
            offset: 0,
            captured: None,
        };
        root = tree.replace(root, new, |_| false);
    }
    assert_eq!(check(&tree, root).len() as u64, count);
    let per_change = tree.nodes.len() as u64 / count;
    assert!(per_change <= 32, "{per_change} nodes a change");
}

#[test]
fn the_end_of_the_address_space() {
    let mut tree = Regions::new();
    let top = Region {
        start: u64::MAX - 10,
        end: u64::MAX,
        image: 1,
        offset: u64::MAX - 3,
        captured: None,
    };
    let root = tree.replace(Root::EMPTY, top, |_| false);
    let inner = Region {
        start: u64::MAX - 5,
        end: u64::MAX - 2,
        image: 2,
        offset: 0,
        captured: None,
    };
    let root = tree.replace(root, inner, |_| false);
    assert_eq!(check(&tree, root).len(), 3);
    assert_eq!(tree.find(root, u64::MAX - 1).map(|r| r.image), Some(1));
    assert_eq!(tree.find(root, u64::MAX), None);
}
