//! Blocks: straight code that QEMU executes as a whole.

use std::cell::Cell;
use std::rc::Rc;

use ptrail_flow::Instruction;
use ptrail_pt::{ExecMode, Ip};

use super::rings::{Area, DEFINITIONS, long, unpacked};
use super::shared::DEFINITION_WORDS;

/// A block of code.
pub(crate) struct Block {
    pub(crate) start: Ip,
    /// Where each instruction begins, in bytes from `start`.
    pub(crate) offsets: Box<[u16]>,
    pub(crate) last: Instruction,
    pub(crate) last_ip: Ip,
    /// Behind the last instruction.
    pub(crate) end: Ip,
    /// The last instruction is a repeated string instruction: QEMU leaves it for itself once for
    /// each iteration.
    pub(crate) repeats: bool,
    /// Bytes that stand in no file, to be recorded before the block executes first.
    pub(crate) unrecorded: Cell<Option<Box<Code>>>,
}

/// A block's bytes, and the pages in which they lie.
pub(crate) struct Code {
    pub(crate) bytes: Vec<u8>,
    pub(crate) pages_at: u64,
    pub(crate) pages: Vec<u8>,
}

impl Block {
    /// Number of the instruction at an address.
    pub(crate) fn position(&self, ip: Ip) -> Option<usize> {
        let offset = u16::try_from(ip.0.checked_sub(self.start.0)?).ok()?;
        self.offsets.binary_search(&offset).ok()
    }

    /// The instructions but the last.
    pub(crate) fn straight(&self) -> &[u16] {
        &self.offsets[..self.offsets.len() - 1]
    }
}

/// All blocks of a process, by number; `None` for one without an instruction that can be read.
#[derive(Default)]
pub(crate) struct Blocks(Vec<Option<Rc<Block>>>);

/// A block's number that was never defined.
pub(crate) struct Undefined;

impl Blocks {
    /// The first ones: those that a child process has of its parent.
    pub(crate) fn first(&self, count: u32) -> Self {
        Self(self.0.iter().take(count as usize).cloned().collect())
    }

    /// The block with a number that the plugin told; the rings may define it first.
    #[inline]
    pub(crate) fn find(&mut self, area: &Area, id: u32) -> Result<Option<&Block>, Undefined> {
        if id as usize >= self.0.len() {
            self.read_definitions(area);
        }
        self.0
            .get(id as usize)
            .map(Option::as_deref)
            .ok_or(Undefined)
    }

    /// A block that was found before.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&Block> {
        self.0.get(id as usize)?.as_deref()
    }

    /// Reads all definitions that there are.
    pub(crate) fn read_definitions(&mut self, area: &Area) {
        let mut unread = area.unread(DEFINITIONS);
        while let Some(len) = unread.next() {
            let Some(words) = unread.take(len as usize) else {
                unread.back(1);
                break;
            };
            self.0.push(define(&words).map(Rc::new));
        }
        unread.release();
    }
}

/// The layout is that of [`DEFINITION_WORDS`].
fn define(words: &[u32]) -> Option<Block> {
    let (head, rest) = words.split_at_checked(DEFINITION_WORDS)?;
    let start = Ip(long(head[1], head[2]));
    let (code_len, pages_len) = (head[3] as usize, head[4] as usize);
    let (code, pages) = rest.split_at_checked(code_len.div_ceil(4))?;
    let (code, pages) = (unpacked(code, code_len), unpacked(pages, pages_len));

    let mut offsets = Vec::new();
    let mut last = None;
    let mut at = 0;
    // An instruction that crosses into the next page comes cut off at the end: QEMU executes it as a
    // block of its own.
    while let Some(instruction) =
        Instruction::decode(&code[at..], start.offset(at as u64), ExecMode::Bits64)
    {
        offsets.push(at as u16);
        last = Some(instruction);
        at += usize::from(instruction.len);
    }
    let last = last?;
    let last_offset = usize::from(*offsets.last()?);
    let unrecorded = (!pages.is_empty()).then(|| {
        Box::new(Code {
            bytes: code[..at].to_vec(),
            pages_at: long(head[5], head[6]),
            pages,
        })
    });
    Some(Block {
        start,
        offsets: offsets.into(),
        last,
        last_ip: start.offset(last_offset as u64),
        end: start.offset(at as u64),
        repeats: is_repeated(&code[last_offset..at]),
        unrecorded: Cell::new(unrecorded),
    })
}

/// Whether an instruction that neither jumps nor calls has a repeat prefix; those that take it for
/// something else (SSE, MONITOR …) never go to themselves.
fn is_repeated(bytes: &[u8]) -> bool {
    crate::step::prefixes(bytes).any(|byte| matches!(byte, 0xf2 | 0xf3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defined(code: &[u8]) -> Option<Block> {
        let mut words = vec![0, 0x40_0000, 0, code.len() as u32, 0, 0, 0];
        words.extend(code.chunks(4).map(|part| {
            let mut word = [0; 4];
            word[..part.len()].copy_from_slice(part);
            u32::from_le_bytes(word)
        }));
        define(&words)
    }

    #[test]
    fn a_block_has_its_instructions() {
        let block = defined(&[0x90, 0x48, 0x89, 0xc3, 0xf3, 0xa4]).expect("valid code");
        assert_eq!(*block.offsets, [0, 1, 4]);
        assert_eq!((block.last_ip, block.end), (Ip(0x40_0004), Ip(0x40_0006)));
        assert!(block.repeats);
        assert_eq!(block.position(Ip(0x40_0001)), Some(1));
        assert_eq!(block.position(Ip(0x40_0002)), None);
        assert_eq!(block.position(Ip(0x3f_ffff)), None);
    }

    #[test]
    fn an_instruction_cut_off_by_the_page_is_left_out() {
        let block = defined(&[0x90, 0x48, 0x89]).expect("the first one is whole");
        assert_eq!(*block.offsets, [0]);
        assert!(defined(&[0x48, 0x89]).is_none());
        assert!(defined(&[]).is_none());
    }
}
