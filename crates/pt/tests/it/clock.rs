//! The clock against true times.

use proptest::prelude::*;
use ptrail_pt::{
    Clock, Encoder, ExecMode, Ip, Lexer, Packet, PerfTime, PsbPlus, PtConfig, TimeConv, Tnt,
    TraceOffset, Tsc,
};

use crate::testdata;

const CONFIG: PtConfig = PtConfig {
    filters: [None; 4],
    cpu: None,
    tsc: true,
    mtc: true,
    mtc_freq: 3,
    cyc: true,
    no_return_compression: false,
    psb_freq: 1,
    tsc_ctc_n: 80,
    tsc_ctc_d: 1,
    max_non_turbo_ratio: 20,
};

/// Two ticks are a nanosecond.
const CONV: TimeConv = TimeConv {
    shift: 31,
    mult: 1 << 30,
    zero: 0,
    cycles: 0,
    mask: 0,
    cap_user_time_zero: true,
    cap_user_time_short: false,
};

/// A CPU whose core clock runs `cbr` / 20 times as fast as its TSC: it writes packets, and knows
/// the time.
struct Cpu {
    encoder: Encoder,
    /// Core clocks since tick 0, and at the last CYC.
    cycles: u64,
    at_last_cyc: u64,
    last_mtc: u64,
    cbr: u8,
    mtc_freq: u8,
    cyc: bool,
    /// The true time in picoseconds at each stream offset behind a CYC or TSC.
    truth: Vec<(u64, u64)>,
}

impl Cpu {
    fn new(cycles: u64, cbr: u8, mtc_freq: u8, cyc: bool) -> Self {
        let mut cpu = Self {
            encoder: Encoder::new(),
            cycles,
            at_last_cyc: cycles,
            last_mtc: 0,
            cbr,
            mtc_freq,
            cyc,
            truth: Vec::new(),
        };
        cpu.last_mtc = (cpu.tsc() / 80) >> mtc_freq;
        cpu
    }

    fn ticks_at(&self, cycles: u64) -> u64 {
        cycles * 20 / u64::from(self.cbr)
    }

    fn tsc(&self) -> u64 {
        self.ticks_at(self.cycles)
    }

    fn picos(&self) -> u64 {
        self.cycles * 20 * 500 / u64::from(self.cbr)
    }

    fn note(&mut self) {
        self.truth.push((self.encoder.total(), self.picos()));
    }

    fn cyc(&mut self) {
        if self.cyc && self.cycles != self.at_last_cyc {
            self.encoder
                .put(&Packet::Cyc(self.cycles - self.at_last_cyc));
            self.at_last_cyc = self.cycles;
            self.note();
        }
    }

    /// Runs on, with an MTC, and the CYC before it, at each edge of the crystal clock's period.
    fn run(&mut self, cycles: u64) {
        let end = self.cycles + cycles;
        loop {
            let edge = ((self.last_mtc + 1) * 80) << self.mtc_freq;
            let at_edge = (edge * u64::from(self.cbr)).div_ceil(20);
            if at_edge > end {
                break;
            }
            self.cycles = at_edge;
            self.last_mtc += 1;
            self.cyc();
            self.encoder.put(&Packet::Mtc(self.last_mtc as u8));
        }
        self.cycles = end;
    }

    fn psb(&mut self) {
        self.cyc();
        let tsc = self.tsc();
        self.encoder.psb_plus(&PsbPlus {
            tsc: Some(Tsc(tsc)),
            tma: Some(((tsc / 80) as u16, (tsc % 80) as u16)),
            cbr: Some(self.cbr),
            mode_exec: Some((ExecMode::Bits64, false)),
            ip: Some(Ip(0x40_1000)),
            ..PsbPlus::default()
        });
        self.note();
    }

    fn tnt(&mut self) {
        self.cyc();
        self.encoder.put(&Packet::Tnt(Tnt::short(1, 1)));
    }
}

/// Reads the stream back; calls `check` with what the clock says and the truth at each point.
fn compare(cpu: &Cpu, mut check: impl FnMut(ptrail_pt::Time, u64)) -> Clock {
    let config = PtConfig {
        mtc_freq: cpu.mtc_freq,
        cyc: cpu.cyc,
        ..CONFIG
    };
    let mut clock = Clock::new(&config, Some(CONV), PerfTime(0));
    let mut truth = cpu.truth.iter().peekable();
    for lexed in Lexer::new(cpu.encoder.bytes(), TraceOffset(0)) {
        let lexed = lexed.unwrap();
        clock.eat(&lexed.packet);
        let end = lexed.offset.0 + u64::from(lexed.len);
        while let Some((_, picos)) = truth.next_if(|(offset, _)| *offset <= end) {
            check(clock.now().expect("a TSC came first"), *picos);
        }
    }
    assert!(truth.next().is_none());
    clock
}

