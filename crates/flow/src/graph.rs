//! Code as a graph that grows where the trace goes.
//!
//! - A *node* is straight code: from an address, through direct jumps and calls, up to the first
//!   instruction that the trace has a word about. It is read once.
//! - A *stretch* is what comes of a node and the next outcomes, up to 16 of them: the nodes on the
//!   way, joined. It is put together once and then costs one look-up.
//!
//! A graph holds for one version of an address space and one code width.

mod straight;
mod stretch;

use std::collections::HashMap;

use iced_x86::Decoder;
use ptrail_image::{AddressSpace, FunctionHit};
use ptrail_pt::{ExecMode, Ip};
use rustc_hash::FxBuildHasher;

use crate::sink::{EdgeId, Edges, Step};
use crate::{Detail, Edge, EdgeKind, Instruction, OffCause};

pub(crate) use stretch::{Key, OUTCOMES, Stretch, Stretches};

/// Beyond this many nodes or steps a graph starts anew: only a hostile trace gets there.
const NODES_MAX: usize = 1 << 22;
const STEPS_MAX: usize = 1 << 24;

/// Number of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

impl NodeId {
    /// No node.
    pub(crate) const NONE: Self = Self(0);
}

/// How a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It has not been looked at yet.
    New,
    /// Conditional branch.
    Conditional,
    /// Near return.
    Return,
    /// Indirect near jump.
    JumpIndirect,
    /// Indirect near call.
    CallIndirect,
    /// Far transfer.
    Far,
    /// Far return.
    FarReturn,
    /// With trouble: no code, a loop without a way out, very long code. It must be walked
    /// instruction by instruction.
    Open,
}

/// A range of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    #[inline]
    pub(crate) fn of<T>(self, pool: &[T]) -> &[T] {
        &self.from(pool)[..self.len()]
    }

    /// The pool from its start on.
    #[inline]
    pub(crate) fn from<T>(self, pool: &[T]) -> &[T] {
        &pool[self.start as usize..]
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.len as usize
    }

    /// Appends to a pool.
    fn add<T: Copy>(pool: &mut Vec<T>, items: &[T]) -> Self {
        let start = pool.len() as u32;
        pool.extend_from_slice(items);
        Self {
            start,
            len: items.len() as u32,
        }
    }
}

/// Straight code and the instruction that ends it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Node {
    pub(crate) start: Ip,
    /// Address of the instruction that ends it.
    pub(crate) last: Ip,
    /// Address behind that.
    pub(crate) next: Ip,
    pub(crate) end: End,
    /// With the one that ends it.
    pub(crate) instructions: u32,
    /// Calls and reported jumps on the way.
    pub(crate) steps: Span,
    /// Where the calls on the way return to.
    pub(crate) pushes: Span,
    /// Addresses of the instructions, if they are reported, start here in their pool.
    ips: u32,
    /// What is behind the conditional branch or the call that ends it.
    pub(crate) behind: NodeId,
    /// Target of the conditional branch, else where the end went the last time.
    pub(crate) target: NodeId,
    /// The edge to `target`, if it is reported.
    pub(crate) edge: Option<EdgeId>,
}

impl Node {
    const fn new(start: Ip) -> Self {
        let none = Span { start: 0, len: 0 };
        Self {
            start,
            last: start,
            next: start,
            end: End::New,
            instructions: 0,
            steps: none,
            pushes: none,
            ips: 0,
            behind: NodeId::NONE,
            target: NodeId::NONE,
            edge: None,
        }
    }
}

/// Straight code up to the instruction that left the traced code, and what that was.
pub(crate) type Exit = (Node, OffCause);

