//! Names and ranges against `nm`, demangling against `nm -C`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::tools::{Random, Symbol, Workshop, at, load, load_with, nm, run};

/// Compares random addresses with `nm`'s symbols; returns how many were compared.
///
/// Where symbols of different ranges hold an address (assembly with several entries), `nm` can't
/// say which is right, so those are left out and must be few.
fn compare(timeline: &ptrail_image::Timeline, symbols: &[Symbol], seed: u64) -> usize {
    let sized: Vec<&Symbol> = symbols.iter().filter(|symbol| symbol.size > 0).collect();
    let longest = sized.iter().map(|symbol| symbol.size).max().unwrap();
    let mut random = Random(seed);
    let (mut compared, mut nested) = (0, 0);
    for _ in 0..4000 {
        let symbol = sized[random.below(sized.len() as u64) as usize];
        let address = symbol.start + random.below(symbol.size);
        let from = sized.partition_point(|s| s.start + longest <= address);
        let to = sized.partition_point(|s| s.start <= address);
        let holding: Vec<&&Symbol> = sized[from..to]
            .iter()
            .filter(|s| address < s.start + s.size)
            .collect();
        if holding
            .iter()
            .any(|s| (s.start, s.size) != (symbol.start, symbol.size))
        {
            nested += 1;
            continue;
        }
        let found = at(timeline, address);
        let (hit, _, raw) =
            found.unwrap_or_else(|| panic!("nothing at {address:x}, nm says {symbol:?}"));
        assert_eq!(
            (hit.start.0, hit.end.0),
            (symbol.start, symbol.start + symbol.size),
            "{raw} {symbol:?}"
        );
        assert_eq!(hit.id, at(timeline, hit.entry.0).unwrap().0.id);
        let cold = symbol.name.ends_with(".cold");
        let names: Vec<&str> = holding
            .iter()
            .map(|s| s.name.trim_end_matches(".cold"))
            .collect();
        // Of a cold part, the function may have a better name at its entry.
        let owner = |s: &&Symbol| s.start == hit.entry.0 && names.contains(&s.name.as_str());
        assert!(
            names.contains(&raw.as_str()) || cold && symbols.iter().any(|s| owner(&s)),
            "{raw} is none of {names:?}"
        );
        let letter = |wanted: &str| holding.iter().any(|s| wanted.contains(s.letter));
        let of = holding
            .iter()
            .find(|s| s.name == raw)
            .map_or(' ', |s| s.letter);
        assert!(
            cold || !letter("Ti") || "Ti".contains(of),
            "{raw} ({of}) is preferred to a global name of {names:?}"
        );
        compared += 1;
    }
    assert!(nested < 400, "{nested} of 4000 left out");
    compared
}

fn both_tables(path: &Path) -> Vec<Symbol> {
    let mut symbols = nm(path, &[]);
    symbols.extend(nm(path, &["-D"]));
    symbols.sort_by_key(|symbol| symbol.start);
    symbols
}

#[test]
fn c_cpp_and_rust_programs() {
    let workshop = Workshop::new();
    for (source, options) in [
        ("calls.c", &["-g"][..]),
        ("calls.c", &["-static"]),
        ("shapes.cpp", &[]),
        ("words.rs", &[]),
        ("words.rs", &["-Csymbol-mangling-version=v0", "-Clto=fat"]),
    ] {
        let program = workshop.build(source, options);
        assert!(compare(&load(&program), &both_tables(&program), 1) > 3500);
    }
}

#[test]
fn system_libraries_by_their_dynamic_symbols() {
    for name in [
        "libc.so.6",
        "ld-linux-x86-64.so.2",
        "libstdc++.so.6",
        "libm.so.6",
    ] {
        let path = Path::new("/lib/x86_64-linux-gnu").join(name);
        let path = if path.exists() {
            path
        } else {
            Path::new("/usr/lib/x86_64-linux-gnu").join(name)
        };
        if !path.exists() {
            println!("{name} skipped: not in this machine's library folders");
            continue;
        }
        assert!(
            compare(&load(&path), &nm(&path, &["-D"]), 2) > 3500,
            "{name}"
        );
    }
}

#[test]
fn libc_by_its_debug_file() {
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let Some(debug) = debug_file_of(libc) else {
        println!("skipped: no separate debug file of libc on this machine (package libc6-dbg)");
        return;
    };
    let timeline = load_with(libc, vec![PathBuf::from("/usr/lib/debug")]);
    let mut symbols = nm(&debug, &[]);
    symbols.extend(nm(libc, &["-D"]));
    symbols.sort_by_key(|symbol| symbol.start);
    assert!(compare(&timeline, &symbols, 3) > 3500);
    // The same library without it knows fewer names but the same ranges where it has frames.
    let bare = load_with(libc, Vec::new());
    let alone = |s: &Symbol| {
        symbols
            .iter()
            .filter(|other| other.start == s.start)
            .count()
            == 1
    };
    let hidden = symbols
        .iter()
        .find(|s| s.letter == 't' && s.size > 200 && alone(s) && !s.name.contains('.'))
        .unwrap();
    assert_eq!(at(&timeline, hidden.start).unwrap().2, hidden.name);
    let (hit, name, _) = at(&bare, hidden.start + 5).unwrap();
    assert_eq!(
        (hit.start.0, hit.end.0),
        (hidden.start, hidden.start + hidden.size)
    );
    assert_eq!(name, format!("sub_{:x}", hidden.start));
}

