//! A recording under way: what the threads of a program do becomes a capture.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ptrail_flow::Instruction;
use ptrail_perfdata::{CodeBlob, Extra, Machine, Record, Sideband, SourceNote, Target, Writer};
use ptrail_pt::Ip;
use ptrail_record::{Hit, Moment, Trigger};

use crate::clock::{self, VirtualClock};
use crate::front::Front;
use crate::inject::{Fault, Injector};
use crate::maps::{self, BuildIds, ExecMapping};
use crate::process::{PAGE, Process};
use crate::request::Early;
use crate::thread::{Faults, Thread, ThreadId};
use crate::truth::Truth;
use crate::watcher::Watcher;
use crate::window::Window;
use crate::{End, Engine, Error, Request, Settings, memory};

/// At most this many bytes of one mapping's code are recorded.
const CODE_LIMIT: u64 = 64 << 20;
/// Packets are written to the file in pieces of about this size, in bytes.
const PIECE: usize = 1 << 18;

/// The dice for faults are thrown once for so many bytes of trace.
const DICE_PERIOD: usize = 4096;
/// An injected loss ends after at most so many instructions.
const LOST_INSTRUCTIONS: u64 = 5_000;
/// An injected context switch takes at most so many microseconds.
const AWAY_MICROS: u64 = 50;
/// `PERF_AUX_FLAG_TRUNCATED`.
const AUX_TRUNCATED: u64 = 1;

/// What goes into the capture, as it happens.
pub(crate) struct Recording {
    engine: Engine,
    settings: Settings,
    pub(crate) clock: VirtualClock,
    writer: Writer,
    /// Where the truth is to be written.
    truth: Option<PathBuf>,
    threads: Vec<Thread>,
    processes: HashMap<u32, Process>,
    wall_clock: (u64, u64),
    command: Vec<String>,
    build_ids: BuildIds,
    code: Vec<CodeBlob>,
    window: Window,
    /// Where the window begins, once that is known.
    starts_at: Option<u64>,
    has_begun: bool,
    /// Instructions that may still be recorded; none before the window begins.
    remaining: u64,
    /// Of each thread's trace, only the last so many bytes are kept.
    snapshot_size: Option<usize>,
    injector: Option<Injector>,
    watcher: Option<Watcher>,
    notes: BTreeMap<String, u64>,
}

impl Recording {
    /// Begins the recording of a process; its first thread comes with it.
    pub(crate) fn new(
        engine: Engine,
        request: &Request<'_>,
        pid: u32,
        command: Vec<String>,
    ) -> Result<Self, Error> {
        let clock = VirtualClock::start();
        let wall_clock = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos() as u64;
        let target = Target {
            pt_config: clock::pt_config(&request.settings),
            clock: clock::conversion(),
            machine: machine(),
            pid,
            tid: pid,
            snapshots: request.triggers.is_some() && request.snapshot_size.is_some(),
        };
        Ok(Self {
            engine,
            settings: request.settings,
            clock,
            writer: Writer::create(&request.capture, target)?,
            truth: request.truth.clone(),
            threads: Vec::new(),
            processes: HashMap::new(),
            wall_clock: (wall_clock, clock.perf_time()),
            command,
            build_ids: BuildIds::default(),
            code: Vec::new(),
            window: request.window.clone(),
            starts_at: None,
            has_begun: request.window.start.is_none(),
            remaining: match request.window {
                Window { start: Some(_), .. } => 0,
                Window { limit, .. } => limit.unwrap_or(u64::MAX),
            },
            snapshot_size: request.snapshot_size,
            injector: request.inject.clone().map(Injector::new),
            watcher: request.triggers.clone().map(Watcher::new).transpose()?,
            notes: request.note.iter().map(|note| (note.clone(), 1)).collect(),
        })
    }

    // ---- threads ----

