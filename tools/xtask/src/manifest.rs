//! `testdata/programs/manifest.json`: what each test program is, and what it is known to do.
//!
//! The fields are explained in `testdata/programs/README.md`. Unknown fields are refused, so that a
//! misspelt expectation can't go unchecked.

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) programs: Vec<Program>,
}

/// One program and its expectations.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Unique; also the name of the executable.
    pub name: String,
    /// What compiles [`sources`](Self::sources).
    pub compiler: Compiler,
    /// File names in `testdata/programs`.
    pub sources: Vec<String>,
    /// Shared libraries that lie beside the executable.
    #[serde(default)]
    pub libraries: Vec<Library>,
    /// The ways to compile it. Never empty.
    pub variants: Vec<Variant>,
    /// What this program does that a recorder may not support, as words of the README's list.
    #[serde(default)]
    pub limits: Vec<String>,
    /// Arguments, without the program's name.
    #[serde(default)]
    pub args: Vec<String>,
    /// What standard input holds.
    #[serde(default)]
    pub stdin: String,
    /// What standard output holds, without the lines of [`counted`](Self::counted).
    pub stdout: String,
    /// How the program ends.
    pub exit: Exit,
    /// Functions that are entered exactly so often, in every variant that isn't stripped.
    pub calls: Vec<Call>,
    /// Functions whose count depends on the machine: the program prints `count FUNCTION N`.
    #[serde(default)]
    pub counted: Vec<String>,
    /// (parent, child): some call of child has parent as its direct caller.
    #[serde(default)]
    nesting: Vec<(String, String)>,
    /// (outer, inner): every call of inner happens while outer is on the stack.
    #[serde(default)]
    pub inside: Vec<(String, String)>,
}

/// One way to compile a program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Unique within the program.
    pub name: String,
    /// Compiler arguments; `$OUT` is the folder of the executable.
    pub flags: Vec<String>,
    /// The executable has no symbols: calls and nesting can't be seen by name.
    #[serde(default)]
    pub stripped: bool,
    /// It runs more than a million instructions, too many to single-step in every test.
    #[serde(default)]
    pub slow: bool,
    /// Pairs as in the program's `nesting` that hold in this variant only.
    #[serde(default)]
    nesting: Vec<(String, String)>,
}

/// A shared library of a program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Library {
    /// File name, as in `libfirst.so`.
    pub file: String,
    /// File names in `testdata/programs`.
    pub sources: Vec<String>,
    /// Compiler arguments.
    pub flags: Vec<String>,
}

/// How often a function is entered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Demangled name: as `c++filt` prints it, or Rust's path without the hash.
    pub function: String,
    /// Number of calls; 0 says that it is never entered.
    pub count: u64,
}

/// The compiler driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compiler {
    /// The C compiler: `$CC`, else `gcc`.
    Cc,
    /// The C++ compiler: `$CXX`, else `g++`.
    #[serde(rename = "c++")]
    Cxx,
    /// The Rust compiler: `$RUSTC`, else `rustc`.
    Rustc,
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// By itself, with this status (0 to 255).
    Status(i32),
    /// Killed by the signal of this number.
    Signal(i32),
}

impl Program {
    /// The (parent, child) pairs that must be seen in `variant`; none if it is stripped.
    pub fn nesting<'a>(&'a self, variant: &'a Variant) -> impl Iterator<Item = (&'a str, &'a str)> {
        let stripped = variant.stripped;
        self.nesting
            .iter()
            .chain(&variant.nesting)
            .filter(move |_| !stripped)
            .map(|(parent, child)| (parent.as_str(), child.as_str()))
    }

    /// Does it do what the README's list calls `limit`?
    pub fn has_limit(&self, limit: &str) -> bool {
        self.limits.iter().any(|known| known == limit)
    }
}
