//! What is lexed: streams of one kind each, made here, and recordings of real CPUs.

use std::path::{Path, PathBuf};

use ptrail_pt::{Encoder, Ip, Packet, PsbPlus, Tnt, Tsc};

/// Size of a made stream.
const BYTES: u64 = 4 << 20;
/// Bytes between two PSB packets (PSBFreq 1, perf's default is 3).
const PSB_PERIOD: u64 = 4096;

/// A named stream.
pub(crate) struct Stream {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn all() -> Vec<Stream> {
    let mut streams = vec![
        made("TNT-heavy", tnt_heavy),
        made("TNT-heavy, long TNT", long_tnt_heavy),
        made("TIP-heavy", tip_heavy),
        made("CYC-heavy", cyc_heavy),
        made("PAD-heavy", pad_heavy),
    ];
    streams.extend(real());
    streams
}

/// The same random numbers each time (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// True once in `n` times.
    fn once_in(&mut self, n: u64) -> bool {
        (self.next() >> 32).is_multiple_of(n)
    }

    /// An address; mostly near the last ones.
    fn ip(&mut self) -> Ip {
        let bits = self.next();
        Ip(match bits >> 60 {
            0..=8 => 0x5555_5555_0000 | bits & 0xffff,
            9..=13 => 0x5555_5500_0000 | bits & 0xff_ffff,
            _ => 0x7fff_f000_0000 | bits & 0xfff_ffff,
        })
    }

    fn tnt(&mut self) -> Packet {
        // The CPU sends a short TNT when it is full, or before another packet.
        let len = if self.once_in(8) {
            1 + (self.next() >> 32) % 6
        } else {
            6
        };
        Packet::Tnt(Tnt::short(self.next() >> 20, len as u8))
    }
}

fn made(name: &str, part: fn(&mut Encoder, &mut Random)) -> Stream {
    let (mut encoder, mut random) = (Encoder::new(), Random(0x9e37_79b9_7f4a_7c15));
    let mut psb = 0;
    while encoder.total() < BYTES {
        if encoder.total() >= psb {
            psb = encoder.total() + PSB_PERIOD;
            let tsc = Some(Tsc(encoder.total()));
            encoder.psb_plus(&PsbPlus {
                tsc,
                ip: Some(Ip(0x5555_5555_5000)),
                ..PsbPlus::default()
            });
        }
        part(&mut encoder, &mut random);
    }
    Stream {
        name: name.into(),
        bytes: encoder.take(),
    }
}

/// Loops: some 40 TNTs to a TIP.
fn tnt_heavy(encoder: &mut Encoder, random: &mut Random) {
    if random.once_in(40) {
        encoder.tip(random.ip());
    } else {
        encoder.put(&random.tnt());
    }
}

fn long_tnt_heavy(encoder: &mut Encoder, random: &mut Random) {
    if random.once_in(40) {
        encoder.tip(random.ip());
    } else {
        encoder.put(&Packet::Tnt(Tnt::long(random.next() >> 17, 47)));
    }
}

/// Virtual calls: a TNT to three TIPs, an interrupt (FUP, TIP) now and then.
fn tip_heavy(encoder: &mut Encoder, random: &mut Random) {
    if random.once_in(4) {
        encoder.put(&random.tnt());
    } else if random.once_in(100) {
        encoder.fup(random.ip());
    }
    encoder.tip(random.ip());
}

/// Cycle-accurate mode: a CYC before each packet, an MTC now and then.
fn cyc_heavy(encoder: &mut Encoder, random: &mut Random) {
    let cycles = random.next() >> 32;
    encoder.put(&Packet::Cyc(if cycles & 3 == 0 {
        cycles >> 2 & 0x7ff
    } else {
        cycles >> 2 & 31
    }));
    if random.once_in(20) {
        encoder.put(&Packet::Mtc(encoder.total() as u8));
    } else if random.once_in(5) {
        encoder.tip(random.ip());
    } else {
        encoder.put(&random.tnt());
    }
}

/// A CPU that fills up to whole words, and stands still at times.
fn pad_heavy(encoder: &mut Encoder, random: &mut Random) {
    encoder.put(&random.tnt());
    let run = if random.once_in(50) {
        500
    } else {
        1 + (random.next() >> 32) % 15
    };
    encoder.put(&Packet::Pad { run: run as u32 });
}

/// The recordings in the reference data, if it is there.
fn real() -> Vec<Stream> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/testdata/real");
    let root = std::env::var_os("PTRAIL_TESTDATA").map_or_else(|| default.into(), PathBuf::from);
    if !root.is_dir() {
        println!(
            "no reference data at {} (set PTRAIL_TESTDATA): made streams only",
            root.display()
        );
        return Vec::new();
    }
    let file = |name: &str, path: &str| Stream {
        name: name.into(),
        bytes: std::fs::read(root.join(path)).unwrap(),
    };
    let mut streams = vec![
        file("libxdc/mruby", "libxdc/mruby/trace.pt"),
        file("libxdc/foo", "libxdc/foo/trace.pt"),
        file("libxdc/unzip", "libxdc/unzip/trace.pt"),
        file("libxdc/dyn_test", "libxdc/dyn_test/trace.pt"),
        file("dynamorio", "dynamorio/pt.bin"),
        file("lldb/3842849", "lldb-traces/intelpt-trace/3842849.trace"),
        file(
            "lldb/multi-file",
            "lldb-traces/intelpt-trace-multi-file/multi-file.trace",
        ),
        file(
            "lldb/cpu45",
            "lldb-traces/intelpt-multi-core-trace/cores/45.intelpt_trace",
        ),
        file(
            "lldb/cpu51",
            "lldb-traces/intelpt-multi-core-trace/cores/51.intelpt_trace",
        ),
    ];
    streams.extend(quipper(&root.join("quipper")));
    streams
}

fn quipper(folder: &Path) -> Vec<Stream> {
    let text = std::fs::read(folder.join("reference.json")).unwrap();
    let reference: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let mut streams = Vec::new();
    for file in reference["files"].as_array().unwrap() {
        let data = std::fs::read(folder.join(file["file"].as_str().unwrap())).unwrap();
        for buffer in file["auxtrace"].as_array().unwrap() {
            let number = |key: &str| buffer[key].as_u64().unwrap() as usize;
            let bytes = data[number("file_offset")..][..number("size")].to_vec();
            streams.push(Stream {
                name: format!("quipper/{}", streams.len()),
                bytes,
            });
        }
    }
    streams
}
