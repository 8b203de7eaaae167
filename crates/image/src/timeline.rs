//! The finished timeline and its questions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use ptrail_pt::{Ip, PerfTime};

use crate::error::NoCode;
use crate::function::{Function, FunctionHit, FunctionId, FunctionKind};
use crate::image::Image;
use crate::regions::{Region, Regions, Root};

/// Longest x86 instruction, bytes (SDM volume 2, section 2.3.11).
const MAX_INSTRUCTION: usize = 15;

/// All address spaces of a recording, at all times. Immutable; share it by reference.
pub struct Timeline {
    regions: Regions,
    images: Vec<Image>,
    /// What lies in every space and beats all else.
    everywhere: Root,
    /// The number of the perf map of each process.
    perf_maps: HashMap<u32, u32>,
    processes: HashMap<u32, Vec<Version>>,
}

/// A space from `begin` until the next version begins.
pub(crate) struct Version {
    pub(crate) begin: PerfTime,
    pub(crate) root: Root,
}

/// Identifies the content of an address space: equal ids mean equal code at all addresses, in
/// whatever process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionId(pub u64);

/// The "process" whose mappings are the kernel's: they lie in the upper half of every space.
pub const KERNEL: u32 = u32::MAX;

impl Timeline {
    pub(crate) fn new(
        regions: Regions,
        images: Vec<Image>,
        everywhere: Root,
        perf_maps: HashMap<u32, u32>,
        processes: HashMap<u32, Vec<Version>>,
    ) -> Self {
        Self {
            regions,
            images,
            everywhere,
            perf_maps,
            processes,
        }
    }

    /// The space of a process at a time.
    ///
    /// A time before the first mapping gives the first version, so that jitter at the start does
    /// no harm. An unknown process has an empty space. O(log versions).
    #[must_use]
    pub fn space(&self, pid: u32, time: PerfTime) -> AddressSpace<'_> {
        let (root, until) = self.version(pid, time);
        let (kernel, kernel_until) = self.version(KERNEL, time);
        AddressSpace {
            timeline: self,
            root,
            kernel,
            perf_map: self.perf_maps.get(&pid).copied(),
            kernel_names: self.perf_maps.get(&KERNEL).copied(),
            until: until.into_iter().chain(kernel_until).min(),
        }
    }

    fn version(&self, pid: u32, time: PerfTime) -> (Root, Option<PerfTime>) {
        let versions = self.processes.get(&pid).map_or(&[][..], Vec::as_slice);
        let later = versions
            .partition_point(|version| version.begin <= time)
            .max(1);
        let root = versions
            .get(later - 1)
            .map_or(Root::EMPTY, |version| version.root);
        (root, versions.get(later).map(|version| version.begin))
    }

    /// All files and captured pieces that code was mapped from, by number. Asking an image for its
    /// status opens its file.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        self.images.iter()
    }

    /// The image a function belongs to.
    #[must_use]
    pub fn image(&self, number: u32) -> Option<&Image> {
        self.images.get(number as usize)
    }

    /// A name that is not empty.
    fn function_name(&self, image: u32, number: u32) -> Option<()> {
        let function = self.image(image)?.function(number)?;
        (!function.name.is_empty()).then_some(())
    }

    /// Names and kind of a function. An id that is none of this timeline's gives the name
    /// `[unknown]`.
    #[must_use]
    pub fn function(&self, id: FunctionId) -> Function<'_> {
        self.image(id.image())
            .and_then(|image| image.function(id.number()))
            .unwrap_or(Function {
                name: Cow::Borrowed("[unknown]"),
                mangled: None,
                module: "[unknown]",
                kind: FunctionKind::Code,
            })
    }
}

/// The code of one process during one version.
#[derive(Clone, Copy)]
pub struct AddressSpace<'t> {
    timeline: &'t Timeline,
    root: Root,
    kernel: Root,
    perf_map: Option<u32>,
    kernel_names: Option<u32>,
    until: Option<PerfTime>,
}

impl<'t> AddressSpace<'t> {
    /// Cache key for what is derived from the bytes of this space.
    #[must_use]
    pub fn version(&self) -> VersionId {
        VersionId(u64::from(self.kernel.number()) << 32 | u64::from(self.root.number()))
    }

    /// Whether all code of `earlier`, of the same timeline, lies here too, unchanged.
    #[must_use]
    pub fn keeps(&self, earlier: &Self) -> bool {
        let regions = &self.timeline.regions;
        regions.keeps(self.root, earlier.root) && regions.keeps(self.kernel, earlier.kernel)
    }

