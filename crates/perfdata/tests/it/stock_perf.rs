//! Files written here, read by the system's own perf.

use std::path::{Path, PathBuf};

use ptrail_perfdata::{Capture, Record, Sideband, Writer};

use crate::program::{BRANCHES, Program, RUN, run};
use crate::{event, extra, target};

const PID: u32 = 100;

fn write(program: &Program, folder: &Path) -> PathBuf {
    let path = folder.join("trace.data");
    let mut writer = Writer::create(&path, target()).unwrap();
    let comm = Record::Comm {
        name: "tiny".to_owned(),
        exec: true,
    };
    writer
        .record(&event(5_000, PID, PID, comm.clone()))
        .unwrap();
    writer
        .record(&event(5_001, PID, PID, Record::ItraceStart))
        .unwrap();
    writer
        .record(&event(5_002, PID, PID, program.map.clone()))
        .unwrap();
    let switch = |out| Record::Switch {
        out,
        preempted: false,
        other: None,
    };
    // A CPU beyond the number that this machine has.
    let on_cpu = |time, record| Sideband {
        cpu: Some(70),
        ..event(time, PID, PID, record)
    };
    writer.record(&on_cpu(5_003, switch(false))).unwrap();
    let [start, end] = program.packets(6_000);
    // Not a multiple of 8: perf must see the zeros between them as PAD packets.
    assert_ne!(start.len() % 8, 0);
    writer.trace(PID, PID, 6_100, &start).unwrap();
    writer.trace(PID, PID, 6_200, &end).unwrap();
    // The same once more in a second thread.
    let fork = Record::Fork {
        parent_pid: PID,
        parent_tid: PID,
    };
    writer.record(&event(7_000, PID, PID + 1, fork)).unwrap();
    writer
        .trace(PID, PID + 1, 8_100, &program.packets(8_000).concat())
        .unwrap();
    writer
        .record(&event(9_000, PID, PID + 1, Record::Exit))
        .unwrap();
    writer
        .record(&event(8_900, PID, PID, switch(true)))
        .unwrap();
    writer.record(&on_cpu(9_001, switch(true))).unwrap();
    writer
        .record(&event(9_002, PID, PID, Record::Exit))
        .unwrap();
    writer.finish(&extra()).unwrap();
    path
}

/// perf, with a home of its own so that the user's caches and settings play no part.
fn perf(folder: &Path, arguments: &[&str], input: &Path) -> Option<String> {
    let home = format!("HOME={}", folder.display());
    let input = ["-i", input.to_str()?];
    run(
        "env",
        &[
            &[home.as_str(), "PERF_CONFIG=/dev/null", "perf"],
            arguments,
            &input,
        ]
        .concat(),
    )
}

fn prepare() -> Option<(tempfile::TempDir, Program, PathBuf)> {
    run("perf", &["--version"])?;
    let folder = tempfile::tempdir().unwrap();
    let program = Program::build(folder.path())?;
    let path = write(&program, folder.path());
    Some((folder, program, path))
}

#[test]
fn perf_lists_the_records_and_the_packets() {
    let Some((folder, _, path)) = prepare() else {
        return;
    };
    let dump = perf(folder.path(), &["script", "-D"], &path).unwrap();
    for (text, count) in [
        ("PERF_RECORD_AUXTRACE_INFO type: 1", 1),
        ("PERF_RECORD_TIME_CONV", 1),
        ("PERF_RECORD_THREAD_MAP", 1),
        ("PERF_RECORD_COMM exec: tiny:100/100", 1),
        ("PERF_RECORD_ITRACE_START pid: 100 tid: 100", 1),
        ("PERF_RECORD_MMAP2 100/100", 1),
        ("PERF_RECORD_SWITCH", 3),
        ("PERF_RECORD_AUX ", 3),
        ("PERF_RECORD_AUXTRACE size", 3),
        ("PERF_RECORD_FORK(100:101):(100:100)", 1),
        ("PERF_RECORD_EXIT", 2),
        ("PERF_RECORD_FINISHED_ROUND", 1),
        (" PSB\n", 2),
        (" TNT TTN (3)\n", 2),
        (" TIP.PGD no ip\n", 2),
        ("Bad packet", 0),
    ] {
        assert_eq!(dump.matches(text).count(), count, "{text}\n{dump}");
    }
}

