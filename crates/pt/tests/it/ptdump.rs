//! Packets in the words of libipt's `ptdump --raw --lastip`.

use ptrail_pt::{ExecMode, IpBytes, IpPayload, LastIp, Packet, Tnt};

/// The packet's name and payload; keeps `last_ip` up to date.
pub(crate) fn render(packet: &Packet, last_ip: &mut LastIp) -> (&'static str, String) {
    let none = String::new;
    match *packet {
        Packet::Pad { .. } => ("pad", none()),
        Packet::Psb => {
            last_ip.reset();
            ("psb", none())
        }
        Packet::PsbEnd => ("psbend", none()),
        Packet::Ovf => ("ovf", none()),
        Packet::TraceStop => ("stop", none()),
        Packet::Tnt(tnt) => (
            if tnt.is_long() { "tnt.64" } else { "tnt.8" },
            tnt_text(tnt),
        ),
        Packet::Tip(payload) => ("tip", ip_text(payload, last_ip)),
        Packet::TipPge(payload) => ("tip.pge", ip_text(payload, last_ip)),
        Packet::TipPgd(payload) => ("tip.pgd", ip_text(payload, last_ip)),
        Packet::Fup(payload) => ("fup", ip_text(payload, last_ip)),
        Packet::Pip { cr3, non_root } => (
            "pip",
            format!("{cr3:x}{} cr3 {cr3:016x}", option(non_root, "nr")),
        ),
        Packet::Vmcs(pointer) => ("vmcs", format!("{pointer:x} vmcs {pointer:016x}")),
        Packet::ModeExec { mode, interrupts } => {
            let width = match mode {
                ExecMode::Bits16 => "",
                ExecMode::Bits32 => "cs.d",
                ExecMode::Bits64 => "cs.l",
            };
            (
                "mode.exec",
                list(&[width, if interrupts { "if" } else { "" }]),
            )
        }
        Packet::ModeTsx { in_tx, abort } => {
            let words = [
                if in_tx { "intx" } else { "" },
                if abort { "abrt" } else { "" },
            ];
            ("mode.tsx", list(&words))
        }
        Packet::Cbr { ratio, .. } => ("cbr", format!("{ratio:x}")),
        Packet::Tsc(tsc) => ("tsc", format!("{tsc:x}")),
        Packet::Tma { ctc, fast_counter } => ("tma", format!("{ctc:x}, {fast_counter:x}")),
        Packet::Mtc(ctc) => ("mtc", format!("{ctc:x}")),
        Packet::Cyc(cycles) => ("cyc", format!("{cycles:x}")),
        Packet::Mnt(payload) => ("mnt", format!("{payload:x}")),
        ref other => power_and_events(other),
    }
}

fn power_and_events(packet: &Packet) -> (&'static str, String) {
    match *packet {
        Packet::Ptw { payload, wide, ip } => (
            "ptw",
            format!("{}: {payload:x}{}", u8::from(wide), option(ip, "ip")),
        ),
        Packet::Exstop { ip } => ("exstop", list(&[if ip { "ip" } else { "" }])),
        Packet::Mwait { hints, extensions } => ("mwait", format!("{hints:08x}, {extensions:08x}")),
        // The states are encoded minus one, as in MWAIT's hints.
        Packet::Pwre {
            state,
            sub_state,
            hardware,
        } => {
            let (c, sub) = ((state + 1) & 0xf, (sub_state + 1) & 0xf);
            ("pwre", format!("c{c:x}.{sub:x}{}", option(hardware, "hw")))
        }
        Packet::Pwrx {
            last,
            deepest,
            wake_reason,
        } => {
            let why = match wake_reason {
                1 => "int",
                4 => "st",
                8 => "hw",
                _ => "bad",
            };
            let (last, deepest) = ((last + 1) & 0xf, (deepest + 1) & 0xf);
            ("pwrx", format!("{why}: c{last:x}, c{deepest:x}"))
        }
        Packet::Cfe { kind, vector, ip } => {
            let vector = match kind {
                1 | 9 | 12 | 14 => format!(": {vector}"),
                5 => format!(": {vector:x}"),
                _ => String::new(),
            };
            (
                "cfe",
                format!("{kind}{vector}{} type {}", option(ip, "ip"), cfe_name(kind)),
            )
        }
        Packet::Evd { kind, payload } => {
            let name = ["cr2", "vmxq", "vmxr"]
                .get(usize::from(kind))
                .unwrap_or(&"unknown");
            ("evd", format!("{kind}: {payload:x} type {name}"))
        }
        Packet::Trig {
            triggers,
            multiple,
            instructions,
            ip,
        } => {
            let count = instructions.map_or(String::new(), |n| format!(", icnt: {n}"));
            let flags = option(ip, "ip") + &option(multiple, "mult");
            ("trig", format!("{triggers:02x}{flags}{count}"))
        }
        Packet::TmaInvalid(_) => ("<invalid>", String::new()),
        _ => panic!("unknown to ptdump: {packet:?}"),
    }
}

fn cfe_name(kind: u8) -> &'static str {
    match kind {
        1 => "intr",
        2 => "iret",
        3 => "smi",
        4 => "rsm",
        5 => "sipi",
        6 => "init",
        7 => "vmentry",
        8 => "vmexit",
        9 => "vmexit_intr",
        10 => "shutdown",
        12 => "uintr",
        13 => "uiret",
        14 => "swintr",
        15 => "syscall",
        _ => "unknown",
    }
}

fn option(on: bool, word: &str) -> String {
    if on {
        format!(", {word}")
    } else {
        String::new()
    }
}

fn list(words: &[&str]) -> String {
    words
        .iter()
        .copied()
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

fn tnt_text(tnt: Tnt) -> String {
    (0..tnt.len())
        .rev()
        .map(|i| if tnt.bits() >> i & 1 == 1 { '!' } else { '.' })
        .collect()
}

fn ip_text(payload: IpPayload, last_ip: &mut LastIp) -> String {
    let digits = 2 * payload.bytes.len();
    let field = match payload.bytes {
        IpBytes::Suppressed => "?".repeat(16),
        IpBytes::SignExtend48 => {
            format!("{:016x}", LastIp::new().update(payload).unwrap().0)
        }
        _ => format!("{}{:0digits$x}", "?".repeat(16 - digits), payload.value),
    };
    let ip = last_ip
        .update(payload)
        .map_or("<suppressed>".into(), |ip| format!("{:016x}", ip.0));
    format!("{}: {field} ip {ip}", payload.bytes as u8)
}
