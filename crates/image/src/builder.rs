//! From a recording's events to the versions of its address spaces.
//!
//! Events may come in any order: recordings hold one ring per CPU, and code captured at the end
//! may have lain there from the start. They are sorted by time (equal times keep the order of the
//! calls) and replayed once. Three rules shape the versions:
//!
//! - Events of one process with one time make one version.
//! - An empty space can run nothing, so the first mapping after an exec is valid from the exec on,
//!   however late its record is.
//! - Captured bytes beat files: a file mapped at the same time gives way, and so does, at any time,
//!   a mapping without a real file (`[vdso]`, `//anon`). A real file mapped later replaces them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use ptrail_pt::PerfTime;

use crate::error::ImageError;
use crate::image::{self, Image};
use crate::regions::{Region, Regions, Root};
use crate::search::Search;
use crate::timeline::{KERNEL, Timeline, Version};

/// An executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub address: u64,
    /// Length, bytes.
    pub len: u64,
    /// Offset of the first byte in the file.
    pub file_offset: u64,
    /// Path as recorded, or a name such as `[vdso]`.
    pub path: String,
    /// Build-id of the file, if recorded. Trailing zeros (perf pads to 20 bytes) do no harm.
    pub build_id: Option<Vec<u8>>,
}

enum Event {
    Map(Mapping),
    Module {
        address: u64,
        path: String,
        build_id: Option<Vec<u8>>,
    },
    Code {
        address: u64,
        name: String,
        bytes: Vec<u8>,
    },
    Exec,
    Fork {
        parent: u32,
    },
}

/// Takes the events of a recording; see the module's front page for the rules.
pub struct TimelineBuilder {
    events: Vec<(PerfTime, u32, Event)>,
    given: Vec<(Image, Vec<Region>)>,
    perf_maps: Vec<(u32, Image)>,
    search: Arc<Search>,
}

impl Default for TimelineBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl TimelineBuilder {
    /// A builder without events that looks for files as [`Search::of_this_machine`] says.
    #[must_use]
    pub fn new() -> Self {
        Self {
            events: Vec::new(),
            given: Vec::new(),
            perf_maps: Vec::new(),
            search: Arc::new(Search::of_this_machine()),
        }
    }

    /// Looks for files in these places. To be said first.
    pub fn search(&mut self, search: Search) {
        self.search = Arc::new(search);
    }

    /// An executable mapping was made; it replaces what it overlaps, from `time` on.
    pub fn map(&mut self, pid: u32, time: PerfTime, mapping: Mapping) {
        self.events.push((time, pid, Event::Map(mapping)));
    }

    /// A copy of the kernel's memory (kcore, an ELF core file) and the text of its symbols
    /// (kallsyms): the kernel's code, at all times.
    ///
    /// # Errors
    /// The copy can't be read.
    pub fn kernel(
        &mut self,
        kcore: &str,
        kallsyms: &str,
        symbols: &[u8],
    ) -> Result<(), ImageError> {
        let image = Image::kcore(kcore.to_owned(), Arc::clone(&self.search));
        image.status().map_err(Clone::clone)?;
        let number = self.given.len() as u32;
        let regions = image.at_own_addresses(number);
        self.given.push((image, regions));
        let names = Image::kallsyms(kallsyms.to_owned(), symbols);
        self.perf_maps.push((KERNEL, names));
        Ok(())
    }

    /// The content of a perf map (`/tmp/perf-PID.map`): names for code of the process that has none.
    pub fn perf_map(&mut self, pid: u32, path: &str, text: &[u8]) {
        self.perf_maps
            .push((pid, Image::perf_map(path.to_owned(), text)));
    }

    /// A whole ELF file was loaded with its lowest segment at `address`. Only its headers tell what
    /// is executable; where they can't be read, nothing is mapped, and the image says why.
    pub fn module(
        &mut self,
        pid: u32,
        time: PerfTime,
        address: u64,
        path: &str,
        build_id: Option<Vec<u8>>,
    ) {
        let event = Event::Module {
            address,
            path: path.to_owned(),
            build_id,
        };
        self.events.push((time, pid, event));
    }

    /// Code that lies at `address` in every process at all times, whatever else is mapped there.
    ///
    /// With `part`, these bytes of the file; else all of it: an ELF file as the system loads it,
    /// its lowest segment at `address`, other files as they are.
    ///
    /// # Errors
    /// The file can't be read, or does not have these bytes.
    pub fn everywhere(
        &mut self,
        path: &str,
        part: Option<Range<u64>>,
        address: u64,
    ) -> Result<(), ImageError> {
        let known = self
            .given
            .iter()
            .position(|(image, _)| image.path() == path);
        let number = match known {
            Some(number) => number,
            None => {
                let image = Image::given(path.to_owned(), Arc::clone(&self.search));
                image.status().map_err(Clone::clone)?;
                self.given.push((image, Vec::new()));
                self.given.len() - 1
            }
        };
        let (image, regions) = &mut self.given[number];
        match part {
            None => regions.extend(image.loaded_at(address, number as u32)),
            Some(part) => regions.push(image.part_at(part, address, number as u32)?),
        }
        Ok(())
    }

    /// Bytes were captured that lay at `address` from `time` on.
    ///
    /// Bytes that are an ELF image (the vDSO) bring their own symbols; all others are one function
    /// called `name`.
    pub fn code(&mut self, pid: u32, time: PerfTime, address: u64, name: &str, bytes: Vec<u8>) {
        self.events.push((
            time,
            pid,
            Event::Code {
                address,
                name: name.to_owned(),
                bytes,
            },
        ));
    }

