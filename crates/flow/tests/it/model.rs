//! A naive CPU: it runs a random small program and writes the packets that a CPU would write.
//!
//! Direct jumps and calls go forwards only, so that no code goes round without a decision.

use ptrail_image::Timeline;
use ptrail_pt::{Encoder, Ip, Packet};

use crate::program::{program, psb_at, short_tnt};

const BASE: u64 = 0x1000;

/// How a block ends. Numbers are reduced to a block that may be the target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Conditional(u8),
    Jump(u8),
    JumpIndirect,
    Call(u8),
    CallNext,
    CallIndirect,
    Return,
    Syscall,
    /// Goes on into the next block.
    None,
}

/// NOPs before the end, and the end.
pub(crate) type Block = (u8, End);

/// How the CPU writes packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    pub(crate) compress_returns: bool,
    pub(crate) long_tnt: bool,
    pub(crate) defer_tips: bool,
    /// Of 256 instructions, how many meet an event of some kind before them.
    pub(crate) events: u8,
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    start: u64,
    /// Address of the instruction that ends it.
    end_at: u64,
    next: u64,
    end: End,
    target: u64,
}

/// A program at its addresses.
pub(crate) struct Program {
    blocks: Vec<Placed>,
    code: Vec<u8>,
}

impl Program {
    pub(crate) fn new(specification: &[Block]) -> Self {
        let mut blocks: Vec<Placed> = Vec::new();
        let mut at = BASE;
        let last = specification.len() - 1;
        for (index, &(nops, end)) in specification.iter().enumerate() {
            // The last block must not run out of the code.
            let end = if index == last {
                End::JumpIndirect
            } else {
                end
            };
            let len = match end {
                End::Conditional(_) => 6,
                End::Jump(_) | End::Call(_) | End::CallNext => 5,
                End::JumpIndirect | End::CallIndirect | End::Syscall => 2,
                End::Return => 1,
                End::None => 0,
            };
            let end_at = at + u64::from(nops);
            let next = end_at + len;
            blocks.push(Placed {
                start: at,
                end_at,
                next,
                end,
                target: 0,
            });
            at = next;
        }
        for index in 0..blocks.len() {
            let behind = blocks.len() - index - 1;
            blocks[index].target = match blocks[index].end {
                End::Conditional(to) => blocks[usize::from(to) % blocks.len()].start,
                End::Jump(to) | End::Call(to) => blocks[index + 1 + usize::from(to) % behind].start,
                _ => blocks[index].next,
            };
        }
        let code = blocks.iter().flat_map(bytes).collect();
        Self { blocks, code }
    }

    pub(crate) fn timeline(&self) -> Timeline {
        program(&self.code)
    }

    pub(crate) fn len(&self) -> u64 {
        self.code.len() as u64
    }

    fn block(&self, ip: u64) -> &Placed {
        let later = self.blocks.partition_point(|block| block.next <= ip);
        &self.blocks[later]
    }
}

fn bytes(block: &Placed) -> Vec<u8> {
    let mut code = vec![0x90; (block.end_at - block.start) as usize];
    let distance = (block.target.wrapping_sub(block.next) as i32).to_le_bytes();
    let opcode: &[u8] = match block.end {
        End::Conditional(_) => &[0x0f, 0x84],
        End::Jump(_) => &[0xe9],
        End::Call(_) | End::CallNext => &[0xe8],
        End::JumpIndirect => &[0xff, 0xe0],
        End::CallIndirect => &[0xff, 0xd0],
        End::Return => &[0xc3],
        End::Syscall => &[0x0f, 0x05],
        End::None => &[],
    };
    code.extend(opcode);
    if matches!(
        block.end,
        End::Conditional(_) | End::Jump(_) | End::Call(_) | End::CallNext
    ) {
        code.extend(distance);
    }
    code
}

/// What ran and what was written.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) stream: Vec<u8>,
    pub(crate) instructions: Vec<u64>,
    pub(crate) events: Vec<String>,
}

struct Cpu<'p> {
    program: &'p Program,
    habits: Habits,
    random: u64,
    ip: u64,
    /// The program's own stack.
    stack: Vec<u64>,
    /// The last 64 of the calls since the PSB.
    returns: Vec<u64>,
    outcomes: Vec<bool>,
    deferred: Vec<u64>,
    encoder: Encoder,
    tsc: u64,
    run: Run,
}

/// Runs `steps` instructions.
pub(crate) fn run(program: &Program, habits: Habits, seed: u64, steps: usize) -> Run {
    let mut cpu = Cpu {
        program,
        habits,
        random: seed | 1,
        ip: BASE,
        stack: Vec::new(),
        returns: Vec::new(),
        outcomes: Vec::new(),
        deferred: Vec::new(),
        encoder: Encoder::new(),
        tsc: 1000,
        run: Run::default(),
    };
    cpu.psb();
    while cpu.run.instructions.len() < steps {
        if cpu.chance(habits.events) {
            cpu.event();
        }
        cpu.step();
    }
    cpu.switch_off();
    cpu.run.stream = cpu.encoder.take();
    cpu.run
}

