//! What both recorders have in common, and what recording by perf events takes.
//!
//! When a snapshot is taken:
//!
//! 1. [`Trigger`] is the grammar of `--trigger`; [`Triggers`] is all that a recording is asked for.
//! 2. [`Watch`] finds the triggers in the code that a process maps, counts their hits, and says when a
//!    snapshot is to be taken.
//! 3. [`Calls`] follows a thread's calls and returns, for triggers that wait for a return.
//!
//! By perf events:
//!
//! 1. [`pmu`] reads what the kernel says of the trace unit, [`facts`] what this process may do,
//!    [`trials`] tries it; [`check`] makes a report of the three.
//! 2. [`plan`] has the system calls that a recording takes, in their order; [`event`] makes them, and
//!    [`refusal`] knows what each error number means.
//! 3. [`session`] carries a plan out and reads what comes; a [`hit`] is what a trigger tells, and
//!    [`pairs`] makes calls of hits at entries and returns.
//! 4. [`ring`] reads records and trace out of the memory shared with the kernel.
//!
//! ```
//! use ptrail_record::{Moment, Trigger, Triggers, Watch};
//! use std::num::NonZeroU32;
//! use std::time::Duration;
//!
//! let exit: Trigger = "exit".parse().unwrap();
//! let mut watch = Watch::new(Triggers {
//!     triggers: vec![exit.clone(), "slow_call>50us".parse().unwrap()],
//!     after: Duration::ZERO,
//!     snapshots: NonZeroU32::new(1).unwrap(),
//! });
//! let at = Moment { pid: 7, tid: 7, ip: 0x40_1000, time: 1_000 };
//! let hit = watch.happened(&exit, at).unwrap();
//! watch.took(hit);
//! assert!(watch.is_done());
//! assert_eq!(watch.unresolved().count(), 1);
//! ```

#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod attr;
mod calls;
pub mod check;
pub mod event;
pub mod facts;
pub mod hit;
mod memory;
pub mod pairs;
pub mod plan;
pub mod pmu;
mod ready;
pub mod refusal;
mod resolve;
pub mod ring;
pub mod session;
pub mod trials;
mod trigger;
mod watch;

pub use calls::{Call, Calls};
pub use ready::Ready;
pub use resolve::Unresolved;
pub use trigger::{FilePlace, ParseError, Place, Trigger, TriggerSignal, duration, duration_text};
pub use watch::{Hit, MappedFile, Moment, Tally, Triggers, Watch};
