//! Walking code between two decisions of the trace.

use ptrail_pt::{Ip, LossCause};

use super::{Engine, Position, Stray, Walk};
use crate::{Class, Detail, Edge, EdgeKind, FarKind, Instruction, OffCause, Sink};

/// More instructions than any straight piece of code has.
const WALK_LIMIT: u32 = 1 << 20;

/// A walk without a decision from the trace. Each step follows from the one before, so a walk that
/// meets an address again goes round for ever: it is on a wrong path.
struct Straight {
    steps: u32,
    /// The address at the last step that was a power of two (Brent's way to find a cycle).
    mark: Option<Ip>,
}

impl Straight {
    fn new() -> Self {
        Self {
            steps: 0,
            mark: None,
        }
    }

    fn step(&mut self, ip: Ip) -> Walk<()> {
        if self.mark == Some(ip) || self.steps == WALK_LIMIT {
            return Err(Stray::desync(format!(
                "{ip:#x}: a loop or very long code without a word from the trace"
            )));
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.mark = Some(ip);
        }
        Ok(())
    }
}

impl<S: Sink> Engine<'_, '_, S> {
    pub(super) fn fetch(&mut self, ip: Ip) -> Walk<Instruction> {
        let no_code = match self.graph.instruction(ip) {
            Ok(Some(instruction)) => return Ok(instruction),
            Ok(None) => {
                return Err(Stray::desync(format!(
                    "{ip:#x}: the bytes there are no instruction; did the code change?"
                )));
            }
            Err(_) if self.find_later_code(ip) => return self.fetch(ip),
            Err(no_code) => no_code,
        };
        Err(Stray {
            cause: LossCause::NoCode,
            reason: format!("{ip:#x}: {no_code}"),
        })
    }

    pub(super) fn execute(&mut self, ip: Ip) {
        self.instructions += 1;
        if S::DETAIL == Detail::Instructions {
            self.decoder.sink.instructions(&[ip]);
        }
    }

    /// Tells of an edge whose branch has executed, if the sink wants to know.
    pub(super) fn report(&mut self, edge: &Edge) {
        if self.graph.reports(edge) {
            self.decoder.sink.edge(edge, self.instructions);
        }
    }

    /// Executes an instruction that needs no decision; `false`, and nothing done, if it needs one.
    fn advance(&mut self, ip: Ip, instruction: Instruction) -> bool {
        let next = ip.offset(u64::from(instruction.len));
        let to = match instruction.class {
            Class::Plain | Class::MovCr3 => next,
            Class::Jump | Class::Call => instruction.target,
            _ => return false,
        };
        self.execute(ip);
        self.position = Position::At(to);
        let kind = match instruction.class {
            Class::Jump => EdgeKind::Jump,
            Class::Call => EdgeKind::Call,
            _ => return true,
        };
        // SDM, "Return Compression": a CALL to the next instruction is not pushed.
        if kind == EdgeKind::Call && to != next {
            let behind = self.graph.node(next);
            self.returns.push(behind);
        }
        self.report(&Edge {
            kind,
            from: ip,
            to,
            next,
        });
        true
    }

    /// Uses up branch outcomes, as far as no target from a TIP is needed in between.
    pub(super) fn walk_outcomes(&mut self) -> Walk<()> {
        let mut straight = Straight::new();
        while self.outcomes.len() > 0 {
            let ip = self.at()?;
            let instruction = self.fetch(ip)?;
            straight.step(ip)?;
            if self.advance(ip, instruction) {
                continue;
            }
            match instruction.class {
                Class::Conditional => self.conditional(ip, instruction),
                // Without return compression the outcomes are those of later branches, and the
                // return's target was deferred.
                Class::Return if self.compressed_returns => {
                    self.compressed_return(ip, instruction)?;
                }
                _ => return Ok(()),
            }
            straight = Straight::new();
        }
        Ok(())
    }

    fn conditional(&mut self, ip: Ip, instruction: Instruction) {
        let next = ip.offset(u64::from(instruction.len));
        self.execute(ip);
        let taken = self.outcomes.first() == Some(true);
        self.outcomes.used(1);
        if taken {
            let edge = Edge {
                kind: EdgeKind::Conditional,
                from: ip,
                to: instruction.target,
                next,
            };
            self.report(&edge);
            self.position = Position::At(instruction.target);
        } else {
            self.position = Position::At(next);
        }
    }