/// The code of one version of an address space, as far as it was walked.
pub(crate) struct Graph<'a> {
    pub(crate) space: AddressSpace<'a>,
    pub(crate) mode: ExecMode,
    detail: Detail,
    index: HashMap<Ip, NodeId, FxBuildHasher>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) steps: Vec<Step>,
    pub(crate) pushes: Vec<NodeId>,
    ips: Vec<Ip>,
    pub(crate) stretches: Stretches,
    /// Straight code up to where tracing was switched off.
    exits: HashMap<(NodeId, Option<Ip>), Option<Exit>, FxBuildHasher>,
    /// Where indirect branches and returns went.
    targets: HashMap<(NodeId, Ip), (NodeId, Option<EdgeId>), FxBuildHasher>,
    /// Single instructions, for walks that stop in the middle of nodes.
    instructions: HashMap<Ip, Instruction, FxBuildHasher>,
    /// The function asked for last.
    function: Option<FunctionHit>,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(space: AddressSpace<'a>, mode: ExecMode, detail: Detail) -> Self {
        Self {
            space,
            mode,
            detail,
            index: HashMap::default(),
            nodes: vec![Node::new(Ip(0))],
            steps: Vec::new(),
            pushes: Vec::new(),
            ips: Vec::new(),
            stretches: Stretches::new(),
            exits: HashMap::default(),
            targets: HashMap::default(),
            instructions: HashMap::default(),
            function: None,
        }
    }

    /// Goes over to a space that keeps all code of this one.
    pub(crate) fn extend(&mut self, space: AddressSpace<'a>) {
        self.space = space;
        // Code that was missing may be there now.
        for node in self.nodes.iter_mut().filter(|node| node.end == End::Open) {
            *node = Node::new(node.start);
        }
        self.exits.retain(|_, exit| exit.is_some());
        self.function = None;
    }

    /// Whether it grew larger than any program makes it.
    pub(crate) fn is_full(&self) -> bool {
        self.nodes.len() > NODES_MAX
            || self.targets.len().max(self.exits.len()) > NODES_MAX
            || self.steps.len().max(self.ips.len()) > STEPS_MAX
    }

    /// The node that starts at an address.
    pub(crate) fn node(&mut self, start: Ip) -> NodeId {
        *self.index.entry(start).or_insert_with(|| {
            let id = u32::try_from(self.nodes.len()).expect("fewer than 2^32 nodes fit in memory");
            self.nodes.push(Node::new(start));
            NodeId(id)
        })
    }

    pub(crate) fn start(&self, id: NodeId) -> Ip {
        self.nodes[id.0 as usize].start
    }

    /// The node, with its code read.
    #[inline]
    pub(crate) fn read(&mut self, id: NodeId, edges: &mut Edges) -> Node {
        let node = self.nodes[id.0 as usize];
        if node.end != End::New {
            return node;
        }
        self.read_code(id, edges);
        self.nodes[id.0 as usize]
    }

    /// Addresses of the instructions of a node, if they are reported.
    pub(crate) fn ips(&self, node: &Node) -> &[Ip] {
        &self.ips[node.ips as usize..][..node.instructions as usize]
    }

    /// The target at `to` of the indirect branch or return that ends a node, and the edge to it, if
    /// that is reported.
    #[inline]
    pub(crate) fn target(
        &mut self,
        id: NodeId,
        to: Ip,
        edges: &mut Edges,
    ) -> (NodeId, Option<EdgeId>) {
        let node = &self.nodes[id.0 as usize];
        if self.nodes[node.target.0 as usize].start == to && node.target != NodeId::NONE {
            return (node.target, node.edge);
        }
        self.other_target(id, to, edges)
    }

    #[cold]
    fn other_target(&mut self, id: NodeId, to: Ip, edges: &mut Edges) -> (NodeId, Option<EdgeId>) {
        let target = match self.targets.get(&(id, to)) {
            Some(&known) => known,
            None => {
                let node = self.nodes[id.0 as usize];
                let kind = match node.end {
                    End::Return => EdgeKind::Return,
                    End::CallIndirect => EdgeKind::Call,
                    End::Far => EdgeKind::Far,
                    End::FarReturn => EdgeKind::FarReturn,
                    _ => EdgeKind::JumpIndirect,
                };
                let edge = Edge {
                    kind,
                    from: node.last,
                    to,
                    next: node.next,
                };
                let edge = self.reports(&edge).then(|| edges.id(edge));
                let target = (self.node(to), edge);
                self.targets.insert((id, to), target);
                target
            }
        };
        let node = &mut self.nodes[id.0 as usize];
        (node.target, node.edge) = target;
        target
    }

    /// Whether the sink wants to know of this edge.
    pub(crate) fn reports(&mut self, edge: &Edge) -> bool {
        self.detail > Detail::Calls
            || !matches!(
                edge.kind,
                EdgeKind::Jump | EdgeKind::JumpIndirect | EdgeKind::Conditional
            )
            || self.leaves_function(edge.from, edge.to)
    }

    fn leaves_function(&mut self, from: Ip, to: Ip) -> bool {
        let covers = |hit: &FunctionHit, ip| hit.start <= ip && ip < hit.end;
        if self.function.as_ref().is_none_or(|hit| !covers(hit, from)) {
            self.function = self.space.function(from);
        }
        match &self.function {
            Some(hit) if covers(hit, to) => false,
            from => {
                let to = self.space.function(to);
                from.as_ref().map(|hit| (hit.id, hit.entry)) != to.map(|hit| (hit.id, hit.entry))
            }
        }
    }

    /// The instruction at an address; `None` if the bytes there are none.
    ///
    /// # Errors
    /// There is no code.
    pub(crate) fn instruction(
        &mut self,
        ip: Ip,
    ) -> Result<Option<Instruction>, ptrail_image::NoCode> {
        if let Some(&instruction) = self.instructions.get(&ip) {
            return Ok(Some(instruction));
        }
        let code = self.space.code(ip)?;
        let instruction = Instruction::decode(code, ip, self.mode).or_else(|| {
            let mut bytes = [0; 15];
            let len = self.space.fetch(ip, &mut bytes);
            Instruction::decode(&bytes[..len], ip, self.mode)
        });
        if let Some(instruction) = instruction {
            self.instructions.insert(ip, instruction);
        }
        Ok(instruction)
    }

    /// Reads instructions one behind the other.
    fn decoder(&self, ip: Ip) -> Option<Decoder<'a>> {
        let code = self.space.code(ip).ok()?;
        Some(crate::instruction::decoder(code, ip, self.mode))
    }
}
