//! libipt's block and instruction decoders, by the crate `libipt`.

use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use libipt::block::BlockDecoder;
use libipt::enc_dec_builder::{Cpu, EncoderDecoderBuilder, Frequency, PtEncoderDecoder};
use libipt::error::PtError;
use libipt::image::{Image, SectionCache};
use libipt::insn::InsnDecoder;
use libipt::status::Status;
use ptrail_perfdata::Record;
use ptrail_pt::PtConfig;

use crate::trace::{Kind, Trace};
use crate::{Row, passes, timed};

/// Bytes of code that libipt keeps in memory: without, it reads a file again at each switch.
const CACHE: u64 = 1 << 30;

pub(crate) fn blocks(trace: &Trace, warm: Duration) -> Result<Option<Row>> {
    measure(trace, warm, |bytes, config, image| {
        let mut decoder: BlockDecoder<'_> = builder(bytes, config).build()?;
        decoder.set_image(Some(image))?;
        Ok(count(decoder))
    })
}

pub(crate) fn instructions(trace: &Trace, warm: Duration) -> Result<Option<Row>> {
    measure(trace, warm, |bytes, config, image| {
        let mut decoder: InsnDecoder<'_> = builder(bytes, config).build()?;
        decoder.set_image(Some(image))?;
        Ok(count(decoder))
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
            Kind::PerfData(_, capture) => {
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

fn builder<D: PtEncoderDecoder>(bytes: &[u8], config: &PtConfig) -> EncoderDecoderBuilder<D> {
    let frequency = Frequency::new(
        config.mtc_freq,
        config.max_non_turbo_ratio,
        config.tsc_ctc_n,
        config.tsc_ctc_d,
    );
    // SAFETY: libipt's decoders only read the buffer, and are gone before `bytes` is.
    let builder = unsafe {
        EncoderDecoderBuilder::<D>::new().buffer_from_raw(bytes.as_ptr().cast_mut(), bytes.len())
    };
    let builder = builder.freq(frequency);
    match config.cpu {
        Some(cpu) => builder.cpu(Cpu::intel(cpu.family, cpu.model, cpu.stepping)),
        None => builder,
    }
}

/// A decoder of libipt's.
trait Decode {
    fn synchronize(&mut self) -> Result<Status, PtError>;
    fn next_event(&mut self) -> Result<Status, PtError>;
    /// Goes on; the number of instructions.
    fn step(&mut self) -> Result<(u64, Status), PtError>;
}

/// Decodes a stream; the number of instructions. After an error it goes on at the next PSB.
fn count(mut decoder: impl Decode) -> u64 {
    let mut instructions = 0;
    while let Ok(mut status) = decoder.synchronize() {
        loop {
            while status.event_pending() {
                status = decoder.next_event().unwrap_or(Status::EOS);
            }
            if status.eos() {
                break;
            }
            let Ok((more, next)) = decoder.step() else {
                break;
            };
            instructions += more;
            status = next;
        }
    }
    instructions
}

impl Decode for BlockDecoder<'_> {
    fn synchronize(&mut self) -> Result<Status, PtError> {
        self.sync_forward()
    }

    fn next_event(&mut self) -> Result<Status, PtError> {
        self.event().map(|(_, status)| status)
    }

    fn step(&mut self) -> Result<(u64, Status), PtError> {
        self.decode_next()
            .map(|(block, status)| (u64::from(block.ninsn()), status))
    }
}

impl Decode for InsnDecoder<'_> {
    fn synchronize(&mut self) -> Result<Status, PtError> {
        self.sync_forward()
    }

    fn next_event(&mut self) -> Result<Status, PtError> {
        self.event().map(|(_, status)| status)
    }

    fn step(&mut self) -> Result<(u64, Status), PtError> {
        self.decode_next().map(|(_, status)| (1, status))
    }
}
