//! What a command decodes: a capture, or raw packets with their code.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use ptrail_perfdata::Capture;
use ptrail_pipeline::{CodeOptions, GivenCode, Search};
use ptrail_pt::{CpuId, Vendor};

use crate::pack::Unpacked;

/// Options that say what to decode.
#[derive(Args)]
pub(crate) struct InputArgs {
    /// The capture: a perf.data, what `ptrail pack` wrote, or an LLDB trace bundle (its trace.json or
    /// the folder)
    #[arg(value_name = "INPUT", required_unless_present = "raw")]
    pub(crate) input: Option<PathBuf>,

    /// Instead of INPUT, a file of nothing but Intel PT packets
    #[arg(long, value_name = "FILE", conflicts_with = "input")]
    pub(crate) raw: Option<PathBuf>,

    /// Code that lay at ADDR in every process: an ELF file as the system loads it, another file as
    /// it is, or, with OFFSET, these bytes of it. Beats what the capture says. May be given several
    /// times
    #[arg(long, value_name = "FILE[:OFFSET[-END]]@ADDR", value_parser = given_code)]
    code: Vec<GivenCode>,

    /// Look for the recorded files under DIR first, a copy of the recorded machine's or container's
    /// root
    #[arg(long, value_name = "DIR")]
    sysroot: Option<PathBuf>,

    /// Look for files that were recorded under the path FROM (or FROM itself) at TO. May be given
    /// several times
    #[arg(long, value_name = "FROM=TO", value_parser = moved)]
    map: Vec<(PathBuf, PathBuf)>,

    /// Take files although their build-id is not the recorded one
    #[arg(long)]
    force: bool,

    /// The CPU that recorded, for its errata; else as the capture says
    #[arg(long, value_name = "FAMILY/MODEL[/STEPPING]", value_parser = cpu)]
    cpu: Option<CpuId>,
}

/// What there is to decode.
pub(crate) struct Input {
    pub(crate) capture: Capture,
    /// What the user knows about the code.
    pub(crate) code: CodeOptions,
    /// If the capture came packed: its files, until the end.
    _unpacked: Option<Unpacked>,
}

impl InputArgs {
    /// Opens the capture.
    pub(crate) fn open(&self) -> Result<Input> {
        let mut code = self.code();
        let mut unpacked = None;
        let mut capture = match (&self.raw, &self.input) {
            (Some(raw), _) => Capture::open_raw(raw)?,
            (None, Some(input)) => match Unpacked::open(input)? {
                Some(files) => {
                    let capture = Capture::open(&files.capture())?;
                    code.search.sysroot.get_or_insert_with(|| files.root());
                    unpacked = Some(files);
                    capture
                }
                None => Capture::open(input)?,
            },
            (None, None) => bail!("no input; give a capture, or --raw FILE"),
        };
        capture.pt_config.cpu = self.cpu.or(capture.pt_config.cpu);
        Ok(Input {
            capture,
            code,
            _unpacked: unpacked,
        })
    }

    fn code(&self) -> CodeOptions {
        CodeOptions {
            given: self.code.clone(),
            search: Search {
                moved: self.map.clone(),
                sysroot: self.sysroot.clone(),
                any_build: self.force,
                ..Search::of_this_machine()
            },
        }
    }
}

/// An Intel CPU as `FAMILY/MODEL[/STEPPING]`, in decimal.
fn cpu(text: &str) -> Result<CpuId, String> {
    let refuse = || format!("{text:?} is not FAMILY/MODEL[/STEPPING], such as 6/158/9");
    let mut numbers = text.split('/').map(str::parse::<u16>);
    let mut next = || numbers.next().transpose().map_err(|_| refuse());
    let (family, model, stepping) = (next()?, next()?, next()?);
    let byte = |number: u16| u8::try_from(number).map_err(|_| refuse());
    if numbers.next().is_some() {
        return Err(refuse());
    }
    Ok(CpuId {
        vendor: Vendor::Intel,
        family: family.ok_or_else(refuse)?,
        model: byte(model.ok_or_else(refuse)?)?,
        stepping: byte(stepping.unwrap_or(0))?,
    })
}

/// Paths as `FROM=TO`.
fn moved(text: &str) -> Result<(PathBuf, PathBuf), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.into(), to.into())),
        _ => Err(format!("{text:?} is not FROM=TO, such as /opt/app=./build")),
    }
}

/// Code as `FILE[:OFFSET[-END]]@ADDR`. Names may have colons and @ in them: the last ones count.
fn given_code(text: &str) -> Result<GivenCode, String> {
    let refuse =
        || format!("{text:?} is not FILE[:OFFSET[-END]]@ADDR, such as vdso.so@0x7ffff7fc1000");
    let (file, address) = text.rsplit_once('@').ok_or_else(refuse)?;
    let address = number(address).ok_or_else(refuse)?;
    let (path, part) = match file.rsplit_once(':') {
        Some((path, part)) if part.starts_with(|c: char| c.is_ascii_digit()) => {
            (path, Some(range(path, part).ok_or_else(refuse)?))
        }
        _ => (file, None),
    };
    Ok(GivenCode {
        path: path.to_owned(),
        part,
        address,
    })
}

/// `OFFSET[-END]` of a file; without END, up to its end.
fn range(path: &str, text: &str) -> Option<Range<u64>> {
    let (start, end) = match text.split_once('-') {
        Some((start, end)) => (start, number(end)?),
        None => (
            text,
            std::fs::metadata(path).map_or(u64::MAX, |file| file.len()),
        ),
    };
    Some(number(start)?..end)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_a_file_a_part_and_an_address() {
        let given = |path: &str, part, address| {
            Ok(GivenCode {
                path: path.to_owned(),
                part,
                address,
            })
        };
        assert_eq!(given_code("a.out@4096"), given("a.out", None, 4096));
        assert_eq!(
            given_code("a:b@c:0x10-32@0xfff"),
            given("a:b@c", Some(16..32), 0xfff)
        );
        assert_eq!(given_code("c:/x@1"), given("c:/x", None, 1));
        for bad in ["a.out", "a.out@", "a.out@x", "a.out:1-@2", "a.out:1-2-3@4"] {
            assert!(given_code(bad).is_err(), "{bad}");
        }
    }
}
