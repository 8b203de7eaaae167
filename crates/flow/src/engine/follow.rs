//! The fast way: node by node, stretch by stretch.
//!
//! It gives what the walk instruction by instruction gives, and leaves to it whatever is out of the
//! ordinary.

use ptrail_pt::Ip;

use super::{Engine, Position, Walk};
use crate::graph::{End, Key, Node, NodeId, OUTCOMES, Stretch, Stretches};
use crate::return_stack::ReturnStack;
use crate::sink::EdgeId;
use crate::{Decoder, Detail, OffCause, Passed, Sink, Step};

/// What came of a closer look at a node.
enum Next {
    /// An outcome was used.
    Node(NodeId),
    /// A target from a TIP is needed first.
    Waits,
    /// All that could be done was done.
    Done,
}

impl<S: Sink> Engine<'_, '_, S> {
    /// Uses up branch outcomes until at most `keep` are left, as far as no target from a TIP is
    /// needed in between.
    pub(super) fn use_outcomes(&mut self, keep: u8) -> Walk<()> {
        if self.outcomes.len() <= keep {
            return Ok(());
        }
        let mut node = self.node()?;
        while self.outcomes.len() > keep {
            if S::DETAIL < Detail::Instructions {
                let key = Key::new(node, self.outcomes.front());
                if let Some(end) = self.whole_stretch(key) {
                    self.outcomes.used(self.outcomes.len().min(OUTCOMES));
                    node = end;
                    continue;
                }
                let stretch = self.part_of_stretch(key);
                if stretch.used > 0 {
                    self.outcomes.used(stretch.used);
                    node = stretch.end;
                    continue;
                }
            }
            match self.one_outcome(node)? {
                Next::Node(next) => node = next,
                Next::Waits => break,
                Next::Done => return Ok(()),
            }
        }
        self.position = if self.expects_target() {
            Position::Node(node)
        } else {
            Position::At(self.graph.start(node))
        };
        Ok(())
    }

    /// Goes through waiting outcomes to the target of a TIP, if there are few and nothing else is
    /// between.
    #[inline(always)]
    pub(super) fn follow_through(&mut self, node: NodeId, to: Ip) -> bool {
        if self.outcomes.len() > OUTCOMES {
            return false;
        }
        let key = Key::targeted(node, self.outcomes.front(), to);
        let Some(end) = self.whole_stretch(key).or_else(|| self.joined_whole(key)) else {
            return false;
        };
        self.outcomes.clear();
        self.position = Position::Node(end);
        true
    }

    /// Executes the stretch of a key, if it is known and whole, and returns where it leads.
    // What comes next waits for the end alone, not for how many outcomes were used.
    #[inline(always)]
    fn whole_stretch(&mut self, key: Key) -> Option<NodeId> {
        let stretches = &self.graph.stretches;
        let stretch = stretches.find(key, &self.returns)?;
        if !stretch.whole {
            return None;
        }
        execute(
            stretch,
            stretches,
            self.decoder,
            &mut self.returns,
            &mut self.instructions,
        );
        Some(stretch.end)
    }

    /// The same, for one that is not known yet.
    #[cold]
    fn joined_whole(&mut self, key: Key) -> Option<NodeId> {
        let stretch = self.stretch(key);
        stretch.whole.then(|| {
            self.execute_stretch(&stretch);
            stretch.end
        })
    }

    /// Executes a stretch as far as it goes, and returns it.
    #[inline(never)]
    fn part_of_stretch(&mut self, key: Key) -> Stretch {
        let mut stretch = self.stretch(key);
        if stretch.used == 0
            && stretch.returns
            && let Some(to) = self.returns.peek(0)
        {
            stretch = self.stretch(key.returning(to));
        }
        if stretch.used > 0 {
            self.execute_stretch(&stretch);
        }
        stretch
    }

    fn stretch(&mut self, key: Key) -> Stretch {
        match self.graph.stretches.find(key, &self.returns) {
            Some(stretch) => *stretch,
            None => {
                let (returns, edges) = (&self.returns, &mut self.decoder.edges);
                let compressed = self.compressed_returns;
                self.graph.join(key, returns, compressed, edges)
            }
        }
    }

    fn execute_stretch(&mut self, stretch: &Stretch) {
        let stretches = &self.graph.stretches;
        execute(
            stretch,
            stretches,
            self.decoder,
            &mut self.returns,
            &mut self.instructions,
        );
    }

