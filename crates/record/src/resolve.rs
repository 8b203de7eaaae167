//! From triggers to places in a file.

use std::path::Path;

use ptrail_image::{AtLine, Image, Named};

use crate::{FilePlace, MappedFile, Place, Trigger};

/// A trigger's place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset {
    pub(crate) offset: u64,
    /// The entry of a function whose return is awaited.
    pub(crate) awaits_return: bool,
}

/// Why a trigger is at no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unresolved {
    /// No code was looked at yet in which it could lie.
    #[error("it lies in no code of the program")]
    NoFile,
    /// No function of that name.
    #[error(
        "no function is called that in the program's files{}",
        did_you_mean(similar)
    )]
    NoFunction {
        /// Names that are like it.
        similar: Vec<String>,
    },
    /// All its code is in other functions.
    #[error(
        "the compiler put its code into its callers (inlined), so that it never returns; take SYMBOL alone, or build with __attribute__((noinline)) or #[inline(never)]"
    )]
    Inlined,
    /// A symbol that stands for several functions.
    #[error(
        "which function that is gets decided when the program is loaded (IFUNC); name the one that is meant, such as NAME_avx2"
    )]
    Chosen,
    /// The source file is not in the debug information.
    #[error("no source file of that name in the debug information; is the program built with -g?")]
    NoSource,
    /// The source file has no code there.
    #[error("no code at that line{}", next.map_or(String::new(), |line| format!("; the next line with code is {line}")))]
    NoCode {
        /// The next line with code.
        next: Option<u32>,
    },
}

fn did_you_mean(similar: &[String]) -> String {
    match similar {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}

impl Trigger {
    /// Whether it is a place in the program's code.
    #[must_use]
    pub fn is_in_code(&self) -> bool {
        matches!(
            self,
            Self::Code(_) | Self::Return(_) | Self::Slow { .. } | Self::Uprobe { .. }
        )
    }

    /// Whether it waits for a function's return.
    #[must_use]
    pub fn awaits_return(&self) -> bool {
        match self {
            Self::Return(_) | Self::Slow { .. } => true,
            Self::Uprobe { place, .. } => matches!(place, FilePlace::Return(_)),
            _ => false,
        }
    }

    /// Looks for it in a program's file.
    ///
    /// # Errors
    /// Why it is not there; libraries may have it.
    pub fn look_in(&self, program: &Path) -> Result<(), Unresolved> {
        match self {
            Self::Code(Place::Address(_)) | Self::Uprobe { .. } => Ok(()),
            _ if !self.is_in_code() => Ok(()),
            _ => offsets(self, &Image::at_path(program)).map(|_| ()),
        }
    }
}

/// Where each trigger lies in a file. What is found nowhere leaves its reason, the most telling one.
pub(crate) fn resolve(
    triggers: &[Trigger],
    mapping: &MappedFile<'_>,
    unresolved: &mut [Option<Unresolved>],
) -> Vec<(usize, Vec<Offset>)> {
    let image = Image::at_path(mapping.file);
    let mut found = Vec::new();
    for (number, trigger) in triggers.iter().enumerate() {
        let elsewhere = matches!(trigger, Trigger::Uprobe { path, .. } if path != mapping.path);
        if elsewhere || !trigger.is_in_code() {
            continue;
        }
        match offsets(trigger, &image) {
            Ok(offsets) => found.push((number, offsets)),
            Err(new) => {
                if let Some(known) = &mut unresolved[number]
                    && says_more(&new, known)
                {
                    *known = new;
                }
            }
        }
    }
    found
}

fn says_more(new: &Unresolved, known: &Unresolved) -> bool {
    let worth = |why: &Unresolved| match why {
        Unresolved::NoFile => 0,
        Unresolved::NoFunction { similar } if similar.is_empty() => 1,
        Unresolved::NoSource => 1,
        Unresolved::NoFunction { .. } => 2,
        Unresolved::NoCode { .. } | Unresolved::Inlined | Unresolved::Chosen => 3,
    };
    worth(new) > worth(known)
}

fn offsets(trigger: &Trigger, image: &Image) -> Result<Vec<Offset>, Unresolved> {
    let (addresses, awaits_return) = match trigger {
        Trigger::Code(Place::Function { name, offset }) => (inside(image, name, *offset)?, false),
        Trigger::Code(Place::Line { file, line }) => match image.code_at_line(file, *line) {
            AtLine::Code(addresses) => (addresses, false),
            AtLine::NoCode(next) => return Err(Unresolved::NoCode { next }),
            AtLine::UnknownFile => return Err(Unresolved::NoSource),
        },
        Trigger::Return(name) | Trigger::Slow { function: name, .. } => {
            (called(image, name)?, true)
        }
        Trigger::Uprobe { place, .. } => match place {
            FilePlace::Function { name, offset } => (inside(image, name, *offset)?, false),
            FilePlace::Return(name) => (called(image, name)?, true),
            FilePlace::Offset(offset) => {
                return Ok(vec![Offset {
                    offset: *offset,
                    awaits_return: false,
                }]);
            }
        },
        _ => return Err(Unresolved::NoFile),
    };
    let offsets = addresses.into_iter().filter_map(|address| {
        Some(Offset {
            offset: image.file_offset(address)?,
            awaits_return,
        })
    });
    Ok(offsets.collect())
}

/// So many bytes into the functions of a name; their entries also where they were inlined.
fn inside(image: &Image, name: &str, offset: u64) -> Result<Vec<u64>, Unresolved> {
    let copies = match offset {
        0 => image.inlined_copies(name),
        _ => Vec::new(),
    };
    match image.functions_named(name) {
        Named::Functions(entries) => {
            let entries = entries.iter().map(|entry| entry.wrapping_add(offset));
            Ok(entries.chain(copies).collect())
        }
        _ if !copies.is_empty() => Ok(copies),
        Named::Chosen => Err(Unresolved::Chosen),
        Named::Unknown(similar) => Err(Unresolved::NoFunction { similar }),
    }
}

/// The functions of a name, of which there are calls.
fn called(image: &Image, name: &str) -> Result<Vec<u64>, Unresolved> {
    match image.functions_named(name) {
        Named::Functions(entries) => Ok(entries),
        Named::Chosen => Err(Unresolved::Chosen),
        Named::Unknown(similar) => {
            if image.inlined_copies(name).is_empty() {
                Err(Unresolved::NoFunction { similar })
            } else {
                Err(Unresolved::Inlined)
            }
        }
    }
}
