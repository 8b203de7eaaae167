//! PLT stubs against the labels that `objdump -d` makes up for them.

use std::collections::BTreeMap;
use std::path::Path;

use ptrail_image::FunctionKind;

use crate::tools::{Workshop, at, load, nm, objdump_labels, readelf_sections, run, space};

/// All `@plt` labels of objdump have our name; returns how many there are.
fn compare(path: &Path) -> usize {
    let timeline = load(path);
    let sections = readelf_sections(path);
    let names: Vec<&str> = sections
        .keys()
        .map(String::as_str)
        .filter(|name| name.starts_with(".plt") || *name == ".iplt")
        .collect();
    let mut compared = 0;
    for (address, label) in objdump_labels(path, &names) {
        let Some(target) = label.strip_suffix("@plt") else {
            continue;
        };
        let (hit, _, raw) =
            at(&timeline, address).unwrap_or_else(|| panic!("{label} at {address:x} not found"));
        assert_eq!((hit.start.0, hit.entry.0), (address, address), "{label}");
        assert!(hit.end.0 <= address + 16);
        assert_eq!(timeline.function(hit.id).kind, FunctionKind::PltStub);
        match target.strip_prefix("*ABS*+0x") {
            // Without a symbol table nobody knows what the resolver picks from.
            Some(resolver) => {
                let resolver = u64::from_str_radix(resolver, 16).unwrap();
                let (_, _, name) = at(&timeline, resolver).unwrap();
                assert_eq!(raw, format!("{name}@plt"));
            }
            None => assert_eq!(raw, format!("{}@plt", target.split('@').next().unwrap())),
        }
        compared += 1;
    }
    compared
}

/// Folder of the `ld.lld` that comes with the Rust toolchain.
fn lld_folder() -> Option<String> {
    let root = run("rustc", &["--print", "sysroot"]);
    let folder = format!(
        "{}/lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld",
        root.trim()
    );
    Path::new(&folder).join("ld.lld").exists().then_some(folder)
}

#[test]
fn gcc_layouts() {
    let workshop = Workshop::new();
    for options in [
        &["-Wl,-z,now"][..],
        &["-Wl,-z,lazy", "-no-pie"],
        &["-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,now"],
        &["-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"],
        &[
            "-fcf-protection=full",
            "-Wl,-z,ibtplt",
            "-Wl,-z,lazy",
            "-no-pie",
        ],
        &["-fno-plt"],
    ] {
        let program = workshop.build("calls.c", options);
        assert!(compare(&program) >= 1, "{options:?}");
    }
    assert!(compare(&workshop.build("shapes.cpp", &["-Wl,-z,lazy"])) > 15);
}

#[test]
fn other_linkers() {
    let workshop = Workshop::new();
    let Some(folder) = lld_folder() else {
        println!("skipped: no ld.lld in the Rust toolchain");
        return;
    };
    let lld = format!("-B{folder}");
    for options in [
        &["-fuse-ld=lld", &lld, "-Wl,-z,lazy"][..],
        &["-fuse-ld=lld", &lld, "-Wl,-z,now", "-no-pie"],
        &[
            "-fuse-ld=lld",
            &lld,
            "-Wl,-z,force-ibt",
            "-fcf-protection=full",
            "-Wl,-z,lazy",
        ],
    ] {
        assert!(
            compare(&workshop.build("calls.c", options)) >= 5,
            "{options:?}"
        );
    }
}

/// objdump has no labels for static programs: follow its disassembly to the slot, `readelf`'s
/// relocation of the slot to the resolver, and `nm` to the resolver's name.
#[test]
fn static_programs() {
    let workshop = Workshop::new();
    for options in [&["-static"][..], &["-static-pie"]] {
        let program = workshop.build("calls.c", options);
        let path = program.to_str().unwrap();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let relocations = run("readelf", &["-rW", path]);
        let resolvers: BTreeMap<u64, u64> = relocations
            .lines()
            .filter(|line| line.contains("R_X86_64_IRELATIV"))
            .filter_map(|line| {
                Some((
                    hex(line.split(' ').next()?)?,
                    hex(line.split(' ').next_back()?)?,
                ))
            })
            .collect();
        let symbols = nm(&program, &[]);
        let timeline = load(&program);
        let stripped = load(&workshop.strip(&program));
        let (mut all, mut compared) = (0, 0);
        for line in run("objdump", &["-d", "-j", ".plt", path]).lines() {
            let Some((address, slot)) = line.split_once(":\t").zip(line.split_once("# ")) else {
                continue;
            };
            all += usize::from(line.contains("jmp"));
            let address = hex(address.0.trim()).unwrap();
            let Some(resolver) =
                hex(slot.1.split(' ').next().unwrap()).and_then(|slot| resolvers.get(&slot))
            else {
                continue;
            };
            let names: Vec<String> = symbols
                .iter()
                .filter(|s| s.start == *resolver)
                .map(|s| format!("{}@plt", s.name))
                .collect();
            let (hit, name, _) = at(&timeline, address + 5).unwrap();
            assert!(names.contains(&name), "{name} is none of {names:?}");
            assert_eq!(hit.start.0, address);
            assert_eq!(
                at(&stripped, address).unwrap().1,
                format!("sub_{resolver:x}@plt")
            );
            compared += 1;
        }
        // The head's jump, if the table has one, has no relocation.
        assert!(
            compared + 1 >= all && compared > 10,
            "{compared} of {all} {options:?}"
        );
    }
}

#[test]
fn lazy_ibt_entries_and_the_head() {
    let workshop = Workshop::new();
    let program = workshop.build(
        "calls.c",
        &["-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"],
    );
    let timeline = load(&program);
    let sections = readelf_sections(&program);
    let (plt, plt_size) = sections[".plt"];
    let (sec, sec_size) = sections[".plt.sec"];
    assert_eq!(at(&timeline, plt).unwrap().1, ".plt");
    assert_eq!(
        plt_size,
        sec_size + 16,
        "one lazy entry for each stub, behind the head"
    );
    for slot in 0..sec_size / 16 {
        let lazy = at(&timeline, plt + 16 + slot * 16).unwrap();
        let stub = at(&timeline, sec + slot * 16).unwrap();
        assert_eq!(lazy.1, stub.1);
        assert_ne!(lazy.0.id, stub.0.id);
    }
}

#[test]
fn system_files() {
    for path in [
        "/bin/ls",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    ] {
        let path = Path::new(path);
        if !path.exists() {
            println!("{} skipped: not on this machine", path.display());
            continue;
        }
        assert!(compare(path) > 1, "{}", path.display());
    }
}

#[test]
fn cpp_stubs_are_readable() {
    let workshop = Workshop::new();
    let program = workshop.build("shapes.cpp", &["-Wl,-z,lazy"]);
    let timeline = load(&program);
    let (plt, size) = readelf_sections(&program)[".plt"];
    let stubs: Vec<(String, String)> = (0..size / 16)
        .filter_map(|slot| at(&timeline, plt + slot * 16))
        .map(|(_, name, raw)| (name, raw))
        .collect();
    assert!(
        stubs.contains(&(
            "operator new(unsigned long)@plt".to_owned(),
            "_Znwm@plt".to_owned()
        )),
        "{stubs:?}"
    );
    assert_eq!(
        space(&timeline)
            .image(ptrail_pt::Ip(crate::tools::BIAS + plt))
            .unwrap()
            .0,
        0
    );
}
