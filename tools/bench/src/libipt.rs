//! libipt's block and instruction decoders, by the crate `libipt`.

use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use libipt::block::BlockDecoder;
use libipt::error::PtError;
use libipt::image::{Image, SectionCache};
use libipt::insn::InsnDecoder;
use ptrail_perfdata::Record;
use ptrail_pt::PtConfig;
use ptrail_reference::{builder, drain};

use crate::trace::{Kind, Trace};
use crate::{Row, passes, timed};

/// Bytes of code that libipt keeps in memory: without, it reads a file again at each switch.
const CACHE: u64 = 1 << 30;

pub(crate) fn blocks(trace: &Trace, warm: Duration) -> Result<Option<Row>> {
    measure(trace, warm, |bytes, config, image| {
        // SAFETY: `bytes` outlives the decoder.
        let mut decoder: BlockDecoder<'_> = unsafe { builder(bytes, config) }.build()?;
        decoder.set_image(Some(image))?;
        let mut instructions = 0;
        drain(&mut decoder, |decoder| {
            let (block, status) = decoder.decode_next()?;
            instructions += u64::from(block.ninsn());
            Ok(status)
        });
        Ok(instructions)
    })
}

pub(crate) fn instructions(trace: &Trace, warm: Duration) -> Result<Option<Row>> {
    measure(trace, warm, |bytes, config, image| {
        // SAFETY: `bytes` outlives the decoder.
        let mut decoder: InsnDecoder<'_> = unsafe { builder(bytes, config) }.build()?;
        decoder.set_image(Some(image))?;
        let mut instructions = 0;
        drain(&mut decoder, |decoder| {
            let (_, status) = decoder.decode_next()?;
            instructions += 1;
            Ok(status)
        });
        Ok(instructions)
    })
}

/// It keeps nothing from pass to pass, so every pass is cold.
fn measure(
    trace: &Trace,
    time: Duration,
    decode: fn(&[u8], &PtConfig, &mut Image) -> Result<u64, PtError>,
) -> Result<Option<Row>> {
    let code = Code::of(trace)?;
    let config = *trace.contexts()[0].config;
    let mut streams = vec![Vec::new(); trace.contexts().len()];
    for (stream, segment) in trace.segments() {
        streams[stream].extend_from_slice(segment.bytes);
    }
    let (mut best, mut instructions) = (f64::INFINITY, 0);
    for _ in passes(time) {
        let mut images = Vec::new();
        for _ in &streams {
            images.push(code.image().map_err(|error| anyhow!("{error}"))?);
        }
        let (counts, seconds) = timed(|| {
            let streams = streams.iter().zip(&mut images);
            streams
                .map(|(bytes, image)| decode(bytes, &config, image))
                .sum::<Result<u64, _>>()
        })?;
        instructions = counts.map_err(|error| anyhow!("{error}"))?;
        best = best.min(seconds);
    }
    Ok(Some(Row {
        cold: best,
        warm: None,
        instructions: Some(instructions),
        branches: None,
    }))
}

/// Where the code is: file, offset, size and address.
struct Code {
    sections: Vec<(PathBuf, u64, u64, u64)>,
    /// Code that is in no file of its own.
    _files: Vec<tempfile::NamedTempFile>,
}

impl Code {
    fn of(trace: &Trace) -> Result<Self> {
        let mut code = Self {
            sections: Vec::new(),
            _files: Vec::new(),
        };
        match &trace.kind {
            Kind::Pages(pages) => {
                for (address, page) in &pages.pages {
                    code.add(*address, page)?;
                }
            }
            Kind::PerfData(session) => {
                let capture = session.capture();
                for entry in &capture.sideband {
                    if let Record::Mmap2 {
                        address,
                        len,
                        file_offset,
                        executable: true,
                        path,
                        ..
                    } = &entry.record
                        && path.starts_with('/')
                    {
                        let section = (path.into(), *file_offset, *len, *address);
                        code.sections.push(section);
                    }
                }
                for blob in capture.extra.iter().flat_map(|extra| &extra.code) {
                    code.add(blob.address, &blob.bytes)?;
                }
            }
        }
        Ok(code)
    }

    fn add(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(bytes)?;
        let section = (file.path().into(), 0, bytes.len() as u64, address);
        self.sections.push(section);
        self._files.push(file);
        Ok(())
    }

    fn image(&self) -> Result<Image, PtError> {
        let mut cache = SectionCache::new(None)?;
        cache.set_limit(CACHE)?;
        let mut ids = Vec::new();
        for (path, offset, size, address) in &self.sections {
            ids.push(cache.add_file(&path.to_string_lossy(), *offset, *size, *address)?);
        }
        let cache = Rc::new(cache);
        let mut image = Image::new(None)?;
        for id in ids {
            image.add_cached(Rc::clone(&cache), id, None)?;
        }
        Ok(image)
    }
}
