//! Reading and writing `perf.data` files that hold Intel PT.
//!
//! A `perf.data` file begins with a header, which says where the other parts stand:
//!
//! * **attributes**: which events were recorded. One of them is `intel_pt`; its `config` word says
//!   how the trace unit was set.
//! * **data**: a row of records. Most come from the kernel (mappings, names, births, deaths,
//!   switches: the *sideband*), some from the recorder: `AUXTRACE_INFO` (what the bits of `config`
//!   mean, ratios, clock), `TIME_CONV` (from TSC to perf clock) and, for each run of trace bytes,
//!   an `AUXTRACE` record with the bytes behind it.
//! * **features**: machine, command line, build-ids, an index of the AUXTRACE records.
//!
//! Behind all that, files written here have a section of their own ([`Extra`]), which perf does not
//! see; `docs/capture-format.md` has it byte by byte.
//!
//! 1. [`Capture::open`] maps a file and reads all but the trace bytes. It takes LLDB's trace bundles
//!    too; [`Capture::open_raw`] takes files of nothing but packets.
//! 2. Each [`AuxStream`] is one thread's or CPU's trace, in pieces; [`Capture::bytes`] gives a
//!    piece without copying it.
//! 3. [`Capture::sideband`] is ordered by time.
//! 4. [`Capture::damage`] says what a broken file had to be read without.
//!
//! [`Writer`] is the way back.
//!
//! ```no_run
//! # fn f() -> Result<(), ptrail_perfdata::Error> {
//! let capture = ptrail_perfdata::Capture::open("perf.data".as_ref())?;
//! for stream in &capture.streams {
//!     let bytes: usize = stream.pieces.iter().map(|piece| capture.bytes(piece).len()).sum();
//!     println!("{:?}: {bytes} bytes of trace", stream.owner);
//! }
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod attributes;
mod auxtrace;
mod capture;
mod damage;
mod error;
mod extra;
mod features;
mod file;
mod head;
mod jitdump;
mod layout;
mod lldb;
mod overlap;
mod own_section;
mod pipe;
mod reader;
mod records;
mod sample;
mod sideband;
mod streams;
mod timeline;
mod unpack;
mod wire;
mod writer;

pub use capture::{
    AuxPiece, AuxStream, Capture, Gap, KernelCopy, Machine, Owner, Record, Sideband,
};
pub use error::Error;
pub use extra::{CodeBlob, Extra, SnapshotNote, SourceNote, TriggerNote};
pub use jitdump::read_jitdump;
pub use writer::{Target, Writer};
