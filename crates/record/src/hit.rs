//! What the kernel tells of a trigger's hit (`PERF_RECORD_SAMPLE` of [`crate::plan`]'s triggers).

use crate::attr::register;

/// A hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// CPU.
    pub cpu: u32,
    /// Perf-clock nanoseconds.
    pub time: u64,
    /// The instruction before which it was.
    pub ip: u64,
    /// The first six integer arguments and the stack pointer, if it was 64-bit code.
    pub registers: Option<([u64; 6], u64)>,
    /// What the stack pointer points to: at a function's entry, where it returns to.
    pub top: Option<u64>,
}

/// `PERF_SAMPLE_REGS_ABI_64`.
const ABI_64: u64 = 2;

impl Sample {
    /// From a record's body; `None` if it is too short.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let mut words = body
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let _identifier = words.next()?;
        let ip = words.next()?;
        let thread = words.next()?;
        let time = words.next()?;
        let cpu = words.next()? as u32;
        let abi = words.next()?;
        let registers = if abi == ABI_64 {
            let values: Vec<u64> = words
                .by_ref()
                .take(register::TRIGGER.count_ones() as usize)
                .collect();
            // They come in the order of their bits.
            let value = |number: u32| {
                let before = register::TRIGGER & ((1 << number) - 1);
                values.get(before.count_ones() as usize).copied()
            };
            let arguments = [
                value(register::DI)?,
                value(register::SI)?,
                value(register::DX)?,
                value(register::CX)?,
                value(register::R8)?,
                value(register::R9)?,
            ];
            Some((arguments, value(register::SP)?))
        } else {
            None
        };
        // A size, so many bytes, and how many of them are true.
        let size = words.next().unwrap_or(0);
        let top = if size == 8 { words.next() } else { None };
        Some(Self {
            pid: thread as u32,
            tid: (thread >> 32) as u32,
            cpu,
            time,
            ip,
            registers,
            top,
        })
    }
}
