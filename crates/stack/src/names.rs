//! Functions by number, the same for all threads: those of the images, and the pseudo-functions
//! for gaps.

use std::borrow::Cow;
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
    pub(crate) role: Role,
}

/// What a function does to the stack, where the path alone does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing special.
    Plain,
    /// It may return a second time: setjmp and its kin.
    ReturnsTwice,
    /// It resumes unwinding, so that its caller is about to be left.
    ResumesUnwinding,
    /// Go's `morestack`: when it is done, its caller starts again, from its first instruction.
    RestartsCaller,
    /// Go's `gogo`: it goes to where a stack was left, even if that is a first instruction.
    Switches,
}

impl Role {
    fn of(name: &str) -> Self {
        match name {
            "setjmp" | "_setjmp" | "sigsetjmp" | "__sigsetjmp" | "savectx" | "getcontext"
            | "__getcontext" | "vfork" | "__vfork" => Self::ReturnsTwice,
            "_Unwind_Resume" => Self::ResumesUnwinding,
            "runtime.morestack"
            | "runtime.morestack.abi0"
            | "runtime.morestack_noctxt"
            | "runtime.morestack_noctxt.abi0" => Self::RestartsCaller,
            "gogo" | "runtime.gogo" | "runtime.gogo.abi0" => Self::Switches,
            _ => Self::Plain,
        }
    }
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
    ids: HashMap<Key, (FunctionId, Role)>,
    /// What each number stands for.
    keys: Vec<Key>,
    /// What was found in one version of the code, where it belongs to a function: the same calls
    /// come again and again.
    places: HashMap<Ip, Place, FxBuildHasher>,
    version: Option<VersionId>,
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
            keys: Vec::new(),
            places: HashMap::default(),
            version: None,
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
                role: Role::Plain,
            });
        };
        let key = Key::Image(hit.id, hit.entry);
        let (function, role) = match self.ids.get(&key) {
            Some(&known) => known,
            None => {
                let source = self.source(space, hit.entry);
                let of_image = self.timeline.function(hit.id);
                let role = Role::of(&of_image.name);
                let id = self.add(key, role);
                sink.function(&Function {
                    id,
                    name: of_image.name.to_string(),
                    mangled: of_image.mangled.map(Into::into),
                    module: of_image.module.to_string(),
                    address: hit.entry,
                    source,
                })?;
                (id, role)
            }
        };
        let place = Place {
            function,
            entry: Some(hit.entry),
            range: (hit.start, hit.end),
            role,
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
        if let Some(&(id, _)) = self.ids.get(&key) {
            return Ok(id);
        }
        let id = self.add(key, Role::Plain);
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

    /// A function's name.
    pub(crate) fn name(&self, function: FunctionId) -> Cow<'a, str> {
        match self.keys.get(function.0 as usize) {
            Some(Key::Image(id, _)) => self.timeline.function(*id).name,
            Some(Key::Pseudo(pseudo)) => pseudo.name().into(),
            None => Pseudo::Unknown.name().into(),
        }
    }

    fn add(&mut self, key: Key, role: Role) -> FunctionId {
        let id = FunctionId(
            u32::try_from(self.ids.len()).expect("fewer than 2^32 functions fit in memory"),
        );
        self.ids.insert(key, (id, role));
        self.keys.push(key);
        id
    }
}