    /// A thread is recorded from now on. It may be the first of its process, or one that another
    /// thread of the process started.
    pub(crate) fn thread(&mut self, pid: u32, tid: u32) -> Result<ThreadId, Error> {
        if tid != pid {
            let record = Record::Fork {
                parent_pid: pid,
                parent_tid: pid,
            };
            self.record_for(pid, tid, record)?;
        }
        let truth = match &self.truth {
            Some(path) if self.threads.is_empty() => Some(Truth::create(path.clone())?),
            Some(path) => Some(Truth::of_thread(path, tid)?),
            None => None,
        };
        self.threads.push(Thread {
            pid,
            tid,
            front: Front::new(self.settings, self.clock.tsc()),
            truth,
            kept: Vec::new(),
            snapshot_at: 0,
            next: Ip(0),
            faults: Faults::default(),
            on: false,
            ended: false,
            instructions: 0,
        });
        self.record_for(pid, tid, Record::ItraceStart)?;
        Ok(ThreadId(self.threads.len() - 1))
    }

    /// A process was born as a copy of another one.
    pub(crate) fn forked(&mut self, pid: u32, parent: u32) -> Result<(), Error> {
        if let Some(process) = self.processes.get(&parent) {
            let copy = process.clone();
            self.processes.insert(pid, copy);
        }
        if let Some(watcher) = &mut self.watcher {
            watcher.watch.forked(pid, parent);
        }
        let record = Record::Fork {
            parent_pid: parent,
            parent_tid: parent,
        };
        self.record_for(pid, pid, record)
    }

    /// One thread goes off the CPU, and another one on.
    pub(crate) fn switched(&mut self, from: Option<ThreadId>, to: ThreadId) -> Result<(), Error> {
        if from == Some(to) {
            return Ok(());
        }
        if let Some(from) = from {
            self.record_switch(from, true)?;
        }
        self.record_switch(to, false)
    }

    fn record_switch(&mut self, thread: ThreadId, out: bool) -> Result<(), Error> {
        let Thread { pid, tid, .. } = self.threads[thread.0];
        self.writer.record(&Sideband {
            time: Some(self.clock.perf_time()),
            pid: Some(pid),
            tid: Some(tid),
            cpu: Some(0),
            record: Record::Switch {
                out,
                preempted: false,
                other: None,
            },
        })?;
        Ok(())
    }

    /// A thread has ended.
    pub(crate) fn thread_ended(&mut self, thread: ThreadId) -> Result<(), Error> {
        if std::mem::replace(&mut self.threads[thread.0].ended, true) {
            return Ok(());
        }
        self.recover(thread, None)?;
        let ended = &mut self.threads[thread.0];
        ended.front.finish(self.clock.tsc());
        let (pid, tid) = (ended.pid, ended.tid);
        if let Some(truth) = ended.truth.take() {
            truth.finish()?;
        }
        self.write_pieces(thread, 1)?;
        if self.watcher.is_none() {
            self.write_snapshot(thread)?;
        }
        self.record_for(pid, tid, Record::Exit)
    }

    /// Instructions recorded so far.
    pub(crate) fn instructions(&self) -> u64 {
        self.threads.iter().map(|thread| thread.instructions).sum()
    }

    /// Whether the truth is wanted.
    pub(crate) fn has_truth(&self) -> bool {
        self.truth.is_some()
    }

    /// Where the thread's stack is before its next instruction.
    pub(crate) fn stack_is(&mut self, thread: ThreadId, sp: u64) -> Result<(), Error> {
        let truth = self.threads[thread.0].truth.as_mut();
        truth.map_or(Ok(()), |truth| truth.stack_is(sp))
    }

    /// Whether the thread is in traced code (and not in the kernel).
    pub(crate) fn is_on(&self, thread: ThreadId) -> bool {
        self.threads[thread.0].on
    }

    /// See [`Thread::executed`].
    #[inline]
    pub(crate) fn executed(
        &mut self,
        thread: ThreadId,
        ip: Ip,
        instruction: Instruction,
        next: Ip,
    ) -> Result<(), Error> {
        if self.remaining == 0 {
            self.interrupted(thread, ip);
            return Ok(());
        }
        if self.watcher.is_some() {
            self.come_to(thread, ip)?;
            if self.remaining == 0 {
                return Ok(());
            }
        }
        self.remaining -= 1;
        self.threads[thread.0].executed(&mut self.clock, ip, instruction, next)?;
        if self.watcher.is_some() {
            self.follow_calls(thread, ip, instruction, next)?;
        }
        if self.injector.is_some() {
            self.inject(thread, next)?;
        }
        self.write_pieces(thread, PIECE)
    }

