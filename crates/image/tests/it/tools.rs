//! Building programs, asking binutils, mapping files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ptrail_image::{AddressSpace, FunctionHit, Mapping, Search, Timeline, TimelineBuilder};
use ptrail_pt::{Ip, PerfTime};
use tempfile::TempDir;

pub(crate) const PID: u32 = 1;

/// Where files are mapped, as a loader would: far from their link addresses.
pub(crate) const BIAS: u64 = 0x7f12_3400_0000;

/// A folder for what one test builds.
pub(crate) struct Workshop {
    folder: TempDir,
}

impl Workshop {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds a program of the `programs` folder.
    pub(crate) fn build(&self, source: &str, options: &[&str]) -> PathBuf {
        let tool = match source.rsplit_once('.').unwrap().1 {
            "c" => "gcc",
            "cpp" => "g++",
            _ => "rustc",
        };
        let out = self.path(&format!(
            "{source}-{}",
            fs::read_dir(self.folder.path()).unwrap().count()
        ));
        let source =
            Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/programs")).join(source);
        let mut arguments = vec!["-o", out.to_str().unwrap(), source.to_str().unwrap()];
        match tool {
            "rustc" => arguments.extend(["--edition=2021", "-Copt-level=2"]),
            _ => arguments.push("-O2"),
        }
        arguments.extend(options);
        if source.extension().is_some_and(|extension| extension == "c") {
            arguments.push("-lm");
        }
        run(tool, &arguments);
        out
    }

    pub(crate) fn strip(&self, program: &Path) -> PathBuf {
        let out = program.with_extension("stripped");
        run(
            "strip",
            &["-o", out.to_str().unwrap(), program.to_str().unwrap()],
        );
        out
    }
}

/// Runs a tool and returns what it prints; a failure is the test's failure.
pub(crate) fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool)
        .args(arguments)
        .env("LC_ALL", "C")
        .output();
    let output = output.unwrap_or_else(|error| panic!("{tool}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A symbol as `nm -S` prints it.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) letter: char,
    pub(crate) name: String,
}

/// Code symbols, by address; version suffixes cut.
pub(crate) fn nm(path: &Path, options: &[&str]) -> Vec<Symbol> {
    let mut arguments = vec!["-S", "--defined-only", "-n"];
    arguments.extend(options);
    arguments.push(path.to_str().unwrap());
    let text = run("nm", &arguments);
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    text.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            let (size, letter, name) = match words[..] {
                [_, letter, name] if letter.len() == 1 => (0, letter, name.to_owned()),
                [_, letter, first, rest] if letter.len() == 1 => {
                    (0, letter, format!("{first} {rest}"))
                }
                [_, size, rest, name] => (hex(size)?, rest, name.to_owned()),
                _ => return None,
            };
            let letter = letter
                .chars()
                .next()
                .filter(|letter| "tTwWi".contains(*letter))?;
            let name = name.split('@').next().unwrap().to_owned();
            Some(Symbol {
                start: hex(words[0])?,
                size,
                letter,
                name,
            })
        })
        .collect()
}

/// Labels that `objdump -d` prints for these sections.
pub(crate) fn objdump_labels(path: &Path, sections: &[&str]) -> BTreeMap<u64, String> {
    let mut arguments = vec!["-d"];
    arguments.extend(sections.iter().flat_map(|section| ["-j", section]));
    arguments.push(path.to_str().unwrap());
    run("objdump", &arguments)
        .lines()
        .filter_map(|line| {
            let (address, label) = line.strip_suffix(">:")?.split_once(" <")?;
            Some((u64::from_str_radix(address, 16).ok()?, label.to_owned()))
        })
        .collect()
}

/// Start and end of each FDE, by `readelf`.
pub(crate) fn readelf_frames(path: &Path) -> Vec<(u64, u64)> {
    run(
        "readelf",
        &[
            "--debug-dump=frames",
            "--debug-dump=no-follow-links",
            path.to_str().unwrap(),
        ],
    )
    .lines()
    .filter_map(|line| {
        let (start, end) = line
            .split_once(" FDE ")?
            .1
            .split_once("pc=")?
            .1
            .trim()
            .split_once("..")?;
        Some((
            u64::from_str_radix(start, 16).ok()?,
            u64::from_str_radix(end, 16).ok()?,
        ))
    })
    .collect()
}

/// Sections as `readelf -S` prints them: name, address, size.
pub(crate) fn readelf_sections(path: &Path) -> BTreeMap<String, (u64, u64)> {
    run("readelf", &["-SW", path.to_str().unwrap()])
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_once(']')?.1.split_whitespace().collect();
            let hex = |index: usize| u64::from_str_radix(words.get(index)?, 16).ok();
            Some(((*words.first()?).to_owned(), (hex(2)?, hex(4)?)))
        })
        .collect()
}

/// The executable mappings a loader makes of a file, at [`BIAS`].
pub(crate) fn mappings(path: &Path) -> Vec<Mapping> {
    let text = run("readelf", &["-lW", path.to_str().unwrap()]);
    let executable = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (&"LOAD", true) = (words.first()?, line.contains(" E 0x")) else {
            return None;
        };
        let hex =
            |index: usize| u64::from_str_radix(words[index].trim_start_matches("0x"), 16).ok();
        let (offset, address, size): (u64, u64, u64) = (hex(1)?, hex(2)?, hex(4)?);
        let page = offset % 4096;
        Some(Mapping {
            address: BIAS + address - page,
            len: (page + size).next_multiple_of(4096),
            file_offset: offset - page,
            path: path.to_str().unwrap().to_owned(),
            build_id: None,
        })
    });
    executable.collect()
}

/// A timeline with one process that maps one file, without separate debug files.
pub(crate) fn load(path: &Path) -> Timeline {
    load_with(path, Vec::new())
}

pub(crate) fn load_with(path: &Path, debug_roots: Vec<PathBuf>) -> Timeline {
    let mut builder = TimelineBuilder::new();
    builder.search(Search {
        debug_roots,
        ..Search::default()
    });
    for mapping in mappings(path) {
        builder.map(PID, PerfTime(1), mapping);
    }
    let timeline = builder.build();
    for image in timeline.images() {
        assert_eq!(image.status(), Ok(()));
    }
    timeline
}

pub(crate) fn space(timeline: &Timeline) -> AddressSpace<'_> {
    timeline.space(PID, PerfTime(1))
}

/// The function at a link address: hit with link addresses, readable and raw name.
pub(crate) fn at(timeline: &Timeline, address: u64) -> Option<(FunctionHit, String, String)> {
    let hit = space(timeline).function(Ip(address + BIAS))?;
    let function = timeline.function(hit.id);
    let linked = |ip: Ip| Ip(ip.0 - BIAS);
    let hit = FunctionHit {
        entry: linked(hit.entry),
        start: linked(hit.start),
        end: linked(hit.end),
        ..hit
    };
    let raw = function
        .mangled
        .unwrap_or_else(|| function.name.clone())
        .into_owned();
    Some((hit, function.name.into_owned(), raw))
}

/// Pseudo-random numbers, the same in every run (Steele and others, SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % limit
    }
}