    /// Uses the next outcome for the branch that ends a node.
    fn one_outcome(&mut self, id: NodeId) -> Walk<Next> {
        let node = self.graph.read(id, &mut self.decoder.edges);
        let taken = self.outcomes.first() == Some(true);
        let open = self.returns.peek(0).is_some() || !node.pushes.of(&self.graph.pushes).is_empty();
        match node.end {
            End::Conditional => {
                self.execute_node(&node);
                self.outcomes.used(1);
                if !taken {
                    return Ok(Next::Node(node.behind));
                }
                self.pass(node.edge);
                Ok(Next::Node(node.target))
            }
            End::Return if self.compressed_returns && taken && open => {
                self.execute_node(&node);
                self.outcomes.used(1);
                let to = self.returns.pop().unwrap_or(NodeId::NONE);
                let to = self.graph.start(to);
                let (next, edge) = self.graph.target(id, to, &mut self.decoder.edges);
                self.pass(edge);
                Ok(Next::Node(next))
            }
            End::Return if self.compressed_returns => self.slowly(id),
            End::Open | End::New => self.slowly(id),
            End::Return | End::JumpIndirect | End::CallIndirect | End::Far | End::FarReturn => {
                Ok(Next::Waits)
            }
        }
    }

    fn slowly(&mut self, id: NodeId) -> Walk<Next> {
        self.position = Position::Node(id);
        self.walk_outcomes().map(|()| Next::Done)
    }

    /// Goes to the target of an indirect branch, if that is what execution meets next.
    pub(super) fn follow(&mut self, to: Ip) -> bool {
        let Ok(id) = self.node() else { return false };
        let node = self.graph.read(id, &mut self.decoder.edges);
        if !matches!(
            node.end,
            End::JumpIndirect | End::CallIndirect | End::Return | End::Far | End::FarReturn
        ) {
            return false;
        }
        self.execute_node(&node);
        match node.end {
            End::CallIndirect => self.returns.push(node.behind),
            // The CPU's stack moves although the return was not compressed.
            End::Return => drop(self.returns.pop()),
            _ => {}
        }
        let (target, edge) = self.graph.target(id, to, &mut self.decoder.edges);
        self.pass(edge);
        self.position = Position::Node(target);
        true
    }

    /// Executes the code up to the instruction that left the traced code for `to`, if that is met
    /// without a word from the trace.
    pub(super) fn follow_out(&mut self, to: Option<Ip>) -> Option<(Ip, Ip, OffCause)> {
        // Erratum SKL014 is not for here.
        if self.outcomes.len() > 0 || (self.errata.skl014 && to.is_none()) {
            return None;
        }
        let id = self.node().ok()?;
        let (node, cause) = self.graph.exit(id, to, &mut self.decoder.edges)?;
        self.execute_node(&node);
        Some((node.last, node.next, cause))
    }

    /// Executes a node, up to and with the instruction that ends it.
    fn execute_node(&mut self, node: &Node) {
        let graph = &self.graph;
        let steps = node.steps.of(&graph.steps);
        if S::DETAIL == Detail::Instructions {
            let ips = graph.ips(node);
            let mut done = 0;
            for step in steps {
                let upto = step.instructions as usize;
                self.decoder.sink.instructions(&ips[done..upto]);
                done = upto;
                let table = self.decoder.edges.table();
                let step = std::slice::from_ref(step);
                let passed = Passed::new(step, 1, self.instructions, table);
                self.decoder.sink.edges(passed);
            }
            self.decoder.sink.instructions(&ips[done..]);
        } else if !steps.is_empty() {
            let table = self.decoder.edges.table();
            let passed = Passed::new(steps, steps.len(), self.instructions, table);
            self.decoder.sink.edges(passed);
        }
        for &behind in node.pushes.of(&graph.pushes) {
            self.returns.push(behind);
        }
        self.instructions += u64::from(node.instructions);
    }

    /// Passes the edge of a branch that just executed.
    #[inline]
    fn pass(&mut self, edge: Option<EdgeId>) {
        if let Some(edge) = edge {
            let step = [Step {
                edge,
                instructions: 0,
            }];
            let table = self.decoder.edges.table();
            let passed = Passed::new(&step, 1, self.instructions, table);
            self.decoder.sink.edges(passed);
        }
    }
}

/// Executes a stretch.
#[inline(always)]
fn execute<S: Sink>(
    stretch: &Stretch,
    stretches: &Stretches,
    decoder: &mut Decoder<'_, S>,
    returns: &mut ReturnStack,
    instructions: &mut u64,
) {
    if stretch.steps.len() > 0 {
        let (steps, count) = (stretches.steps(stretch), stretch.steps.len());
        let passed = Passed::new(steps, count, *instructions, decoder.edges.table());
        decoder.sink.edges(passed);
    }
    stretches.replay(stretch, returns);
    *instructions += u64::from(stretch.instructions);
}
