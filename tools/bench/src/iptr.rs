//! The crate `iptr-edge-analyzer`: it fills a coverage bitmap.

use std::time::Duration;

use anyhow::{Result, anyhow};
use iptr_decoder::{DecodeOptions, decode};
use iptr_edge_analyzer::control_flow_handler::fuzz_bitmap::FuzzBitmapControlFlowHandler;
use iptr_edge_analyzer::{EdgeAnalyzer, ReadMemory};

use crate::trace::{Kind, Trace};
use crate::{Row, passes, timed};

const BITMAP: usize = 1 << 16;

struct Pages<'t>(Vec<(u64, &'t [u8])>);

#[derive(Debug, thiserror::Error)]
#[error("no code at {0:#x}")]
struct NoCode(u64);

impl ReadMemory for Pages<'_> {
    type Error = NoCode;

    fn at_decode_begin(&mut self) -> Result<(), NoCode> {
        Ok(())
    }

    fn read_memory<T>(
        &mut self,
        address: u64,
        size: usize,
        callback: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, NoCode> {
        let later = self.0.partition_point(|(start, _)| *start <= address);
        let (start, page) = self.0[..later].last().ok_or(NoCode(address))?;
        let rest = page
            .get((address - start) as usize..)
            .filter(|rest| !rest.is_empty())
            .ok_or(NoCode(address))?;
        Ok(callback(&rest[..size.min(rest.len())]))
    }
}

/// Only for pages: of mappings it knows nothing.
pub(crate) fn bitmap(trace: &Trace, warm: Duration) -> Result<Option<Row>> {
    let Kind::Pages(pages) = &trace.kind else {
        return Ok(None);
    };
    let fresh = || {
        let mut memory: Vec<_> = pages
            .pages
            .iter()
            .map(|(address, page)| (*address, &**page))
            .collect();
        memory.sort_unstable_by_key(|page| page.0);
        let handler = FuzzBitmapControlFlowHandler::new(vec![0_u8; BITMAP], None);
        EdgeAnalyzer::new(handler, Pages(memory))
    };
    let pass = |analyzer: &mut EdgeAnalyzer<_, _>| {
        let (decoded, seconds) =
            timed(|| decode(&pages.bytes, DecodeOptions::default(), analyzer))?;
        decoded.map_err(|error| anyhow!("{error}"))?;
        anyhow::Ok(seconds)
    };
    let mut cold = f64::INFINITY;
    for _ in passes(warm) {
        let mut analyzer = fresh();
        cold = cold.min(pass(&mut analyzer)?);
    }
    let mut analyzer = fresh();
    let mut best = f64::INFINITY;
    for _ in passes(warm) {
        best = best.min(pass(&mut analyzer)?);
    }
    Ok(Some(Row {
        cold,
        warm: Some(best),
        instructions: None,
        branches: None,
    }))
}
