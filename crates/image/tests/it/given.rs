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