    fn compressed_return(&mut self, ip: Ip, instruction: Instruction) -> Walk<()> {
        if self.outcomes.first() != Some(true) {
            return Err(Stray::desync(format!(
                "{ip:#x}: a compressed return that was not taken"
            )));
        }
        let to = self.returns.pop().ok_or_else(|| {
            Stray::desync(format!("{ip:#x}: a compressed return without its call"))
        })?;
        let to = self.graph.start(to);
        self.outcomes.used(1);
        self.execute(ip);
        let next = ip.offset(u64::from(instruction.len));
        self.position = Position::At(to);
        self.report(&Edge {
            kind: EdgeKind::Return,
            from: ip,
            to,
            next,
        });
        Ok(())
    }

    /// Walks to the next instruction that needs a decision and returns it, not yet executed.
    pub(super) fn walk_to_decision(&mut self) -> Walk<(Ip, Instruction)> {
        let mut straight = Straight::new();
        loop {
            let ip = self.at()?;
            let instruction = self.fetch(ip)?;
            straight.step(ip)?;
            if !self.advance(ip, instruction) {
                return Ok((ip, instruction));
            }
        }
    }

    /// Walks to `target`, which did not execute yet.
    pub(super) fn walk_to(&mut self, target: Ip) -> Walk<()> {
        let mut straight = Straight::new();
        loop {
            let ip = self.at()?;
            if ip == target {
                return Ok(());
            }
            let instruction = self.fetch(ip)?;
            straight.step(ip)?;
            if !self.advance(ip, instruction) {
                return Err(Stray::desync(format!(
                    "the trace says that {target:#x} was reached, but the code branches at {ip:#x}"
                )));
            }
        }
    }

    /// Walks to the instruction that left the traced code, executes it and says where it is, what
    /// is behind it and what it was.
    pub(super) fn walk_out(&mut self, to: Option<Ip>) -> Walk<(Ip, Ip, OffCause)> {
        let mut straight = Straight::new();
        loop {
            let ip = self.at()?;
            let instruction = self.fetch(ip)?;
            straight.step(ip)?;
            if self.leaves(ip, instruction, to)? {
                self.execute(ip);
                let cause = match instruction.class {
                    Class::Far(FarKind::Syscall) => OffCause::Syscall,
                    Class::Far(_) => OffCause::FarTransfer,
                    _ => OffCause::Filter,
                };
                return Ok((ip, ip.offset(u64::from(instruction.len)), cause));
            }
            self.advance(ip, instruction);
        }
    }

    /// Whether the instruction at `ip` is the one that left the traced code for `to`.
    fn leaves(&self, ip: Ip, instruction: Instruction, to: Option<Ip>) -> Walk<bool> {
        let next = ip.offset(u64::from(instruction.len));
        let stray = match instruction.class {
            Class::Plain | Class::MovCr3 => return Ok(instruction.leaves_for(to, next)),
            Class::Jump | Class::Call => {
                return Ok(instruction.leaves_for(to, next)
                    || (to.is_none() && self.is_filtered_jump(instruction)));
            }
            _ if self.outcomes.len() > 0 => "branch outcomes are left over",
            Class::Conditional if to.is_some_and(|to| to != next && to != instruction.target) => {
                "the branch does not go to where tracing was switched off"
            }
            _ => return Ok(true),
        };
        Err(Stray::desync(format!("{ip:#x}: {stray}")))
    }

    /// Erratum SKL014: a direct branch to where the address filters trace nothing, whose TIP.PGD
    /// lacks the address.
    pub(super) fn is_filtered_jump(&self, instruction: Instruction) -> bool {
        self.errata.skl014 && self.context.config.filters_out(instruction.target)
    }

    /// Walks to behind the MOV CR3 that a PIP belongs to, if there is one before the next word of
    /// the trace. (Other causes of a PIP have packets of their own behind it.)
    pub(super) fn walk_to_mov_cr3(&mut self) -> Walk<()> {
        let mut straight = Straight::new();
        let mut ip = self.at()?;
        while let Ok(instruction) = self.fetch(ip) {
            straight.step(ip)?;
            match instruction.class {
                Class::MovCr3 => break,
                Class::Plain => ip = ip.offset(u64::from(instruction.len)),
                Class::Jump | Class::Call => ip = instruction.target,
                _ => return Ok(()),
            }
        }
        self.walk_to(ip)?;
        let instruction = self.fetch(ip)?;
        self.advance(ip, instruction);
        Ok(())
    }

    /// Whether `target` is reached before the next word of the trace.
    pub(super) fn reaches(&mut self, target: Ip) -> bool {
        let mut straight = Straight::new();
        let mut at = self.here();
        while let Some(ip) = at {
            if ip == target {
                return true;
            }
            at = match self.fetch(ip) {
                Ok(instruction) if straight.step(ip).is_ok() => match instruction.class {
                    Class::Plain | Class::MovCr3 => Some(ip.offset(u64::from(instruction.len))),
                    Class::Jump | Class::Call => Some(instruction.target),
                    _ => None,
                },
                _ => None,
            };
        }
        false
    }
}
