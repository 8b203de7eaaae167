//! Plans carried out on a running process.

use std::path::Path;
use std::time::{Duration, Instant};

use ptrail_perfdata::{Record, Sideband};
use ptrail_record::attr::TYPE_SOFTWARE;
use ptrail_record::facts::Facts;
use ptrail_record::pairs::Pairs;
use ptrail_record::plan::{Call, Plan, Request, Ring, Role, Scope, StopBy, Timing};
use ptrail_record::pmu::Pmu;
use ptrail_record::refusal::Refusal;
use ptrail_record::session::{Process, Session};

use crate::target::{Target, address};

const SOON: Duration = Duration::from_millis(20);

/// `PERF_COUNT_SW_TASK_CLOCK` in place of a trace unit: its count stands still when it is stopped.
fn stand_in() -> Pmu {
    Pmu {
        kind: TYPE_SOFTWARE,
        format: [("tsc".to_owned(), (0, 1))].into(),
        ..Pmu::default()
    }
}

pub(crate) fn request(threads: Vec<u32>, breakpoint: Option<u64>, stop: StopBy) -> Request {
    Request {
        scope: Scope::Threads(threads),
        ring: Ring::Snapshot(4096),
        timing: Timing::Tsc,
        user: true,
        kernel: false,
        return_compression: true,
        ptwrite: false,
        filters: Vec::new(),
        breakpoint,
        stop,
    }
}

/// The plan without the AUX area, which the stand-in has not.
pub(crate) fn plan(request: &Request) -> Plan {
    let mut plan = Plan::new(request, &stand_in()).unwrap();
    plan.calls
        .retain(|call| !matches!(call, Call::MapAux { .. }));
    plan
}

fn facts() -> Facts {
    Facts::read(Path::new("/"))
}

fn open(target: &Target, breakpoint: Option<u64>, stop: StopBy) -> Result<Session, Refusal> {
    let plan = plan(&request(vec![target.pid()], breakpoint, stop));
    Session::open(&plan, &facts(), &mut || {})
}

fn trace_time(session: &Session) -> u64 {
    session.count(Role::Trace).unwrap()
}

#[test]
fn every_hit_is_counted_and_has_its_arguments() {
    let mut target = Target::start();
    let mut session = open(&target, Some(target.landing), StopBy::UserSpace).unwrap();
    assert_eq!(target.does("c 100"), "done");
    let hits = session.hits();
    assert_eq!(session.count(Role::Trigger).unwrap(), 100);
    assert_eq!((hits.samples.len(), hits.lost), (100, 0));
    let mut before = 0;
    for (number, hit) in (1..).zip(&hits.samples) {
        let (arguments, stack) = hit.registers.unwrap();
        assert_eq!(arguments[0], number);
        assert!(stack > 0x1000 && stack % 16 == 8, "{stack:#x}");
        assert_eq!(hit.ip, target.landing);
        assert_eq!((hit.pid, hit.tid), (target.pid(), target.pid()));
        assert!(hit.time > before);
        before = hit.time;
    }
}

/// More hits than the ring has room for, as fast as they come: none is missed, and the recorder hears of
/// the end.
#[test]
fn a_hot_trigger_is_counted_exactly() {
    const CALLS: u64 = 100_000;
    let mut target = Target::start();
    let process = Process::open(target.pid()).unwrap();
    let mut session = open(&target, Some(target.landing), StopBy::UserSpace).unwrap();
    target.order(&format!("c {CALLS}\nq"));
    let begin = Instant::now();
    let (mut told, mut lost, mut drains) = (0, 0, 0);
    loop {
        let ended = session.wait(Some(&process), SOON).unwrap();
        let hits = session.hits();
        told += hits.samples.len() as u64;
        lost += hits.lost;
        drains += 1;
        if ended {
            break;
        }
    }
    assert_eq!(session.count(Role::Trigger).unwrap(), CALLS);
    assert!(told + lost <= CALLS && told > 0, "{told} {lost}");
    eprintln!(
        "{CALLS} hits in {:?}: {told} told in {drains} drains, {lost} told as lost",
        begin.elapsed()
    );
}

