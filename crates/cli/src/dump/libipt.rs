//! The same by Intel's decoder, to compare with.

use anyhow::{Result, anyhow};
use ptrail_flow::Sink;
use ptrail_pipeline::{Session, Stream};
use ptrail_pt::{Loss, LossCause, Picos, TraceOffset};

/// Tells `sink` the instructions of a stream, and libipt's errors as losses.
pub(super) fn walk(session: &Session<'_>, stream: &Stream<'_>, sink: &mut impl Sink) -> Result<()> {
    for part in &stream.parts {
        let (segments, _) = part.segments();
        let bytes: Vec<u8> = segments
            .iter()
            .flat_map(|segment| segment.bytes)
            .copied()
            .collect();
        let decoded =
            ptrail_reference::instructions(&bytes, session.context(stream), |found| match found {
                Ok(ip) => sink.instructions(&[ip]),
                Err(error) => {
                    let loss = Loss {
                        cause: LossCause::Desync,
                        bytes: 0,
                        offset: TraceOffset(part.range.start),
                        begin: Picos(0),
                        end: Picos(0),
                        ip: None,
                        reason: error.to_string(),
                    };
                    sink.loss(loss, true, 0);
                }
            });
        decoded.map_err(|error| anyhow!("libipt: {error}"))?;
    }
    Ok(())
}
