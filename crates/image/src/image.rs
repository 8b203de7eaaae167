//! Images: the files and captured pieces that code is mapped from.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use memmap2::Mmap;

use crate::debug_file::{self, DebugFile};
use crate::demangle::{bound, demangle};
use crate::elf::{Elf, Segment};
use crate::error::ImageError;
use crate::file::{hex, map_file};
use crate::function::{Function, FunctionKind};
use crate::layout::Range as Named;
use crate::lines::Lines;
use crate::name::Names;
use crate::perf_map::PerfMap;
use crate::regions::Region;
use crate::search::{Fetched, Search, known_build_id};
use crate::table::FunctionTable;
use crate::vdso;

/// A file or a captured piece of memory that code was mapped from.
///
/// Opened when first asked; after that, always the same answer.
pub struct Image {
    path: String,
    module: String,
    recorded_build_id: Option<Vec<u8>>,
    captured: Option<Vec<u8>>,
    /// The user says that this is the code: it need not be an ELF file.
    given: bool,
    /// Names for code that has none of its own, instead of code.
    names: Option<PerfMap>,
    search: Arc<Search>,
    content: OnceLock<Result<Content, Arc<ImageError>>>,
    symbols: OnceLock<Symbols>,
}

/// What the headers say, and the bytes.
struct Content {
    bytes: Bytes,
    /// `None` for captured or given bytes that are no ELF image.
    layout: Option<Layout>,
}

enum Bytes {
    /// Those in [`Image::captured`].
    Captured,
    /// A file's.
    Mapped { file: Mmap, path: PathBuf },
    /// This machine's vDSO.
    Own(Vec<u8>),
}

struct Layout {
    segments: Vec<Segment>,
    build_id: Option<Vec<u8>>,
}

struct Symbols {
    table: FunctionTable,
    /// The separate debug file, if one was found.
    debug: Option<DebugFile>,
}

impl Image {
    pub(crate) fn file(path: String, build_id: Option<Vec<u8>>, search: Arc<Search>) -> Self {
        let module = module_name(&path).to_owned();
        Self {
            recorded_build_id: build_id,
            module,
            search,
            ..Self::empty(path)
        }
    }

    pub(crate) fn given(path: String, search: Arc<Search>) -> Self {
        Self {
            given: true,
            ..Self::file(path, None, search)
        }
    }

    pub(crate) fn perf_map(path: String, text: &[u8]) -> Self {
        let content = OnceLock::new();
        let _ = content.set(Ok(Content {
            bytes: Bytes::Captured,
            layout: None,
        }));
        Self {
            names: Some(PerfMap::read(text)),
            module: JIT.to_owned(),
            content,
            ..Self::empty(path)
        }
    }

    /// A copy of the kernel's memory (kcore).
    pub(crate) fn kcore(path: String, search: Arc<Search>) -> Self {
        Self {
            module: KERNEL_MODULE.to_owned(),
            ..Self::given(path, search)
        }
    }

    /// The kernel's symbols.
    pub(crate) fn kallsyms(path: String, text: &[u8]) -> Self {
        Self {
            names: Some(PerfMap::read_kallsyms(text)),
            module: KERNEL_MODULE.to_owned(),
            ..Self::perf_map(path, &[])
        }
    }

    pub(crate) fn captured(name: String, bytes: Vec<u8>) -> Self {
        let content = OnceLock::new();
        let layout = Elf::parse(&bytes).ok().map(|elf| layout_of(&elf));
        let module = if layout.is_some() {
            module_name(&name)
        } else {
            JIT
        }
        .to_owned();
        // A new cell is empty, so there is nothing to be refused.
        let _ = content.set(Ok(Content {
            bytes: Bytes::Captured,
            layout,
        }));
        Self {
            module,
            captured: Some(bytes),
            content,
            ..Self::empty(name)
        }
    }

    fn empty(path: String) -> Self {
        Self {
            path,
            module: String::new(),
            recorded_build_id: None,
            captured: None,
            given: false,
            names: None,
            search: Arc::default(),
            content: OnceLock::new(),
            symbols: OnceLock::new(),
        }
    }

    pub(crate) fn is_capture_of(&self, name: &str, bytes: &[u8]) -> bool {
        self.path == name && self.captured.as_deref() == Some(bytes)
    }

    /// Path as recorded, or the name of the captured piece.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// File name without folders; `[jit]` for captured code without an ELF header.
    #[must_use]
    pub fn module(&self) -> &str {
        &self.module
    }

