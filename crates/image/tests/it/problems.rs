//! Why code is missing, in words that help.

use std::fs;
use std::path::Path;

use ptrail_image::{ImageError, Mapping, NoCode, TimelineBuilder};
use ptrail_pt::{Ip, PerfTime};

use crate::tools::{Workshop, nm, run};

const ADDRESS: u64 = 0x40_0000;

fn mapping(path: &str, build_id: Option<Vec<u8>>) -> Mapping {
    Mapping {
        address: ADDRESS,
        len: 0x10_0000,
        file_offset: 0,
        path: path.to_owned(),
        build_id,
    }
}

/// What is said about the code and the function of a mapping.
fn ask(path: &str, build_id: Option<Vec<u8>>) -> Result<(), NoCode> {
    let mut builder = TimelineBuilder::new();
    builder.map(1, PerfTime(0), mapping(path, build_id));
    let timeline = builder.build();
    let space = timeline.space(1, PerfTime(0));
    let answer = space.code(Ip(ADDRESS)).map(|_| ());
    let image = timeline.images().next().unwrap();
    assert_eq!(image.status().is_ok(), answer.is_ok());
    assert_eq!(image.path(), path);
    if answer.is_err() {
        assert_eq!(space.function(Ip(ADDRESS)), None);
        let mut buffer = [0; 15];
        assert_eq!(space.fetch(Ip(ADDRESS), &mut buffer), 0);
    }
    answer
}

fn reason(path: &Path, build_id: Option<Vec<u8>>) -> ImageError {
    match ask(path.to_str().unwrap(), build_id) {
        Err(NoCode::Missing {
            reason,
            image: 0,
            ip: Ip(ADDRESS),
        }) => (*reason).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_that_are_not_there() {
    let workshop = Workshop::new();
    assert!(matches!(
        reason(&workshop.path("gone"), None),
        ImageError::Missing { .. }
    ));
    assert!(matches!(
        reason(&workshop.path("gone.so (deleted)"), None),
        ImageError::NoFile { .. }
    ));
    for name in [
        "[vdso]",
        "//anon",
        "/memfd:jit (deleted)",
        "/dev/zero",
        "",
        "[heap]",
        "anon_inode:[perf_event]",
    ] {
        let error = ask(name, None).unwrap_err();
        assert!(
            error.to_string().contains("captured while recording"),
            "{error}"
        );
    }
    assert!(
        matches!(
            reason(&workshop.path(""), None),
            ImageError::Unreadable { .. }
        ),
        "a folder"
    );
    let pipe = workshop.path("pipe");
    run("mkfifo", &[pipe.to_str().unwrap()]);
    assert!(
        matches!(reason(&pipe, None), ImageError::Unreadable { .. }),
        "opening a pipe would block"
    );
}

#[test]
fn other_file_types() {
    let workshop = Workshop::new();
    let file = workshop.path("file");
    for content in [&b""[..], b"\x7fEL", b"#!/bin/sh\n", &[0; 5000]] {
        fs::write(&file, content).unwrap();
        assert!(matches!(reason(&file, None), ImageError::NotElf { .. }));
    }
    let program = fs::read(workshop.build("calls.c", &[])).unwrap();
    let patched = |offset: usize, value: u8| {
        let mut bytes = program.clone();
        bytes[offset] = value;
        fs::write(&file, bytes).unwrap();
        reason(&file, None)
    };
    for (offset, value, word) in [
        (4, 1, "32-bit"),
        (5, 2, "big-endian"),
        (18, 183, "another machine"),
    ] {
        let error = patched(offset, value);
        assert!(
            matches!(error, ImageError::Unsupported { .. }) && error.to_string().contains(word),
            "{error}"
        );
    }
    assert!(matches!(patched(4, 9), ImageError::Damaged { .. }));
    fs::write(&file, &program[..70]).unwrap();
    assert!(
        matches!(reason(&file, None), ImageError::Damaged { .. }),
        "cut in the program headers"
    );
}

#[test]
fn build_ids() {
    let workshop = Workshop::new();
    let program = workshop.build("calls.c", &["-Wl,--build-id=0x1122334455667788"]);
    let path = program.to_str().unwrap();
    let id = vec![0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
    let mut padded = id.clone();
    padded.resize(20, 0);
    assert_eq!(ask(path, Some(id.clone())), Ok(()));
    assert_eq!(ask(path, Some(padded)), Ok(()));
    let other = vec![0xab; 20];
    let message = reason(&program, Some(other.clone())).to_string();
    assert!(
        message.contains("1122334455667788") && message.contains(&"ab".repeat(20)),
        "{message}"
    );
    let none = workshop.build("calls.c", &["-Wl,--build-id=none"]);
    let message = reason(&none, Some(other)).to_string();
    assert!(message.contains("build-id none"), "{message}");

    let mut builder = TimelineBuilder::new();
    builder.map(1, PerfTime(0), mapping(path, None));
    let timeline = builder.build();
    let image = timeline.images().next().unwrap();
    assert_eq!(
        (image.build_id(), image.is_captured()),
        (Some(&id[..]), false)
    );
    assert_eq!(
        image.module(),
        program.file_name().unwrap().to_str().unwrap()
    );
}

#[test]
fn nothing_mapped_and_behind_the_end() {
    let workshop = Workshop::new();
    let program = workshop.build("calls.c", &[]);
    let size = fs::metadata(&program).unwrap().len();
    let mut builder = TimelineBuilder::new();
    builder.map(1, PerfTime(0), mapping(program.to_str().unwrap(), None));
    let timeline = builder.build();
    let space = timeline.space(1, PerfTime(0));
    assert_eq!(
        space.code(Ip(ADDRESS)).unwrap().len() as u64,
        size,
        "bytes behind the file's end do not exist"
    );
    assert_eq!(space.code(Ip(ADDRESS + size - 1)).unwrap().len(), 1);
    let error = space.code(Ip(ADDRESS + size)).unwrap_err();
    assert!(matches!(error, NoCode::BehindEnd { size: s, .. } if s == size));
    let error = space.code(Ip(1)).unwrap_err();
    assert_eq!(error, NoCode::Unmapped { ip: Ip(1) });
    assert!(error.to_string().contains("0x1 "), "{error}");
    let unknown = timeline.space(99, PerfTime(0));
    assert_eq!(
        unknown.code(Ip(ADDRESS)),
        Err(NoCode::Unmapped { ip: Ip(ADDRESS) })
    );
    assert_eq!(unknown.changes_at(), None);
    // Code that no section holds has bytes, but no name.
    assert_eq!(space.function(Ip(ADDRESS)), None);
    let main = nm(&program, &[])
        .into_iter()
        .find(|s| s.name == "main")
        .unwrap();
    assert!(space.function(Ip(ADDRESS + main.start)).is_some());
}
