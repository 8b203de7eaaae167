//! Trace data inside samples (`perf record --aux-sample`): the last field of a sample is the piece of
//! the AUX area that was written right before it (`PERF_SAMPLE_AUX` in `linux/perf_event.h`).

use std::ops::Range;

use linux_perf_event_reader::{BranchSampleFormat, ReadFormat, RecordParseInfo, SampleFormat};

use crate::wire::Bytes;

/// A sample's thread and time, and where in its body the trace data stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuxSample {
    pub(crate) pid: Option<u32>,
    pub(crate) tid: Option<u32>,
    pub(crate) cpu: Option<u32>,
    pub(crate) time: Option<u64>,
    pub(crate) trace: Range<usize>,
}

/// Whether samples of this event have trace data.
pub(crate) fn has_trace(layout: &RecordParseInfo) -> bool {
    layout.sample_format.contains(SampleFormat::AUX)
}

/// Reads a sample of an event that has trace data; `None` if it is cut short.
pub(crate) fn read(body: &[u8], layout: &RecordParseInfo) -> Option<AuxSample> {
    let format = layout.sample_format;
    let has = |field| format.contains(field);
    let mut at = Bytes(body);
    let mut word = |field| match has(field) {
        true => at.u64().map(Some),
        false => Some(None),
    };
    word(SampleFormat::IDENTIFIER)?;
    word(SampleFormat::IP)?;
    let thread = word(SampleFormat::TID)?;
    let time = word(SampleFormat::TIME)?;
    word(SampleFormat::ADDR)?;
    word(SampleFormat::ID)?;
    word(SampleFormat::STREAM_ID)?;
    let cpu = word(SampleFormat::CPU)?;
    word(SampleFormat::PERIOD)?;
    if has(SampleFormat::READ) {
        skip_counts(&mut at, layout.read_format)?;
    }
    if has(SampleFormat::CALLCHAIN) {
        skip_words(&mut at, 1)?;
    }
    if has(SampleFormat::RAW) {
        let size = at.u32()?;
        at.take(usize::try_from(size).ok()?)?;
    }
    if has(SampleFormat::BRANCH_STACK) {
        let count = at.u64()?;
        if layout
            .branch_sample_format
            .contains(BranchSampleFormat::HW_INDEX)
        {
            at.u64()?;
        }
        take_words(&mut at, count.checked_mul(3)?)?;
    }
    if has(SampleFormat::REGS_USER) {
        skip_registers(&mut at, layout.user_regs_count)?;
    }
    if has(SampleFormat::STACK_USER) {
        let size = usize::try_from(at.u64()?).ok()?;
        if size > 0 {
            at.take(size)?;
            at.u64()?;
        }
    }
    if format.intersects(SampleFormat::WEIGHT | SampleFormat::WEIGHT_STRUCT) {
        at.u64()?;
    }
    for field in [SampleFormat::DATA_SRC, SampleFormat::TRANSACTION] {
        if has(field) {
            at.u64()?;
        }
    }
    if has(SampleFormat::REGS_INTR) {
        skip_registers(&mut at, layout.intr_regs_count)?;
    }
    for field in [
        SampleFormat::PHYS_ADDR,
        SampleFormat::CGROUP,
        SampleFormat::DATA_PAGE_SIZE,
        SampleFormat::CODE_PAGE_SIZE,
    ] {
        if has(field) {
            at.u64()?;
        }
    }
    let size = usize::try_from(at.u64()?).ok()?;
    let start = body.len() - at.0.len();
    at.take(size)?;
    let known = |word: u64| {
        u32::try_from(word & 0xffff_ffff)
            .ok()
            .filter(|&id| id != u32::MAX)
    };
    Some(AuxSample {
        pid: thread.and_then(known),
        tid: thread.and_then(|ids| known(ids >> 32)),
        cpu: cpu.and_then(known),
        time,
        trace: start..start + size,
    })
}

fn take_words(at: &mut Bytes<'_>, count: u64) -> Option<()> {
    at.take(usize::try_from(count.checked_mul(8)?).ok()?)?;
    Some(())
}

/// A count and so many items of `size` words.
fn skip_words(at: &mut Bytes<'_>, size: u64) -> Option<()> {
    let count = at.u64()?.checked_mul(size)?;
    take_words(at, count)
}

fn skip_registers(at: &mut Bytes<'_>, count: u8) -> Option<()> {
    match at.u64()? {
        // No registers: the sample hit the kernel.
        0 => Some(()),
        _ => take_words(at, count.into()),
    }
}

/// Counter values (`struct read_format`).
fn skip_counts(at: &mut Bytes<'_>, format: ReadFormat) -> Option<()> {
    let times = [
        ReadFormat::TOTAL_TIME_ENABLED,
        ReadFormat::TOTAL_TIME_RUNNING,
    ];
    let times = times.iter().filter(|&&t| format.contains(t)).count() as u64;
    let of_each = 1 + u64::from(format.contains(ReadFormat::ID));
    if format.contains(ReadFormat::GROUP) {
        let count = at.u64()?;
        take_words(at, times.checked_add(count.checked_mul(of_each)?)?)
    } else {
        take_words(at, times + of_each)
    }
}
