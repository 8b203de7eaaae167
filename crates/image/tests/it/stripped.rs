//! Stripped programs against their unstripped twins, and unwind frames against `readelf`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ptrail_image::FunctionKind;

use crate::tools::{Workshop, at, load, load_with, nm, readelf_frames, readelf_sections, run};

#[test]
fn main_and_start_are_found() {
    let workshop = Workshop::new();
    for (source, options) in [
        ("calls.c", &[][..]),
        ("calls.c", &["-no-pie"]),
        ("calls.c", &["-static"]),
        ("calls.c", &["-static-pie"]),
        ("calls.c", &["-fcf-protection=full", "-Wl,-z,ibtplt"]),
        ("shapes.cpp", &[]),
        ("words.rs", &[]),
    ] {
        let program = workshop.build(source, options);
        let symbols = nm(&program, &[]);
        let timeline = load(&workshop.strip(&program));
        for name in ["main", "_start", "_init", "_fini"] {
            let symbol = symbols.iter().find(|s| s.name == name).unwrap();
            let (hit, found, _) = at(&timeline, symbol.start).unwrap();
            assert_eq!(
                (found.as_str(), hit.start.0, hit.entry.0),
                (name, symbol.start, symbol.start),
                "{options:?}"
            );
            if symbol.size > 0 {
                assert_eq!(hit.end.0, symbol.start + symbol.size, "{name} {options:?}");
            }
        }
    }
}

/// musl's start code, rebuilt: `_start` without a type or a frame calls `_start_c`, which gives
/// `main` to the C library.
#[test]
fn main_behind_a_second_function() {
    let workshop = Workshop::new();
    let source = workshop.path("start.c");
    fs::write(
        &source,
        r#"
        __asm__(".text\n.global _start\n_start:\n xor %rbp,%rbp\n mov %rsp,%rdi\n"
                " lea _DYNAMIC(%rip),%rsi\n andq $-16,%rsp\n call _start_c\n");
        __attribute__((noipa)) int main(int argc, char **argv) { return argc + (argv != 0); }
        __attribute__((noipa)) static int __libc_start_main(int (*f)(int, char **), int argc, char **argv) {
          int status;
          __asm__ volatile("" : "+r"(f));
          status = f(argc, argv);
          __asm__ volatile("syscall" : : "a"(60), "D"(status) : "memory");
          return status;
        }
        __attribute__((used)) void _start_c(long *p) { __libc_start_main(main, p[0], (char **)(p + 1)); }
        "#,
    )
    .unwrap();
    let program = workshop.path("start");
    run(
        "gcc",
        &[
            "-O2",
            "-fPIE",
            "-pie",
            "-nostdlib",
            "-o",
            program.to_str().unwrap(),
            source.to_str().unwrap(),
        ],
    );
    let symbols = nm(&program, &[]);
    let address = |name: &str| symbols.iter().find(|s| s.name == name).unwrap().start;
    let whole = load(&program);
    assert_eq!(at(&whole, address("_start")).unwrap().1, "_start");
    let timeline = load(&workshop.strip(&program));
    assert_eq!(at(&timeline, address("main")).unwrap().1, "main");
    let (hit, name, _) = at(&timeline, address("_start") + 3).unwrap();
    assert_eq!((name.as_str(), hit.start.0), ("_start", address("_start")));
}

/// Functions of a stripped program have the bounds of the unstripped one and names by address.
#[test]
fn functions_by_frames() {
    let workshop = Workshop::new();
    for source in ["calls.c", "shapes.cpp", "words.rs"] {
        let program = workshop.build(source, &[]);
        let stripped = workshop.strip(&program);
        let timeline = load(&stripped);
        let frames: BTreeSet<(u64, u64)> = readelf_frames(&program).into_iter().collect();
        let exported: BTreeSet<u64> = nm(&stripped, &["-D"]).iter().map(|s| s.start).collect();
        let mut compared = 0;
        for symbol in nm(&program, &[]) {
            let end = symbol.start + symbol.size;
            if symbol.size == 0
                || !frames.contains(&(symbol.start, end))
                || exported.contains(&symbol.start)
            {
                continue;
            }
            let (hit, name, _) = at(&timeline, end - 1).unwrap();
            assert_eq!((hit.start.0, hit.end.0), (symbol.start, end), "{symbol:?}");
            let known = ["main", "_start"].contains(&symbol.name.as_str());
            assert_eq!(
                name,
                if known {
                    symbol.name
                } else {
                    format!("sub_{:x}", symbol.start)
                }
            );
            compared += 1;
        }
        assert!(compared >= 5, "{source}: {compared}");
    }
}