    /// Whether the bytes were captured while recording.
    #[must_use]
    pub fn is_captured(&self) -> bool {
        self.captured.is_some()
    }

    /// Whether this is no code, but a perf map with names for code.
    #[must_use]
    pub fn is_perf_map(&self) -> bool {
        self.names.is_some()
    }

    /// The build-id as recorded, else the file's own.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.recorded_build_id.as_deref().or_else(|| {
            let content = self.content().ok()?;
            content.layout.as_ref()?.build_id.as_deref()
        })
    }

    /// Where its file was found; `None` for what is in no file, or is missing.
    #[must_use]
    pub fn found(&self) -> Option<&Path> {
        match &self.content().ok()?.bytes {
            Bytes::Mapped { path, .. } => Some(path),
            Bytes::Own(_) | Bytes::Captured => None,
        }
    }

    /// Opens the image if that has not been done yet.
    ///
    /// # Errors
    /// Why its code can't be used, and what to do.
    pub fn status(&self) -> Result<(), &ImageError> {
        self.content().map(|_| ()).map_err(|reason| &**reason)
    }

    pub(crate) fn bytes(&self) -> Result<&[u8], &Arc<ImageError>> {
        Ok(self.bytes_of(self.content()?))
    }

    fn bytes_of<'a>(&'a self, content: &'a Content) -> &'a [u8] {
        match &content.bytes {
            Bytes::Mapped { file, .. } => file,
            Bytes::Own(bytes) => bytes,
            Bytes::Captured => self.captured.as_deref().unwrap_or_default(),
        }
    }

    /// Its loaded pieces; none if it can't be read, or is no ELF file.
    pub(crate) fn segments(&self) -> &[Segment] {
        let layout = self
            .content()
            .ok()
            .and_then(|content| content.layout.as_ref());
        layout.map_or(&[], |layout| &layout.segments)
    }

    /// The separate debug file.
    pub(crate) fn debug_bytes(&self) -> Option<&[u8]> {
        self.symbols()?.debug.as_deref()
    }

    /// The address that the linker gave to the byte at this offset.
    pub(crate) fn link_address(&self, offset: u64) -> Option<u64> {
        let content = self.content().ok()?;
        let Some(layout) = &content.layout else {
            return Some(offset);
        };
        let holds = |segment: &&Segment| {
            offset
                .checked_sub(segment.offset)
                .is_some_and(|at| at < segment.file_size)
        };
        // Pages at the border of two segments are mapped twice; only one of them runs.
        let mut candidates = layout.segments.iter().filter(holds);
        let first = candidates
            .clone()
            .find(|segment| segment.executable)
            .or_else(|| candidates.next())?;
        Some(first.address.wrapping_add(offset - first.offset))
    }

    /// The regions of its code when it is loaded with its lowest segment at `address`; none if it
    /// can't be read.
    pub(crate) fn loaded_at(&self, address: u64, number: u32) -> Vec<Region> {
        let Ok(content) = self.content() else {
            return Vec::new();
        };
        let region = |start: u64, offset, len| Region {
            start,
            end: start.saturating_add(len),
            image: number,
            offset,
            captured: None,
        };
        let Some(layout) = &content.layout else {
            return vec![region(address, 0, self.bytes_of(content).len() as u64)];
        };
        let base = layout.segments.iter().map(|segment| segment.address).min();
        let executable = layout.segments.iter().filter(|segment| segment.executable);
        let regions = executable.map(|segment| {
            let start = address.wrapping_add(segment.address - base.unwrap_or(0));
            region(start, segment.offset, segment.file_size)
        });
        regions.filter(|region| region.start < region.end).collect()
    }

    /// All its loaded pieces at the addresses that they have in the file, as of a core file.
    pub(crate) fn at_own_addresses(&self, number: u32) -> Vec<Region> {
        let region = |segment: &Segment| Region {
            start: segment.address,
            end: segment.address.saturating_add(segment.file_size),
            image: number,
            offset: segment.offset,
            captured: None,
        };
        let regions = self.segments().iter().map(region);
        regions.filter(|region| region.start < region.end).collect()
    }

    /// The region of a part of its bytes.
    pub(crate) fn part_at(
        &self,
        part: Range<u64>,
        address: u64,
        number: u32,
    ) -> Result<Region, ImageError> {
        let size = self.bytes().map_err(|reason| (**reason).clone())?.len() as u64;
        let end = address.checked_add(part.end.saturating_sub(part.start));
        match end {
            Some(end) if part.start < part.end && part.end <= size => Ok(Region {
                start: address,
                end,
                image: number,
                offset: part.start,
                captured: None,
            }),
            _ => Err(ImageError::NoSuchPart {
                path: self.path.clone(),
                start: part.start,
                end: part.end,
                size,
            }),
        }
    }

    pub(crate) fn table(&self) -> Option<&FunctionTable> {
        Some(&self.symbols()?.table)
    }

    /// Its separate debug file, if there is one: the name that it has by build-id (`ab/cdef….debug`)
    /// and where it was found.
    #[must_use]
    pub fn debug_file(&self) -> Option<(PathBuf, &Path)> {
        let DebugFile::Mapped { path, .. } = self.symbols()?.debug.as_ref()? else {
            return None;
        };
        let (first, rest) = self
            .content()
            .ok()?
            .layout
            .as_ref()?
            .build_id
            .as_deref()?
            .split_first()?;
        let name = format!("{}/{}.debug", hex(&[*first]), hex(rest));
        Some((name.into(), path))
    }

    /// Its debug information for source lines, from the file itself or its separate debug file;
    /// `None` if there is none. Opens it anew each time: keep it.
    #[must_use]
    pub fn lines(&self) -> Option<Lines> {
        let content = self.content().ok()?;
        let Bytes::Mapped { path, .. } = &content.bytes else {
            return None;
        };
        match &self.symbols()?.debug {
            Some(DebugFile::Mapped { path: debug, .. }) => Lines::open(debug),
            _ => Lines::open(path),
        }
    }

    /// What a perf map has at an address of the process.
    pub(crate) fn named(&self, address: u64) -> Option<Named> {
        self.names.as_ref()?.find(address)
    }

    /// Whether it is code that has no name of its own, so that a perf map may have one.
    pub(crate) fn is_nameless(&self) -> bool {
        if self.module == KERNEL_MODULE {
            return true;
        }
        let placeholder = self.path.is_empty() || self.path.starts_with(['/', '[']);
        match &self.captured {
            Some(_) => placeholder && self.module == JIT,
            None => !is_file_name(&self.path),
        }
    }

    pub(crate) fn function(&self, number: u32) -> Option<Function<'_>> {
        if let Some(names) = &self.names {
            let raw = names.name(number)?;
            let readable = demangle(raw);
            return Some(Function {
                mangled: readable.as_ref().map(|_| bound(Cow::Borrowed(raw))),
                name: readable.map_or_else(|| bound(Cow::Borrowed(raw)), Cow::Owned),
                module: &self.module,
                kind: FunctionKind::Jit,
            });
        }
        let content = self.content().ok()?;
        let symbols = self.symbols()?;
        let names = Names {
            main: self.bytes_of(content),
            debug: symbols.debug.as_deref().unwrap_or_default(),
        };
        let (name, mangled, kind) = symbols.table.describe(number, names)?;
        let name = if kind == FunctionKind::Jit {
            bound(Cow::Borrowed(&self.path))
        } else {
            name
        };
        Some(Function {
            name,
            mangled,
            module: &self.module,
            kind,
        })
    }

    fn content(&self) -> Result<&Content, &Arc<ImageError>> {
        self.content
            .get_or_init(|| self.open().map_err(Arc::new))
            .as_ref()
    }

    fn symbols(&self) -> Option<&Symbols> {
        let content = self.content().ok()?;
        // Where a file of bare code has its functions is not known.
        if content.layout.is_none() && !matches!(content.bytes, Bytes::Captured) {
            return None;
        }
        Some(self.symbols.get_or_init(|| {
            let bytes = self.bytes_of(content);
            let Ok(elf) = Elf::parse(bytes) else {
                return Symbols {
                    table: FunctionTable::whole(bytes.len() as u64),
                    debug: None,
                };
            };
            let debug = match &content.bytes {
                Bytes::Mapped { path, .. } => debug_file::find(&elf, path, &self.search),
                Bytes::Own(_) | Bytes::Captured => None,
            };
            let debug_elf = debug.as_deref().and_then(|bytes| Elf::parse(bytes).ok());
            Symbols {
                table: FunctionTable::build(&elf, debug_elf.as_ref()),
                debug,
            }
        }))
    }

    fn open(&self) -> Result<Content, ImageError> {
        let no_file = || ImageError::NoFile {
            path: self.path.clone(),
        };
        let recorded = known_build_id(self.recorded_build_id.as_deref());
        if self.path == VDSO {
            return self.own_vdso(recorded).ok_or_else(no_file);
        }
        if self.given {
            return self.open_at(Path::new(&self.path), None);
        }
        if is_kernel(&self.path) {
            return Err(ImageError::Kernel {
                path: self.path.clone(),
            });
        }
        if !is_file_name(&self.path) {
            return Err(no_file());
        }
        // The most telling of what was wrong with the places.
        let mut problem: Option<ImageError> = None;
        for place in self.search.places(Path::new(&self.path), recorded) {
            match self.open_at(&place, recorded) {
                Ok(content) => return Ok(content),
                Err(ImageError::Missing { .. }) => {}
                Err(error) => {
                    problem.get_or_insert(error);
                }
            }
        }
        let fetched = recorded.and_then(|id| self.search.fetch(Fetched::Executable, id));
        if let Some(content) = fetched.and_then(|place| self.open_at(&place, recorded).ok()) {
            return Ok(content);
        }
        Err(
            problem.unwrap_or_else(|| match self.path.ends_with(" (deleted)") {
                true => no_file(),
                false => ImageError::Missing {
                    path: self.path.clone(),
                },
            }),
        )
    }

    /// Opens the file at one place.
    fn open_at(&self, place: &Path, recorded: Option<&[u8]>) -> Result<Content, ImageError> {
        let path = place.display().to_string();
        let file = map_file(place).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                ImageError::Missing { path: path.clone() }
            }
            _ => ImageError::Unreadable {
                path: path.clone(),
                reason: error.to_string(),
            },
        })?;
        let layout = match Elf::parse(&file) {
            Ok(elf) => Some(layout_of(&elf)),
            Err(_) if self.given => None,
            Err(problem) => return Err(problem.at(&path)),
        };
        let found = layout.as_ref().and_then(|l| l.build_id.as_deref());
        if let Some(recorded) = recorded.filter(|_| !self.search.any_build)
            && !same_build_id(recorded, found)
        {
            return Err(ImageError::BuildId {
                path,
                recorded: hex(recorded),
                found: found.map(hex),
            });
        }
        Ok(Content {
            bytes: Bytes::Mapped {
                file,
                path: place.to_owned(),
            },
            layout,
        })
    }

    /// The vDSO of this machine, if it is the recorded build.
    fn own_vdso(&self, recorded: Option<&[u8]>) -> Option<Content> {
        let recorded = recorded?;
        let bytes = vdso::read()?;
        let layout = layout_of(&Elf::parse(&bytes).ok()?);
        let same = same_build_id(recorded, layout.build_id.as_deref());
        same.then_some(Content {
            bytes: Bytes::Own(bytes),
            layout: Some(layout),
        })
    }
}

