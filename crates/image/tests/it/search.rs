//! Files that are not where they were.

use std::fs;
use std::path::{Path, PathBuf};

use ptrail_image::{ImageError, Search, TimelineBuilder};
use ptrail_pt::PerfTime;

use crate::tools::{Workshop, at, load_with, nm, run};

fn build_id(path: &Path) -> Vec<u8> {
    let notes = run("readelf", &["-n", path.to_str().unwrap()]);
    let id = notes
        .lines()
        .find_map(|l| l.trim().strip_prefix("Build ID: "));
    let digits = id.unwrap().as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

/// Where a file recorded at `path` is found.
fn found(path: &str, id: &[u8], search: Search) -> Result<PathBuf, ImageError> {
    let mut builder = TimelineBuilder::new();
    builder.search(search);
    builder.module(1, PerfTime(0), 0x1000, path, Some(id.to_vec()));
    let timeline = builder.build();
    let image = timeline.images().next().unwrap();
    image.status().map_err(Clone::clone)?;
    Ok(image.found().unwrap().to_owned())
}

#[test]
fn moved_copied_cached_and_other_builds() {
    let workshop = Workshop::new();
    let options = ["-Wl,--build-id=sha1"];
    let program = workshop.build("calls.c", &options);
    let id = build_id(&program);
    let recorded = "/no/such/folder/calls";
    let place = |name: &str| {
        let place = workshop.path(name);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(&program, &place).unwrap();
        place
    };

    let nowhere = found(recorded, &id, Search::default());
    assert!(matches!(nowhere, Err(ImageError::Missing { path }) if path == recorded));

    let copied = place("root/no/such/folder/calls");
    let sysroot = Search {
        sysroot: Some(workshop.path("root")),
        ..Search::default()
    };
    assert_eq!(found(recorded, &id, sysroot.clone()), Ok(copied.clone()));

    let moved = Search {
        moved: vec![("/no/such".into(), workshop.path("root/no/such"))],
        ..Search::default()
    };
    assert_eq!(found(recorded, &id, moved), Ok(copied));

    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let cached = place(&format!("cache/.build-id/{}/{}/elf", &hex[..2], &hex[2..]));
    let caches = Search {
        caches: vec![workshop.path("cache")],
        ..Search::default()
    };
    assert_eq!(found(recorded, &id, caches.clone()), Ok(cached.clone()));

    // Another build in the first place does not hide the right one in the next.
    let other = workshop.build("calls.c", &["-Wl,--build-id=md5"]);
    fs::copy(&other, workshop.path("root/no/such/folder/calls")).unwrap();
    let refused = found(recorded, &id, sysroot.clone());
    assert!(matches!(refused, Err(ImageError::BuildId { .. })));
    let both = Search {
        caches: caches.caches,
        ..sysroot.clone()
    };
    assert_eq!(found(recorded, &id, both), Ok(cached));
    let forced = Search {
        any_build: true,
        ..sysroot
    };
    let expected = workshop.path("root/no/such/folder/calls");
    assert_eq!(found(recorded, &id, forced), Ok(expected));
}

/// As `perf buildid-cache` lays it out.
#[test]
fn perfs_own_cache() {
    let workshop = Workshop::new();
    let program = workshop.build("calls.c", &["-Wl,--build-id=sha1"]);
    let id = build_id(&program);
    let cache = workshop.path("buildid");
    let add = std::process::Command::new("perf")
        .args(["--buildid-dir", cache.to_str().unwrap()])
        .args(["buildid-cache", "--add", program.to_str().unwrap()])
        .output();
    if !add.is_ok_and(|output| output.status.success()) {
        println!("skipped: no perf");
        return;
    }
    fs::remove_file(&program).unwrap();
    let search = Search {
        caches: vec![cache.clone()],
        ..Search::default()
    };
    let found = found(program.to_str().unwrap(), &id, search).unwrap();
    assert!(found.starts_with(&cache), "{}", found.display());
}

/// The vDSO needs no file: this machine's is taken if it is the recorded one.
#[test]
fn our_own_vdso() {
    let check = |id: Option<Vec<u8>>| {
        let mut builder = TimelineBuilder::new();
        builder.module(1, PerfTime(0), 0x7fff_0000, "[vdso]", id);
        let timeline = builder.build();
        let image = timeline.images().next().unwrap();
        image.status().is_ok()
    };
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    if !maps.contains("[vdso]") {
        println!("skipped: this kernel gives no vDSO");
        return;
    }
    assert!(!check(None));
    assert!(!check(Some(vec![1; 20])));
    let perf_has = |id: &[u8]| check(Some(id.to_vec()));
    // The id as gdb or readelf would see it: from our own memory.
    let workshop = Workshop::new();
    let line = maps.lines().find(|l| l.ends_with("[vdso]")).unwrap();
    let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let mut bytes = vec![0; (hex(end) - hex(start)) as usize];
    let memory = fs::File::open("/proc/self/mem").unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, hex(start)).unwrap();
    let file = workshop.path("vdso.so");
    fs::write(&file, bytes).unwrap();
    assert!(perf_has(&build_id(&file)));
}

/// Symbols in `.gnu_debugdata`, made as Fedora's `find-debuginfo` makes them.
#[test]
fn minidebuginfo() {
    if std::process::Command::new("xz")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: no xz");
        return;
    }
    let workshop = Workshop::new();
    let program = workshop.build("calls.c", &[]);
    let symbols = nm(&program, &[]);
    let stripped = workshop.strip(&program);
    let file = |name: &str| workshop.path(name).to_str().unwrap().to_owned();
    run(
        "objcopy",
        &[
            "--only-keep-debug",
            program.to_str().unwrap(),
            &file("mini"),
        ],
    );
    run("xz", &["-k", &file("mini")]);
    let section = format!(".gnu_debugdata={}", file("mini.xz"));
    run(
        "objcopy",
        &["--add-section", &section, stripped.to_str().unwrap()],
    );
    let timeline = load_with(&stripped, Vec::new());
    let mut compared = 0;
    let is_own = |s: &&crate::tools::Symbol| s.letter == 't' && s.size > 0 && !s.name.contains('.');
    for symbol in symbols.iter().filter(is_own) {
        assert_eq!(at(&timeline, symbol.start).unwrap().2, symbol.name);
        compared += 1;
    }
    assert!(compared > 0);
}
