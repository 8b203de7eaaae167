//! Function bounds from unwind information (`.eh_frame`), which even stripped files keep.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, LittleEndian, UnwindSection};
use object::read::elf::SectionHeader;

use crate::elf::{CodeSection, Elf, LE, section_at};

/// The code that one FDE describes, usually one function or its cold part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// All frames inside code, sorted by start; what follows a damaged entry is not read.
pub(crate) fn read(elf: &Elf<'_>, sections: &[CodeSection]) -> Vec<Frame> {
    let mut frames = Vec::new();
    let Some((address, data)) = locate(elf) else {
        return frames;
    };
    let bases = BaseAddresses::default().set_eh_frame(address);
    let section = EhFrame::new(data, LittleEndian);
    let mut entries = section.entries(&bases);
    // A file has few CIEs and their FDEs stand together.
    let mut last_cie = None;
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let parsed = partial.parse(|section, bases, offset| {
            if let Some((at, cie)) = &last_cie
                && *at == offset
            {
                return Ok::<_, gimli::Error>(Clone::clone(cie));
            }
            let cie = section.cie_from_offset(bases, offset)?;
            last_cie = Some((offset, cie.clone()));
            Ok(cie)
        });
        let Ok(fde) = parsed else { continue };
        // A signal trampoline's FDE starts one byte early, for unwinders that look at the byte
        // before a return address.
        let start = fde
            .initial_address()
            .saturating_add(u64::from(fde.is_signal_trampoline()));
        let Some(code) = section_at(sections, start) else {
            continue;
        };
        let end = fde
            .initial_address()
            .saturating_add(fde.len())
            .min(code.end);
        if start < end {
            frames.push(Frame { start, end });
        }
    }
    frames.sort_by_key(|frame| (frame.start, frame.end));
    frames.dedup_by_key(|frame| frame.start);
    frames
}

/// Link address and bytes of `.eh_frame`, by its section, else by the header's segment.
fn locate<'d>(elf: &Elf<'d>) -> Option<(u64, &'d [u8])> {
    if let Some(section) = elf.section(b".eh_frame") {
        return Some((section.sh_addr(LE), elf.section_data(section)?));
    }
    let header_address = elf.frame_header()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header_address);
    let header = EhFrameHdr::new(elf.at(header_address)?, LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    let address = header.eh_frame_ptr().direct().ok()?;
    Some((address, elf.at(address)?))
}