/// The module of code that is in no file.
const JIT: &str = "[jit]";

/// The module of the kernel's code.
const KERNEL_MODULE: &str = "[kernel]";

/// How the kernel calls the mapping of its code in each process.
const VDSO: &str = "[vdso]";

fn layout_of(elf: &Elf<'_>) -> Layout {
    Layout {
        segments: elf.segments(),
        build_id: elf.build_id().map(<[u8]>::to_vec),
    }
}

/// The kernel and its modules. A module's file is no copy of its code: the kernel changes it as it
/// loads it.
pub(crate) fn is_kernel(path: &str) -> bool {
    let module = [".ko", ".ko.gz", ".ko.xz", ".ko.zst"];
    path.starts_with("[kernel")
        || path.starts_with("[guest.kernel")
        || module.iter().any(|end| path.ends_with(end))
}

/// Whether a mapping's name can be a file: an absolute path, but no anonymous or special memory,
/// which the kernel gives names with a slash too.
pub(crate) fn is_file_name(path: &str) -> bool {
    path.starts_with('/')
        && !["//", "/memfd:", "/dev/", "/SYSV", "/anon_hugepage"]
            .iter()
            .any(|p| path.starts_with(p))
}

/// perf pads short build-ids with zeros.
fn same_build_id(recorded: &[u8], found: Option<&[u8]>) -> bool {
    found.is_some_and(|found| {
        recorded
            .strip_prefix(found)
            .is_some_and(|padding| padding.iter().all(|&byte| byte == 0))
    })
}

fn module_name(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((_, name)) if !name.is_empty() => name,
        _ => path,
    }
}
