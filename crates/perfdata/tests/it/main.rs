//! Captures against truth: what was written, stock perf, other people's recordings, broken files.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod damage;
mod forms;
mod program;
mod quipper;
mod refused;
mod round_trip;
mod stock_perf;

use ptrail_perfdata::{Extra, Machine, Record, Sideband, SourceNote, Target};
use ptrail_pt::{PtConfig, TimeConv};

fn clock() -> TimeConv {
    TimeConv {
        shift: 10,
        mult: 512,
        zero: 1_000,
        cycles: 0,
        mask: 0,
        cap_user_time_zero: true,
        cap_user_time_short: false,
    }
}

fn target() -> Target {
    Target {
        pt_config: PtConfig {
            tsc: true,
            mtc: true,
            mtc_freq: 3,
            tsc_ctc_n: 168,
            tsc_ctc_d: 2,
            max_non_turbo_ratio: 20,
            ..PtConfig::default()
        },
        clock: clock(),
        machine: Machine {
            hostname: "host".to_owned(),
            os_release: "6.1.0".to_owned(),
            arch: "x86_64".to_owned(),
            cpu_description: "Some CPU @ 2.00GHz".to_owned(),
            cpuid: "GenuineIntel,6,85,4".to_owned(),
            command: vec![
                "ptrail".to_owned(),
                "run".to_owned(),
                "--".to_owned(),
                "a b".to_owned(),
            ],
        },
        pid: 100,
        tid: 100,
        snapshots: false,
    }
}

fn extra() -> Extra {
    Extra {
        source: SourceNote::Software {
            engine: "step".to_owned(),
            clock: "virtual".to_owned(),
        },
        wall_clock: 1_700_000_000_000_000_000,
        wall_clock_at: 1_000,
        command: vec!["a b".to_owned()],
        end: "exited with status 0".to_owned(),
        notes: Vec::new(),
        triggers: Vec::new(),
        snapshots: Vec::new(),
        code: Vec::new(),
    }
}

fn event(time: u64, pid: u32, tid: u32, record: Record) -> Sideband {
    Sideband {
        time: Some(time),
        pid: Some(pid),
        tid: Some(tid),
        cpu: None,
        record,
    }
}