impl Cpu<'_> {
    fn next_random(&mut self) -> u64 {
        // Xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn chance(&mut self, of_256: u8) -> bool {
        self.next_random() % 256 < u64::from(of_256)
    }

    fn any_block(&mut self) -> u64 {
        let number = self.next_random() as usize % self.program.blocks.len();
        self.program.blocks[number].start
    }

    fn told(&mut self, text: String) {
        self.run.events.push(text);
    }

    // ---- packets ----

    fn flush(&mut self) {
        let most = if self.habits.long_tnt { 47 } else { 6 };
        let outcomes = std::mem::take(&mut self.outcomes);
        for chunk in outcomes.chunks(most) {
            let tnt = if chunk.len() > 6 {
                let bits = chunk
                    .iter()
                    .fold(0, |bits, &taken| bits << 1 | u64::from(taken));
                ptrail_pt::Tnt::long(bits, chunk.len() as u8)
            } else {
                short_tnt(chunk)
            };
            self.encoder.put(&Packet::Tnt(tnt));
        }
        for to in std::mem::take(&mut self.deferred) {
            self.encoder.tip(Ip(to));
        }
    }

    fn outcome(&mut self, taken: bool) {
        self.outcomes.push(taken);
        if self.outcomes.len() == if self.habits.long_tnt { 47 } else { 6 } {
            self.flush();
        }
    }

    fn target(&mut self, to: u64, may_wait: bool) {
        if self.habits.defer_tips && may_wait {
            self.deferred.push(to);
        } else {
            self.flush();
            self.encoder.tip(Ip(to));
        }
    }

    fn psb(&mut self) {
        self.flush();
        self.returns.clear();
        self.tsc += 10;
        psb_at(&mut self.encoder, self.tsc, Some(self.ip));
        let ip = self.ip;
        self.told(format!("begin {ip:x}"));
    }

    fn switch_off(&mut self) {
        self.flush();
        self.encoder.fup(Ip(self.ip));
        self.encoder.tip_pgd(None);
        let ip = self.ip;
        self.told(format!("off-async {ip:x}+0"));
    }

    fn switch_on(&mut self, ip: u64) {
        if self.chance(64) {
            psb_at(&mut self.encoder, self.tsc, None);
            self.returns.clear();
        }
        self.encoder.tip_pge(Ip(ip));
        self.ip = ip;
        self.told(format!("on {ip:x}"));
    }

    fn event(&mut self) {
        let ip = self.ip;
        match self.next_random() % 6 {
            0 => self.psb(),
            1 => {
                self.flush();
                self.tsc += 7;
                self.encoder.put(&Packet::Tsc(self.tsc));
            }
            2 => {
                let to = self.any_block();
                self.flush();
                self.encoder.fup(Ip(ip));
                self.encoder.tip(Ip(to));
                self.told(format!("async {ip:x}>{to:x}"));
                self.ip = to;
            }
            3 => {
                self.switch_off();
                let to = if self.chance(128) {
                    self.any_block()
                } else {
                    ip
                };
                self.switch_on(to);
            }
            4 => {
                self.flush();
                self.encoder.put(&Packet::Exstop { ip: true });
                self.encoder.fup(Ip(ip));
            }
            _ => {
                let to = self.any_block();
                self.flush();
                self.encoder.put(&Packet::ModeTsx {
                    in_tx: false,
                    abort: true,
                });
                self.encoder.fup(Ip(ip));
                self.encoder.tip(Ip(to));
                self.told(format!("abort {ip:x}>{to:x}"));
                self.ip = to;
            }
        }
    }

    // ---- instructions ----

    fn step(&mut self) {
        let ip = self.ip;
        let block = *self.program.block(ip);
        self.run.instructions.push(ip);
        if ip < block.end_at {
            self.ip = ip + 1;
            return;
        }
        match block.end {
            End::Conditional(_) => {
                let taken = self.chance(128);
                self.ip = block.next;
                if taken {
                    self.go("jcc", ip, block.target);
                }
                self.outcome(taken);
            }
            End::Jump(_) => self.go("jmp", ip, block.target),
            End::JumpIndirect => {
                let to = self.any_block();
                self.go("jmp", ip, to);
                self.target(to, true);
            }
            End::Call(_) | End::CallNext => {
                if block.target == block.next {
                    // No CPU expects such a call to return.
                    self.stack.push(block.next);
                } else {
                    self.call(block.next);
                }
                self.go("call", ip, block.target);
            }
            End::CallIndirect => {
                let to = self.any_block();
                self.call(block.next);
                self.go("call", ip, to);
                self.target(to, true);
            }
            End::Return => self.ret(ip),
            End::Syscall => self.syscall(ip, block.next),
            End::None => unreachable!("such a block has no last instruction"),
        }
    }

    fn go(&mut self, kind: &str, from: u64, to: u64) {
        self.told(format!("{kind} {from:x}>{to:x}"));
        self.ip = to;
    }

    fn call(&mut self, next: u64) {
        self.stack.push(next);
        self.returns.push(next);
        if self.returns.len() > 64 {
            self.returns.remove(0);
        }
    }

    fn ret(&mut self, ip: u64) {
        let proper = self.stack.pop().filter(|_| !self.chance(16));
        let to = proper.unwrap_or_else(|| self.any_block());
        let predicted = self.returns.pop();
        self.go("ret", ip, to);
        if self.habits.compress_returns && predicted == Some(to) {
            self.outcome(true);
        } else {
            self.target(to, !self.habits.compress_returns);
        }
    }

    fn syscall(&mut self, ip: u64, next: u64) {
        self.flush();
        self.encoder.tip_pgd(None);
        self.told(format!("off-syscall {ip:x}+2"));
        let to = if self.chance(32) {
            self.any_block()
        } else {
            next
        };
        self.switch_on(to);
    }
}
