//! Intel Processor Trace itself: packets, lexer, encoder and clock.
//!
//! The CPU writes branch outcomes as a byte stream of packets (Intel SDM volume 3, chapter
//! "Intel Processor Trace", section "Trace Packets and Data Types"). This crate knows that stream
//! and nothing else: no file, no program image, no I/O.
//!
//! 1. [`Lexer`] turns bytes into [`Packet`]s, each with its [`TraceOffset`]; it iterates over them,
//!    or pushes them into a [`PacketSink`].
//! 2. [`LastIp`] expands the compressed addresses that packets carry.
//! 3. [`Clock`] eats packets and answers what time it is, and how well that is known.
//! 4. [`Encoder`] is the way back, from packets to bytes.
//! 5. [`Ledger`] adds up what could not be decoded, by cause; every stage of the decoder fills it.

#![forbid(unsafe_code)]

mod clock;
mod config;
mod conversion;
mod crystal;
mod encoder;
mod errata;
mod ip;
mod ledger;
mod lexer;
mod opcode;
mod packet;
mod ratio;
mod word;

pub use clock::{Clock, Time};
pub use config::{CpuId, PtConfig, Vendor};
pub use conversion::{PerfTime, Picos, TimeConv, Tsc};
pub use encoder::{Encoder, PsbPlus};
pub use errata::Errata;
pub use ip::{Ip, IpBytes, IpPayload, LastIp};
pub use ledger::{Ledger, Loss, LossCause};
pub use lexer::{BadPacket, Lexed, Lexer, PacketSink, find_psb};
pub use packet::{ExecMode, Packet, TNT_LONG_MAX, TNT_SHORT_MAX, Tnt, TraceOffset};