fn steps() -> impl Strategy<Value = Vec<(u8, u64)>> {
    let step = prop_oneof![
        20 => (Just(0), 0..12_u64),
        2 => (Just(0), 0..2000_u64),
        1 => (Just(1), 0..3000_u64),
    ];
    proptest::collection::vec(step, 1..400)
}

fn record(start: u64, cbr: u8, mtc_freq: u8, cyc: bool, steps: &[(u8, u64)]) -> Cpu {
    let mut cpu = Cpu::new(start, cbr, mtc_freq, cyc);
    cpu.psb();
    for (what, cycles) in steps {
        cpu.run(*cycles);
        if *what == 0 { cpu.tnt() } else { cpu.psb() }
    }
    cpu
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    /// Core clock and TSC at 2 GHz, as in the software recorder: each CYC to the core cycle.
    #[test]
    fn cyc_tells_the_time_to_a_core_cycle(start in 0..1_u64 << 50, steps in steps()) {
        let cpu = record(start, 20, 3, true, &steps);
        let clock = compare(&cpu, |time, truth| {
            assert!(time.at.0.abs_diff(truth) <= 500, "{} is not {truth}", time.at.0);
            assert!(time.at.0.abs_diff(truth) <= time.error.0);
        });
        assert_eq!(clock.clamps(), 0);
    }

    /// Other core clocks and MTC periods, also those of which a TMA holds too few bits.
    #[test]
    fn the_truth_is_within_the_error(
        start in 0..1_u64 << 50, cbr in 4..60_u8, mtc_freq in 0..13_u8, steps in steps(),
    ) {
        let cpu = record(start, cbr, mtc_freq, true, &steps);
        let mut last = 0;
        compare(&cpu, |time, truth| {
            assert!(time.at.0.abs_diff(truth) <= time.error.0, "{time:?} is not {truth}");
            assert!(time.at.0 >= last);
            last = time.at.0;
        });
    }
}

#[test]
fn mtc_alone_is_exact_at_its_edges() {
    let mut cpu = Cpu::new(12_345_678, 20, 3, false);
    cpu.psb();
    let config = PtConfig {
        cyc: false,
        ..CONFIG
    };
    cpu.run(1_000_000);
    let mut clock = Clock::new(&config, Some(CONV), PerfTime(0));
    let mut edges = 0;
    for lexed in Lexer::new(cpu.encoder.bytes(), TraceOffset(0)) {
        let packet = lexed.unwrap().packet;
        clock.eat(&packet);
        if let Packet::Mtc(_) = packet {
            let tsc = clock.tsc().unwrap().0;
            assert_eq!(tsc % 640, 0);
            edges += 1;
            assert_eq!(tsc, (12_345_678 / 640 + edges) * 640);
        }
    }
    assert!(edges > 1500); // the 8 bits wrap six times
}

fn feed(clock: &mut Clock, packets: &[Packet]) {
    packets.iter().for_each(|packet| clock.eat(packet));
}

fn tsc_after(packets: &[Packet]) -> u64 {
    let mut clock = Clock::new(&CONFIG, Some(CONV), PerfTime(0));
    feed(&mut clock, packets);
    clock.tsc().unwrap().0
}

/// TSC 80,000 at crystal clock 1000 (MTC 125 at freq 3).
const START: [Packet; 4] = [
    Packet::Psb,
    Packet::Tsc(80_000),
    Packet::Tma {
        ctc: 1000,
        fast_counter: 0,
    },
    Packet::PsbEnd,
];

fn started(more: &[Packet]) -> Vec<Packet> {
    [&START, more].concat()
}

#[test]
fn there_is_no_time_before_the_first_tsc() {
    let mut clock = Clock::new(&CONFIG, None, PerfTime(0));
    feed(
        &mut clock,
        &[Packet::Psb, Packet::Cyc(9), Packet::Mtc(3), Packet::Ovf],
    );
    assert_eq!((clock.now(), clock.tsc()), (None, None));
}

#[test]
fn the_fast_counter_sets_the_edge_before_the_tsc() {
    let packets = [
        Packet::Tsc(80_030),
        Packet::Tma {
            ctc: 1000,
            fast_counter: 30,
        },
        Packet::Mtc(126),
    ];
    assert_eq!(tsc_after(&packets), 80_640);
}

