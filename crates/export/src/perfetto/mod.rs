//! Perfetto's protobuf trace: a sequence of length-prefixed `TracePacket`s.
//!
//! *Sequences.* Packets of one sequence (`trusted_packet_sequence_id`) share interned names,
//! defaults and a clock. Each track is a sequence of its own: its events name neither their track
//! nor a whole time, only the nanoseconds since the sequence's last event (a clock of the sequence
//! with `is_incremental`). Sequence 1 holds everything rare: descriptors, losses, points and late
//! begins, with whole times and whole names, so that these can stand anywhere in the file.
//!
//! *Clock.* Times are perf-clock nanoseconds, declared as `MONOTONIC`, which is also the trace's
//! primary clock, so nothing is converted. A known wall-clock time is tied to the base.
//!
//! *Depth.* The trace processor drops slices that lie 512 or more deep on their track, so deeper
//! ones continue on tracks of their own below the thread's, each with 512 levels.
//!
//! ```text
//! recording                  ◆ hardware trace
//! process 42
//! ├ signals                         ◆ SIGUSR1
//! └ thread 43                [ main [ parse ] [ run … ]]
//!   ├ instructions per µs      ▁▆▇▅▁
//!   ├ levels 384 to 895
//!   └ trace losses                [ overflow ]
//! ```

mod args;
mod event;
mod names;
mod packets;
mod proto;
#[cfg(test)]
mod tests;
mod writer;

pub use writer::PerfettoWriter;