/// Breakpoints at the entry and at the return address, which the first call tells, at native speed: exactly
/// the slow calls are slow, by the kernel's times.
#[test]
fn slow_calls_are_told_apart() {
    let mut target = Target::start();
    let mut session = open(&target, Some(target.landing), StopBy::UserSpace).unwrap();
    let landing = target.landing;
    let mut pairs = Pairs::default();
    let mut slow = Vec::new();
    let mut calls = 0;
    let mut returned = 0;
    let mut take = |session: &mut Session| {
        for hit in session.hits().samples {
            let (arguments, stack) = hit.registers.unwrap();
            if hit.ip == landing {
                calls += 1;
                let site = hit.top.unwrap();
                if let Some(site) = pairs.entered(hit.tid, hit.time, stack, site) {
                    session.arm(site, &facts()).unwrap();
                }
                slow.push((arguments[0], None));
            } else if let Some(call) = pairs.came_back(hit.tid, hit.time, stack) {
                returned += 1;
                slow.last_mut().unwrap().1 = Some(call.end - call.begin);
            }
        }
    };
    // Two calls from the one place: the first tells where it returns to.
    target.does("c 1");
    take(&mut session);
    target.does("c 1");
    take(&mut session);
    target.does("p 210");
    take(&mut session);
    assert_eq!(calls, 212);
    assert_eq!(returned, 211);
    assert_eq!(pairs.unseen(), 1);
    let slow: Vec<u64> = slow
        .iter()
        .filter(|(_, took)| took.is_some_and(|took| took >= 5_000_000))
        .map(|&(number, _)| number)
        .collect();
    for number in [100, 200] {
        assert!(slow.contains(&number), "{slow:?}");
    }
    // A busy machine may take the CPU from others too, but not from all of them.
    assert!(slow.len() < 20, "{slow:?}");
}

/// The hit takes the whole group off: the stand-in's clock does not run on.
#[test]
fn a_leading_trigger_stops_the_trace_at_the_first_hit() {
    let mut target = Target::start();
    let mut session = open(&target, Some(target.landing), StopBy::Leader).unwrap();
    // Nothing is hit yet, and the clock runs.
    assert_eq!(target.does("s"), "done");
    let running = trace_time(&session);
    assert!(running > 100_000_000, "{running}");
    assert_eq!(target.does("c 1000"), "done");
    let stopped = trace_time(&session);
    assert_eq!(target.does("s"), "done");
    assert_eq!(trace_time(&session), stopped);
    assert_eq!(session.count(Role::Trigger).unwrap(), 1);
    let hits = session.hits();
    assert_eq!(hits.samples.len(), 1);
    assert_eq!(hits.samples[0].registers.unwrap().0[0], 1);
    // Opened anew, it is armed again, whatever a second REFRESH does on this kernel.
    drop(session);
    let mut session = open(&target, Some(target.landing), StopBy::Leader).unwrap();
    assert_eq!(target.does("c 5"), "done");
    assert_eq!(session.hits().samples.len(), 1);
}

#[test]
fn user_space_stops_and_goes_on() {
    let mut target = Target::start();
    let session = open(&target, Some(target.landing), StopBy::UserSpace).unwrap();
    session.stop().unwrap();
    let stopped = trace_time(&session);
    assert_eq!(target.does("s"), "done");
    assert_eq!(target.does("c 10"), "done");
    assert_eq!(trace_time(&session), stopped);
    assert_eq!(session.count(Role::Trigger).unwrap(), 0);
    session.go_on().unwrap();
    assert_eq!(target.does("s"), "done");
    assert_eq!(target.does("c 10"), "done");
    assert!(trace_time(&session) > stopped + 100_000_000);
    assert_eq!(session.count(Role::Trigger).unwrap(), 10);
}

#[test]
fn the_sideband_has_what_happens() {
    let mut target = Target::start();
    let pid = target.pid();
    let mut read = 0;
    let plan = plan(&request(vec![pid], None, StopBy::UserSpace));
    let mut session = Session::open(&plan, &facts(), &mut || read += 1).unwrap();
    assert_eq!(read, 1);
    let mapped = address(&target.does("m"));
    let records = session.sideband();
    assert!(records.is_sorted_by_key(|record| record.time));
    let has = |what: &dyn Fn(&Sideband) -> bool| records.iter().any(what);
    assert!(
        has(&|s| matches!(
            &s.record,
            Record::Mmap2 { address, len: 8192, executable: true, path, .. }
                if *address == mapped && path == "//anon"
        )),
        "{records:#x?}"
    );
    let name =
        |s: &Sideband| matches!(&s.record, Record::Comm { name, exec: false } if name == "renamed");
    assert!(has(&|s| name(s) && s.tid == Some(pid)));
    // The new thread's birth; its own records are not this thread's.
    let parent =
        |s: &Sideband| matches!(s.record, Record::Fork { parent_pid, .. } if parent_pid == pid);
    assert!(has(&|s| parent(s)
        && s.pid == Some(pid)
        && s.tid != Some(pid)));
    let switched = |wanted: bool| {
        let switches = records.iter().filter(|s| {
            matches!(s.record, Record::Switch { out, .. } if out == wanted) && s.tid == Some(pid)
        });
        switches.count()
    };
    // It waits for its input, and for the thread.
    assert!(switched(true) >= 2 && switched(false) >= 2);
    assert!(records.iter().all(|s| s.time.is_some()), "{records:?}");
}

