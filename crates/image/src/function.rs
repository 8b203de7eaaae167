//! Functions as the outside sees them: ids on the hot path, names on request.

use std::borrow::Cow;

use ptrail_pt::Ip;

/// A function of an image: image number in the high 32 bits, function number in the low ones.
///
/// The same events and the same files give the same ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u64);

impl FunctionId {
    pub(crate) const fn new(image: u32, function: u32) -> Self {
        Self((image as u64) << 32 | function as u64)
    }

    /// Number of the image in [`crate::Timeline::images`].
    #[must_use]
    pub const fn image(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Number of the function in its image, by ascending address of its entry.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// Names and kind of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function<'t> {
    /// Readable name, demangled; at most [`crate::MAX_NAME`] bytes.
    pub name: Cow<'t, str>,
    /// The name in the symbol table, if `name` was demangled from it; bounded like `name`.
    pub mangled: Option<Cow<'t, str>>,
    /// File name without folders, `[vdso]`, or `[jit]`.
    pub module: &'t str,
    /// What it is.
    pub kind: FunctionKind,
}

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FunctionKind {
    /// Ordinary code.
    Code,
    /// A stub of the procedure linkage table, or the table's first entry, which calls the resolver.
    PltStub,
    /// Picks the implementation of an indirect function (IFUNC) when the program is loaded.
    IfuncResolver,
    /// Code without a file, captured while recording.
    Jit,
}

/// The function at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionHit {
    /// Which function.
    pub id: FunctionId,
    /// Its first instruction.
    pub entry: Ip,
    /// Begin of the contiguous range that was hit, which may be the function's cold part.
    pub start: Ip,
    /// End of that range, exclusive.
    pub end: Ip,
}
