//! Packets as text: SDM name and payload.

use ptrail_pt::{ExecMode, IpPayload, Packet, Tnt};

/// Name and payload of a packet; the payload is empty if it has none.
pub(crate) fn describe(packet: &Packet) -> (&'static str, String) {
    match *packet {
        Packet::Pad { run } => ("PAD", format!("x{run}")),
        Packet::Psb => ("PSB", String::new()),
        Packet::PsbEnd => ("PSBEND", String::new()),
        Packet::Tnt(tnt) => (
            if tnt.is_long() { "TNT.64" } else { "TNT.8" },
            outcomes(tnt),
        ),
        Packet::Tip(payload) => ("TIP", address(payload)),
        Packet::TipPge(payload) => ("TIP.PGE", address(payload)),
        Packet::TipPgd(payload) => ("TIP.PGD", address(payload)),
        Packet::Fup(payload) => ("FUP", address(payload)),
        Packet::Pip { cr3, non_root } => ("PIP", format!("cr3={cr3:#x} nr={}", u8::from(non_root))),
        Packet::ModeExec { mode, interrupts } => {
            let bits = match mode {
                ExecMode::Bits16 => 16,
                ExecMode::Bits32 => 32,
                ExecMode::Bits64 => 64,
            };
            (
                "MODE.Exec",
                format!("{bits}-bit if={}", u8::from(interrupts)),
            )
        }
        Packet::ModeTsx { in_tx, abort } => (
            "MODE.TSX",
            format!("intx={} abort={}", u8::from(in_tx), u8::from(abort)),
        ),
        Packet::TraceStop => ("TRACESTOP", String::new()),
        Packet::Cbr { ratio, .. } => ("CBR", format!("{ratio:#x}")),
        Packet::Tsc(tsc) => ("TSC", format!("{tsc:#x}")),
        Packet::Tma { ctc, fast_counter } => ("TMA", format!("ctc={ctc:#x} fc={fast_counter:#x}")),
        Packet::Mtc(ctc) => ("MTC", format!("{ctc:#x}")),
        Packet::Cyc(cycles) => ("CYC", format!("{cycles:#x}")),
        Packet::Vmcs(base) => ("VMCS", format!("{base:#x}")),
        Packet::Ovf => ("OVF", String::new()),
        Packet::Mnt(payload) => ("MNT", format!("{payload:#x}")),
        Packet::Ptw { payload, ip, .. } => ("PTW", format!("{payload:#x} ip={}", u8::from(ip))),
        Packet::Exstop { ip } => ("EXSTOP", format!("ip={}", u8::from(ip))),
        Packet::Mwait { hints, extensions } => {
            ("MWAIT", format!("hints={hints:#x} ext={extensions:#x}"))
        }
        Packet::Pwre {
            state,
            sub_state,
            hardware,
        } => (
            "PWRE",
            format!("c{state} sub={sub_state} hw={}", u8::from(hardware)),
        ),
        Packet::Pwrx {
            last,
            deepest,
            wake_reason,
        } => (
            "PWRX",
            format!("last=c{last} deepest=c{deepest} wake={wake_reason:#x}"),
        ),
        Packet::Bbp { four_bytes, kind } => {
            ("BBP", format!("sz={} type={kind:#x}", u8::from(four_bytes)))
        }
        Packet::Bip { id, payload, .. } => ("BIP", format!("id={id:#x} {payload:#x}")),
        Packet::Bep { ip } => ("BEP", format!("ip={}", u8::from(ip))),
        Packet::Cfe { kind, vector, ip } => (
            "CFE",
            format!("type={kind:#x} vector={vector:#x} ip={}", u8::from(ip)),
        ),
        Packet::Evd { kind, payload } => ("EVD", format!("type={kind:#x} {payload:#x}")),
        Packet::Trig {
            triggers,
            multiple,
            instructions,
            ip,
        } => {
            let more = if multiple { " multiple" } else { "" };
            (
                "TRIG",
                format!(
                    "{triggers:#x} ip={} icnt={instructions:?}{more}",
                    u8::from(ip)
                ),
            )
        }
        _ => ("?", format!("{packet:?}")),
    }
}

/// Outcomes, oldest first: `!` taken, `.` not.
fn outcomes(tnt: Tnt) -> String {
    (0..tnt.len())
        .rev()
        .map(|bit| if tnt.bits() >> bit & 1 == 1 { '!' } else { '.' })
        .collect()
}

fn address(payload: IpPayload) -> String {
    let form = payload.bytes as u8;
    if payload.bytes.is_empty() {
        format!("{form}: ????")
    } else {
        format!("{form}: {:x}", payload.value)
    }
}
