//! Tests of the flow decoder against hand-written expectations, a model, and libipt's own suite.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod branches;
mod events;
mod libipt;
mod libipt_table;
mod losses;
mod mappings;
mod model;
mod program;
mod properties;
mod segments;