fn debug_file_of(path: &Path) -> Option<PathBuf> {
    let notes = run("readelf", &["-n", path.to_str().unwrap()]);
    let id = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "))?
        .to_owned();
    let debug = PathBuf::from(format!(
        "/usr/lib/debug/.build-id/{}/{}.debug",
        &id[..2],
        &id[2..]
    ));
    debug.exists().then_some(debug)
}

#[test]
fn cold_parts_belong_to_their_function() {
    let workshop = Workshop::new();
    for source in ["calls.c", "shapes.cpp"] {
        let program = workshop.build(source, &[]);
        let timeline = load(&program);
        let symbols = nm(&program, &[]);
        let address_of = |name: &str| symbols.iter().find(|s| s.name == name).map(|s| s.start);
        let colds: Vec<&Symbol> = symbols
            .iter()
            .filter(|s| s.name.ends_with(".cold"))
            .collect();
        assert!(!colds.is_empty(), "{source} has no cold part");
        for cold in colds {
            let owner = cold.name.trim_end_matches(".cold");
            let (hit, _, raw) = at(&timeline, cold.start).unwrap();
            let entry = address_of(owner).unwrap();
            assert_eq!(
                (hit.start.0, hit.end.0, hit.entry.0),
                (cold.start, cold.start + cold.size, entry)
            );
            let (hot, _, hot_raw) = at(&timeline, entry).unwrap();
            assert_eq!(
                (hot.id, &hot_raw, hot.entry.0, hot.start.0),
                (hit.id, &raw, entry, entry)
            );
        }
    }
}

#[test]
fn the_best_of_several_names() {
    let workshop = Workshop::new();
    let program = workshop.build("calls.c", &[]);
    let timeline = load(&program);
    let address = nm(&program, &[])
        .iter()
        .find(|s| s.name == "_rounded_weakly")
        .unwrap()
        .start;
    assert_eq!(at(&timeline, address).unwrap().1, "rounded");
}

/// Readable names equal to binutils', for all functions of a C++ and of two Rust programs.
///
/// The C++ demanglers differ over `std::string`'s abbreviation in constructors and over
/// substitutions in parameters of template constructors; a static program has many of those.
#[test]
fn readable_names() {
    let workshop = Workshop::new();
    for (source, options, least) in [
        ("shapes.cpp", &["-static"][..], 0.94),
        ("words.rs", &[], 1.0),
        ("words.rs", &["-Csymbol-mangling-version=v0"], 1.0),
    ] {
        let program = workshop.build(source, options);
        let (mut same, mut all) = (0, 0);
        let plain: BTreeMap<u64, Symbol> = nm(&program, &[])
            .into_iter()
            .map(|s| (s.start, s))
            .collect();
        let readable: BTreeMap<u64, Vec<String>> =
            nm(&program, &["-C"])
                .into_iter()
                .fold(BTreeMap::new(), |mut map, s| {
                    map.entry(s.start).or_insert_with(Vec::new).push(s.name);
                    map
                });
        let timeline = load(&program);
        let mangled =
            |s: &&Symbol| s.size > 0 && (s.name.starts_with("_Z") || s.name.starts_with("_R"));
        for symbol in plain
            .values()
            .filter(mangled)
            .filter(|s| !s.name.ends_with(".cold"))
        {
            let (_, name, raw) = at(&timeline, symbol.start).unwrap();
            all += 1;
            if readable[&symbol.start].contains(&name) {
                same += 1;
            } else {
                println!("{raw}\n  {name}\n  {:?}", readable[&symbol.start]);
            }
        }
        println!("{source} {options:?}: {same} of {all}");
        assert!(f64::from(same) >= least * f64::from(all));
    }
}

/// Readable names against `nm -C` at 10,000 addresses of each file. Of several symbols at one address
/// any is right. In libstdc++, some 5 % differ: `cpp_demangle` says `std::string::string` for the
/// constructors of `std::basic_string<…>`, and leaves out a repeated parameter of constructor
/// templates.
#[test]
fn readable_names_are_those_of_nm() {
    let own = std::env::current_exe().unwrap();
    let library = |name: &str| Path::new("/lib/x86_64-linux-gnu").join(name);
    let files = [
        (own, &[][..]),
        (library("libc.so.6"), &["-D"]),
        (library("libstdc++.so.6"), &["-D"]),
    ];
    for (path, options) in files {
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        if !path.exists() {
            println!("{} skipped: not on this machine", path.display());
            continue;
        }
        let readable = [&["-C"], options].concat();
        let mut by_start: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for symbol in nm(&path, &readable) {
            by_start.entry(symbol.start).or_default().push(symbol.name);
        }
        let symbols: Vec<_> = nm(&path, options)
            .into_iter()
            .filter(|s| s.size > 0)
            .collect();
        let timeline = load(&path);
        let mut random = Random(11);
        let (mut compared, mut same) = (0, 0);
        let mut first = Vec::new();
        for _ in 0..10_000 {
            let symbol = &symbols[random.below(symbols.len() as u64) as usize];
            let address = symbol.start + random.below(symbol.size);
            let Some((hit, name, _)) = at(&timeline, address) else {
                continue;
            };
            let Some(expected) = by_start.get(&hit.entry.0) else {
                continue;
            };
            compared += 1;
            // nm cuts `@version` off in our reading of it, and with it what follows.
            let is = |theirs: &String| name == *theirs || name.split('@').next() == Some(theirs);
            if expected.iter().any(is) {
                same += 1;
            } else if first.len() < 5 {
                first.push(format!("{name} | {expected:?}"));
            }
        }
        println!("{}: {same} of {compared}; {first:#?}", path.display());
        assert!(
            compared > 9_000 && same * 100 >= compared * 95,
            "{}: {same} of {compared}",
            path.display()
        );
    }
}
