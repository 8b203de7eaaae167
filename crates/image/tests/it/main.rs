//! The crate against binutils, on programs built here and on the system's own files.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod damage;
mod given;
mod lines;
mod names;
mod places;
mod plt;
mod problems;
mod running;
mod search;
mod spaces;
mod stripped;
mod tools;
