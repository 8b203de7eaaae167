//! Every version of every address space, in one persistent tree.
//!
//! A version is a set of disjoint regions, ordered by address in an AVL tree. Nodes are never
//! changed: a new version shares all of the old one's nodes but the O(log n) on the way to the
//! change, so a program that compiles 100,000 functions at run time costs a few hundred bytes for
//! each, and `fork` costs nothing. The tree is built by joining (Blelloch and others, "Just Join
//! for Parallel Ordered Sets"): cut the range out, put the new pieces in its place.
//!
//! Invariants: regions of a version are not empty and don't overlap; neighbours that continue each
//! other in memory and in their image are one region; [`Root`]s are equal if and only if the
//! version is the same node, and a change that changes nothing gives the same root.

use std::cmp::Ordering;

use ptrail_pt::PerfTime;

/// A contiguous piece of an image in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// First address.
    pub(crate) start: u64,
    /// Behind the last address.
    pub(crate) end: u64,
    /// Number of the image.
    pub(crate) image: u32,
    /// Offset of `start` in the image's bytes.
    pub(crate) offset: u64,
    /// For captured bytes, since when they lie here.
    pub(crate) captured: Option<PerfTime>,
}

impl Region {
    /// The part inside `start..end`; the two must overlap.
    fn clip(self, start: u64, end: u64) -> Self {
        let first = self.start.max(start);
        Self {
            start: first,
            end: self.end.min(end),
            offset: self.offset.saturating_add(first - self.start),
            ..self
        }
    }

    fn continues(&self, before: &Self) -> bool {
        before.end == self.start
            && before.image == self.image
            && before.captured == self.captured
            && before.offset.checked_add(before.end - before.start) == Some(self.offset)
    }
}

/// A version: the root of its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Root(u32);

impl Root {
    /// Nothing is mapped.
    pub(crate) const EMPTY: Self = Self(0);

    pub(crate) const fn number(self) -> u32 {
        self.0
    }
}

#[derive(Clone, Copy)]
struct Node {
    left: Root,
    right: Root,
    region: u32,
    height: u8,
}

/// All nodes of all versions.
pub(crate) struct Regions {
    nodes: Vec<Node>,
    regions: Vec<Region>,
}

impl Regions {
    pub(crate) fn new() -> Self {
        let nil = Node {
            left: Root::EMPTY,
            right: Root::EMPTY,
            region: 0,
            height: 0,
        };
        Self {
            nodes: vec![nil],
            regions: Vec::new(),
        }
    }

    /// The region that holds `address`. O(log n).
    pub(crate) fn find(&self, root: Root, address: u64) -> Option<&Region> {
        let mut at = root;
        while at != Root::EMPTY {
            match self.child(at, address) {
                Some(child) => at = child,
                None => return Some(&self.regions[self.node(at).region as usize]),
            }
        }
        None
    }

    /// The child of a node on whose side `address` is; `None` if it is in the node's own region.
    fn child(&self, at: Root, address: u64) -> Option<Root> {
        let node = self.node(at);
        let region = &self.regions[node.region as usize];
        if address < region.start {
            Some(node.left)
        } else if address >= region.end {
            Some(node.right)
        } else {
            None
        }
    }

    /// Whether all that `old` maps is mapped in `new`, too, in the same way. O(log² n) for each
    /// change between the two, if `new` came from `old`.
    pub(crate) fn keeps(&self, new: Root, old: Root) -> bool {
        if old == Root::EMPTY || self.shares(new, old) {
            return true;
        }
        let node = self.node(old);
        self.covers(new, &self.regions[node.region as usize])
            && self.keeps(new, node.left)
            && self.keeps(new, node.right)
    }

    /// Whether the node `part` is one of those of `tree`.
    fn shares(&self, tree: Root, part: Root) -> bool {
        let address = self.regions[self.node(part).region as usize].start;
        let mut at = tree;
        while at != Root::EMPTY && at != part {
            match self.child(at, address) {
                Some(child) => at = child,
                None => return false,
            }
        }
        at == part
    }