    /// The process started a new program: all mappings made before are gone.
    pub fn exec(&mut self, pid: u32, time: PerfTime) {
        self.events.push((time, pid, Event::Exec));
    }

    /// The process was born with a copy of its parent's space. A new thread (`pid == parent`)
    /// changes nothing.
    ///
    /// Not for the records that perf makes up for processes that ran already
    /// (`PERF_RECORD_MISC_FORK_EXEC`): those have mappings of their own.
    pub fn fork(&mut self, pid: u32, parent: u32, time: PerfTime) {
        if pid != parent {
            self.events.push((time, pid, Event::Fork { parent }));
        }
    }

    /// Replays the events.
    #[must_use]
    pub fn build(mut self) -> Timeline {
        self.events.sort_by_key(|&(time, ..)| time);
        let mut replay = Replay {
            regions: Regions::new(),
            images: ImageSet::new(self.search),
            processes: HashMap::new(),
        };
        let mut everywhere = Root::EMPTY;
        for (image, regions) in self.given {
            replay.images.images.push(image);
            for region in regions {
                everywhere = replay.regions.replace(everywhere, region, |_| false);
            }
        }
        for (time, pid, event) in self.events {
            replay.apply(pid, time, event);
        }
        let mut images = replay.images.images;
        let mut perf_maps = HashMap::new();
        for (pid, map) in self.perf_maps {
            perf_maps.insert(pid, images.len() as u32);
            images.push(map);
        }
        Timeline::new(
            replay.regions,
            images,
            everywhere,
            perf_maps,
            replay.processes,
        )
    }
}

struct Replay {
    regions: Regions,
    images: ImageSet,
    processes: HashMap<u32, Vec<Version>>,
}

impl Replay {
    fn apply(&mut self, pid: u32, time: PerfTime, event: Event) {
        let old = self.current(pid);
        let root = match event {
            Event::Map(mapping) => self.map(old, time, mapping),
            Event::Module {
                address,
                path,
                build_id,
            } => self.module(old, address, path, build_id),
            Event::Code {
                address,
                name,
                bytes,
            } => self.code(old, time, address, name, bytes),
            Event::Exec => Root::EMPTY,
            Event::Fork { parent } => self.current(parent),
        };
        if root == old {
            return;
        }
        let versions = self.processes.entry(pid).or_default();
        match versions.last_mut() {
            Some(last) if last.begin == time || last.root == Root::EMPTY => last.root = root,
            _ => versions.push(Version { begin: time, root }),
        }
    }

    fn current(&self, pid: u32) -> Root {
        self.processes
            .get(&pid)
            .and_then(|versions| versions.last())
            .map_or(Root::EMPTY, |version| version.root)
    }

    fn map(&mut self, old: Root, time: PerfTime, mapping: Mapping) -> Root {
        let end = mapping.address.saturating_add(mapping.len);
        if mapping.address >= end {
            return old;
        }
        let real = image::is_file_name(&mapping.path);
        let image = self.images.file(mapping.path, mapping.build_id);
        let region = Region {
            start: mapping.address,
            end,
            image,
            offset: mapping.file_offset,
            captured: None,
        };
        self.regions.replace(old, region, |kept| {
            kept.captured.is_some_and(|since| !real || since == time)
        })
    }

    fn module(&mut self, old: Root, address: u64, path: String, build_id: Option<Vec<u8>>) -> Root {
        let number = self.images.file(path, build_id);
        let regions = self.images.images[number as usize].loaded_at(address, number);
        regions.into_iter().fold(old, |root, region| {
            self.regions
                .replace(root, region, |kept| kept.captured.is_some())
        })
    }

    fn code(
        &mut self,
        old: Root,
        time: PerfTime,
        address: u64,
        name: String,
        bytes: Vec<u8>,
    ) -> Root {
        let end = address.saturating_add(bytes.len() as u64);
        if address >= end {
            return old;
        }
        let image = self.images.captured(name, bytes);
        let region = Region {
            start: address,
            end,
            image,
            offset: 0,
            captured: Some(time),
        };
        self.regions.replace(old, region, |_| false)
    }
}

/// Images by what they were made from, numbered by first use.
struct ImageSet {
    images: Vec<Image>,
    files: HashMap<(String, Option<Vec<u8>>), u32>,
    captured: HashMap<u64, Vec<u32>>,
    search: Arc<Search>,
}

impl ImageSet {
    fn new(search: Arc<Search>) -> Self {
        Self {
            images: Vec::new(),
            files: HashMap::new(),
            captured: HashMap::new(),
            search,
        }
    }

    fn file(&mut self, path: String, build_id: Option<Vec<u8>>) -> u32 {
        let next = self.images.len() as u32;
        let key = (path, build_id);
        if let Some(&number) = self.files.get(&key) {
            return number;
        }
        self.images.push(Image::file(
            key.0.clone(),
            key.1.clone(),
            Arc::clone(&self.search),
        ));
        self.files.insert(key, next);
        next
    }

    /// Captured images are recognised again: every process has the same vDSO.
    fn captured(&mut self, name: String, bytes: Vec<u8>) -> u32 {
        let mut hasher = DefaultHasher::new();
        (&name, &bytes).hash(&mut hasher);
        let same_hash = self.captured.entry(hasher.finish()).or_default();
        for &number in same_hash.iter() {
            if self.images[number as usize].is_capture_of(&name, &bytes) {
                return number;
            }
        }
        let number = self.images.len() as u32;
        same_hash.push(number);
        self.images.push(Image::captured(name, bytes));
        number
    }
}