#[test]
fn lost_mtcs_are_made_up_for() {
    assert_eq!(tsc_after(&started(&[Packet::Mtc(126)])), 80_640);
    assert_eq!(
        tsc_after(&started(&[Packet::Mtc(126), Packet::Mtc(124)])),
        80_000 + 255 * 640
    );
    // CYC shows that a whole round of 256 was lost.
    let cbr = Packet::Cbr {
        ratio: 20,
        reserved: 0,
    };
    let packets = started(&[
        cbr,
        Packet::Mtc(126),
        Packet::Cyc(257 * 640),
        Packet::Mtc(127),
    ]);
    assert_eq!(tsc_after(&packets), 80_000 + 258 * 640);
}

#[test]
fn a_tsc_without_tma_keeps_the_tie_of_the_clocks() {
    let packets = started(&[Packet::Mtc(126), Packet::Tsc(81_000), Packet::Mtc(127)]);
    assert_eq!(tsc_after(&packets), 81_280);
}

#[test]
fn the_first_mtc_without_any_tma_is_where_time_stands() {
    assert_eq!(tsc_after(&[Packet::Tsc(5000), Packet::Mtc(9)]), 5000);
    assert_eq!(
        tsc_after(&[Packet::Tsc(5000), Packet::Mtc(9), Packet::Mtc(11)]),
        6280
    );
}

#[test]
fn an_invalid_tma_tells_nothing() {
    let invalid = Packet::TmaInvalid(1 << 16 | 77);
    let packets = started(&[Packet::Tsc(80_100), invalid, Packet::Mtc(126)]);
    assert_eq!(tsc_after(&packets), 80_640);
}

#[test]
fn without_a_threshold_the_cyc_before_an_mtc_is_at_its_edge() {
    // 700 core clocks to the edge after 640 ticks: the core is faster than CBR says.
    let packets = started(&[
        Packet::Cbr {
            ratio: 20,
            reserved: 0,
        },
        Packet::Cyc(0),
        Packet::Mtc(125),
        Packet::Cyc(700),
        Packet::Mtc(126),
        Packet::Cyc(100),
    ]);
    let mut clock = Clock::new(&CONFIG, Some(CONV), PerfTime(0));
    feed(&mut clock, &packets);
    assert_eq!(clock.clamps(), 1);
    assert_eq!(clock.tsc().unwrap().0, 80_740);
}

#[test]
fn with_a_threshold_a_cyc_counts_from_the_last_one_not_from_the_mtc() {
    let tnt = Packet::Tnt(Tnt::short(1, 1));
    let packets = started(&[
        Packet::Cbr {
            ratio: 20,
            reserved: 0,
        },
        Packet::Cyc(600),
        tnt,
        Packet::Mtc(126),
        Packet::Cyc(100),
    ]);
    assert_eq!(tsc_after(&packets), 80_700);
}

#[test]
fn a_measured_ratio_replaces_cbr() {
    let mut packets = started(&[Packet::Cbr {
        ratio: 20,
        reserved: 0,
    }]);
    for mtc in 126..140 {
        packets.extend([Packet::Cyc(320), Packet::Mtc(mtc)]); // half as fast as CBR says
    }
    packets.push(Packet::Cyc(100));
    assert_eq!(tsc_after(&packets), 80_000 + 14 * 640 + 200);
    // Another frequency: CBR again.
    packets.extend([
        Packet::Cbr {
            ratio: 40,
            reserved: 0,
        },
        Packet::Cyc(100),
    ]);
    assert_eq!(tsc_after(&packets), 80_000 + 14 * 640 + 250);
}

#[test]
fn nothing_is_known_of_an_overflow_until_the_next_tsc_or_mtc() {
    let mut clock = Clock::new(&CONFIG, Some(CONV), PerfTime(0));
    feed(&mut clock, &started(&[Packet::Ovf, Packet::Cyc(5)]));
    assert_eq!(clock.now().unwrap().error.0, u64::MAX);
    feed(
        &mut clock,
        &[
            Packet::Tsc(90_000),
            Packet::Tma {
                ctc: 1125,
                fast_counter: 0,
            },
        ],
    );
    assert_eq!(clock.now().unwrap().at.0, 45_000_000);
    assert!(clock.now().unwrap().error.0 < 1000);
}

