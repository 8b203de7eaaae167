//! This very process: its mappings, its memory, its vDSO.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ptrail_image::{FunctionKind, Mapping, TimelineBuilder};
use ptrail_pt::{Ip, PerfTime};

use crate::tools::{Workshop, nm};

struct Mapped {
    start: u64,
    len: u64,
    offset: u64,
    name: String,
}

/// Executable mappings of `/proc/self/maps`.
fn own_mappings() -> Vec<Mapped> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let parse = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (start, end) = words[0].split_once('-').unwrap();
        let name = (*words.get(5).unwrap_or(&"//anon")).to_owned();
        words[1].contains('x').then(|| Mapped {
            start: hex(start),
            len: hex(end) - hex(start),
            offset: hex(words[2]),
            name,
        })
    };
    maps.lines().filter_map(parse).collect()
}

fn own_memory(address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    File::open("/proc/self/mem")
        .unwrap()
        .read_exact_at(&mut bytes, address)
        .unwrap();
    bytes
}

#[inline(never)]
fn a_function_of_the_test() -> u32 {
    std::hint::black_box(42)
}

#[test]
fn files_hold_what_memory_holds() {
    assert_eq!(a_function_of_the_test(), 42);
    let mut builder = TimelineBuilder::new();
    let mapped = own_mappings();
    for Mapped {
        start,
        len,
        offset,
        name,
    } in &mapped
    {
        let mapping = Mapping {
            address: *start,
            len: *len,
            file_offset: *offset,
            path: name.clone(),
            build_id: None,
        };
        builder.map(1, PerfTime(0), mapping);
    }
    let timeline = builder.build();
    let space = timeline.space(1, PerfTime(0));
    let mut files = 0;
    for Mapped {
        start, len, name, ..
    } in mapped.iter().filter(|mapped| mapped.name.starts_with('/'))
    {
        let code = space.code(Ip(*start)).unwrap();
        assert_eq!(code.len() as u64, *len, "{name}");
        assert!(code == own_memory(*start, code.len()), "{name}");
        files += 1;
    }
    assert!(files >= 2);
    let address = Ip(a_function_of_the_test as *const () as u64);
    let hit = space.function(address).unwrap();
    assert_eq!((hit.entry, hit.start), (address, address));
    let function = timeline.function(hit.id);
    assert_eq!(function.name, "it::running::a_function_of_the_test");
    assert!(function.mangled.is_some() && function.module.starts_with("it-"));
}

#[test]
fn the_vdso_brings_its_symbols() {
    let Some(vdso) = own_mappings()
        .into_iter()
        .find(|mapped| mapped.name == "[vdso]")
    else {
        println!("skipped: this process has no vDSO");
        return;
    };
    let bytes = own_memory(vdso.start, vdso.len as usize);
    let workshop = Workshop::new();
    let copy = workshop.path("vdso.so");
    fs::write(&copy, &bytes).unwrap();
    let symbols = nm(Path::new(&copy), &["-D"]);

    let mut builder = TimelineBuilder::new();
    builder.code(1, PerfTime(5), vdso.start, "[vdso]", bytes.clone());
    builder.code(2, PerfTime(9), vdso.start + 0x5000, "[vdso]", bytes.clone());
    let timeline = builder.build();
    assert_eq!(timeline.images().count(), 1, "recognised again");
    let space = timeline.space(1, PerfTime(0));
    assert_eq!(space.code(Ip(vdso.start)).unwrap(), bytes);
    assert!(timeline.image(0).unwrap().build_id().is_some());
    let time = symbols
        .iter()
        .filter(|symbol| symbol.name.ends_with("clock_gettime"));
    assert!(time.clone().count() >= 1);
    for symbol in time {
        let hit = space
            .function(Ip(vdso.start + symbol.start + symbol.size - 1))
            .unwrap();
        assert_eq!(
            (hit.start.0, hit.end.0 - hit.start.0),
            (vdso.start + symbol.start, symbol.size)
        );
        let function = timeline.function(hit.id);
        assert_eq!(
            (&*function.name, function.module),
            ("__vdso_clock_gettime", "[vdso]")
        );
        assert_eq!(function.kind, FunctionKind::Code);
        let elsewhere = timeline
            .space(2, PerfTime(9))
            .function(Ip(vdso.start + 0x5000 + symbol.start))
            .unwrap();
        assert_eq!(
            (elsewhere.id, elsewhere.entry.0),
            (hit.id, hit.entry.0 + 0x5000)
        );
    }
}
