//! The software recorder: Intel PT packets without Intel PT.
//!
//! It runs the program itself, sees every instruction, and writes the packets that a CPU's trace
//! unit would have written, into the same kind of `perf.data`. Where there is no trace unit it is
//! the recorder; in tests it is the truth, because what executed is known.
//!
//! 1. [`Program::find`] looks the program up and says why it can't be recorded, if so.
//! 2. [`Qemu::find`] says whether the fast engine can run it, and why not.
//! 3. [`record`] runs it under an [`Engine`], calls back with progress, and returns an [`Outcome`]
//!    when the program has ended or the recording was stopped.
//!
//! Time is virtual: an instruction costs one cycle of a 2 GHz clock, a system call what it really
//! took. [`clock`] has the constants.

pub mod clock;
mod cpu;
mod error;
mod front;
mod inject;
mod interrupt;
mod maps;
mod memory;
mod process;
mod program;
mod ptrace;
mod qemu;
mod recording;
mod request;
mod step;
mod thread;
mod tracee;
mod truth;
mod watcher;
mod window;

pub use error::Error;
pub use front::{Settings, Timing};
pub use inject::Injection;
pub use interrupt::occasion_ended;
pub use program::Program;
pub use qemu::Qemu;
pub use request::{End, Engine, Outcome, Progress, Request, Subject, record};
pub use window::{Start, Window};
