//! The formats, as users name them.

use std::{fmt, path::Path, str::FromStr};

use ptrail_trace::{SinkError, SpanSink};

use crate::{chrome::ChromeWriter, perfetto::PerfettoWriter};

/// A file format for timelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Perfetto's protobuf trace.
    Perfetto,
    /// Chrome's trace event JSON.
    Chrome,
}

impl Format {
    /// All formats, in the order of help texts.
    pub const ALL: &'static [Self] = &[Self::Perfetto, Self::Chrome];

    /// The format's name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Perfetto => "perfetto",
            Self::Chrome => "chrome",
        }
    }

    /// The file name extensions that mean this format, without the dot, the usual one first.
    #[must_use]
    pub const fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Perfetto => &["pftrace", "perfetto-trace"],
            Self::Chrome => &["json"],
        }
    }

    /// What it is for, in one line for people.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Perfetto => "Perfetto protobuf, for ui.perfetto.dev and trace_processor",
            Self::Chrome => {
                "Chrome trace event JSON, for Perfetto, chrome://tracing and Tracy's importer"
            }
        }
    }

    /// The format that a file of this name has; `None` if its extension is none of ours.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?;
        Self::ALL.iter().copied().find(|format| {
            format
                .extensions()
                .iter()
                .any(|known| known.eq_ignore_ascii_case(extension))
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No format has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown format {:?}; known are ", self.0)?;
        for (index, format) in Format::ALL.iter().enumerate() {
            write!(f, "{}{format}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownFormat {}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL
            .iter()
            .copied()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// Opens an output; the file appears under `path` when the sink is finished.
///
/// # Errors
/// No temporary file can be made in the folder of `path`, or `path` is a folder.
pub fn create(format: Format, path: &Path) -> Result<Box<dyn SpanSink>, SinkError> {
    Ok(match format {
        Format::Perfetto => Box::new(PerfettoWriter::create(path)?),
        Format::Chrome => Box::new(ChromeWriter::create(path)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_extensions_lead_back_to_their_format() {
        for &format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
            for extension in format.extensions() {
                let path = format!("some.dir/trace.{}", extension.to_uppercase());
                assert_eq!(Format::from_path(Path::new(&path)), Some(format));
            }
        }
        assert_eq!(Format::from_path(Path::new("pftrace")), None);
        assert_eq!(Format::from_path(Path::new("a.txt")), None);
        let error = "fxt".parse::<Format>().unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"unknown format "fxt"; known are perfetto, chrome"#
        );
    }
}
