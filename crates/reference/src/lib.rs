//! Intel's decoder, libipt, on the same input as ours: an independent word on what executed.
//!
//! It is given the code of the time that its own clock shows. After an error it goes on at the next
//! PSB, so it loses more than ours does.
#![cfg(feature = "libipt")]

use std::cell::Cell;

use libipt::block::BlockDecoder;
use libipt::enc_dec_builder::{Cpu, EncoderDecoderBuilder, Frequency, PtEncoderDecoder};
pub use libipt::error::PtError;
use libipt::error::PtErrorCode;
use libipt::image::Image;
use libipt::insn::InsnDecoder;
use libipt::status::Status;
use ptrail_flow::Context;
use ptrail_pt::{Ip, PerfTime, PtConfig, Tsc};

/// Decodes the packets of a stream, and tells the address of each instruction, and each error.
///
/// # Errors
/// libipt can't be set up.
pub fn instructions(
    bytes: &[u8],
    context: Context<'_>,
    mut tell: impl FnMut(Result<Ip, PtError>),
) -> Result<(), PtError> {
    let now = Cell::new(context.base);
    let mut image = Image::new(None)?;
    image.set_callback(Some(|buffer: &mut [u8], address, _| {
        read(context, now.get(), Ip(address), buffer)
    }));
    // SAFETY: `bytes` outlives this function.
    let mut decoder: InsnDecoder<'_> = unsafe { builder(bytes, context.config) }.build()?;
    decoder.set_image(Some(&mut image))?;
    drain(&mut decoder, |decoder| {
        if let (Ok((tsc, ..)), Some(conversion)) = (decoder.time(), context.conversion) {
            now.set(conversion.to_perf(Tsc(tsc)));
        }
        let stepped = decoder.decode_next();
        tell(stepped.map(|(instruction, _)| Ip(instruction.ip())));
        stepped.map(|(_, status)| status)
    });
    Ok(())
}

/// Reads code as libipt wants it: the number of bytes, or an error.
fn read(context: Context<'_>, time: PerfTime, ip: Ip, buffer: &mut [u8]) -> i32 {
    let space = context.timeline.space(context.pid, time);
    match space.code(ip) {
        Ok(code) => {
            let len = code.len().min(buffer.len());
            buffer[..len].copy_from_slice(&code[..len]);
            i32::try_from(len).unwrap_or(i32::MAX)
        }
        // `-pte_nomap`.
        Err(_) => -(PtErrorCode::Nomap as i32),
    }
}

/// A decoder's settings for a stream.
///
/// # Safety
/// `bytes` must live as long as what is built.
#[must_use]
pub unsafe fn builder<D: PtEncoderDecoder>(
    bytes: &[u8],
    config: &PtConfig,
) -> EncoderDecoderBuilder<D> {
    let frequency = Frequency::new(
        config.mtc_freq,
        config.max_non_turbo_ratio,
        config.tsc_ctc_n,
        config.tsc_ctc_d,
    );
    // SAFETY: libipt's decoders only read the buffer, and the caller keeps it.
    let builder = unsafe {
        EncoderDecoderBuilder::<D>::new().buffer_from_raw(bytes.as_ptr().cast_mut(), bytes.len())
    };
    let builder = builder.freq(frequency);
    match config.cpu {
        Some(cpu) => builder.cpu(Cpu::intel(cpu.family, cpu.model, cpu.stepping)),
        None => builder,
    }
}

/// What libipt's decoders have in common.
pub trait Decode {
    /// Goes to the next PSB.
    ///
    /// # Errors
    /// There is none.
    fn synchronize(&mut self) -> Result<Status, PtError>;

    /// Takes an event.
    ///
    /// # Errors
    /// The trace does not fit.
    fn next_event(&mut self) -> Result<Status, PtError>;
}

impl Decode for BlockDecoder<'_> {
    fn synchronize(&mut self) -> Result<Status, PtError> {
        self.sync_forward()
    }

    fn next_event(&mut self) -> Result<Status, PtError> {
        self.event().map(|(_, status)| status)
    }
}

impl Decode for InsnDecoder<'_> {
    fn synchronize(&mut self) -> Result<Status, PtError> {
        self.sync_forward()
    }

    fn next_event(&mut self) -> Result<Status, PtError> {
        self.event().map(|(_, status)| status)
    }
}

/// Decodes a whole stream; `step` takes the next piece of code. After an error it goes on at the
/// next PSB.
pub fn drain<D: Decode>(decoder: &mut D, mut step: impl FnMut(&mut D) -> Result<Status, PtError>) {
    while let Ok(mut status) = decoder.synchronize() {
        loop {
            let next = if status.event_pending() {
                decoder.next_event()
            } else if status.eos() {
                break;
            } else {
                step(decoder)
            };
            match next {
                Ok(next) => status = next,
                Err(_) => break,
            }
        }
    }
}
