//! jitdump files: what a JIT compiler made, with bytes, names and times (`jitdump-specification.txt`
//! in `tools/perf/Documentation`).
//!
//! The header is `u32` magic "JiTD", version, its own size, ELF machine, padding, process; `u64` time,
//! flags (bit 0: times are TSC ticks, else perf-clock nanoseconds). Then records: `u32` kind, size
//! with this header; `u64` time; a body:
//!
//! | kind | body |
//! | --- | --- |
//! | 0, code loaded | `u32` process, thread; `u64` vma, address, size, number; name and NUL; the code |
//! | 1, code moved | `u32` process, thread; `u64` vma, old address, new address, size, number |
//!
//! Others (lines, unwinding, end) are stepped over. The records are walked here, because
//! `linux-perf-data` takes their sizes on trust.

use std::collections::HashMap;
use std::path::Path;

use ptrail_pt::{TimeConv, Tsc};

use crate::file::map;
use crate::wire::{Bytes, text_until_nul};
use crate::{CodeBlob, Error};

const MAGIC: &[u8; 4] = b"DTiJ";
const TIMES_ARE_TSC: u64 = 1;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const RECORD_HEADER: usize = 16;

/// Reads the code in a jitdump file, each piece from the time on at which it lay there. A file that
/// is cut (its program was killed) is read as far as it goes.
///
/// # Errors
/// If the file can't be read or is something else.
pub fn read_jitdump(path: &Path, clock: Option<TimeConv>) -> Result<Vec<CodeBlob>, Error> {
    let bytes = map(path)?;
    read(&bytes, clock).ok_or_else(|| Error::Malformed {
        path: path.to_owned(),
        offset: 0,
        what: "not a jitdump file".to_owned(),
    })
}

fn read(file: &[u8], clock: Option<TimeConv>) -> Option<Vec<CodeBlob>> {
    let mut header = Bytes(file);
    if header.take(4)? != MAGIC {
        return None;
    }
    let (_version, size) = (header.u32()?, header.u32()?);
    let (_machine, _padding, _pid) = (header.u32()?, header.u32()?, header.u32()?);
    let (_time, flags) = (header.u64()?, header.u64()?);
    let mut records = Bytes(file.get(usize::try_from(size).ok()?..)?);
    let mut read = Dump {
        code: Vec::new(),
        by_number: HashMap::new(),
    };
    while let (Some(kind), Some(size), Some(time)) = (records.u32(), records.u32(), records.u64()) {
        let body = usize::try_from(size).ok()?.checked_sub(RECORD_HEADER);
        let Some(body) = body.and_then(|len| records.take(len)) else {
            break;
        };
        let time = match clock {
            Some(clock) if flags & TIMES_ARE_TSC != 0 => clock.to_perf(Tsc(time)).0,
            _ => time,
        };
        match kind {
            CODE_LOAD => read.load(Bytes(body), time),
            CODE_MOVE => read.moved(Bytes(body), time),
            _ => Some(()),
        };
    }
    Some(read.code)
}

struct Dump {
    code: Vec<CodeBlob>,
    /// Where in `code` a piece is, by its number.
    by_number: HashMap<u64, usize>,
}

impl Dump {
    fn load(&mut self, mut body: Bytes<'_>, time: u64) -> Option<()> {
        let (pid, _tid) = (body.u32()?, body.u32()?);
        let (_vma, address, size, number) = (body.u64()?, body.u64()?, body.u64()?, body.u64()?);
        let name = body.0.split(|&byte| byte == 0).next()?;
        let name = text_until_nul(body.take(name.len() + 1)?);
        let bytes = body.take(usize::try_from(size).ok()?)?.to_vec();
        self.by_number.insert(number, self.code.len());
        self.code.push(CodeBlob {
            pid,
            address,
            time,
            name,
            bytes,
        });
        Some(())
    }

    fn moved(&mut self, mut body: Bytes<'_>, time: u64) -> Option<()> {
        let (_pid, _tid) = (body.u32()?, body.u32()?);
        let (_vma, _old, address, _size) = (body.u64()?, body.u64()?, body.u64()?, body.u64()?);
        let place = self.by_number.get_mut(&body.u64()?)?;
        let moved = CodeBlob {
            address,
            time,
            ..self.code[*place].clone()
        };
        *place = self.code.len();
        self.code.push(moved);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Builder;

    fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
        let mut built = Builder::default();
        built.u32(kind).u32((RECORD_HEADER + body.len()) as u32);
        built.u64(time).bytes(body);
        built.0
    }

    fn dump(flags: u64) -> Vec<u8> {
        let mut built = Builder::default();
        built.bytes(MAGIC).u32(1).u32(40).u32(62).u32(0).u32(7);
        built.u64s(&[5, flags]);
        let mut load = Builder::default();
        load.u32(7).u32(8).u64s(&[0x1000, 0x1000, 3, 9]);
        load.bytes(b"add\0\x90\x90\xc3");
        let mut moved = Builder::default();
        moved.u32(7).u32(8).u64s(&[0x2000, 0x1000, 0x2000, 3, 9]);
        built.bytes(&record(CODE_LOAD, 100, &load.0));
        built.bytes(&record(2, 150, &[0; 24]));
        built.bytes(&record(CODE_MOVE, 200, &moved.0));
        built.0
    }

    #[test]
    fn code_is_loaded_and_moved() {
        let code = read(&dump(0), None).unwrap();
        let piece = |address, time| CodeBlob {
            pid: 7,
            address,
            time,
            name: "add".to_owned(),
            bytes: vec![0x90, 0x90, 0xc3],
        };
        assert_eq!(code, [piece(0x1000, 100), piece(0x2000, 200)]);
    }

    #[test]
    fn ticks_are_converted() {
        let clock = TimeConv {
            shift: 1,
            mult: 1,
            cap_user_time_zero: true,
            ..TimeConv::default()
        };
        let times = |flags| {
            let code = read(&dump(flags), Some(clock)).unwrap();
            code.iter().map(|piece| piece.time).collect::<Vec<_>>()
        };
        assert_eq!(times(0), [100, 200]);
        assert_eq!(times(TIMES_ARE_TSC), [50, 100]);
    }

    #[test]
    fn cut_and_changed_files_give_a_part() {
        let whole = dump(0);
        let mut last = 0;
        for len in 40..=whole.len() {
            let found = read(&whole[..len], None).unwrap().len();
            assert!(found >= last);
            last = found;
        }
        assert_eq!(last, 2);
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                let _ = read(&changed, None);
            }
        }
        assert!(read(b"ELF", None).is_none());
    }
}