    fn covers(&self, root: Root, region: &Region) -> bool {
        let mut at = region.start;
        while at < region.end {
            match self.find(root, at) {
                Some(found)
                    if found.image == region.image
                        && found.clip(at, region.end).offset
                            == region.clip(at, region.end).offset =>
                {
                    at = found.end;
                }
                _ => return false,
            }
        }
        true
    }

    /// The version in which `new` replaces what it overlaps, except regions that `keep` says stay.
    pub(crate) fn replace(
        &mut self,
        root: Root,
        new: Region,
        keep: impl Fn(&Region) -> bool,
    ) -> Root {
        let base = self.nodes.len();
        let region_base = self.regions.len();
        let (left, inside, right) = self.cut(root, new.start, new.end);
        let mut pieces = Vec::with_capacity(1);
        let mut at = new.start;
        for kept in inside.iter().filter(|region| keep(region)) {
            if at < kept.start {
                push(&mut pieces, new.clip(at, kept.start));
            }
            push(&mut pieces, *kept);
            at = kept.end;
        }
        if at < new.end {
            push(&mut pieces, new.clip(at, new.end));
        }
        if pieces == inside {
            self.nodes.truncate(base);
            self.regions.truncate(region_base);
            return root;
        }
        let mut tree = left;
        for piece in pieces {
            tree = self.append(tree, piece);
        }
        let tree = self.concat(tree, right);
        self.seal(tree, base)
    }

    fn node(&self, root: Root) -> Node {
        self.nodes[root.0 as usize]
    }

    fn height(&self, root: Root) -> u8 {
        self.node(root).height
    }

    fn make(&mut self, left: Root, region: u32, right: Root) -> Root {
        let height = 1 + self.height(left).max(self.height(right));
        // Each event makes some hundred nodes at most and leaves a few dozen, so four billion are
        // out of reach of any file that fits into memory; a full tree stops taking changes.
        let Ok(index) = u32::try_from(self.nodes.len()) else {
            return left;
        };
        self.nodes.push(Node {
            left,
            right,
            region,
            height,
        });
        Root(index)
    }

    fn add(&mut self, region: Region) -> u32 {
        self.regions.push(region);
        (self.regions.len() - 1) as u32
    }

    /// What lies before `start`, inside, and from `end` on, straddling regions cut in pieces.
    fn cut(&mut self, root: Root, start: u64, end: u64) -> (Root, Vec<Region>, Root) {
        let (mut left, rest) = self.split(root, start);
        let (middle, mut right) = self.split(rest, end);
        let mut inside = Vec::new();
        self.collect(middle, &mut inside);
        if let Some((before, last)) = self.split_last(left) {
            let region = self.regions[last as usize];
            if region.end > start {
                inside.insert(0, region);
                let head = self.add(region.clip(region.start, start));
                left = self.join(before, head, Root::EMPTY);
            }
        }
        if let Some(&region) = inside.last()
            && region.end > end
        {
            let tail = self.add(region.clip(end, region.end));
            right = self.join(Root::EMPTY, tail, right);
        }
        for region in &mut inside {
            *region = region.clip(start, end);
        }
        (left, inside, right)
    }

    fn collect(&self, root: Root, into: &mut Vec<Region>) {
        if root != Root::EMPTY {
            let node = self.node(root);
            self.collect(node.left, into);
            into.push(self.regions[node.region as usize]);
            self.collect(node.right, into);
        }
    }

    /// Adds a region behind all others.
    fn append(&mut self, tree: Root, region: Region) -> Root {
        if let Some((before, last)) = self.split_last(tree) {
            let neighbour = self.regions[last as usize];
            if region.continues(&neighbour) {
                let whole = self.add(Region {
                    end: region.end,
                    ..neighbour
                });
                return self.join(before, whole, Root::EMPTY);
            }
        }
        let region = self.add(region);
        self.join(tree, region, Root::EMPTY)
    }

    /// All of `left`, then all of `right`.
    fn concat(&mut self, left: Root, right: Root) -> Root {
        let Some((rest, first)) = self.split_first(right) else {
            return left;
        };
        let region = self.regions[first as usize];
        let joined = self.append(left, region);
        match self.split_last(joined) {
            Some((before, last)) => self.join(before, last, rest),
            None => rest,
        }
    }

