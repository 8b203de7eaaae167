//! Two recordings of a Skylake laptop, packet by packet, against perf's listing.

use ptrail_pt::{ExecMode, IpPayload, Lexer, Packet, TraceOffset};

use crate::testdata;

/// Name and payload as `perf script -D` prints them.
fn in_perf_words(packet: &Packet) -> String {
    let ip = |name: &str, payload: IpPayload| {
        if payload.bytes.is_empty() {
            format!("{name} no ip")
        } else {
            format!("{name} {:#x}", payload.value)
        }
    };
    match *packet {
        Packet::Psb => "PSB".into(),
        Packet::PsbEnd => "PSBEND".into(),
        Packet::Tnt(tnt) => {
            let taken = |i: u8| if tnt.bits() >> i & 1 == 1 { 'T' } else { 'N' };
            let bits: String = (0..tnt.len()).rev().map(taken).collect();
            format!("TNT {bits} ({})", tnt.len())
        }
        Packet::Tip(payload) => ip("TIP", payload),
        Packet::TipPge(payload) => ip("TIP.PGE", payload),
        Packet::TipPgd(payload) => ip("TIP.PGD", payload),
        Packet::Fup(payload) => ip("FUP", payload),
        Packet::Mtc(ctc) => format!("MTC {ctc:#x}"),
        Packet::Tsc(tsc) => format!("TSC {tsc:#x}"),
        Packet::Cbr { ratio, .. } => format!("CBR {ratio:#x}"),
        Packet::Tma { ctc, fast_counter } => format!("TMA CTC {ctc:#x} FC {fast_counter:#x}"),
        // perf prints the packet's six bytes without the NR bit, not CR3.
        Packet::Pip { cr3, non_root } => format!("PIP {:#x} (NR={})", cr3 >> 5, u8::from(non_root)),
        Packet::ModeExec {
            mode: ExecMode::Bits64,
            interrupts,
        } => {
            format!("MODE.Exec IF:{} 64", u8::from(interrupts))
        }
        Packet::ModeTsx { in_tx, abort } => {
            format!(
                "MODE.TSX TXAbort:{} InTX:{}",
                u8::from(abort),
                u8::from(in_tx)
            )
        }
        _ => format!("not in these recordings: {packet:?}"),
    }
}

#[test]
fn each_packet_equals_the_listing() {
    let Some(folder) = testdata::folder("quipper") else {
        return;
    };
    let reference = testdata::json(&folder.join("reference.json"));
    for file in reference["files"].as_array().unwrap() {
        let name = file["file"].as_str().unwrap();
        let data = std::fs::read(folder.join(name)).unwrap();
        let listing = testdata::gunzip(&folder.join(format!("{name}.perf-packets.tsv.gz")));
        let listing = String::from_utf8(listing).unwrap();
        let sections = listing.split('#').skip(1);
        for (buffer, section) in file["auxtrace"].as_array().unwrap().iter().zip(sections) {
            let number = |key: &str| buffer[key].as_u64().unwrap() as usize;
            let (begin, len) = (number("file_offset"), number("size"));
            let mut expected = section.lines().skip(1).filter_map(|line| {
                let mut columns = line.split('\t');
                let offset: u64 = columns.next()?.parse().unwrap();
                let text = columns.nth(1).unwrap();
                (text != "PAD").then(|| (offset, text.to_string()))
            });
            for lexed in Lexer::new(&data[begin..][..len], TraceOffset(0)) {
                let lexed = lexed.unwrap();
                if !matches!(lexed.packet, Packet::Pad { .. }) {
                    let ours = (lexed.offset.0, in_perf_words(&lexed.packet));
                    assert_eq!(Some(ours), expected.next(), "{name}");
                }
            }
            assert_eq!(expected.next(), None, "{name}");
        }
    }
}
