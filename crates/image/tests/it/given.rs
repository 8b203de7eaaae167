//! Whole files at an address, and code that the user gives.

use std::fs;

use ptrail_image::{ImageError, Mapping, TimelineBuilder};
use ptrail_pt::{Ip, PerfTime};

use crate::tools::{Workshop, nm};

const BASE: u64 = 0x5000_0000;

#[test]
fn a_module_lies_where_the_system_would_load_it() {
    let workshop = Workshop::new();
    // A program that may lie anywhere starts at 0; this one at 0x400000.
    for (options, lowest) in [(&["-pie"][..], 0), (&["-no-pie"], 0x40_0000)] {
        let program = workshop.build("calls.c", options);
        let symbols = nm(&program, &[]);
        let main = symbols.iter().find(|symbol| symbol.name == "main").unwrap();
        let mut builder = TimelineBuilder::new();
        builder.module(1, PerfTime(5), BASE, program.to_str().unwrap(), None);
        let timeline = builder.build();
        let space = timeline.space(1, PerfTime(5));
        let hit = space.function(Ip(main.start - lowest + BASE)).unwrap();
        assert_eq!(timeline.function(hit.id).name, "main");
        let bytes = fs::read(&program).unwrap();
        let code = space.code(hit.entry).unwrap();
        assert!(bytes.windows(16).any(|window| window == &code[..16]));
        assert!(space.code(Ip(BASE)).is_err(), "the headers don't run");
        assert!(timeline.space(2, PerfTime(5)).code(hit.entry).is_err());
    }
}

#[test]
fn a_module_of_another_build_is_not_mapped_and_its_image_says_why() {
    let workshop = Workshop::new();
    let program = workshop.build("calls.c", &["-Wl,--build-id=sha1"]);
    let mut builder = TimelineBuilder::new();
    let path = program.to_str().unwrap();
    builder.module(1, PerfTime(0), BASE, path, Some(vec![7; 20]));
    let timeline = builder.build();
    let image = timeline.images().next().unwrap();
    assert!(matches!(image.status(), Err(ImageError::BuildId { .. })));
}

#[test]
fn given_code_lies_in_every_process_and_beats_what_is_mapped() {
    let workshop = Workshop::new();
    let bare = workshop.path("bare");
    fs::write(&bare, [0x90, 0x91, 0x92, 0x93]).unwrap();
    let mut builder = TimelineBuilder::new();
    let path = bare.to_str().unwrap();
    builder.everywhere(path, Some(1..3), 0x1000).unwrap();
    builder.everywhere(path, None, 0x3000).unwrap();
    builder.map(
        1,
        PerfTime(9),
        Mapping {
            address: 0x1000,
            len: 0x1000,
            file_offset: 0,
            path: "/no/such/file".to_owned(),
            build_id: None,
        },
    );
    let timeline = builder.build();
    for (pid, time) in [(1, 0), (1, 9), (77, 3)] {
        let space = timeline.space(pid, PerfTime(time));
        assert_eq!(space.code(Ip(0x1000)).unwrap(), [0x91, 0x92]);
        assert_eq!(space.code(Ip(0x3002)).unwrap(), [0x92, 0x93]);
        assert_eq!(space.function(Ip(0x1000)), None);
        assert!(space.code(Ip(0x1002)).is_err());
    }
}

#[test]
fn given_code_that_is_not_there_is_refused() {
    let workshop = Workshop::new();
    let bare = workshop.path("bare");
    fs::write(&bare, [0x90; 4]).unwrap();
    let mut builder = TimelineBuilder::new();
    let path = bare.to_str().unwrap();
    for part in [2..5, 3..3, 9..20] {
        let refused = builder.everywhere(path, Some(part.clone()), 0);
        assert!(
            matches!(refused, Err(ImageError::NoSuchPart { size: 4, .. })),
            "{part:?}"
        );
    }
    assert!(builder.everywhere(path, Some(0..4), u64::MAX).is_err());
    let gone = workshop.path("gone");
    let refused = builder.everywhere(gone.to_str().unwrap(), None, 0);
    assert!(matches!(refused, Err(ImageError::Missing { .. })));
}

/// An ELF core file of the kernel's memory as `perf record --kcore` copies it.
fn kcore(address: u64, code: &[u8]) -> Vec<u8> {
    const CORE: u16 = 4;
    const X86_64: u16 = 62;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([CORE.to_le_bytes(), X86_64.to_le_bytes()].concat());
    file.extend(1u32.to_le_bytes());
    file.extend([0u64, 64, 0].map(u64::to_le_bytes).concat());
    file.extend(0u32.to_le_bytes());
    file.extend([64u16, 56, 1, 64, 0, 0].map(u16::to_le_bytes).concat());
    // A loaded piece, readable, writable and executable.
    file.extend([1u32, 7].map(u32::to_le_bytes).concat());
    let len = code.len() as u64;
    file.extend(
        [120u64, address, 0, len, len, 1]
            .map(u64::to_le_bytes)
            .concat(),
    );
    file.extend(code);
    file
}

#[test]
fn a_copy_of_the_kernel_lies_in_every_process() {
    const TEXT: u64 = 0xffff_ffff_8100_0000;
    let workshop = Workshop::new();
    let copy = workshop.path("kcore");
    fs::write(&copy, kcore(TEXT, &[0x90, 0xc3, 0x90, 0xc3])).unwrap();
    let symbols =
        b"ffffffff81000000 T do_this\nffffffff81000002 t do_that\nffffffff81000003 D data\n";
    let mut builder = TimelineBuilder::new();
    let path = copy.to_str().unwrap();
    builder.kernel(path, "kallsyms", symbols).unwrap();
    let timeline = builder.build();
    for pid in [1, 77] {
        let space = timeline.space(pid, PerfTime(5));
        assert_eq!(space.code(Ip(TEXT + 1)).unwrap(), [0xc3, 0x90, 0xc3]);
        let name = |ip| {
            let hit = space.function(Ip(ip))?;
            let function = timeline.function(hit.id);
            Some((
                function.name.into_owned(),
                function.module.to_owned(),
                hit.entry.0,
            ))
        };
        let kernel = |name: &str, entry| Some((name.to_owned(), "[kernel]".to_owned(), entry));
        assert_eq!(name(TEXT + 1), kernel("do_this", TEXT));
        assert_eq!(name(TEXT + 2), kernel("do_that", TEXT + 2));
        assert_eq!(name(TEXT + 3), None);
    }
    assert!(builder_refuses(&workshop.path("gone")));
}

fn builder_refuses(path: &std::path::Path) -> bool {
    TimelineBuilder::new()
        .kernel(path.to_str().unwrap(), "", &[])
        .is_err()
}
