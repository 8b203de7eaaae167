//! Perf events on this machine's kernel: everything of a recording but the trace unit, in whose place
//! stands an event of the kernel's own, the thread's clock.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod events;
mod hardware;
mod limits;
mod session;
mod target;
