//! A recording by perf events under way: a [`Plan`] carried out, its rings read, its end.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ptrail_perfdata::{Record, Sideband};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::attr::{Attr, Flags};
use crate::event::Event;
use crate::facts::Facts;
use crate::hit::Sample;
use crate::plan::{Call, Plan, Role, trigger};
use crate::refusal::{Asked, Refusal, explain};
use crate::ring::{Aux, Records, RingError};

/// `PERF_RECORD_LOST`.
const LOST: u32 = 2;
/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// See the module. Dropped, it ends: the kernel closes everything.
#[derive(Debug)]
pub struct Session {
    events: Vec<Opened>,
    /// Leaders, or what stands alone: what is switched.
    switches: Vec<(usize, bool)>,
}

#[derive(Debug)]
struct Opened {
    role: Role,
    pid: i32,
    cpu: i32,
    event: Event,
    ring: Option<Records>,
    aux: Option<Aux>,
}

/// What a drain of the triggers' rings brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// The hits, in the order of each ring.
    pub samples: Vec<Sample>,
    /// Hits for whose records there was no room.
    pub lost: u64,
}

impl Session {
    /// Makes the calls of a plan; `read_proc` is called when the sideband is on and nothing is traced
    /// yet.
    ///
    /// # Errors
    /// What the kernel refused, why, and what cures it.
    pub fn open(plan: &Plan, facts: &Facts, read_proc: &mut dyn FnMut()) -> Result<Self, Refusal> {
        let mut session = Self {
            events: Vec::new(),
            switches: Vec::new(),
        };
        for call in &plan.calls {
            session
                .call(call, plan, read_proc)
                .map_err(|(asked, error)| {
                    explain(asked, error.raw_os_error().unwrap_or(0), facts)
                })?;
        }
        Ok(session)
    }

    fn call(
        &mut self,
        call: &Call,
        plan: &Plan,
        read_proc: &mut dyn FnMut(),
    ) -> Result<(), (Asked, io::Error)> {
        let ring = Asked::Ring { bytes: plan.mapped };
        let shape = |error: RingError| (ring, io::Error::other(error));
        match call {
            Call::Open {
                role,
                attr,
                pid,
                cpu,
                group,
            } => {
                let asked = asked(*role, attr, *pid);
                let group = group.map(|leader| &self.events[leader].event);
                let event = open(attr, *pid, *cpu, group).map_err(|error| (asked, error))?;
                self.events.push(Opened {
                    role: *role,
                    pid: *pid,
                    cpu: *cpu,
                    event,
                    ring: None,
                    aux: None,
                });
            }
            Call::MapRing { event, pages } => {
                let opened = &mut self.events[*event];
                let map = opened.event.map(*pages).map_err(|error| (ring, error))?;
                opened.ring = Some(Records::new(map).map_err(shape)?);
            }
            Call::MapAux {
                event,
                offset,
                size,
                overwrite,
            } => {
                let opened = &mut self.events[*event];
                if let Some(records) = &opened.ring {
                    records.announce_aux(*offset, *size);
                    let map = opened.event.map_aux(*offset, *size, *overwrite);
                    let map = map.map_err(|error| (ring, error))?;
                    opened.aux = Some(records.aux(map).map_err(shape)?);
                }
            }
            Call::SetOutput { event, to } => {
                let to = &self.events[*to].event;
                let done = self.events[*event].event.set_output(to);
                done.map_err(|error| (ring, error))?;
            }
            Call::SetFilter { event, filter } => {
                let text = CString::new(filter.as_str()).unwrap_or_default();
                let done = self.events[*event].event.set_filter(&text);
                done.map_err(|error| (Asked::Filter, error))?;
            }
            Call::ReadProc => read_proc(),
            Call::Enable { event } => {
                let opened = &self.events[*event];
                opened.event.enable().map_err(|error| (ring, error))?;
                if opened.role != Role::Sideband {
                    self.switches.push((*event, false));
                }
            }
            Call::Refresh { event } => {
                let done = self.events[*event].event.refresh(1);
                done.map_err(|error| (ring, error))?;
                self.switches.push((*event, true));
            }
        }
        Ok(())
    }

