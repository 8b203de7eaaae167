//! Which code lay at which address, when, and what it is called.
//!
//! A trace holds branch outcomes only; to follow it, the decoder needs the very bytes the program
//! ran. Those come from the files a process had mapped (found again by path, checked by build-id)
//! and from bytes captured while recording (the vDSO, JIT code). A process changes its mappings as
//! it runs, so every question carries a time.
//!
//! 1. [`TimelineBuilder`] takes the events of a recording in any order: map, captured code, exec,
//!    fork; and what is true all the time: given code, a copy of the kernel, perf maps.
//! 2. [`Timeline`] is the immutable result, shared by reference between decoder threads. Files are
//!    memory-mapped when first asked for, symbols are read when first asked for.
//! 3. [`Timeline::space`] gives the [`AddressSpace`] of a process at a time. It answers
//!    [`AddressSpace::code`] (bytes) and [`AddressSpace::function`] (a [`FunctionHit`]).
//! 4. [`Timeline::function`] turns a [`FunctionId`] into names, [`Image::lines`] an address into
//!    source lines and inlined functions.
//! 5. The way back: [`Image::functions_named`], [`Image::inlined_copies`], [`Image::code_at_line`].
//!
//! ```
//! use ptrail_image::{Mapping, TimelineBuilder};
//! use ptrail_pt::{Ip, PerfTime};
//!
//! let mut builder = TimelineBuilder::new();
//! builder.map(7, PerfTime(100), Mapping {
//!     address: 0x5000,
//!     len: 0x1000,
//!     file_offset: 0,
//!     path: "/bin/does-not-exist".to_owned(),
//!     build_id: None,
//! });
//! builder.code(7, PerfTime(200), 0x5100, "jitted", vec![0x90, 0xc3]);
//! let timeline = builder.build();
//!
//! let early = timeline.space(7, PerfTime(150));
//! assert!(early.code(Ip(0x5100)).unwrap_err().to_string().contains("/bin/does-not-exist"));
//! let later = timeline.space(7, PerfTime(200));
//! assert_eq!(later.code(Ip(0x5101)).unwrap(), [0xc3]);
//! let hit = later.function(Ip(0x5101)).unwrap();
//! assert_eq!(timeline.function(hit.id).name, "jitted");
//! ```

#![deny(unsafe_code)]

mod builder;
mod cold;
mod debug_file;
mod demangle;
mod elf;
mod entry;
mod error;
mod file;
mod frames;
mod function;
mod image;
mod inlined;
mod layout;
mod lines;
mod name;
mod perf_map;
mod places;
mod plt;
mod regions;
mod search;
mod symbols;
mod table;
mod timeline;
mod vdso;

pub use builder::{Mapping, TimelineBuilder};
pub use demangle::{MAX_NAME, demangle};
pub use error::{ImageError, NoCode};
pub use function::{Function, FunctionHit, FunctionId, FunctionKind};
pub use image::Image;
pub use lines::{Lines, SourceFrame};
pub use places::{AtLine, Named};
pub use search::Search;
pub use timeline::{AddressSpace, KERNEL, Timeline, VersionId};
