//! What an instruction does to the control flow.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, Register};
use ptrail_pt::{ExecMode, Ip};

/// The part of an instruction that a trace decoder needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its class.
    pub class: Class,
    /// Its length in bytes, 1 to 15.
    pub len: u8,
    /// The target of a direct branch; zero otherwise.
    pub target: Ip,
}

/// Classes of instructions, by what the trace holds for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Goes on to the next instruction; nothing in the trace.
    Plain,
    /// MOV to CR3: goes on to the next instruction; a PIP, or a TIP.PGD if the new address space is
    /// not traced.
    MovCr3,
    /// Conditional branch, LOOP, JRCXZ: a TNT bit.
    Conditional,
    /// Direct near jump; nothing in the trace.
    Jump,
    /// Indirect near jump: a TIP.
    JumpIndirect,
    /// Direct near call; nothing in the trace.
    Call,
    /// Indirect near call: a TIP.
    CallIndirect,
    /// Near return: a TNT bit if compressed, else a TIP.
    Return,
    /// Far transfer: a TIP, or TIP.PGD where its target is not traced.
    Far(FarKind),
}

/// Far transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FarKind {
    /// SYSCALL, SYSENTER.
    Syscall,
    /// INT n, INT1, INT3, INTO.
    Interrupt,
    /// IRET, SYSRET, SYSEXIT, UIRET, ERETU, ERETS and far RET.
    Return,
    /// Far CALL and JMP.
    Jump,
    /// VMCALL, VMLAUNCH, VMRESUME.
    Vm,
}

/// The `bitness` of iced-x86 for an execution mode: 16, 32 or 64.
#[must_use]
pub const fn bitness(mode: ExecMode) -> u32 {
    match mode {
        ExecMode::Bits16 => 16,
        ExecMode::Bits32 => 32,
        ExecMode::Bits64 => 64,
    }
}

impl Instruction {
    /// Decodes the instruction at the start of `bytes`, which stands at `ip`; `None` if it is
    /// invalid or `bytes` ends inside it.
    #[must_use]
    pub fn decode(bytes: &[u8], ip: Ip, mode: ExecMode) -> Option<Self> {
        let bytes = &bytes[..bytes.len().min(15)];
        if mode == ExecMode::Bits64 && is_jmpabs(bytes) {
            return Some(Self {
                class: Class::JumpIndirect,
                len: JMPABS_LEN,
                target: Ip(0),
            });
        }
        Self::of(&decoder(bytes, ip, mode).decode())
    }

    /// What the decoding library made of it; `None` if it is invalid.
    pub(crate) fn of(decoded: &iced_x86::Instruction) -> Option<Self> {
        if decoded.is_invalid() {
            return None;
        }
        let class = classify(decoded);
        let target = match class {
            Class::Conditional | Class::Jump | Class::Call => Ip(decoded.near_branch_target()),
            _ => Ip(0),
        };
        Some(Self {
            class,
            len: decoded.len() as u8,
            target,
        })
    }
}

impl Instruction {
    /// Whether it may have left the traced code for `to`, or for an address that the trace does not
    /// tell; `next` is the address behind it.
    pub(crate) fn leaves_for(&self, to: Option<Ip>, next: Ip) -> bool {
        match self.class {
            Class::Plain => to == Some(next),
            // Without an address: the new address space is not traced.
            Class::MovCr3 => to.is_none_or(|to| to == next),
            Class::Jump | Class::Call => to == Some(self.target),
            _ => true,
        }
    }
}

/// Reads instructions from the start of `bytes`, which stands at `ip`.
pub(crate) fn decoder(bytes: &[u8], ip: Ip, mode: ExecMode) -> Decoder<'_> {
    Decoder::with_ip(bitness(mode), bytes, ip.0, DecoderOptions::NONE)
}

/// Bytes of JMPABS with its 64-bit target.
const JMPABS_LEN: u8 = 11;

/// JMPABS (Intel APX specification, "64-bit Direct Jump"), which iced-x86 does not know. Its target
/// comes by TIP, as an indirect jump's does.
fn is_jmpabs(bytes: &[u8]) -> bool {
    bytes.len() >= usize::from(JMPABS_LEN) && matches!(bytes, [0xd5, 0x00, 0xa1, ..])
}

