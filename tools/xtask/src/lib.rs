//! What a contributor runs beside the product, and the test programs that several crates share.
//!
//! `cargo xtask` prints the commands. The library part is the corpus of `testdata/programs`: tests of
//! other crates take it as a dev-dependency, so that each program is compiled once for all of them.
//! It also finds the reference data.
//!
//! ```no_run
//! let corpus = xtask::Corpus::load()?;
//! for program in corpus.programs() {
//!     for variant in &program.variants {
//!         let executable = corpus.build(program, variant)?;
//!         let outcome = xtask::Outcome::of_running(&executable, program)?;
//!         program.check(&outcome)?;
//!     }
//! }
//! # anyhow::Ok(())
//! ```
#![forbid(unsafe_code)]

mod compile;
mod manifest;
mod native;
mod reference;

pub use compile::{Corpus, workspace_root};
pub use manifest::{Call, Compiler, Exit, Library, Program, Variant};
pub use native::Outcome;
pub use reference::{gunzip, read_json, reference_data};
