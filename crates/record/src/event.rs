//! Perf events: the system calls themselves.
//!
//! Every call takes numbers, or memory that lives through the call; what comes back is a file
//! descriptor that is owned, or an error number. So nothing unsafe leaves this file.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys::bindings::{__BindgenBitfieldUnit, perf_event_attr};
use perf_event_open_sys::{ioctls, perf_event_open};

use crate::attr::Attr;
use crate::plan::PAGE;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: u64 = 8;

/// An open event.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
}

impl Event {
    /// `perf_event_open`: of thread `pid` (0 this one, -1 all) on CPU `cpu` (-1 any).
    ///
    /// # Errors
    /// The kernel's number; [`crate::refusal::explain`] knows what it means.
    pub fn open(attr: &Attr, pid: i32, cpu: i32, group: Option<&Self>) -> io::Result<Self> {
        Self::open_raw(&mut raw(attr), pid, cpu, group)
    }

    /// The same for a uprobe: `attr` without its file, which is this.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn open_in_file(
        attr: &Attr,
        file: &CStr,
        pid: i32,
        cpu: i32,
        group: Option<&Self>,
    ) -> io::Result<Self> {
        let mut attr = raw(attr);
        attr.uprobe_path = file.as_ptr() as u64;
        Self::open_raw(&mut attr, pid, cpu, group)
    }

    fn open_raw(
        attr: &mut perf_event_attr,
        pid: i32,
        cpu: i32,
        group: Option<&Self>,
    ) -> io::Result<Self> {
        let group = group.map_or(-1, |group| group.fd.as_raw_fd());
        // SAFETY: `attr` is a valid structure of the size that it says; a path that it points to is
        // borrowed by the caller; the kernel copies both.
        let fd = checked(unsafe { perf_event_open(attr, pid, cpu, group, CLOSE_ON_EXEC) })?;
        // SAFETY: a new descriptor that nobody else has.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Maps its ring: a header page and so many pages of records.
    ///
    /// # Errors
    /// EPERM: beyond the limit of locked memory.
    pub fn map(&self, pages: u64) -> io::Result<MmapRaw> {
        let len = usize::try_from((pages + 1) * PAGE).unwrap_or(usize::MAX);
        MmapOptions::new().len(len).map_raw(&self.fd)
    }

    /// Maps its AUX area, which was announced in its header page; the kernel overwrites what may not be
    /// written by us.
    ///
    /// # Errors
    /// EPERM as for [`Event::map`]; ENOMEM; EOPNOTSUPP if the event has none.
    pub fn map_aux(&self, offset: u64, size: u64, overwrite: bool) -> io::Result<MmapRaw> {
        let mut options = MmapOptions::new();
        options
            .offset(offset)
            .len(usize::try_from(size).unwrap_or(usize::MAX));
        if overwrite {
            options.map_raw_read_only(&self.fd)
        } else {
            options.map_raw(&self.fd)
        }
    }

    /// Switches it, and the group that it leads, on.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: takes a number.
        checked(unsafe { ioctls::ENABLE(self.fd.as_raw_fd(), 0) }).map(|_| ())
    }

    /// Switches it, and the group that it leads, off; when this returns, it has stopped everywhere, and
    /// its heads are told.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: takes a number.
        checked(unsafe { ioctls::DISABLE(self.fd.as_raw_fd(), 0) }).map(|_| ())
    }

    /// On until so many more hits.
    ///
    /// # Errors
    /// EINVAL: it is inherited, or no sampling event.
    pub fn refresh(&self, hits: i32) -> io::Result<()> {
        // SAFETY: takes a number.
        checked(unsafe { ioctls::REFRESH(self.fd.as_raw_fd(), hits) }).map(|_| ())
    }

    /// Its records go into another event's ring.
    ///
    /// # Errors
    /// EINVAL: they don't fit together.
    pub fn set_output(&self, to: &Self) -> io::Result<()> {
        // SAFETY: takes a descriptor, which is open.
        checked(unsafe { ioctls::SET_OUTPUT(self.fd.as_raw_fd(), to.fd.as_raw_fd()) }).map(|_| ())
    }

    /// All its address filters.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn set_filter(&self, filter: &CStr) -> io::Result<()> {
        // SAFETY: a string that lives through the call; the kernel only reads it.
        checked(unsafe { ioctls::SET_FILTER(self.fd.as_raw_fd(), filter.as_ptr().cast_mut()) })
            .map(|_| ())
    }

    /// How often it was hit.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn count(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let len = rustix::io::read(&self.fd, &mut bytes)?;
        if len == bytes.len() {
            Ok(u64::from_ne_bytes(bytes))
        } else {
            // What an event gives whose group does not run.
            Ok(0)
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn raw(attr: &Attr) -> perf_event_attr {
    let mut raw = perf_event_attr {
        type_: attr.kind,
        size: size_of::<perf_event_attr>() as u32,
        config: attr.config,
        sample_type: attr.sample_type.bits(),
        sample_regs_user: attr.sample_regs_user,
        sample_stack_user: attr.sample_stack_user,
        aux_watermark: attr.aux_watermark,
        aux_sample_size: attr.aux_sample_size,
        bp_type: attr.bp_type,
        _bitfield_1: __BindgenBitfieldUnit::new(attr.flags.bits().to_ne_bytes()),
        ..perf_event_attr::default()
    };
    raw.sample_period = attr.sample_period;
    raw.wakeup_events = attr.wakeup;
    raw.bp_addr = attr.config1;
    raw.bp_len = attr.config2;
    raw.aux_action = attr.aux_action.bits();
    raw
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
