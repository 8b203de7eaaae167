//! Reading the code of a node.

use iced_x86::Decoder;
use ptrail_pt::Ip;

use super::{End, Exit, Graph, Node, NodeId, Span};
use crate::sink::{EdgeId, Edges, Step};
use crate::{Class, Detail, Edge, EdgeKind, FarKind, Instruction, OffCause};

/// More instructions than straight code has, even if a compiler unrolled it.
const LONGEST: u32 = 1 << 14;

/// What was read of a node so far.
#[derive(Default)]
struct Straight {
    instructions: u32,
    steps: Vec<Step>,
    pushes: Vec<NodeId>,
    ips: Vec<Ip>,
    jumps: u32,
    /// The target of the last jump whose number is a power of two: code that comes by again goes
    /// round for ever (Brent's way to find a cycle).
    mark: Option<Ip>,
}

impl Graph<'_> {
    /// Reads the code of a node.
    pub(super) fn read_code(&mut self, id: NodeId, edges: &mut Edges) {
        let start = self.start(id);
        let mut straight = Straight::default();
        let end = self.read_straight(start, &mut straight, edges, |_, _| false);
        let mut node = self.straight_node(start, &straight, end.map(|(last, _)| last));
        if let Some((last, instruction)) = end {
            node.next = last.offset(u64::from(instruction.len));
            node.end = match instruction.class {
                Class::Conditional => {
                    let edge = Edge {
                        kind: EdgeKind::Conditional,
                        from: last,
                        to: instruction.target,
                        next: node.next,
                    };
                    node.edge = self.report(edge, edges);
                    node.target = self.node(instruction.target);
                    node.behind = self.node(node.next);
                    End::Conditional
                }
                Class::CallIndirect => {
                    node.behind = self.node(node.next);
                    End::CallIndirect
                }
                Class::Return => End::Return,
                Class::JumpIndirect => End::JumpIndirect,
                Class::Far(FarKind::Return) => End::FarReturn,
                _ => End::Far,
            };
        }
        self.nodes[id.0 as usize] = node;
    }

    /// The code from a node's start up to the instruction that left the traced code for `to`, with
    /// what it was; `None` if there is none without a word from the trace.
    pub(crate) fn exit(&mut self, id: NodeId, to: Option<Ip>, edges: &mut Edges) -> Option<Exit> {
        if let Some(&exit) = self.exits.get(&(id, to)) {
            return exit;
        }
        let start = self.start(id);
        let mut straight = Straight::default();
        let end = self.read_straight(start, &mut straight, edges, |next, instruction| {
            instruction.leaves_for(to, next)
        });
        let exit = end.and_then(|(last, instruction)| {
            let mut node = self.straight_node(start, &straight, Some(last));
            node.next = last.offset(u64::from(instruction.len));
            let cause = match instruction.class {
                Class::Far(FarKind::Syscall) => OffCause::Syscall,
                Class::Far(_) => OffCause::FarTransfer,
                Class::Conditional
                    if to.is_some_and(|to| to != node.next && to != instruction.target) =>
                {
                    return None;
                }
                _ => OffCause::Filter,
            };
            Some((node, cause))
        });
        self.exits.insert((id, to), exit);
        exit
    }

    fn straight_node(&mut self, start: Ip, straight: &Straight, last: Option<Ip>) -> Node {
        let ips = Span::add(&mut self.ips, &straight.ips);
        Node {
            last: last.unwrap_or(start),
            end: End::Open,
            instructions: straight.instructions,
            steps: Span::add(&mut self.steps, &straight.steps),
            pushes: Span::add(&mut self.pushes, &straight.pushes),
            ips: ips.start,
            ..Node::new(start)
        }
    }

    /// Reads up to the first instruction that is no direct jump or call, or that `leaves` (given
    /// the address behind it), and returns it; `None` if there is trouble before.
    fn read_straight(
        &mut self,
        start: Ip,
        straight: &mut Straight,
        edges: &mut Edges,
        leaves: impl Fn(Ip, &Instruction) -> bool,
    ) -> Option<(Ip, Instruction)> {
        let mut ip = start;
        let mut decoder = None;
        let mut decoded = iced_x86::Instruction::default();
        while straight.instructions < LONGEST {
            let reader = match &mut decoder {
                Some(reader) if Decoder::can_decode(reader) => reader,
                slot => slot.insert(self.decoder(ip)?),
            };
            reader.decode_out(&mut decoded);
            let instruction = match Instruction::of(&decoded) {
                Some(instruction) => instruction,
                // It may reach into the next mapping, or be one that the library does not know.
                None => {
                    decoder = None;
                    self.instruction(ip).ok()??
                }
            };
            straight.instructions += 1;
            if self.detail == Detail::Instructions {
                straight.ips.push(ip);
            }
            let next = ip.offset(u64::from(instruction.len));
            if leaves(next, &instruction) {
                return Some((ip, instruction));
            }
            let kind = match instruction.class {
                Class::Plain | Class::MovCr3 => {
                    ip = next;
                    continue;
                }
                Class::Jump => EdgeKind::Jump,
                Class::Call => EdgeKind::Call,
                _ => return Some((ip, instruction)),
            };
            let to = instruction.target;
            let edge = Edge {
                kind,
                from: ip,
                to,
                next,
            };
            if let Some(edge) = self.report(edge, edges) {
                straight.steps.push(Step {
                    edge,
                    instructions: straight.instructions,
                });
            }
            // SDM, "Return Compression": a CALL to the next instruction is not pushed.
            if kind == EdgeKind::Call && to != next {
                let behind = self.node(next);
                straight.pushes.push(behind);
            }
            straight.jumps += 1;
            if straight.mark == Some(to) {
                return None;
            }
            if straight.jumps.is_power_of_two() {
                straight.mark = Some(to);
            }
            if to != next {
                decoder = None;
            }
            ip = to;
        }
        None
    }

    fn report(&mut self, edge: Edge, edges: &mut Edges) -> Option<EdgeId> {
        self.reports(&edge).then(|| edges.id(edge))
    }
}