/// Rings of CPUs, which the threads' events share; a thread that is born later is followed.
#[test]
fn inherited_events_follow_new_threads() {
    let mut target = Target::start();
    let cpus = std::thread::available_parallelism().unwrap().get() as u32;
    let request = Request {
        scope: Scope::Inherited {
            threads: vec![target.pid()],
            cpus: (0..cpus).collect(),
        },
        ..request(Vec::new(), Some(target.landing), StopBy::UserSpace)
    };
    let mut session = Session::open(&plan(&request), &facts(), &mut || {}).unwrap();
    target.does("t 100");
    target.does("c 10");
    let hits = session.hits();
    assert_eq!(session.count(Role::Trigger).unwrap(), 110);
    assert_eq!((hits.samples.len(), hits.lost), (110, 0));
    let new = hits.samples.iter().filter(|hit| hit.tid != target.pid());
    assert_eq!(new.count(), 100);
    // The new thread's own records, too.
    let exits = session.sideband();
    let exit = |s: &&Sideband| s.record == Record::Exit && s.pid == Some(target.pid());
    assert_eq!(exits.iter().filter(exit).count(), 1);
}

/// All that runs on the CPUs: each switch says who comes next.
#[test]
fn whole_cpus_tell_who_runs() {
    let facts = facts();
    if !facts.may_perf() && facts.paranoid > Some(0) {
        eprintln!("SKIPPED: whole CPUs are for root, or kernel.perf_event_paranoid 0");
        return;
    }
    let mut target = Target::start();
    let cpus = std::thread::available_parallelism().unwrap().get() as u32;
    let request = Request {
        scope: Scope::Cpus((0..cpus).collect()),
        ..request(Vec::new(), None, StopBy::UserSpace)
    };
    let mut session = Session::open(&plan(&request), &facts, &mut || {}).unwrap();
    target.does("s");
    let pid = target.pid();
    let records = session.sideband();
    let to_target = records.iter().any(|s| {
        matches!(s.record, Record::Switch { out: true, other: Some((next, _)), .. } if next == pid)
    });
    let away = records
        .iter()
        .any(|s| matches!(s.record, Record::Switch { out: true, .. }) && s.pid == Some(pid));
    let lost = records.iter().any(|s| matches!(s.record, Record::Lost(_)));
    assert!((to_target && away) || lost, "{} records", records.len());
    assert!(records.iter().all(|s| s.cpu.is_some() || lost));
}

#[test]
fn a_process_that_is_gone_is_told_at_once() {
    let mut target = Target::start();
    let process = Process::open(target.pid()).unwrap();
    let session = open(&target, None, StopBy::UserSpace).unwrap();
    assert!(!session.wait(Some(&process), SOON).unwrap());
    target.child.kill().unwrap();
    let begin = Instant::now();
    while !session
        .wait(Some(&process), Duration::from_secs(5))
        .unwrap()
    {}
    assert!(begin.elapsed() < Duration::from_secs(5));
    target.child.wait().unwrap();
    let gone = Process::open(target.pid()).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(3));
    let refused = open(&target, None, StopBy::UserSpace).unwrap_err();
    assert!(refused.why.contains("no such process"), "{refused}");
}

#[test]
fn refusals_of_this_kernel_have_their_messages() {
    let target = Target::start();
    let kernel = open(&target, Some(1 << 63), StopBy::UserSpace).unwrap_err();
    assert!(kernel.why.contains("no address of user code"), "{kernel}");
    // A fifth breakpoint.
    let _four: Vec<Session> = (0..4)
        .map(|offset| open(&target, Some(target.landing + offset), StopBy::UserSpace).unwrap())
        .collect();
    let fifth = open(&target, Some(target.landing + 4), StopBy::UserSpace).unwrap_err();
    assert!(fifth.why.contains("all four debug registers"), "{fifth}");
    // The stand-in has no AUX area.
    let whole = Plan::new(
        &request(vec![target.pid()], None, StopBy::UserSpace),
        &stand_in(),
    );
    let no_trace = Session::open(&whole.unwrap(), &facts(), &mut || {}).unwrap_err();
    assert!(
        no_trace.why.contains("no trace to put into memory"),
        "{no_trace}"
    );
}
