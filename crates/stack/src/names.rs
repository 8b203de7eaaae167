//! Functions by number, the same for all threads: those of the images, and the pseudo-functions
//! for gaps.

use std::collections::HashMap;

use ptrail_image::{AddressSpace, Lines, Timeline, VersionId};
use ptrail_pt::Ip;
use ptrail_trace::{Function, FunctionId, SinkError, SourceLine, SpanSink};
use rustc_hash::FxBuildHasher;

/// A function at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) function: FunctionId,
    /// Its first instruction; `None` for code that belongs to no known function.
    pub(crate) entry: Option<Ip>,
    /// The contiguous range of its code around the address, end exclusive.
    pub(crate) range: (Ip, Ip),
}

impl Place {
    pub(crate) fn contains(&self, ip: Ip) -> bool {
        self.range.0 <= ip && ip < self.range.1
    }
}

/// What stands for something that is no function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pseudo {
    Unknown,
    Syscall,
    Interrupt,
    Untraced,
    Signal,
}

impl Pseudo {
    const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "[unknown]",
            Self::Syscall => "[syscall]",
            Self::Interrupt => "[interrupt]",
            Self::Untraced => "[untraced]",
            Self::Signal => "[signal]",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Image(ptrail_image::FunctionId, Ip),
    Pseudo(Pseudo),
}

/// Numbers functions in the order of first use and announces each to the sink once. All threads of
/// a recording share one, so a number means one function everywhere.
pub struct Names<'a> {
    pub(crate) timeline: &'a Timeline,
    ids: HashMap<Key, FunctionId>,
    /// What was found in one version of the code, where it belongs to a function: the same calls
    /// come again and again.
    places: HashMap<Ip, Place, FxBuildHasher>,
    version: Option<VersionId>,
    /// Functions whose call never lets its caller's frame be a landing place again.
    resumers: Vec<FunctionId>,
    /// Debug information of the images met so far.
    lines: HashMap<u32, Option<Lines>>,
}

impl<'a> Names<'a> {
    /// No function yet.
    #[must_use]
    pub fn new(timeline: &'a Timeline) -> Self {
        Self {
            timeline,
            ids: HashMap::new(),
            places: HashMap::default(),
            version: None,
            resumers: Vec::new(),
            lines: HashMap::new(),
        }
    }

    /// Another thread begins. Its process may have other names for the same code.
    pub(crate) fn enter_thread(&mut self) {
        self.version = None;
    }

    /// The function at an address.
    pub(crate) fn place(
        &mut self,
        space: AddressSpace<'a>,
        ip: Ip,
        sink: &mut dyn SpanSink,
    ) -> Result<Place, SinkError> {
        if self.version.replace(space.version()) != Some(space.version()) {
            self.places.clear();
        }
        if let Some(&place) = self.places.get(&ip) {
            return Ok(place);
        }
        let Some(hit) = space.function(ip) else {
            let function = self.pseudo(Pseudo::Unknown, sink)?;
            return Ok(Place {
                function,
                entry: None,
                range: (ip, ip.offset(1)),
            });
        };
        let key = Key::Image(hit.id, hit.entry);
        let function = match self.ids.get(&key) {
            Some(&id) => id,
            None => {
                let source = self.source(space, hit.entry);
                let of_image = self.timeline.function(hit.id);
                let id = self.add(key);
                if of_image.name == "_Unwind_Resume" {
                    self.resumers.push(id);
                }
                sink.function(&Function {
                    id,
                    name: of_image.name.to_string(),
                    mangled: of_image.mangled.map(Into::into),
                    module: of_image.module.to_string(),
                    address: hit.entry,
                    source,
                })?;
                id
            }
        };
        let place = Place {
            function,
            entry: Some(hit.entry),
            range: (hit.start, hit.end),
        };
        self.places.insert(ip, place);
        Ok(place)
    }

    /// The source line of a function's first instruction: its own, not that of what the compiler
    /// put there from other functions.
    fn source(&mut self, space: AddressSpace<'a>, entry: Ip) -> Option<SourceLine> {
        let (image, address) = space.link_address(entry)?;
        let timeline = self.timeline;
        let lines = self
            .lines
            .entry(image)
            .or_insert_with(|| timeline.image(image)?.lines());
        let own = lines.as_ref()?.frames(address).pop()?;
        Some(SourceLine {
            file: own.file?,
            line: own.line?,
        })
    }

    /// A pseudo-function.
    pub(crate) fn pseudo(
        &mut self,
        pseudo: Pseudo,
        sink: &mut dyn SpanSink,
    ) -> Result<FunctionId, SinkError> {
        let key = Key::Pseudo(pseudo);
        if let Some(&id) = self.ids.get(&key) {
            return Ok(id);
        }
        let id = self.add(key);
        let name = pseudo.name().to_string();
        sink.function(&Function {
            id,
            name,
            mangled: None,
            module: String::new(),
            address: Ip(0),
            source: None,
        })?;
        Ok(id)
    }

    /// Whether this function resumes unwinding, so that its caller is about to be left.
    pub(crate) fn resumes_unwinding(&self, function: FunctionId) -> bool {
        self.resumers.contains(&function)
    }

    fn add(&mut self, key: Key) -> FunctionId {
        let id = FunctionId(
            u32::try_from(self.ids.len()).expect("fewer than 2^32 functions fit in memory"),
        );
        self.ids.insert(key, id);
        id
    }
}