    /// Waits until there is something to read, `process` has ended, or the time is up. Says whether the
    /// process has ended. What there is to read is told by the rings alone.
    ///
    /// # Errors
    /// The system's; a signal ends the wait early and is none.
    pub fn wait(&self, process: Option<&Process>, time: Duration) -> io::Result<bool> {
        let mut fds: Vec<PollFd<'_>> = process
            .iter()
            .map(|process| PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN))
            .collect();
        // An event without a ring of its own would be ready at once.
        let with_rings = self.events.iter().filter(|opened| opened.ring.is_some());
        fds.extend(with_rings.map(|opened| PollFd::new(&opened.event, PollFlags::IN)));
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = process.is_some() && fds.first().is_some_and(|fd| !fd.revents().is_empty());
        Ok(ended)
    }

    /// What the sideband's rings have, in the order of time.
    pub fn sideband(&mut self) -> Vec<Sideband> {
        let mut all = Vec::new();
        for records in self.rings(Role::Sideband) {
            let Ok(records) = records.drain() else {
                // Nobody knows how many.
                all.push(Sideband {
                    time: None,
                    pid: None,
                    tid: None,
                    cpu: None,
                    record: Record::Lost(1),
                });
                continue;
            };
            let records = records.iter();
            all.extend(records.filter_map(|record| {
                Sideband::from_kernel(record.kind, record.misc, &record.body)
            }));
        }
        all.sort_by_key(|sideband| sideband.time);
        all
    }

    /// What the triggers' rings have.
    pub fn hits(&mut self) -> Hits {
        let mut hits = Hits::default();
        for records in self.rings(Role::Trigger) {
            for record in records.drain().unwrap_or_default() {
                match record.kind {
                    SAMPLE => hits.samples.extend(Sample::read(&record.body)),
                    // The event's id, and how many.
                    LOST => {
                        let count = record.body.get(8..16).and_then(|word| word.try_into().ok());
                        hits.lost += count.map_or(0, u64::from_le_bytes);
                    }
                    _ => {}
                }
            }
        }
        hits
    }

    fn rings(&mut self, role: Role) -> impl Iterator<Item = &mut Records> {
        self.events
            .iter_mut()
            .filter(move |opened| opened.role == role)
            .filter_map(|opened| opened.ring.as_mut())
    }

    /// Arms a further breakpoint beside each trigger; its hits stand in the same rings, in their order.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn arm(&mut self, address: u64, facts: &Facts) -> Result<(), Refusal> {
        let mut new = Vec::new();
        let triggers = self
            .events
            .iter()
            .filter(|opened| opened.role == Role::Trigger);
        for beside in triggers.filter(|opened| opened.ring.is_some()) {
            let (pid, cpu) = (beside.pid, beside.cpu);
            let event = Event::open(&trigger(address), pid, cpu, None)
                .and_then(|event| event.set_output(&beside.event).map(|()| event))
                .map_err(|error| {
                    let asked = Asked::Breakpoint { address };
                    explain(asked, error.raw_os_error().unwrap_or(0), facts)
                })?;
            new.push(Opened {
                role: Role::Trigger,
                pid,
                cpu,
                event,
                ring: None,
                aux: None,
            });
        }
        self.events.extend(new);
        Ok(())
    }

    /// What all events of a role have counted: hits of the triggers, exactly.
    ///
    /// # Errors
    /// The system's.
    pub fn count(&self, role: Role) -> io::Result<u64> {
        let events = self.events.iter().filter(|opened| opened.role == role);
        events.map(|opened| opened.event.count()).sum()
    }

    /// Stops the trace everywhere; when this returns, the rings may be read.
    ///
    /// # Errors
    /// The system's.
    pub fn stop(&self) -> io::Result<()> {
        self.switches
            .iter()
            .try_for_each(|&(event, _)| self.events[event].event.disable())
    }

    /// Lets the trace go on, until the next hit if that ends it.
    ///
    /// # Errors
    /// The system's.
    pub fn go_on(&self) -> io::Result<()> {
        self.switches.iter().try_for_each(|&(event, once)| {
            let event = &self.events[event].event;
            if once {
                event.refresh(1)
            } else {
                event.enable()
            }
        })
    }

    /// What each snapshot ring holds, in the order of the plan; after [`Session::stop`].
    ///
    /// # Errors
    /// The trace was not stopped.
    pub fn snapshots(&self) -> Result<Vec<Vec<u8>>, RingError> {
        let areas = self.events.iter().filter_map(|opened| opened.aux.as_ref());
        areas.map(Aux::snapshot).collect()
    }
}

fn asked(role: Role, attr: &Attr, pid: i32) -> Asked {
    let cpu_wide = pid == -1;
    match role {
        Role::Sideband => Asked::Sideband { cpu_wide },
        Role::Trace => Asked::Trace {
            kernel: !attr.flags.contains(Flags::EXCLUDE_KERNEL),
            cpu_wide,
        },
        Role::Trigger => Asked::Breakpoint {
            address: attr.config1,
        },
    }
}

/// Opens an event; what an older kernel, or a newer one, does not take is asked for again without.
fn open(attr: &Attr, pid: i32, cpu: i32, group: Option<&Event>) -> io::Result<Event> {
    let first = Event::open(attr, pid, cpu, group);
    let Err(error) = &first else {
        return first;
    };
    let again = match error.raw_os_error() {
        // Before Linux 5.12 MMAP2 records have no build-ids.
        Some(EINVAL) if attr.flags.contains(Flags::BUILD_ID) => Attr {
            flags: attr.flags - Flags::BUILD_ID,
            ..*attr
        },
        // A kernel that lets only PMUs sample that can; the trace unit's period says nothing.
        Some(EOPNOTSUPP) if attr.sample_period == 1 && attr.bp_type == 0 => Attr {
            sample_period: 0,
            ..*attr
        },
        _ => return first,
    };
    Event::open(&again, pid, cpu, group)
}

/// A process, whichever gets its number next.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// A running process, by its id.
    ///
    /// # Errors
    /// ESRCH: there is none.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