    /// Regions that start before `address`, and the others.
    fn split(&mut self, root: Root, address: u64) -> (Root, Root) {
        if root == Root::EMPTY {
            return (Root::EMPTY, Root::EMPTY);
        }
        let node = self.node(root);
        match self.regions[node.region as usize].start.cmp(&address) {
            Ordering::Less => {
                let (middle, right) = self.split(node.right, address);
                (self.join(node.left, node.region, middle), right)
            }
            Ordering::Equal | Ordering::Greater => {
                let (left, middle) = self.split(node.left, address);
                (left, self.join(middle, node.region, node.right))
            }
        }
    }

    fn split_last(&mut self, root: Root) -> Option<(Root, u32)> {
        if root == Root::EMPTY {
            return None;
        }
        let node = self.node(root);
        Some(match self.split_last(node.right) {
            None => (node.left, node.region),
            Some((rest, last)) => (self.join(node.left, node.region, rest), last),
        })
    }

    fn split_first(&mut self, root: Root) -> Option<(Root, u32)> {
        if root == Root::EMPTY {
            return None;
        }
        let node = self.node(root);
        Some(match self.split_first(node.left) {
            None => (node.right, node.region),
            Some((rest, first)) => (self.join(rest, node.region, node.right), first),
        })
    }

    /// A balanced tree of `left`, `region` and `right`, which follow each other.
    fn join(&mut self, left: Root, region: u32, right: Root) -> Root {
        let (l, r) = (self.height(left), self.height(right));
        if l > r + 1 {
            let node = self.node(left);
            let joined = self.join(node.right, region, right);
            self.balance(node.left, node.region, joined)
        } else if r > l + 1 {
            let node = self.node(right);
            let joined = self.join(left, region, node.left);
            self.balance(joined, node.region, node.right)
        } else {
            self.make(left, region, right)
        }
    }

    /// A node whose sides may differ in height by two.
    fn balance(&mut self, left: Root, region: u32, right: Root) -> Root {
        let (l, r) = (self.height(left), self.height(right));
        if r > l + 1 {
            let node = self.node(right);
            if self.height(node.left) > self.height(node.right) {
                let inner = self.node(node.left);
                let outer_left = self.make(left, region, inner.left);
                let outer_right = self.make(inner.right, node.region, node.right);
                self.make(outer_left, inner.region, outer_right)
            } else {
                let outer = self.make(left, region, node.left);
                self.make(outer, node.region, node.right)
            }
        } else if l > r + 1 {
            let node = self.node(left);
            if self.height(node.right) > self.height(node.left) {
                let inner = self.node(node.right);
                let outer_left = self.make(node.left, node.region, inner.left);
                let outer_right = self.make(inner.right, region, right);
                self.make(outer_left, inner.region, outer_right)
            } else {
                let outer = self.make(node.right, region, right);
                self.make(node.left, node.region, outer)
            }
        } else {
            self.make(left, region, right)
        }
    }

    /// Drops the nodes since `base` that only the way to `root` needed.
    fn seal(&mut self, root: Root, base: usize) -> Root {
        let fresh = self.nodes.split_off(base);
        self.keep(root, base, &fresh)
    }

    fn keep(&mut self, root: Root, base: usize, fresh: &[Node]) -> Root {
        // Older nodes can't point at younger ones, so everything below an old node is old.
        let Some(node) = (root.0 as usize)
            .checked_sub(base)
            .map(|index| fresh[index])
        else {
            return root;
        };
        let left = self.keep(node.left, base, fresh);
        let right = self.keep(node.right, base, fresh);
        self.make(left, node.region, right)
    }
}

/// Adds a piece behind the others, joined with the last one where it continues it.
fn push(pieces: &mut Vec<Region>, piece: Region) {
    match pieces.last_mut() {
        Some(last) if piece.continues(last) => last.end = piece.end,
        _ => pieces.push(piece),
    }
}

#[cfg(test)]
mod tests;
