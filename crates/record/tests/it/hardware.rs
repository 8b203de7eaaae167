//! With a CPU's trace unit: `cargo xtask hardware-test`. Elsewhere these tests skip themselves and say why;
//! what they judge a ring by is itself tested everywhere.

use std::path::Path;
use std::time::Duration;

use ptrail_pt::{Encoder, ExecMode, Ip, LastIp, Lexer, Packet, PsbPlus, TraceOffset, find_psb};
use ptrail_record::facts::Facts;
use ptrail_record::plan::{Plan, Request, Ring, Scope, StopBy, Timing};
use ptrail_record::pmu::{DEVICES, Pmu};
use ptrail_record::session::Session;
use ptrail_record::trials::Trials;

use crate::target::Target;

fn trace_unit() -> Option<Pmu> {
    Pmu::read(Path::new(DEVICES))
        .inspect_err(|error| eprintln!("SKIPPED: {error}"))
        .ok()
}

/// What a ring tells from its first PSB on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    packets: usize,
    /// Bytes that are no packet.
    bad: usize,
    /// The last address in a FUP, if tracing went off right after it.
    ends_at: Option<u64>,
}

fn told(ring: &[u8]) -> Option<Told> {
    let first = find_psb(ring, 0)?;
    let mut told = Told::default();
    let mut last_ip = LastIp::new();
    let mut fup = None;
    for lexed in Lexer::new(&ring[first..], TraceOffset(0)) {
        let Ok(lexed) = lexed else {
            told.bad += 1;
            continue;
        };
        told.packets += 1;
        match lexed.packet {
            Packet::Psb => last_ip.reset(),
            Packet::Fup(payload) => fup = last_ip.update(payload),
            Packet::Tip(payload) | Packet::TipPge(payload) => {
                last_ip.update(payload);
                (fup, told.ends_at) = (None, None);
            }
            Packet::TipPgd(payload) => {
                last_ip.update(payload);
                told.ends_at = fup.take().map(|ip| ip.0);
            }
            Packet::Tnt(_) => (fup, told.ends_at) = (None, None),
            _ => {}
        }
    }
    Some(told)
}

#[test]
fn a_ring_is_judged_by_its_last_packets() {
    let mut encoder = Encoder::new();
    encoder.put(&Packet::Mtc(7));
    encoder.psb_plus(&PsbPlus {
        tsc: None,
        tma: None,
        cbr: None,
        cr3: None,
        vmcs: None,
        mode_exec: Some((ExecMode::Bits64, true)),
        mode_tsx: None,
        ip: Some(Ip(0x40_0000)),
    });
    encoder.tip(Ip(0x40_1000));
    encoder.fup(Ip(0x40_1010));
    encoder.tip_pgd(None);
    let stopped = told(encoder.bytes()).unwrap();
    assert_eq!((stopped.bad, stopped.ends_at), (0, Some(0x40_1010)));
    encoder.tip_pge(Ip(0x40_1010));
    assert_eq!(told(encoder.bytes()).unwrap().ends_at, None);
    assert_eq!(told(&[0; 64]), None);
}

fn open(pmu: &Pmu, target: &Target, breakpoint: Option<u64>, stop: StopBy) -> Option<Session> {
    let request = Request {
        scope: Scope::Threads(vec![target.pid()]),
        ring: Ring::Snapshot(64 << 10),
        timing: Timing::Cyc,
        user: true,
        kernel: false,
        return_compression: true,
        ptwrite: false,
        filters: Vec::new(),
        breakpoint,
        stop,
    };
    let plan = Plan::new(&request, pmu).unwrap();
    for note in &plan.notes {
        eprintln!("  note: {note}");
    }
    Session::open(&plan, &Facts::read(Path::new("/")), &mut || {})
        .inspect_err(|refusal| eprintln!("  {stop:?}: refused: {refusal}"))
        .ok()
}

#[test]
fn a_thread_is_traced() {
    let Some(pmu) = trace_unit() else { return };
    eprintln!("{pmu:#?}");
    eprintln!("{:#?}", Trials::run(&Facts::read(Path::new("/"))));
    let mut target = Target::start();
    let session = open(&pmu, &target, None, StopBy::UserSpace).expect("refused, see above");
    assert_eq!(target.does("c 100000"), "done");
    session.stop().unwrap();
    let rings = session.snapshots().unwrap();
    let told = told(&rings[0]).expect("no PSB in the ring");
    eprintln!("  {} bytes: {told:?}", rings[0].len());
    assert_eq!(told.bad, 0);
    assert!(told.packets > 1000);
}

/// The last thing in the ring is the instruction before the hit.
#[test]
fn each_way_to_stop_stops_at_the_hit() {
    let Some(pmu) = trace_unit() else { return };
    for stop in [
        StopBy::Leader,
        StopBy::Pause,
        StopBy::Sample,
        StopBy::UserSpace,
    ] {
        let mut target = Target::start();
        let landing = target.landing;
        let Some(mut session) = open(&pmu, &target, Some(landing), stop) else {
            continue;
        };
        target.order("c 1000");
        while session.hits().samples.is_empty() {
            session.wait(None, Duration::from_millis(100)).unwrap();
        }
        session.stop().unwrap();
        assert_eq!(target.answer(), "done");
        let rings = session.snapshots().unwrap();
        let told = told(&rings[0]);
        eprintln!(
            "  {stop:?}: landing at {landing:#x}; {} bytes: {told:x?}",
            rings[0].len()
        );
        if matches!(stop, StopBy::Leader | StopBy::Pause) {
            assert_eq!(
                told.and_then(|told| told.ends_at),
                Some(landing),
                "{stop:?}"
            );
        }
    }
}
