//! The packet vectors of the Linux perf tool.

use ptrail_pt::{ExecMode, IpPayload, Lexer, Packet, TraceOffset};
use serde::Deserialize;

use crate::testdata::{self, hex};

#[derive(Deserialize)]
struct Vector {
    bytes: String,
    context: String,
    #[serde(rename = "type")]
    kind: String,
    count: u64,
    payload: String,
    context_after: String,
    context_never_changes: bool,
}

/// A packet that begins the block state of that name.
fn prefix(context: &str) -> &'static [u8] {
    match context {
        "block4" => &[2, 0x63, 0x80],
        "block8" => &[2, 0x63, 0],
        _ => &[],
    }
}

/// Lexes the vector in a block state and finds out the state behind it.
fn lex(context: &str, bytes: &[u8]) -> Option<(Packet, &'static str)> {
    // A BIP or TNT, by the state.
    let probe = [0x0c, 1, 2, 3, 4, 5, 6, 7, 8];
    let stream = [prefix(context), bytes, &probe].concat();
    let mut lexer = Lexer::new(&stream, TraceOffset(0));
    if context != "none" {
        assert!(
            matches!(lexer.next(), Some(Ok(lexed)) if matches!(lexed.packet, Packet::Bbp { .. }))
        );
    }
    let lexed = lexer.next()?.ok()?;
    if lexed.len as usize != bytes.len() {
        return None;
    }
    let after = match lexer.next()?.ok()?.packet {
        Packet::Bip {
            four_bytes: true, ..
        } => "block4",
        Packet::Bip {
            four_bytes: false, ..
        } => "block8",
        _ => "none",
    };
    Some((lexed.packet, after))
}

/// perf's name, count and payload, and which payload bits the SDM defines (perf keeps the reserved
/// ones too).
fn in_perf_words(packet: &Packet) -> (&'static str, u64, u64, u64) {
    let all = u64::MAX;
    let ip = |name, payload: IpPayload| (name, payload.bytes as u64, payload.value, all);
    let named = |on: bool, with, without| if on { with } else { without };
    match *packet {
        Packet::Pad { .. } => ("PAD", 0, 0, all),
        Packet::Psb => ("PSB", 0, 0, all),
        Packet::PsbEnd => ("PSBEND", 0, 0, all),
        Packet::Ovf => ("OVF", 0, 0, all),
        Packet::TraceStop => ("TRACESTOP", 0, 0, all),
        Packet::Tnt(tnt) => {
            let shift = 64 - u32::from(tnt.len());
            ("TNT", tnt.len().into(), tnt.bits() << shift, all << shift)
        }
        Packet::Tip(payload) => ip("TIP", payload),
        Packet::TipPge(payload) => ip("TIP_PGE", payload),
        Packet::TipPgd(payload) => ip("TIP_PGD", payload),
        Packet::Fup(payload) => ip("FUP", payload),
        Packet::Pip { cr3, non_root } => ("PIP", 0, cr3 >> 4 | u64::from(non_root), all),
        Packet::ModeExec { mode, interrupts } => {
            let (bits, width) = match mode {
                ExecMode::Bits16 => (0, 16),
                ExecMode::Bits32 => (2, 32),
                ExecMode::Bits64 => (1, 64),
            };
            ("MODE_EXEC", bits | u64::from(interrupts) << 2, width, all)
        }
        Packet::ModeTsx { in_tx, abort } => {
            ("MODE_TSX", 0, u64::from(in_tx) | u64::from(abort) << 1, all)
        }
        Packet::Cbr { ratio, .. } => ("CBR", 0, ratio.into(), all),
        Packet::Tsc(tsc) => ("TSC", 0, tsc, all),
        Packet::Tma { ctc, fast_counter } => ("TMA", fast_counter.into(), ctc.into(), all),
        Packet::Mtc(ctc) => ("MTC", 0, ctc.into(), all),
        Packet::Cyc(cycles) => ("CYC", 0, cycles, all),
        Packet::Vmcs(pointer) => ("VMCS", 5, pointer >> 12, all),
        Packet::Mnt(payload) => ("MNT", 0, payload, all),
        Packet::Ptw { payload, wide, ip } => (
            named(ip, "PTWRITE_IP", "PTWRITE"),
            wide.into(),
            payload,
            all,
        ),
        Packet::Exstop { ip } => (named(ip, "EXSTOP_IP", "EXSTOP"), 0, 0, all),
        Packet::Mwait { hints, extensions } => (
            "MWAIT",
            0,
            u64::from(hints) | u64::from(extensions) << 32,
            0x3_0000_00ff,
        ),
        Packet::Pwre {
            state,
            sub_state,
            hardware,
        } => {
            let states = u64::from(state) << 12 | u64::from(sub_state) << 8;
            ("PWRE", 0, states | u64::from(hardware) << 7, 0xff80)
        }
        Packet::Pwrx {
            last,
            deepest,
            wake_reason,
        } => {
            let states = u64::from(last) << 4 | u64::from(deepest);
            ("PWRX", 0, states | u64::from(wake_reason) << 8, 0xfff)
        }
        Packet::Bbp { four_bytes, kind } => ("BBP", four_bytes.into(), kind.into(), all),
        Packet::Bip { id, payload, .. } => ("BIP", id.into(), payload, all),
        Packet::Bep { ip } => (named(ip, "BEP_IP", "BEP"), 0, 0, all),
        Packet::Cfe { kind, vector, ip } => {
            (named(ip, "CFE_IP", "CFE"), kind.into(), vector.into(), all)
        }
        Packet::Evd { kind, payload } => ("EVD", kind.into(), payload, all),
        _ => panic!("unknown to perf: {packet:?}"),
    }
}

#[test]
fn all_120_vectors_are_equal() {
    let Some(folder) = testdata::folder("perf") else {
        return;
    };
    let vectors = testdata::json(&folder.join("packets.json"))["packets"].take();
    let vectors: Vec<Vector> = serde_json::from_value(vectors).unwrap();
    assert_eq!(vectors.len(), 120);
    let mut failed = Vec::new();
    for vector in &vectors {
        let bytes = hex(&vector.bytes);
        let payload = u64::from_str_radix(&vector.payload[2..], 16).unwrap();
        let equal = lex(&vector.context, &bytes).is_some_and(|(packet, after)| {
            let (kind, count, ours, defined) = in_perf_words(&packet);
            (kind, count, ours & defined) == (&*vector.kind, vector.count, payload & defined)
                && after == vector.context_after
        });
        let transparent = !vector.context_never_changes
            || ["block4", "block8"]
                .iter()
                .all(|context| lex(context, &bytes).is_some_and(|(_, after)| after == *context));
        if !(equal && transparent) {
            failed.push(format!(
                "{} {} in {}",
                vector.bytes, vector.kind, vector.context
            ));
        }
    }
    assert!(
        failed.is_empty(),
        "{} vectors differ:\n{}",
        failed.len(),
        failed.join("\n")
    );
}
