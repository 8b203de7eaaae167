//! From names and lines to code, against `nm` and `addr2line`.

use std::path::Path;

use ptrail_image::{AtLine, Image, Named};

use crate::tools::{Workshop, nm, run};

/// The innermost function and its line at an address, by binutils.
fn innermost(path: &Path, address: u64) -> (String, String) {
    let address = format!("{address:#x}");
    let text = run(
        "addr2line",
        &["-i", "-f", "-s", "-e", path.to_str().unwrap(), &address],
    );
    let mut lines = text.lines().map(str::to_owned);
    let function = lines.next().unwrap();
    let place = lines.next().unwrap();
    (function, place.split(" (").next().unwrap().to_owned())
}

fn similar(image: &Image, name: &str) -> Vec<String> {
    match image.functions_named(name) {
        Named::Unknown(names) => names,
        found => panic!("{name}: {found:?}"),
    }
}

#[test]
fn functions_by_their_names() {
    let workshop = Workshop::new();
    let program = workshop.build("places.c", &["-g"]);
    let image = Image::at_path(&program);
    let mut checked = 0;
    for symbol in nm(&program, &[]) {
        if ["first", "second", "main"].contains(&symbol.name.as_str()) {
            let found = image.functions_named(&symbol.name);
            assert_eq!(found, Named::Functions(vec![symbol.start]));
            let offset = image.file_offset(symbol.start).unwrap() as usize;
            // ENDBR64, or whatever it is: the file has there what objdump shows.
            let bytes = std::fs::read(&program).unwrap();
            let text = run("objdump", &["-d", program.to_str().unwrap()]);
            let label = format!("{:016x} <{}>:\n", symbol.start, symbol.name);
            let line = text.split(&label).nth(1).unwrap().lines().next().unwrap();
            let first = line.split('\t').nth(1).unwrap().split(' ').next().unwrap();
            assert_eq!(format!("{:02x}", bytes[offset]), first);
            checked += 1;
        }
    }
    assert_eq!(checked, 3);
    assert_eq!(similar(&image, "fist")[0], "first");
    assert_eq!(similar(&image, "xyzzyxyzzyxyzzy"), Vec::<String>::new());
}

#[test]
fn cpp_names_may_leave_out_arguments_and_namespaces() {
    let workshop = Workshop::new();
    let program = workshop.build("shapes.cpp", &["-g"]);
    let image = Image::at_path(&program);
    let mut checked = 0;
    let plain = nm(&program, &[]);
    let readable = nm(&program, &["-C"]);
    for (raw, readable) in plain.iter().zip(&readable) {
        if raw.name == readable.name || raw.name.contains(".cold") || readable.name.contains('[') {
            continue;
        }
        for name in [&raw.name, &readable.name] {
            let Named::Functions(found) = image.functions_named(name) else {
                panic!("{name} is not found");
            };
            assert!(found.contains(&raw.start), "{name}: {found:x?}");
            checked += 1;
        }
    }
    assert!(checked > 4, "{checked}");
}

#[test]
fn copies_that_the_compiler_inlined() {
    let workshop = Workshop::new();
    for options in [&["-g"][..], &["-gdwarf-4"], &["-g", "-gz"]] {
        let program = workshop.build("places.c", options);
        let image = Image::at_path(&program);
        let copies = image.inlined_copies("twice");
        assert_eq!(copies.len(), 3, "{options:?}: {copies:x?}");
        for copy in copies {
            assert_eq!(innermost(&program, copy).0, "twice", "{copy:#x}");
        }
        assert_eq!(image.inlined_copies("first"), Vec::<u64>::new());
    }
}

#[test]
fn code_of_a_line() {
    let workshop = Workshop::new();
    let program = workshop.build("places.c", &["-g"]);
    let image = Image::at_path(&program);
    let text = include_str!("programs/places.c");
    let line_of = |part: &str| {
        let at = text.lines().position(|line| line.contains(part)).unwrap();
        at as u32 + 1
    };
    // (What stands on the line, how many copies of it there are.)
    for (part, copies) in [("x * 2", 3), ("sum += twice", 1), ("printf(", 1)] {
        let line = line_of(part);
        for file in ["places.c", "it/programs/places.c"] {
            let AtLine::Code(found) = image.code_at_line(file, line) else {
                panic!("{part}: no code");
            };
            assert_eq!(found.len(), copies, "{part}: {found:x?}");
            for address in found {
                let (_, place) = innermost(&program, address);
                assert_eq!(place, format!("places.c:{line}"));
            }
        }
    }
    let next = line_of("int main");
    let empty = image.code_at_line("places.c", line_of("No code here"));
    assert_eq!(empty, AtLine::NoCode(Some(next)));
    assert_eq!(image.code_at_line("places.c", 9999), AtLine::NoCode(None));
    assert_eq!(image.code_at_line("other.c", 3), AtLine::UnknownFile);
}
