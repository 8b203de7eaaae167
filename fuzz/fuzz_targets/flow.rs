//! Any packets over a fixed image, decoded with each level of detail: no panic, the ledger adds up,
//! and all tell the same of instructions, times and losses.
//!
//! The first 4 bytes are the settings. libipt's streams are good seeds.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ptrail_flow::{Context, Decoder, Detail, Edge, OffCause, SegmentEnd, Sink, cut};
use ptrail_image::{Timeline, TimelineBuilder};
use ptrail_pt::{CpuId, Ip, Loss, PerfTime, PtConfig, Time, TraceOffset, Vendor};

const PID: u32 = 1;

/// Models with all the errata there are, and none.
const MODELS: [u8; 6] = [0x3d, 0x5e, 0x55, 0x97, 0x5c, 0x01];

/// Every class of branch at the addresses that libipt's cases use, nops and pseudo-random bytes
/// around them, and other code from time 1000 on.
static IMAGE: LazyLock<Timeline> = LazyLock::new(|| {
    const BRANCHES: [u8; 48] = [
        0x90, 0x74, 0xfd, 0x75, 0x03, 0xeb, 0x02, 0xff, 0xe0, 0xe8, 0xf2, 0xff, 0xff, 0xff, 0xe8, 0, 0,
        0, 0, 0xff, 0xd0, 0xc3, 0x0f, 0x05, 0xcd, 0x80, 0xe2, 0xe4, 0x48, 0xcf, 0x0f, 0x22, 0xd8, 0x0f,
        0x01, 0xc2, 0xd5, 0x00, 0xa1, 0x10, 0x10, 0, 0, 0, 0, 0, 0, 0xc3,
    ];
    let mut seed = 1_u32;
    let mut code = BRANCHES.repeat(4);
    code.extend(std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    }).take(512));
    let mut builder = TimelineBuilder::new();
    builder.code(PID, PerfTime(0), 0x1000, "low", code.clone());
    builder.code(PID, PerfTime(0), 0x10_0000, "high", code[7..].to_vec());
    builder.code(PID, PerfTime(1000), 0x1000, "later", code[3..].to_vec());
    builder.build()
});

#[derive(Default)]
struct Seen<const DETAIL: usize> {
    addresses: u64,
    losses: Vec<Loss>,
    anchors: Vec<(u64, Time)>,
}

impl<const DETAIL: usize> Sink for Seen<DETAIL> {
    const DETAIL: Detail = [Detail::Calls, Detail::Branches, Detail::Instructions][DETAIL];

    fn instructions(&mut self, ips: &[Ip]) {
        self.addresses += ips.len() as u64;
    }

    fn edge(&mut self, _edge: &Edge, _instructions: u64) {}
    fn begin(&mut self, _ip: Ip, _instructions: u64) {}
    fn on(&mut self, _ip: Ip, _instructions: u64) {}
    fn off(&mut self, _ip: Ip, _next: Ip, _cause: OffCause, _instructions: u64) {}

    fn anchor(&mut self, instructions: u64, time: Time) {
        self.anchors.push((instructions, time));
    }

    fn loss(&mut self, loss: Loss, _broken: bool, _instructions: u64) {
        self.losses.push(loss);
    }
}

fn decode<const DETAIL: usize>(config: &PtConfig, bytes: &[u8]) -> (Seen<DETAIL>, Vec<SegmentEnd>) {
    let context = Context {
        timeline: &IMAGE,
        pid: PID,
        config,
        conversion: None,
        base: PerfTime(0),
    };
    let mut decoder = Decoder::new(context, Seen::default());
    let segments = cut(bytes, TraceOffset(0)).segments;
    let ends = segments.iter().map(|segment| {
        let end = decoder.segment(segment);
        assert!(end.lost_bytes <= segment.bytes.len() as u64);
        end
    });
    let ends = ends.collect();
    (decoder.into_sink(), ends)
}

fuzz_target!(|data: &[u8]| {
    let Some((head, bytes)) = data.split_first_chunk::<4>() else { return };
    let flag = |bit: u8| head[0] >> bit & 1 == 1;
    let cpu = CpuId {
        vendor: Vendor::Intel,
        family: 6,
        model: MODELS[usize::from(head[1]) % MODELS.len()],
        stepping: 3,
    };
    let config = PtConfig {
        cpu: flag(0).then_some(cpu),
        tsc: true,
        mtc: flag(1),
        mtc_freq: head[2],
        cyc: flag(2),
        no_return_compression: flag(3),
        tsc_ctc_n: 4,
        tsc_ctc_d: 1,
        max_non_turbo_ratio: head[3],
        filters: [flag(4).then_some((Ip(0x1000), Ip(0x1040))), None, None, None],
    };
    let (all, ends) = decode::<{ Detail::Instructions as usize }>(&config, bytes);
    let lost: u64 = all.losses.iter().map(|loss| loss.bytes).sum();
    assert_eq!(lost, ends.iter().map(|end| end.lost_bytes).sum());
    assert_eq!(all.addresses, ends.iter().map(|end| end.instructions).sum());
    let (branches, branch_ends) = decode::<{ Detail::Branches as usize }>(&config, bytes);
    assert_eq!((&branches.losses, &branches.anchors), (&all.losses, &all.anchors));
    assert_eq!(branch_ends, ends);
    let (calls, call_ends) = decode::<{ Detail::Calls as usize }>(&config, bytes);
    assert_eq!((&calls.losses, &calls.anchors), (&all.losses, &all.anchors));
    assert_eq!(call_ends, ends);
});
