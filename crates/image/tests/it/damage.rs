//! Damaged ELF files give an answer or a reason, never a panic.

use std::fs;

use ptrail_image::{Mapping, Search, TimelineBuilder};
use ptrail_pt::{Ip, PerfTime};

use crate::tools::{Random, Workshop, nm, run};

/// Asks everything that can be asked, of the bytes as a file and as a capture.
fn ask_everything(path: &std::path::Path, bytes: &[u8], random: &mut Random) {
    fs::write(path, bytes).unwrap();
    let mut builder = TimelineBuilder::new();
    builder.search(Search::default());
    let mapping = Mapping {
        address: 0x1_0000,
        len: bytes.len() as u64 + 0x3000,
        file_offset: 0,
        path: path.to_str().unwrap().to_owned(),
        build_id: None,
    };
    builder.map(1, PerfTime(0), mapping);
    builder.code(2, PerfTime(0), 0x1_0000, "[vdso]", bytes.to_vec());
    let timeline = builder.build();
    for pid in [1, 2] {
        let space = timeline.space(pid, PerfTime(0));
        for _ in 0..60 {
            let ip = Ip(0x1_0000 + random.below(bytes.len() as u64 + 0x4000));
            if let Err(reason) = space.code(ip) {
                assert!(!reason.to_string().is_empty());
            }
            if let Some(hit) = space.function(ip) {
                assert!(
                    hit.start <= ip && ip < hit.end,
                    "{hit:?} does not hold {ip:?}"
                );
                let function = timeline.function(hit.id);
                assert!(
                    !function.name.is_empty() && function.name.len() <= ptrail_image::MAX_NAME + 4
                );
            }
        }
    }
}

#[test]
fn changed_and_cut_files() {
    let workshop = Workshop::new();
    let ibt = ["-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"];
    let program = workshop.build("calls.c", &ibt);
    let stripped = workshop.strip(&program);
    run(
        "objcopy",
        &["--add-gnu-debuglink=/bin/sh", stripped.to_str().unwrap()],
    );
    let target = workshop.path("damaged");
    let mut random = Random(7);
    for original in [fs::read(&program).unwrap(), fs::read(&stripped).unwrap()] {
        let len = original.len() as u64;
        // Section headers stand at the end, tables and unwind information before the code.
        let headers = u64::from_le_bytes(*original[0x28..].first_chunk().unwrap());
        for round in 0..1200 {
            let mut bytes = original.clone();
            for _ in 0..1 + random.below(12) {
                let at = match random.below(4) {
                    0 => random.below(0x400),
                    1 => headers + random.below(len - headers),
                    2 => random.below(0x1000),
                    _ => random.below(len),
                };
                bytes[at as usize] = match random.below(3) {
                    0 => 0xff,
                    1 => 0,
                    _ => random.below(256) as u8,
                };
            }
            if round % 4 == 0 {
                bytes.truncate(random.below(len) as usize + 1);
            }
            ask_everything(&target, &bytes, &mut random);
        }
    }
}

#[test]
fn cut_at_every_64th() {
    let workshop = Workshop::new();
    let program = workshop.build("calls.c", &[]);
    let bytes = fs::read(&program).unwrap();
    let main = nm(&program, &[])
        .into_iter()
        .find(|s| s.name == "main")
        .unwrap();
    let target = workshop.path("cut");
    for part in 1..=64 {
        let cut = &bytes[..bytes.len() * part / 64];
        ask_everything(&target, cut, &mut Random(part as u64));
        // The code before the cut is still there, whatever else is gone. PIE: offset and link
        // address of the first segments are the same.
        if main.start + main.size <= cut.len() as u64 {
            let mut builder = TimelineBuilder::new();
            let path = target.to_str().unwrap().to_owned();
            let len = bytes.len() as u64;
            builder.map(
                1,
                PerfTime(0),
                Mapping {
                    address: 0,
                    len,
                    file_offset: 0,
                    path,
                    build_id: None,
                },
            );
            let timeline = builder.build();
            let code = timeline.space(1, PerfTime(0)).code(Ip(main.start)).unwrap();
            let body = main.start as usize..(main.start + main.size) as usize;
            assert_eq!(code[..body.len()], bytes[body]);
        }
    }
}