fn classify(decoded: &iced_x86::Instruction) -> Class {
    use Mnemonic as M;
    match decoded.flow_control() {
        FlowControl::Next
            if decoded.mnemonic() == M::Mov && decoded.op0_register() == Register::CR3 =>
        {
            Class::MovCr3
        }
        FlowControl::Next | FlowControl::XbeginXabortXend | FlowControl::Exception => Class::Plain,
        FlowControl::ConditionalBranch => Class::Conditional,
        FlowControl::UnconditionalBranch if decoded.is_jmp_short_or_near() => Class::Jump,
        FlowControl::IndirectBranch if decoded.is_jmp_near_indirect() => Class::JumpIndirect,
        FlowControl::Call if decoded.is_call_near() => Class::Call,
        FlowControl::IndirectCall if decoded.is_call_near_indirect() => Class::CallIndirect,
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::IndirectCall => Class::Far(FarKind::Jump),
        FlowControl::Call => match decoded.mnemonic() {
            M::Syscall | M::Sysenter => Class::Far(FarKind::Syscall),
            M::Vmcall | M::Vmlaunch | M::Vmresume => Class::Far(FarKind::Vm),
            M::Call => Class::Far(FarKind::Jump),
            // Hypervisor and enclave calls that leave no packet (VMFUNC, ENCLU, VMMCALL).
            _ => Class::Plain,
        },
        FlowControl::Return if decoded.mnemonic() == M::Ret => Class::Return,
        FlowControl::Return => Class::Far(FarKind::Return),
        FlowControl::Interrupt => Class::Far(FarKind::Interrupt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(bytes: &[u8]) -> Class {
        Instruction::decode(bytes, Ip(0x1000), ExecMode::Bits64)
            .expect("valid")
            .class
    }

    #[test]
    fn classes() {
        assert_eq!(class(&[0x90]), Class::Plain);
        assert_eq!(class(&[0x74, 0]), Class::Conditional);
        assert_eq!(class(&[0xe2, 0]), Class::Conditional); // loop
        assert_eq!(class(&[0xe3, 0]), Class::Conditional); // jrcxz
        assert_eq!(class(&[0xeb, 0]), Class::Jump);
        assert_eq!(class(&[0xff, 0xe0]), Class::JumpIndirect);
        assert_eq!(class(&[0xe8, 0, 0, 0, 0]), Class::Call);
        assert_eq!(class(&[0xff, 0xd0]), Class::CallIndirect);
        assert_eq!(class(&[0xc3]), Class::Return);
        assert_eq!(class(&[0xc2, 8, 0]), Class::Return);
        assert_eq!(class(&[0xf3, 0xc3]), Class::Return);
        assert_eq!(class(&[0x0f, 0x05]), Class::Far(FarKind::Syscall));
        assert_eq!(class(&[0xcc]), Class::Far(FarKind::Interrupt));
        assert_eq!(class(&[0xcd, 0x80]), Class::Far(FarKind::Interrupt));
        assert_eq!(class(&[0x48, 0xcf]), Class::Far(FarKind::Return)); // iretq
        assert_eq!(class(&[0x48, 0x0f, 0x07]), Class::Far(FarKind::Return)); // sysretq
        assert_eq!(class(&[0xcb]), Class::Far(FarKind::Return)); // far ret
        assert_eq!(class(&[0xff, 0x28]), Class::Far(FarKind::Jump)); // jmp far [rax]
        assert_eq!(class(&[0xff, 0x18]), Class::Far(FarKind::Jump)); // call far [rax]
        assert_eq!(class(&[0x0f, 0x01, 0xc1]), Class::Far(FarKind::Vm)); // vmcall
        assert_eq!(class(&[0x0f, 0x22, 0xd8]), Class::MovCr3); // mov cr3, rax
        assert_eq!(class(&[0x0f, 0x20, 0xd8]), Class::Plain); // mov rax, cr3
        assert_eq!(class(&[0x0f, 0x0b]), Class::Plain); // ud2
        assert_eq!(class(&[0xc7, 0xf8, 0, 0, 0, 0]), Class::Plain); // xbegin
    }

    #[test]
    fn jmpabs_is_an_instruction_in_64_bit_code_only() {
        let bytes = [0xd5, 0x00, 0xa1, 0, 0x20, 0, 0, 0, 0, 0, 0];
        let jmpabs = Instruction::decode(&bytes, Ip(0x1000), ExecMode::Bits64).unwrap();
        assert_eq!((jmpabs.class, jmpabs.len), (Class::JumpIndirect, 11));
        assert_eq!(
            Instruction::decode(&bytes[..10], Ip(0), ExecMode::Bits64),
            None
        );
        let aad = Instruction::decode(&bytes, Ip(0x1000), ExecMode::Bits32).unwrap();
        assert_eq!((aad.class, aad.len), (Class::Plain, 2));
    }

    #[test]
    fn targets_and_lengths() {
        let jump = Instruction::decode(
            &[0x0f, 0x84, 0xfa, 0xff, 0xff, 0xff],
            Ip(0x1000),
            ExecMode::Bits64,
        );
        assert_eq!(
            jump,
            Some(Instruction {
                class: Class::Conditional,
                len: 6,
                target: Ip(0x1000)
            })
        );
        assert_eq!(Instruction::decode(&[0x0f], Ip(0), ExecMode::Bits64), None);
        assert_eq!(Instruction::decode(&[], Ip(0), ExecMode::Bits64), None);
    }
}