    /// See [`Thread::straight`].
    #[inline]
    pub(crate) fn straight(
        &mut self,
        thread: ThreadId,
        start: Ip,
        mut offsets: &[u16],
    ) -> Result<(), Error> {
        while let Some(watcher) = &self.watcher
            && self.remaining > 0
            && let Some(before) = watcher.next_in(start, offsets)
        {
            let (first, rest) = offsets.split_at(before);
            self.straight_on(thread, start, first)?;
            let Some((&watched, behind)) = rest.split_first() else {
                return Ok(());
            };
            if self.remaining > 0 {
                self.come_to(thread, start.offset(u64::from(watched)))?;
            }
            self.straight_on(thread, start, &[watched])?;
            offsets = behind;
        }
        self.straight_on(thread, start, offsets)
    }

    #[inline]
    fn straight_on(&mut self, thread: ThreadId, start: Ip, offsets: &[u16]) -> Result<(), Error> {
        let (inside, outside) = match usize::try_from(self.remaining) {
            Ok(remaining) if remaining < offsets.len() => offsets.split_at(remaining),
            _ => (offsets, [].as_slice()),
        };
        self.remaining -= inside.len() as u64;
        self.threads[thread.0].straight(&mut self.clock, start, inside)?;
        if let Some(&first) = outside.first() {
            self.interrupted(thread, start.offset(u64::from(first)));
        }
        Ok(())
    }

    /// See [`Thread::entered_kernel`].
    pub(crate) fn entered_kernel(&mut self, thread: ThreadId, ip: Ip) -> Result<(), Error> {
        if self.remaining == 0 {
            self.interrupted(thread, ip);
            return Ok(());
        }
        if self.watcher.is_some() {
            self.come_to(thread, ip)?;
            if self.remaining == 0 {
                return Ok(());
            }
        }
        self.remaining -= 1;
        self.threads[thread.0].entered_kernel(&mut self.clock, ip)?;
        self.write_pieces(thread, PIECE)
    }

    /// See [`Thread::interrupted`].
    pub(crate) fn interrupted(&mut self, thread: ThreadId, ip: Ip) {
        self.threads[thread.0].interrupted(&mut self.clock, ip);
    }

    /// See [`Thread::transaction_aborted`].
    pub(crate) fn transaction_aborted(&mut self, thread: ThreadId, from: Ip, to: Ip) {
        self.threads[thread.0].transaction_aborted(&self.clock, from, to);
    }

