//! Readable names from mangled ones: Rust (legacy and v0) and C++ (Itanium).
//!
//! Symbol tables are input like any other: a short mangled name can stand for gigabytes of readable
//! text, so output is cut at [`MAX_NAME`] while it is written.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions};

/// Longest readable name, bytes; longer ones end in `…`.
pub const MAX_NAME: usize = 4096;

/// Longest mangled name worth taking apart, bytes.
const MAX_MANGLED: usize = 32 * 1024;

/// The readable form of a mangled name, or `None` if it is not mangled or the mangling is broken.
///
/// The hash at the end of Rust names is dropped.
#[must_use]
pub fn demangle(name: &str) -> Option<String> {
    if name.len() > MAX_MANGLED {
        return None;
    }
    let mut out = Bounded::default();
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        let written = write!(out, "{rust:#}");
        return out.finish(written);
    }
    if !name.starts_with("_Z") && !name.starts_with("__Z") {
        return None;
    }
    let options = ParseOptions::default();
    let symbol = cpp_demangle::Symbol::new_with_options(name, &options).ok()?;
    let written = symbol.structured_demangle(&mut out, &DemangleOptions::default());
    out.finish(written)
}

/// A name that is shown as it is, cut to [`MAX_NAME`].
pub(crate) fn bound(name: Cow<'_, str>) -> Cow<'_, str> {
    if name.len() <= MAX_NAME {
        return name;
    }
    let mut out = Bounded::default();
    // The writer reports that it is full; the beginning of the name is what is wanted.
    let written = out.write_str(&name);
    Cow::Owned(out.finish(written).unwrap_or_default())
}

/// The longest prefix of at most `max` bytes.
fn prefix(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Text that stops growing at [`MAX_NAME`].
#[derive(Default)]
struct Bounded {
    text: String,
    full: bool,
}

impl Bounded {
    const ELLIPSIS: &str = "…";

    fn finish(mut self, written: fmt::Result) -> Option<String> {
        if self.full {
            self.text.push_str(Self::ELLIPSIS);
            return Some(self.text);
        }
        (written.is_ok() && !self.text.is_empty()).then_some(self.text)
    }
}

impl Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.full {
            return Err(fmt::Error);
        }
        if self.text.len() + s.len() <= MAX_NAME {
            self.text.push_str(s);
            return Ok(());
        }
        self.full = true;
        let room = MAX_NAME - Self::ELLIPSIS.len();
        let kept = prefix(&self.text, room).len();
        self.text.truncate(kept);
        self.text.push_str(prefix(s, room - kept));
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_and_cpp_names() {
        let cases = [
            (
                "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
                "core::fmt::Formatter::pad",
            ),
            ("_RNvCs1234_7mycrate4main", "mycrate::main"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("_Znwm", "operator new(unsigned long)"),
            ("_Z3foov.part.0", "foo() [clone .part.0]"),
        ];
        for (mangled, readable) in cases {
            assert_eq!(demangle(mangled).as_deref(), Some(readable));
        }
    }

    #[test]
    fn broken_and_plain_names_stay_as_they_are() {
        for name in [
            "", "_", "main", "_Z", "_ZN", "_ZN3foo", "_Zzzz", "_R", "_RNv", "é_Z",
        ] {
            assert_eq!(demangle(name), None, "{name}");
        }
    }

    #[test]
    fn exponential_names_are_cut() {
        // Each pair doubles the text of the one before by substitution.
        let mut bomb = "_Z1fSt4pairIiiE".to_owned();
        let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        for &digit in &digits[..30] {
            let digit = char::from(digit);
            bomb.push_str(&format!("S_IS{digit}_S{digit}_E"));
        }
        for name in [
            bomb,
            format!("_Z1f{}i", "P".repeat(30_000)),
            format!("_Z{}", "N".repeat(30_000)),
        ] {
            if let Some(readable) = demangle(&name) {
                assert!(readable.len() <= MAX_NAME);
            }
        }
        let wide = format!("_Z1f{}", "i".repeat(20_000));
        let readable = demangle(&wide).expect("a mangled name");
        assert!(readable.starts_with("f(int, int, int") && readable.ends_with('…'));
        assert!(readable.len() <= MAX_NAME);
    }

    #[test]
    fn bounding_respects_characters() {
        let long = "ß".repeat(MAX_NAME);
        let cut = bound(Cow::Borrowed(&long));
        assert!(cut.len() <= MAX_NAME && cut.ends_with("ß…"));
        assert_eq!(bound(Cow::Borrowed("short")), "short");
    }
}