#[test]
fn time_stands_until_the_truth_has_caught_up() {
    let mut clock = Clock::new(&CONFIG, Some(CONV), PerfTime(0));
    feed(&mut clock, &[Packet::Tsc(1000), Packet::Tsc(900)]);
    let time = clock.now().unwrap();
    assert_eq!((clock.tsc(), clock.clamps()), (Some(Tsc(1000)), 1));
    assert_eq!(time.at.0, 500_000);
    assert!(time.error.0 >= 50_000);
    feed(&mut clock, &[Packet::Tsc(1001)]);
    assert_eq!((clock.tsc(), clock.clamps()), (Some(Tsc(1001)), 1));
}

#[test]
fn a_long_rest_does_not_run_ahead_of_the_tsc_behind_it() {
    let config = PtConfig {
        mtc: false,
        ..CONFIG
    };
    let mut clock = Clock::new(&config, Some(CONV), PerfTime(0));
    let cbr = Packet::Cbr {
        ratio: 20,
        reserved: 0,
    };
    feed(&mut clock, &[Packet::Tsc(1_000_000), cbr]);
    // The core was really a little slower than nominal: 10,000,000 clocks took 9,990,000 ticks.
    feed(&mut clock, &[Packet::Cyc(10_000_000)]);
    let resting = clock.now().unwrap();
    let picos = |ticks: u64| ticks * 500;
    assert!(resting.at.0 <= picos(10_990_000));
    assert!(resting.at.0 + resting.error.0 >= picos(10_990_000));
    feed(&mut clock, &[Packet::Tsc(10_990_000)]);
    assert_eq!((clock.tsc(), clock.clamps()), (Some(Tsc(10_990_000)), 0));
    feed(&mut clock, &[Packet::Cyc(10)]);
    assert_eq!(clock.tsc(), Some(Tsc(10_990_010)));
    assert!(clock.now().unwrap().error.0 < picos(10));
}

#[test]
fn the_eighth_byte_of_the_tsc_comes_from_the_base() {
    let tsc = 0x12_ffff_ffff_ff00;
    let high = 7 << 56 | tsc;
    let mut clock = Clock::new(&CONFIG, Some(CONV), PerfTime(high / 2));
    feed(&mut clock, &[Packet::Tsc(tsc)]);
    assert_eq!(clock.tsc(), Some(Tsc(high)));
    // And it goes on when the 56 bits wrap.
    let mut clock = Clock::new(&CONFIG, Some(CONV), PerfTime(0));
    feed(&mut clock, &[Packet::Tsc((1 << 56) - 1), Packet::Tsc(4)]);
    assert_eq!(clock.tsc(), Some(Tsc(1 << 56 | 4)));
}

/// A real trace with CYC and MTC, against libipt's estimate of the TSC. libipt rounds each MTC
/// period and each CYC down, so the two may differ by some ticks.
#[test]
fn dynamorio_times_are_those_of_libipt() {
    let Some(folder) = testdata::folder("dynamorio") else {
        return;
    };
    let config = PtConfig {
        tsc_ctc_n: 308,
        tsc_ctc_d: 2,
        max_non_turbo_ratio: 37,
        ..CONFIG
    };
    let listing = std::fs::read_to_string(folder.join("ptdump-time.txt")).unwrap();
    let mut expected = listing.lines().filter_map(|line| {
        let (offset, rest) = line.split_once("  ")?;
        let tsc = rest.split_once("tsc  ").map(|(_, tsc)| tsc);
        Some((u64::from_str_radix(offset, 16).ok()?, tsc))
    });
    let data = std::fs::read(folder.join("pt.bin")).unwrap();
    let mut clock = Clock::new(&config, None, PerfTime(0));
    let (mut compared, mut worst) = (0, 0);
    for lexed in Lexer::new(&data, TraceOffset(0)) {
        let lexed = lexed.unwrap();
        clock.eat(&lexed.packet);
        if matches!(lexed.packet, Packet::Pad { .. }) {
            continue;
        }
        let (offset, tsc) = expected.next().unwrap();
        assert_eq!(offset, lexed.offset.0);
        if let Some(tsc) = tsc.and_then(|tsc| u64::from_str_radix(tsc, 16).ok()) {
            worst = worst.max(clock.tsc().unwrap().0.abs_diff(tsc));
            compared += 1;
        }
    }
    assert!(expected.next().is_none());
    assert!(compared > 1000);
    println!(
        "{compared} times, at most {worst} ticks apart, {} clamps",
        clock.clamps()
    );
    assert!(worst <= 16, "{worst} ticks apart");
}