#[test]
fn perf_finds_the_executed_instructions_with_their_times() {
    let Some((folder, program, path)) = prepare() else {
        return;
    };
    let ips = perf(
        folder.path(),
        &["script", "--itrace=i1ie", "-F", "tid,time,ip", "--ns"],
        &path,
    );
    let mut found = Vec::new();
    for line in ips.unwrap().lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let [tid, time, ip] = words[..] else {
            panic!("not an instruction: {line}")
        };
        let expected = if tid == "100" {
            "0.000006000:"
        } else {
            "0.000008000:"
        };
        assert_eq!(time, expected, "{line}");
        found.push((tid.to_owned(), u64::from_str_radix(ip, 16).unwrap()));
    }
    let run = program.addresses(RUN);
    let expected: Vec<_> = ["100", "101"]
        .into_iter()
        .flat_map(|tid| run.iter().map(move |&ip| (tid.to_owned(), ip)))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn perf_prints_the_bare_addresses_without_an_error() {
    let Some((folder, program, path)) = prepare() else {
        return;
    };
    let ips = perf(
        folder.path(),
        &["script", "--itrace=i1ie", "-F", "ip"],
        &path,
    )
    .unwrap();
    let found: Vec<_> = ips
        .lines()
        .map(|line| u64::from_str_radix(line.trim(), 16).unwrap())
        .collect();
    assert_eq!(found, program.addresses(RUN).repeat(2));
}

#[test]
fn perf_finds_the_branches() {
    let Some((folder, program, path)) = prepare() else {
        return;
    };
    let text = perf(
        folder.path(),
        &["script", "--itrace=b", "-F", "ip,addr"],
        &path,
    )
    .unwrap();
    let found: Vec<(u64, u64)> = text
        .lines()
        .map(|line| {
            let (from, to) = line.split_once("=>").unwrap();
            let hex = |text: &str| u64::from_str_radix(text.trim(), 16).unwrap();
            (hex(from), hex(to))
        })
        .filter(|&(from, to)| from != 0 && to != 0)
        .collect();
    let label = |name| program.labels[name];
    let expected = BRANCHES.map(|(from, to)| (label(from), label(to)));
    assert_eq!(found, expected.repeat(2));
}

#[test]
fn perf_reads_the_header() {
    let Some((folder, program, path)) = prepare() else {
        return;
    };
    let header = perf(folder.path(), &["script", "--header-only"], &path).unwrap();
    for text in [
        "hostname : host\n",
        "os release : 6.1.0\n",
        "arch : x86_64\n",
        "cpudesc : Some CPU @ 2.00GHz\n",
        "cpuid : GenuineIntel,6,85,4\n",
        "cmdline : ptrail run -- a b \n",
        "event : name = intel_pt//u, ",
        "event : name = dummy:u, ",
    ] {
        assert!(header.contains(text), "{text}\n{header}");
    }
    let ids = perf(folder.path(), &["buildid-list"], &path).unwrap();
    let Record::Mmap2 {
        build_id: Some(id), ..
    } = &program.map
    else {
        panic!("no build-id")
    };
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(ids.trim(), format!("{id} {}", program.file.display()));
}

/// `perf inject` writes the whole file anew, and with `-b` the build-ids of the files that it finds:
/// our reader must find the same in perf's own writing.
#[test]
fn a_file_rewritten_by_perf_reads_the_same() {
    let Some((folder, _, path)) = prepare() else {
        return;
    };
    let ours = Capture::open(&path).unwrap();
    let again = folder.path().join("again.data");
    for options in [&[][..], &["-b"]] {
        let inject = [&["inject", "-o", again.to_str().unwrap()], options].concat();
        perf(folder.path(), &inject, &path).unwrap();
        let theirs = Capture::open(&again).unwrap();
        assert!(theirs.damage.is_empty(), "{:?}", theirs.damage);
        assert_eq!(theirs.machine.cpuid, ours.machine.cpuid);
        assert_eq!(theirs.clock, ours.clock);
        assert_eq!(theirs.sideband, ours.sideband, "{options:?}");
        assert_eq!(theirs.extra, None);
        let bytes = |capture: &Capture| -> Vec<Vec<u8>> {
            let pieces = capture.streams.iter().flat_map(|stream| &stream.pieces);
            pieces.map(|piece| capture.bytes(piece).to_vec()).collect()
        };
        assert_eq!(bytes(&theirs), bytes(&ours));
    }
}