    /// When the next version begins; `None` for the last one.
    #[must_use]
    pub fn changes_at(&self) -> Option<PerfTime> {
        self.until
    }

    /// The bytes from `ip` to the end of its mapping, or to the end of the file if that is earlier.
    ///
    /// An instruction that crosses into the next mapping is cut; [`AddressSpace::fetch`] is for
    /// those. O(log mappings).
    ///
    /// # Errors
    /// [`NoCode`] says why there are none. The slice is never empty.
    pub fn code(&self, ip: Ip) -> Result<&'t [u8], NoCode> {
        let region = self.region(ip).ok_or(NoCode::Unmapped { ip })?;
        let image = self.image_of(region);
        let bytes = image.bytes().map_err(|reason| NoCode::Missing {
            ip,
            image: region.image,
            reason: Arc::clone(reason),
        })?;
        let len = usize::try_from(region.end - ip.0).unwrap_or(usize::MAX);
        usize::try_from(offset_of(region, ip))
            .ok()
            .and_then(|offset| bytes.get(offset..))
            .filter(|rest| !rest.is_empty())
            .map(|rest| &rest[..len.min(rest.len())])
            .ok_or_else(|| NoCode::BehindEnd {
                ip,
                path: image.path().to_owned(),
                size: bytes.len() as u64,
            })
    }

    /// Copies the bytes at `ip`, across borders of mappings; returns how many there are.
    pub fn fetch(&self, ip: Ip, into: &mut [u8; MAX_INSTRUCTION]) -> usize {
        let mut filled = 0;
        while filled < MAX_INSTRUCTION {
            let Ok(bytes) = self.code(ip.offset(filled as u64)) else {
                break;
            };
            let len = bytes.len().min(MAX_INSTRUCTION - filled);
            into[filled..filled + len].copy_from_slice(&bytes[..len]);
            filled += len;
        }
        filled
    }

    /// The function at `ip`; `None` between functions and where the file is missing. O(log n).
    #[must_use]
    pub fn function(&self, ip: Ip) -> Option<FunctionHit> {
        let region = self.region(ip)?;
        let image = self.image_of(region);
        if let Some(hit) = self.named(image, ip) {
            return Some(hit);
        }
        let address = image.link_address(offset_of(region, ip))?;
        let table = image.table()?;
        let (range, function) = table.find(address)?;
        let here = |linked: u64| Ip(linked.wrapping_sub(address).wrapping_add(ip.0));
        Some(FunctionHit {
            id: FunctionId::new(region.image, range.function),
            entry: here(function.entry),
            start: here(range.start),
            end: here(range.end),
        })
    }

    /// What the process's perf map says, for code that has no name of its own.
    fn named(&self, image: &Image, ip: Ip) -> Option<FunctionHit> {
        let names = match ip.0 >> 63 {
            0 => self.perf_map,
            _ => self.kernel_names,
        };
        let number = names.filter(|_| image.is_nameless())?;
        let range = self.timeline.image(number)?.named(ip.0)?;
        self.timeline.function_name(number, range.function)?;
        Some(FunctionHit {
            id: FunctionId::new(number, range.function),
            entry: Ip(range.start),
            start: Ip(range.start),
            end: Ip(range.end),
        })
    }

    /// The address that the linker gave to `ip`, in the image with this number.
    #[must_use]
    pub fn link_address(&self, ip: Ip) -> Option<(u32, u64)> {
        let region = self.region(ip)?;
        let address = self.image_of(region).link_address(offset_of(region, ip))?;
        Some((region.image, address))
    }

    /// The image mapped at `ip`, with its number.
    #[must_use]
    pub fn image(&self, ip: Ip) -> Option<(u32, &'t Image)> {
        self.region(ip)
            .map(|region| (region.image, self.image_of(region)))
    }

    fn region(&self, ip: Ip) -> Option<&'t Region> {
        let find = |root| self.timeline.regions.find(root, ip.0);
        let is_kernel = ip.0 >> 63 == 1;
        find(self.timeline.everywhere)
            .or_else(|| find(self.root))
            .or_else(|| find(self.kernel).filter(|_| is_kernel))
    }

    fn image_of(&self, region: &Region) -> &'t Image {
        &self.timeline.images[region.image as usize]
    }
}

fn offset_of(region: &Region, ip: Ip) -> u64 {
    region.offset.saturating_add(ip.0 - region.start)
}
