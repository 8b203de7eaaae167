//! Plans against the kernel's rules, for the machines of `testdata/sysfs`.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::pmu::PmuError;

/// A folder like `/sys/bus/event_source/devices`.
fn lay_out(machine: &str) -> tempfile::TempDir {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../testdata/sysfs/{machine}.txt"));
    let folder = tempfile::tempdir().unwrap();
    for line in fs::read_to_string(file).unwrap().lines() {
        let (path, text) = line.split_once(' ').unwrap();
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    folder
}

fn pmu(machine: &str) -> Pmu {
    Pmu::read(lay_out(machine).path()).unwrap()
}

fn request() -> Request {
    Request {
        scope: Scope::Threads(vec![100]),
        ring: Ring::Snapshot(4 << 20),
        timing: Timing::Cyc,
        user: true,
        kernel: false,
        return_compression: true,
        ptwrite: false,
        filters: Vec::new(),
        breakpoint: None,
        stop: StopBy::Leader,
    }
}

fn plan(request: &Request, machine: &str) -> Plan {
    Plan::new(request, &pmu(machine)).unwrap()
}

fn trace_of(plan: &Plan) -> Attr {
    let trace = plan.opened().find(|open| open.0 == Role::Trace);
    *trace.unwrap().1
}

// Bits of IA32_RTIT_CTL (SDM volume 3, table 33-6), by hand.
const TRACE_ALL: u64 = 1 | 1 << 13 | 1 << 10;
const MTC_3: u64 = 1 << 9 | 3 << 14;
const PSB_3: u64 = 3 << 24;
const CYC: u64 = 1 << 1;

#[test]
fn machines_are_read() {
    let skylake = pmu("skylake");
    assert_eq!(skylake.kind, 8);
    assert_eq!(skylake.caps["mtc_periods"], 0x249);
    assert_eq!(skylake.address_filters, 2);
    assert_eq!(skylake.tsc_per_crystal, Some((168, 2)));
    assert_eq!(pmu("broadwell").tsc_per_crystal, None);
    assert_eq!(pmu("broadwell").address_filters, 0);
    assert!(pmu("alderlake").has("event"));
    assert!(!skylake.has("event") && !skylake.has("ptw") && pmu("icelake").has("ptw"));
    let none = lay_out("none");
    assert!(matches!(
        Pmu::read(none.path()),
        Err(PmuError::Missing { .. })
    ));
    let nowhere = none.path().join("nowhere");
    assert!(matches!(Pmu::read(&nowhere), Err(PmuError::NoSysfs { .. })));
    let broken = lay_out("skylake");
    fs::write(broken.path().join("intel_pt/caps/mtc"), "0x1\n").unwrap();
    let error = Pmu::read(broken.path()).unwrap_err().to_string();
    assert!(
        error.contains("caps/mtc") && error.contains("0x1"),
        "{error}"
    );
}

#[test]
fn the_trace_units_settings() {
    let timings = [
        (Timing::Cyc, TRACE_ALL | MTC_3 | PSB_3 | CYC),
        (Timing::Mtc, TRACE_ALL | MTC_3 | PSB_3),
        (Timing::Tsc, TRACE_ALL | PSB_3),
    ];
    for machine in ["skylake", "icelake", "alderlake"] {
        for (timing, config) in timings {
            let plan = plan(
                &Request {
                    timing,
                    ..request()
                },
                machine,
            );
            assert_eq!(trace_of(&plan).config, config, "{machine} {timing:?}");
            assert_eq!(plan.notes, Vec::<String>::new());
        }
    }
    // Broadwell has neither, and says so.
    let broadwell = plan(&request(), "broadwell");
    assert_eq!(trace_of(&broadwell).config, TRACE_ALL);
    assert_eq!(broadwell.notes.len(), 2, "{:?}", broadwell.notes);

    let uncompressed = Request {
        return_compression: false,
        ptwrite: true,
        ..request()
    };
    let skylake = plan(&uncompressed, "skylake");
    let with = TRACE_ALL | MTC_3 | PSB_3 | CYC | 1 << 11;
    assert_eq!(trace_of(&skylake).config, with);
    assert!(skylake.notes[0].contains("no PTWRITE"));
    let icelake = plan(&uncompressed, "icelake");
    assert_eq!(trace_of(&icelake).config, with | 1 << 12 | 1 << 5);
}

#[test]
fn a_thread_has_its_sideband_before_its_trace() {
    let plan = plan(&request(), "skylake");
    let kinds: Vec<&str> = plan
        .calls
        .iter()
        .map(|call| match call {
            Call::Open {
                role: Role::Sideband,
                ..
            } => "open sideband",
            Call::Open { .. } => "open trace",
            Call::MapRing { event: 0, .. } => "map sideband",
            Call::MapRing { .. } => "map base",
            Call::MapAux { .. } => "map aux",
            Call::ReadProc => "read proc",
            Call::Enable { event: 0 } => "enable sideband",
            Call::Enable { .. } => "enable trace",
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        "open sideband",
        "map sideband",
        "enable sideband",
        "read proc",
        "open trace",
        "map base",
        "map aux",
        "enable trace",
    ];
    assert_eq!(kinds, expected);
    let trace = trace_of(&plan);
    assert!(
        trace
            .flags
            .contains(Flags::EXCLUDE_KERNEL | Flags::DISABLED)
    );
    assert!(!trace.flags.contains(Flags::EXCLUDE_USER | Flags::INHERIT));
    // A snapshot: the header page alone, and the AUX area right behind it.
    assert!(plan.calls.contains(&Call::MapRing { event: 1, pages: 0 }));
    assert!(plan.calls.contains(&Call::MapAux {
        event: 1,
        offset: 4096,
        size: 4 << 20,
        overwrite: true,
    }));
    assert_eq!(plan.mapped, (17 + 1) * 4096 + (4 << 20));
}

#[test]
fn a_stream_has_records_and_wakeups() {
    let request = Request {
        ring: Ring::Stream(1 << 20),
        ..request()
    };
    let plan = plan(&request, "skylake");
    assert_eq!(trace_of(&plan).aux_watermark, 1 << 18);
    assert!(plan.calls.contains(&Call::MapAux {
        event: 1,
        offset: 17 * 4096,
        size: 1 << 20,
        overwrite: false,
    }));
}

#[test]
fn the_four_ways_to_stop() {
    let with = |stop| Request {
        breakpoint: Some(0x40_1000),
        stop,
        ..request()
    };
    // Who leads whom, and who is off at first.
    let groups = |stop| -> Vec<(Role, Option<usize>, bool)> {
        let plan = plan(&with(stop), "skylake");
        let opened = plan.opened().skip(1);
        opened
            .map(|(role, attr, _, _, group)| (role, group, attr.flags.contains(Flags::DISABLED)))
            .collect()
    };
    assert_eq!(
        groups(StopBy::Leader),
        [(Role::Trigger, None, true), (Role::Trace, Some(1), false)]
    );
    assert_eq!(
        groups(StopBy::Pause),
        [(Role::Trace, None, true), (Role::Trigger, Some(1), false)]
    );
    assert_eq!(groups(StopBy::Sample), groups(StopBy::Pause));
    assert_eq!(
        groups(StopBy::UserSpace),
        [(Role::Trace, None, true), (Role::Trigger, None, true)]
    );
    let last = |stop| plan(&with(stop), "skylake").calls.pop().unwrap();
    assert_eq!(last(StopBy::Leader), Call::Refresh { event: 1 });
    assert_eq!(last(StopBy::Pause), Call::Enable { event: 1 });
    assert_eq!(last(StopBy::UserSpace), Call::Enable { event: 2 });
    let trigger = |stop| {
        let plan = plan(&with(stop), "skylake");
        *plan
            .opened()
            .find(|open| open.0 == Role::Trigger)
            .unwrap()
            .1
    };
    for stop in STOPS {
        let attr = trigger(stop);
        assert_eq!((attr.kind, attr.bp_type, attr.config2), (5, 4, 8));
        assert_eq!((attr.config1, attr.sample_period), (0x40_1000, 1));
        let pauses = attr.aux_action == AuxAction::PAUSE;
        assert_eq!(pauses, stop == StopBy::Pause);
        assert_eq!(attr.aux_sample_size > 0, stop == StopBy::Sample);
    }
}

#[test]
fn inherited_events_share_the_rings_of_their_cpus() {
    let request = Request {
        scope: Scope::Inherited {
            threads: vec![100, 101],
            cpus: vec![0, 1, 2],
        },
        ..request()
    };
    let plan = plan(&request, "skylake");
    let traces = plan.opened().filter(|open| open.0 == Role::Trace);
    let places: Vec<(i32, i32)> = traces.map(|open| (open.2, open.3)).collect();
    assert_eq!(
        places,
        [(100, 0), (101, 0), (100, 1), (101, 1), (100, 2), (101, 2)]
    );
    assert!(
        plan.opened()
            .all(|open| open.1.flags.contains(Flags::INHERIT))
    );
    let rings = plan
        .calls
        .iter()
        .filter(|call| matches!(call, Call::MapAux { .. }));
    assert_eq!(rings.count(), 3);
    let leader = Request {
        breakpoint: Some(1),
        ..request
    };
    let refused = Plan::new(&leader, &pmu("skylake"));
    assert_eq!(refused, Err(PlanError::LeaderInherited));
}

#[test]
fn filters_are_written_as_the_kernel_reads_them() {
    let filter = |stop, start, file: Option<&str>| Filter {
        stop,
        start,
        size: 0x20,
        file: file.map(str::to_owned),
    };
    let with = |filters| Request {
        filters,
        ..request()
    };
    let two = with(vec![
        filter(false, 0x1000, Some("/bin/a")),
        filter(true, 0x40_0000, None),
    ]);
    let plan = plan(&two, "skylake");
    assert!(plan.calls.contains(&Call::SetFilter {
        event: 1,
        filter: "filter 0x1000/0x20@/bin/a,stop 0x400000/0x20".into(),
    }));
    assert_eq!(
        Plan::new(&two, &pmu("broadwell")),
        Err(PlanError::Filters { asked: 2, has: 0 })
    );
    let spaces = with(vec![filter(false, 0, Some("/bin/a b"))]);
    let error = Plan::new(&spaces, &pmu("skylake")).unwrap_err();
    assert_eq!(
        error,
        PlanError::FilterPath {
            path: "/bin/a b".into()
        }
    );
    let cpus = Request {
        scope: Scope::Cpus(vec![0]),
        ..with(vec![filter(false, 0, Some("/bin/a"))])
    };
    assert_eq!(
        Plan::new(&cpus, &pmu("skylake")),
        Err(PlanError::FilterScope)
    );
}

#[test]
fn sizes_that_no_ring_has() {
    let with = |ring| Request { ring, ..request() };
    for (ring, nearest) in [
        (Ring::Snapshot(5000), 8192),
        (Ring::Snapshot(1), 4096),
        (Ring::Stream(4096), 8192),
        (Ring::Snapshot(u64::MAX), 1 << 40),
    ] {
        let error = Plan::new(&with(ring), &pmu("skylake")).unwrap_err();
        assert!(
            matches!(error, PlanError::RingSize { nearest: n, .. } if n == nearest),
            "{error:?}"
        );
    }
    let large = with(Ring::Snapshot(8 << 20));
    assert_eq!(
        Plan::new(&large, &pmu("broadwell")),
        Err(PlanError::OneBlock { size: 8 << 20 })
    );
    assert!(Plan::new(&large, &pmu("skylake")).is_ok());
}

const STOPS: [StopBy; 4] = [
    StopBy::Leader,
    StopBy::Pause,
    StopBy::Sample,
    StopBy::UserSpace,
];

fn any_request() -> impl Strategy<Value = Request> {
    let threads = || prop::collection::vec(1..40_000_u32, 1..4);
    let cpus = || prop::collection::vec(0..64_u32, 1..4);
    let scope = prop_oneof![
        threads().prop_map(Scope::Threads),
        cpus().prop_map(Scope::Cpus),
        (threads(), cpus()).prop_map(|(threads, cpus)| Scope::Inherited { threads, cpus }),
    ];
    (
        scope,
        (12..30_u32, any::<bool>()),
        prop::sample::select(&[Timing::Cyc, Timing::Mtc, Timing::Tsc][..]),
        (any::<bool>(), any::<bool>()),
        prop::option::of(any::<u64>()),
        prop::sample::select(&STOPS[..]),
    )
        .prop_map(
            |(scope, (size, stream), timing, (kernel, ptwrite), breakpoint, stop)| Request {
                scope,
                ring: if stream {
                    Ring::Stream(1 << size)
                } else {
                    Ring::Snapshot(1 << size)
                },
                timing,
                user: true,
                kernel,
                return_compression: !kernel,
                ptwrite,
                filters: Vec::new(),
                breakpoint,
                stop,
            },
        )
}

proptest! {
    /// The rules by which the kernel says EINVAL (perf_event_open(2), `perf_event_set_output`,
    /// `perf_mmap`).
    #[test]
    fn every_plan_keeps_the_kernels_rules(
        request in any_request(),
        machine in prop::sample::select(&["broadwell", "skylake", "icelake", "alderlake"][..]),
    ) {
        let Ok(plan) = Plan::new(&request, &pmu(machine)) else {
            return Ok(());
        };
        let opened: Vec<_> = plan.opened().collect();
        let mut mapped = vec![false; opened.len()];
        let mut redirected = vec![false; opened.len()];
        let mut seen = 0;
        for call in &plan.calls {
            match call {
                Call::Open { pid, cpu, group, attr, .. } => {
                    prop_assert!(*pid >= 0 || *cpu >= 0);
                    if let Some(leader) = *group {
                        let leader = &opened[leader];
                        prop_assert_eq!((leader.2, leader.3, leader.4), (*pid, *cpu, None));
                        let inherit = |attr: &Attr| attr.flags.contains(Flags::INHERIT);
                        prop_assert_eq!(inherit(leader.1), inherit(attr));
                    }
                    seen += 1;
                }
                Call::MapRing { event, pages } => {
                    let (_, attr, _, cpu, _) = opened[*event];
                    prop_assert!(*event < seen && (*pages == 0 || pages.is_power_of_two()));
                    prop_assert!(!(cpu == -1 && attr.flags.contains(Flags::INHERIT)));
                    prop_assert!(!std::mem::replace(&mut mapped[*event], true));
                    prop_assert!(!redirected[*event]);
                }
                Call::MapAux { event, offset, size, .. } => {
                    prop_assert!(mapped[*event] && size.is_power_of_two() && offset % PAGE == 0);
                    prop_assert_eq!(opened[*event].0, Role::Trace);
                }
                Call::SetOutput { event, to } => {
                    let (event_of, to_of) = (opened[*event], opened[*to]);
                    prop_assert!(mapped[*to] && !mapped[*event]);
                    prop_assert_eq!(event_of.3, to_of.3);
                    prop_assert!(event_of.3 >= 0 || event_of.2 == to_of.2);
                    redirected[*event] = true;
                }
                Call::Refresh { event } => {
                    prop_assert!(!opened[*event].1.flags.contains(Flags::INHERIT));
                }
                Call::Enable { event } | Call::SetFilter { event, .. } => prop_assert!(*event < seen),
                Call::ReadProc => {
                    // Whatever is mapped from now on leaves a record.
                    let sidebands = opened.iter().filter(|open| open.0 == Role::Sideband).count();
                    prop_assert_eq!(sidebands, seen);
                }
            }
        }
        // Each event with records has a ring to put them in.
        for (number, open) in opened.iter().enumerate() {
            prop_assert!(mapped[number] || redirected[number], "{:?}", open);
        }
    }
}
