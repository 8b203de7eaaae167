//! `_start` and `main` of programs without symbols.
//!
//! The C library's `_start` gives the address of `main` to `__libc_start_main` as first argument,
//! in `rdi`. glibc does so at once; musl's `_start` calls `_start_c` first, which does. So: walk
//! from the entry, remember what `rdi` holds, follow one call.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Register};

use crate::elf::{CodeSection, Elf, section_at};
use crate::name::Names;
use crate::plt::{SlotTarget, Slots, relative};

/// Instructions looked at in one function; glibc's call is the 13th.
const MAX_INSTRUCTIONS: usize = 64;

/// The entry's link address, if it is a program's entry. Libraries can have a meaningless one: old
/// linkers wrote the begin of `.text`.
pub(crate) fn find_start(elf: &Elf<'_>) -> Option<u64> {
    let entry = elf.entry();
    let code = elf.at(entry)?;
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    // The dynamic linker is a library that the kernel starts: `mov %rsp,%rdi` comes first, or
    // `xor %ebp,%ebp` as the ABI recommends.
    let starts: [&[u8]; 3] = [&[0x48, 0x89, 0xe7], &[0x31, 0xed], &[0x48, 0x31, 0xed]];
    (entry != 0 && (elf.is_program() || starts.iter().any(|bytes| code.starts_with(bytes))))
        .then_some(entry)
}

/// The link address of `main`.
pub(crate) fn find_main(
    elf: &Elf<'_>,
    sections: &[CodeSection],
    slots: &Slots,
    names: Names<'_>,
) -> Option<u64> {
    if !elf.is_program() {
        return None;
    }
    let search = Search {
        elf,
        sections,
        slots,
        names,
    };
    match search.scan(elf.entry())? {
        Found::Main(address) => Some(address),
        Found::Call(target) => match search.scan(target)? {
            Found::Main(address) => Some(address),
            Found::Call(_) => None,
        },
    }
}

enum Found {
    Main(u64),
    /// A call without a function's address in `rdi`.
    Call(u64),
}

struct Search<'a> {
    elf: &'a Elf<'a>,
    sections: &'a [CodeSection],
    slots: &'a Slots,
    names: Names<'a>,
}

impl Search<'_> {
    fn scan(&self, address: u64) -> Option<Found> {
        let mut decoder =
            Decoder::with_ip(64, self.elf.at(address)?, address, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut rdi = None;
        for _ in 0..MAX_INSTRUCTIONS {
            decoder.decode_out(&mut instruction);
            match instruction.flow_control() {
                FlowControl::Next => {
                    if instruction.op0_register().full_register() == Register::RDI {
                        rdi = self.value(&instruction);
                    }
                }
                FlowControl::Call | FlowControl::UnconditionalBranch => {
                    return Some(match rdi {
                        Some(main) => Found::Main(main),
                        None => Found::Call(instruction.near_branch_target()),
                    });
                }
                FlowControl::IndirectCall | FlowControl::IndirectBranch => {
                    return rdi
                        .filter(|_| self.starts_main(&instruction))
                        .map(Found::Main);
                }
                _ => return None,
            }
        }
        None
    }

    /// The code address that an instruction leaves in `rdi`.
    fn value(&self, instruction: &Instruction) -> Option<u64> {
        let value = match instruction.code() {
            Code::Lea_r64_m if instruction.is_ip_rel_memory_operand() => {
                instruction.ip_rel_memory_address()
            }
            Code::Mov_r64_imm64 | Code::Mov_r32_imm32 | Code::Mov_rm64_imm32 => {
                instruction.immediate(1)
            }
            Code::Mov_r64_rm64 if instruction.is_ip_rel_memory_operand() => {
                relative(self.elf, instruction.ip_rel_memory_address())?
            }
            _ => return None,
        };
        section_at(self.sections, value).map(|_| value)
    }

    /// Whether an indirect call goes to the function that runs `main`, as far as that can be told.
    fn starts_main(&self, call: &Instruction) -> bool {
        match self.slots.get(call.ip_rel_memory_address()) {
            Some(SlotTarget::Symbol(name)) => {
                matches!(
                    self.names.get(name),
                    b"__libc_start_main" | b"__uClibc_main"
                )
            }
            _ => true,
        }
    }
}