    /// Real time passed while the program was in the kernel.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.clock.pass(time);
    }

    // ---- window ----

    /// Where the window begins, if it has not begun yet and that is known.
    #[inline]
    pub(crate) fn starts_at(&self) -> Option<u64> {
        self.starts_at
    }

    /// The window begins.
    pub(crate) fn begin(&mut self) {
        self.has_begun = true;
        self.starts_at = None;
        self.remaining = self.window.limit.unwrap_or(u64::MAX);
    }

    /// Whether the window has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether as many instructions, or snapshots, were recorded as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.has_begun && self.remaining == 0
    }

    /// Why it is to end before the program.
    pub(crate) fn early(&self) -> Early {
        let taken = |watcher: &Watcher| watcher.watch.is_done();
        match (self.is_full(), self.watcher.as_ref().is_some_and(taken)) {
            (true, true) => Early::Taken,
            (true, false) => Early::Full,
            (false, _) => Early::Stopped,
        }
    }

    fn look_for_start(&mut self, pid: u32, mapping: &ExecMapping) {
        if !self.has_begun
            && self.starts_at.is_none()
            && let Some(start) = &self.window.start
        {
            self.starts_at = start.resolve(pid, mapping);
        }
    }

    // ---- triggers ----

    /// Whether execution at `ip` may be a hit, so that the registers are worth a look.
    pub(crate) fn is_watched(&self, ip: Ip) -> bool {
        self.watcher
            .as_ref()
            .is_some_and(|watcher| watcher.is_at(ip))
    }

    /// What a function's first six integer arguments are, if the next instruction is its first.
    pub(crate) fn arguments_are(&mut self, arguments: Option<[u64; 6]>) {
        if let Some(watcher) = &mut self.watcher {
            watcher.arguments = arguments;
        }
    }

    /// The triggers that lie in no code so far.
    pub(crate) fn unresolved(&self) -> Option<Error> {
        let (trigger, why) = self.watcher.as_ref()?.watch.unresolved().next()?;
        Some(Error::Unresolved {
            trigger: trigger.to_string(),
            why: why.clone(),
        })
    }

    /// The thread is about to execute the instruction at `ip`.
    #[inline]
    fn come_to(&mut self, thread: ThreadId, ip: Ip) -> Result<(), Error> {
        let at = self.moment(thread, ip);
        let Some(watcher) = &mut self.watcher else {
            return Ok(());
        };
        let hit = watcher.come_to(thread, at).or_else(|| watcher.due(at.time));
        hit.map_or(Ok(()), |hit| self.hit(thread, hit, ip))
    }

    /// After an instruction: a call begins, or calls return.
    #[inline]
    fn follow_calls(
        &mut self,
        thread: ThreadId,
        ip: Ip,
        instruction: Instruction,
        next: Ip,
    ) -> Result<(), Error> {
        let at = self.moment(thread, next);
        let Some(watcher) = &mut self.watcher else {
            return Ok(());
        };
        let hit = watcher.follow(thread, ip, instruction, at);
        hit.map_or(Ok(()), |hit| self.hit(thread, hit, next))
    }

    /// Something else happened that may be a trigger; it is told of the thread that ran last.
    pub(crate) fn happened(&mut self, thread: ThreadId, trigger: &Trigger) -> Result<(), Error> {
        let next = self.threads[thread.0].next;
        let at = self.moment(thread, next);
        let hit = self
            .watcher
            .as_mut()
            .and_then(|watcher| watcher.watch.happened(trigger, at));
        hit.map_or(Ok(()), |hit| self.hit(thread, hit, next))
    }

    fn moment(&self, thread: ThreadId, ip: Ip) -> Moment {
        let Thread { pid, tid, .. } = self.threads[thread.0];
        Moment {
            pid,
            tid,
            ip: ip.0,
            time: self.clock.perf_time(),
        }
    }

    /// A snapshot is to be taken, now or later.
    fn hit(&mut self, thread: ThreadId, hit: Hit, ip: Ip) -> Result<(), Error> {
        let Some(watcher) = &mut self.watcher else {
            return Ok(());
        };
        if !watcher.delay(&hit, self.clock.perf_time()) {
            self.take_snapshot(thread, hit, ip)?;
        }
        Ok(())
    }

    /// Writes what each thread's ring holds; the thread that runs is about to execute `ip`.
    #[cold]
    fn take_snapshot(&mut self, running: ThreadId, hit: Hit, ip: Ip) -> Result<(), Error> {
        if self.snapshot_size.is_some() {
            for number in 0..self.threads.len() {
                let id = ThreadId(number);
                let next = if id == running {
                    ip
                } else {
                    self.threads[number].next
                };
                if !self.threads[number].ended {
                    self.interrupted(id, next);
                    let now = self.clock.tsc();
                    let front = &mut self.threads[number].front;
                    front.recovers(None, now, true);
                    front.finish(now);
                    self.write_pieces(id, 1)?;
                }
                self.write_snapshot(id)?;
            }
        }
        if let Some(watcher) = &mut self.watcher {
            watcher.watch.took(hit);
            if watcher.watch.is_done() {
                self.remaining = 0;
            }
        }
        Ok(())
    }

    // ---- faults on purpose ----

    /// Between two instructions: throws the dice once for each [`DICE_PERIOD`].
    fn inject(&mut self, id: ThreadId, next: Ip) -> Result<(), Error> {
        let thread = &mut self.threads[id.0];
        let Some(injector) = &mut self.injector else {
            return Ok(());
        };
        let ip = thread.on.then_some(next);
        if thread.front.is_losing() {
            if thread.instructions >= thread.faults.until {
                return self.recover(id, ip);
            }
            return Ok(());
        }
        if thread.front.total() < thread.faults.next {
            return Ok(());
        }
        thread.faults.next = thread.front.total() + DICE_PERIOD;
        thread.faults.corrupt |= injector.happens(Fault::Corrupt);
        let overflow = injector.happens(Fault::Overflow);
        if overflow || injector.happens(Fault::Truncate) {
            thread.faults.overflow = overflow;
            thread.faults.until = thread.instructions + 1 + injector.below(LOST_INSTRUCTIONS);
            thread.front.loses(self.clock.tsc());
        } else if thread.on && injector.happens(Fault::Switch) {
            let away = Duration::from_micros(1 + injector.below(AWAY_MICROS));
            self.interrupted(id, next);
            self.record_switch(id, true)?;
            self.clock.pass(away);
            self.record_switch(id, false)?;
        }
        Ok(())
    }

    fn recover(&mut self, id: ThreadId, ip: Option<Ip>) -> Result<(), Error> {
        let thread = &mut self.threads[id.0];
        let overflow = thread.faults.overflow;
        let lost = thread.front.recovers(ip, self.clock.tsc(), overflow);
        let Some(at) = lost.filter(|_| !overflow) else {
            return Ok(());
        };
        let (pid, tid) = (thread.pid, thread.tid);
        let record = Record::Aux {
            aux_offset: thread.faults.written + at as u64,
            size: 0,
            flags: AUX_TRUNCATED,
        };
        self.record_for(pid, tid, record)
    }

    // ---- sideband ----

    /// exec: a new name, and no mappings.
    pub(crate) fn image_replaced(&mut self, pid: u32, name: &str) -> Result<(), Error> {
        let name = name.trim_end_matches('\n').to_string();
        self.processes.remove(&pid);
        if let Some(watcher) = &mut self.watcher {
            watcher.watch.replaced(pid);
            let of_process = |(_, thread): &(usize, &Thread)| thread.pid == pid;
            for (number, _) in self.threads.iter().enumerate().filter(of_process) {
                watcher.forget_calls(ThreadId(number));
            }
        }
        self.record_for(pid, pid, Record::Comm { name, exec: true })
    }

    /// A thread has a new name.
    pub(crate) fn renamed(&mut self, thread: ThreadId, name: String) -> Result<(), Error> {
        let Thread { pid, tid, .. } = self.threads[thread.0];
        self.record_for(pid, tid, Record::Comm { name, exec: false })
    }

    /// Looks for executable mappings that are new, in `/proc/PID/maps`.
    pub(crate) fn mappings_changed(&mut self, pid: u32) -> Result<(), Error> {
        let now = maps::executable(pid);
        let known = &mut self.processes.entry(pid).or_default().mappings;
        let before = std::mem::replace(known, now.clone());
        for mapping in now.into_iter().filter(|mapping| !before.contains(mapping)) {
            if !mapping.is_file() && !mapping.writable {
                self.capture_code(pid, &mapping);
            }
            self.record_mapping(pid, mapping)?;
        }
        Ok(())
    }

    /// An executable mapping is new.
    pub(crate) fn mapped(&mut self, pid: u32, mapping: ExecMapping) -> Result<(), Error> {
        let known = &mut self.processes.entry(pid).or_default().mappings;
        known.push(mapping.clone());
        self.record_mapping(pid, mapping)
    }

    fn record_mapping(&mut self, pid: u32, mapping: ExecMapping) -> Result<(), Error> {
        self.look_for_start(pid, &mapping);
        if let Some(watcher) = &mut self.watcher {
            watcher.mapped(pid, &mapping);
        }
        if let Some(injector) = &mut self.injector
            && injector.happens(Fault::LostSideband)
        {
            return self.record_for(pid, pid, Record::Lost(1));
        }
        let build_id = if mapping.is_file() {
            self.build_ids.of(pid, &mapping.path)
        } else {
            None
        };
        let ExecMapping {
            address,
            len,
            file_offset,
            path,
            ..
        } = mapping;
        let record = Record::Mmap2 {
            address,
            len,
            file_offset,
            executable: true,
            path,
            build_id,
        };
        self.record_for(pid, pid, record)
    }

    /// Records the bytes of code that stands in no file (vDSO, JIT).
    fn capture_code(&mut self, pid: u32, mapping: &ExecMapping) {
        let mut bytes = vec![0; mapping.len.min(CODE_LIMIT) as usize];
        let len = memory::read(pid, mapping.address, &mut bytes);
        bytes.truncate(len);
        if !bytes.is_empty() {
            self.add_code(pid, mapping.address, mapping.path.clone(), bytes);
        }
    }

    fn add_code(&mut self, pid: u32, address: u64, name: String, bytes: Vec<u8>) {
        let time = self.clock.perf_time();
        self.code.push(CodeBlob {
            pid,
            address,
            time,
            name,
            bytes,
        });
    }

    /// If the code at `ip` is writable, it may have changed without a system call: records it anew
    /// if it has. Says whether it is writable.
    pub(crate) fn follow_code(&mut self, pid: u32, ip: Ip) -> bool {
        let process = self.processes.entry(pid).or_default();
        let Some(mapping) = process.writable(ip.0) else {
            return false;
        };
        let end = mapping.address + mapping.len;
        let first = ip.0 & !(PAGE - 1);
        // An instruction may reach into the next page.
        for page in [first, first + PAGE]
            .into_iter()
            .filter(|&page| page < end && page < ip.0 + 15)
        {
            let mut bytes = vec![0; PAGE as usize];
            if memory::read(pid, page, &mut bytes) == bytes.len() {
                self.page_is(pid, page, bytes);
            }
        }
        true
    }

    /// Code is about to execute that stands in no file, and this is what the pages hold in which it
    /// lies: records them if they hold other code than before.
    pub(crate) fn code_is(&mut self, pid: u32, ip: Ip, code: &[u8], pages_at: u64, pages: &[u8]) {
        if self.processes.entry(pid).or_default().has_code(ip.0, code) {
            return;
        }
        for (page, bytes) in (pages_at..)
            .step_by(PAGE as usize)
            .zip(pages.chunks(PAGE as usize))
        {
            self.page_is(pid, page, bytes.to_vec());
        }
    }

    fn page_is(&mut self, pid: u32, page: u64, bytes: Vec<u8>) {
        let process = self.processes.entry(pid).or_default();
        if process.page_changed(page, &bytes) {
            let name = process
                .mapping(page)
                .map_or("//anon", |mapping| &mapping.path)
                .to_string();
            self.add_code(pid, page, name, bytes);
        }
    }

    fn record_for(&mut self, pid: u32, tid: u32, record: Record) -> Result<(), Error> {
        self.writer.record(&Sideband {
            time: Some(self.clock.perf_time()),
            pid: Some(pid),
            tid: Some(tid),
            cpu: None,
            record,
        })?;
        Ok(())
    }

    /// Notes something that was not recorded; the same note again is counted.
    pub(crate) fn note(&mut self, text: &str) {
        *self.notes.entry(text.to_string()).or_default() += 1;
    }

    // ---- the file ----

    #[inline]
    fn write_pieces(&mut self, thread: ThreadId, at_least: usize) -> Result<(), Error> {
        let front = &self.threads[thread.0].front;
        if front.len() >= at_least && !front.is_losing() {
            self.write_piece(thread)?;
        }
        Ok(())
    }

    fn write_piece(&mut self, thread: ThreadId) -> Result<(), Error> {
        let Thread {
            pid,
            tid,
            front,
            kept,
            faults,
            ..
        } = &mut self.threads[thread.0];
        let mut bytes = front.take();
        if let Some(injector) = &mut self.injector
            && std::mem::take(&mut faults.corrupt)
        {
            let bit = injector.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        faults.written += bytes.len() as u64;
        if let Some(size) = self.snapshot_size {
            kept.append(&mut bytes);
            if kept.len() >= 2 * size {
                kept.drain(..kept.len() - size);
            }
            return Ok(());
        }
        self.writer
            .trace(*pid, *tid, self.clock.perf_time(), &bytes)?;
        Ok(())
    }

    /// Writes what its ring holds, if it has changed; it begins anywhere within a packet.
    fn write_snapshot(&mut self, thread: ThreadId) -> Result<(), Error> {
        let Thread {
            pid,
            tid,
            kept,
            faults,
            snapshot_at,
            ..
        } = &mut self.threads[thread.0];
        if std::mem::replace(snapshot_at, faults.written) == faults.written {
            return Ok(());
        }
        let size = self.snapshot_size.unwrap_or(0).min(kept.len());
        let last = &kept[kept.len() - size..];
        let time = self.clock.perf_time();
        self.writer
            .snapshot(*pid, *tid, time, faults.written, last)?;
        Ok(())
    }

    /// At the end: the snapshot that is due, or of what has just happened; if there was none at all,
    /// one without a trigger.
    fn last_snapshot(&mut self, end: Option<End>) -> Result<(), Error> {
        let Some(watcher) = &mut self.watcher else {
            return Ok(());
        };
        let last = ThreadId(0);
        if self.threads.is_empty() {
            return Ok(());
        }
        if let Some(hit) = watcher.due(u64::MAX) {
            let ip = Ip(hit.ip);
            self.take_snapshot(last, hit, ip)?;
        }
        let ended = match end {
            Some(End::Exited(_)) => Some(Trigger::Exit),
            Some(End::Killed(_)) => Some(Trigger::Crash),
            Some(End::GoesOn) | None => None,
        };
        if let Some(trigger) = ended {
            self.happened(last, &trigger)?;
        }
        let none = |watcher: &Watcher| watcher.watch.taken().is_empty();
        if self.watcher.as_ref().is_some_and(none) {
            if self.snapshot_size.is_some() {
                for number in 0..self.threads.len() {
                    self.write_snapshot(ThreadId(number))?;
                }
            }
            self.note("no trigger was hit: this is the end of the recording");
        }
        Ok(())
    }

    /// Writes what is left, given how the program ended, if it was recorded to its end; returns the
    /// notes.
    pub(crate) fn finish(mut self, end: Option<End>, how: &str) -> Result<Vec<String>, Error> {
        for number in 0..self.threads.len() {
            self.thread_ended(ThreadId(number))?;
        }
        self.last_snapshot(end)?;
        if let Some(injector) = &self.injector {
            let note = injector.to_string();
            self.note(&note);
        }
        if !self.has_begun {
            self.note("nothing was recorded: the place where the window begins was not reached");
        }
        for note in self.watcher.iter().flat_map(Watcher::problems) {
            self.notes.insert(note, 1);
        }
        let notes: Vec<_> = self
            .notes
            .into_iter()
            .map(|(text, count)| {
                if count == 1 {
                    text
                } else {
                    format!("{text} ({count} times)")
                }
            })
            .collect();
        self.writer.finish(&Extra {
            source: SourceNote::Software {
                engine: self.engine.name().into(),
                clock: clock::DESCRIPTION.into(),
            },
            wall_clock: self.wall_clock.0,
            wall_clock_at: self.wall_clock.1,
            command: self.command,
            end: how.to_string(),
            notes: notes.clone(),
            triggers: self
                .watcher
                .as_ref()
                .map_or_else(Vec::new, Watcher::trigger_notes),
            snapshots: self
                .watcher
                .as_ref()
                .map_or_else(Vec::new, Watcher::snapshot_notes),
            code: self.code,
        })?;
        Ok(notes)
    }
}

fn machine() -> Machine {
    let name = nix::sys::utsname::uname();
    let text =
        |text: Option<&std::ffi::OsStr>| text.unwrap_or_default().to_string_lossy().into_owned();
    let (hostname, os_release, arch) = name.as_ref().map_or_else(
        |_| Default::default(),
        |name| {
            (
                text(Some(name.nodename())),
                text(Some(name.release())),
                text(Some(name.machine())),
            )
        },
    );
    let cpu = clock::CPU;
    Machine {
        hostname,
        os_release,
        arch,
        cpu_description: "ptrail software recorder".into(),
        cpuid: format!("GenuineIntel,{},{},{}", cpu.family, cpu.model, cpu.stepping),
        command: std::env::args_os()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect(),
    }
}