#[test]
fn frames_of_system_files() {
    for path in [
        "/bin/ls",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
    ] {
        let path = Path::new(path);
        if !path.exists() {
            println!("{} skipped: not on this machine", path.display());
            continue;
        }
        let timeline = load(path);
        let plt: Vec<(u64, u64)> = readelf_sections(path)
            .into_iter()
            .filter(|(name, _)| name.starts_with(".plt"))
            .map(|(_, at)| at)
            .collect();
        let in_plt = |address: u64| {
            plt.iter()
                .any(|&(start, size)| (start..start + size).contains(&address))
        };
        let frames = readelf_frames(path);
        assert!(frames.len() > 100);
        let mut unnamed = 0;
        for (start, end) in frames {
            // The frame of a signal trampoline starts one byte before the function.
            let middle = start + (end - start) / 2;
            let (hit, name, _) =
                at(&timeline, middle).unwrap_or_else(|| panic!("nothing at {middle:x}"));
            if in_plt(start) {
                assert_eq!(timeline.function(hit.id).kind, FunctionKind::PltStub);
                continue;
            }
            assert!(
                hit.start.0 <= middle && hit.end.0 > middle,
                "{name} {start:x}"
            );
            // A symbol may span several frames: hand-written assembly with other rules at its end.
            if name.starts_with("sub_") {
                assert!(hit.start.0 >= start && hit.end.0 <= end, "{name} {start:x}");
                unnamed += 1;
            }
        }
        assert!(unnamed > 20, "{}", path.display());
    }
    // The kernel starts the dynamic linker at its entry.
    let linker = Path::new("/lib64/ld-linux-x86-64.so.2");
    if linker.exists() {
        let header = run("readelf", &["-h", linker.to_str().unwrap()]);
        let entry = header
            .lines()
            .find_map(|line| line.trim().strip_prefix("Entry point address:"))
            .unwrap();
        let entry = u64::from_str_radix(entry.trim().trim_start_matches("0x"), 16).unwrap();
        assert_eq!(at(&load(linker), entry).unwrap().1, "_start");
    }
}

/// `/bin/ls` is stripped; that its `main` is right shows in what it calls first.
#[test]
fn main_of_a_system_program() {
    let path = Path::new("/bin/ls");
    if !path.exists() {
        println!("skipped: no /bin/ls");
        return;
    }
    let timeline = load(path);
    let mains: Vec<u64> = readelf_frames(path)
        .into_iter()
        .filter(|&(start, _)| at(&timeline, start).is_some_and(|(_, name, _)| name == "main"))
        .map(|(start, _)| start)
        .collect();
    let [main] = mains[..] else {
        panic!("{mains:x?}")
    };
    let text = run(
        "objdump",
        &[
            "-d",
            &format!("--start-address={main}"),
            &format!("--stop-address={}", main + 400),
            "/bin/ls",
        ],
    );
    for called in ["setlocale", "bindtextdomain", "textdomain"] {
        assert!(
            text.contains(&format!("<{called}@plt>")),
            "{called} is not called:\n{text}"
        );
    }
}

#[test]
fn files_without_section_headers() {
    let workshop = Workshop::new();
    let program = workshop.build("calls.c", &["-no-pie"]);
    let symbols = nm(&program, &[]);
    let mut bytes = fs::read(workshop.strip(&program)).unwrap();
    // e_shoff, e_shnum and e_shstrndx of the ELF header.
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let bare = workshop.path("bare");
    fs::write(&bare, bytes).unwrap();
    let timeline = load(&bare);
    for name in ["main", "triple_or_complain"] {
        let symbol = symbols.iter().find(|s| s.name == name).unwrap();
        let (hit, found, _) = at(&timeline, symbol.start + 1).unwrap();
        assert_eq!(
            (hit.start.0, hit.end.0),
            (symbol.start, symbol.start + symbol.size)
        );
        assert!(found == "main" || found == format!("sub_{:x}", symbol.start));
    }
}

#[test]
fn separate_debug_files() {
    let workshop = Workshop::new();
    for (options, by_id) in [
        (&["-Wl,--build-id=sha1"][..], true),
        (&["-Wl,--build-id=none"], false),
    ] {
        let program = workshop.build("calls.c", options);
        let symbols = nm(&program, &[]);
        let work = symbols.iter().find(|s| s.name == "compare").unwrap();
        let stripped = workshop.strip(&program);
        let debug = workshop.path("calls.debug");
        let (debug_text, stripped_text) = (debug.to_str().unwrap(), stripped.to_str().unwrap());
        run(
            "objcopy",
            &["--only-keep-debug", program.to_str().unwrap(), debug_text],
        );
        let name =
            |path: &Path, roots: Vec<PathBuf>| at(&load_with(path, roots), work.start).unwrap().1;
        let unnamed = format!("sub_{:x}", work.start);

        assert_eq!(
            name(&stripped, vec![workshop.path("")]),
            unnamed,
            "no link, not under .build-id"
        );
        let root = workshop.path("root");
        if by_id {
            let notes = run("readelf", &["-n", stripped_text]);
            let id = notes
                .lines()
                .find_map(|line| line.trim().strip_prefix("Build ID: "))
                .unwrap();
            let folder = root.join(".build-id").join(&id[..2]);
            fs::create_dir_all(&folder).unwrap();
            fs::copy(&debug, folder.join(format!("{}.debug", &id[2..]))).unwrap();
            assert_eq!(name(&stripped, vec![root.clone()]), "compare");
        }
        run(
            "objcopy",
            &[&format!("--add-gnu-debuglink={debug_text}"), stripped_text],
        );
        assert_eq!(name(&stripped, Vec::new()), "compare", "beside the program");
        fs::create_dir_all(workshop.path(".debug")).unwrap();
        fs::rename(&debug, workshop.path(".debug").join("calls.debug")).unwrap();
        assert_eq!(name(&stripped, Vec::new()), "compare", "in .debug");
        // Another program's debug file under that name.
        let other = workshop.build("shapes.cpp", options);
        fs::copy(other, workshop.path(".debug").join("calls.debug")).unwrap();
        assert_eq!(name(&stripped, Vec::new()), unnamed, "not this program's");
        fs::remove_dir_all(workshop.path(".debug")).unwrap();
    }
}
