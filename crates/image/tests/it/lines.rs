//! Source lines and inlined functions against `addr2line -i -f`, on 10,000 addresses of each file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ptrail_image::{SourceFrame, Timeline};

use crate::tools::{Random, Workshop, at, load_with, nm, run};

const COUNT: usize = 10_000;

/// A frame as both can say it: mangled name, file name without folders, line.
type Said = (String, String, u32);

/// What binutils says, for each address.
fn addr2line(path: &Path, addresses: &[u64]) -> Vec<Vec<Said>> {
    let mut child = Command::new("addr2line")
        .args(["-a", "-i", "-f", "-e"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input: String = addresses.iter().map(|a| format!("{a:#x}\n")).collect();
    let feed = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut all: Vec<Vec<Said>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            all.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap();
        // `file:line (discriminator 3)`
        let place = place.split(" (").next().unwrap();
        let (file, line_number) = place.rsplit_once(':').unwrap();
        let file = file.rsplit('/').next().unwrap();
        let number = line_number.parse().unwrap_or(0);
        all.last_mut()
            .unwrap()
            .push((line.to_owned(), file.to_owned(), number));
    }
    assert_eq!(all.len(), addresses.len());
    all
}

fn said(frames: &[SourceFrame]) -> Vec<Said> {
    let say = |frame: &SourceFrame| {
        let name = frame.mangled.as_ref().or(frame.function.as_ref());
        let file = frame.file.as_deref().unwrap_or("??");
        (
            name.cloned().unwrap_or_else(|| "??".to_owned()),
            file.rsplit('/').next().unwrap().to_owned(),
            frame.line.unwrap_or(0),
        )
    };
    frames.iter().map(say).collect()
}

/// How many addresses are the same, of those where binutils knows a line.
#[derive(Debug, Default)]
struct Shares {
    known: u32,
    /// All of all frames.
    same: u32,
    /// All but the names of files.
    but_files: u32,
    /// At least the function that has the code, which is the last.
    function: u32,
}

impl Shares {
    /// binutils 2.40 takes the wrong file of a DWARF 5 line table where the first two differ: gdb
    /// and the table itself are with us, so file names count apart.
    fn are_near(&self) {
        assert!(self.but_files * 1000 >= self.known * 990, "{self:?}");
        assert!(self.function * 1000 >= self.known * 995, "{self:?}");
        assert!(self.same * 100 >= self.known * 80, "{self:?}");
    }
}

/// Compares at random addresses inside functions.
fn compare(timeline: &Timeline, debug: &Path, symbols: &Path) -> Shares {
    let symbols = nm(symbols, &[]);
    let functions: Vec<_> = symbols.iter().filter(|s| s.size > 0).collect();
    assert!(functions.len() > 10);
    let mut random = Random(5);
    let addresses: Vec<u64> = (0..COUNT)
        .map(|_| {
            let function = &functions[random.below(functions.len() as u64) as usize];
            function.start + random.below(function.size)
        })
        .collect();
    let expected = addr2line(debug, &addresses);
    let lines = timeline.images().next().unwrap().lines().unwrap();
    let mut shares = Shares::default();
    let mut told = 0;
    for (&address, expected) in addresses.iter().zip(&expected) {
        if expected[0].2 == 0 {
            continue;
        }
        let mut found = said(&lines.frames(address));
        // binutils takes the symbol's name for the outermost function where the debug information
        // has none, or no mangled one (lambdas in templates), cold parts with their suffix.
        let symbol = at(timeline, address).map(|(_, _, raw)| raw);
        if let (Some(last), Some(theirs)) = (found.last_mut(), expected.last())
            && symbol.as_deref() == Some(theirs.0.trim_end_matches(".cold"))
        {
            last.0.clone_from(&theirs.0);
        }
        let without = |frames: &[Said]| -> Vec<(String, u32)> {
            frames.iter().map(|f| (f.0.clone(), f.2)).collect()
        };
        let but_files = without(&found) == without(expected);
        shares.known += 1;
        shares.same += u32::from(found == *expected);
        shares.but_files += u32::from(but_files);
        shares.function += u32::from(found.last().map(|f| &f.0) == expected.last().map(|f| &f.0));
        if !but_files && told < 5 {
            told += 1;
            println!("{address:#x}: {found:?}, binutils: {expected:?}");
        }
    }
    println!("{}: {shares:?}", debug.display());
    assert!(shares.known > 300, "{shares:?}");
    shares
}

#[test]
fn a_cpp_program() {
    let workshop = Workshop::new();
    let program = workshop.build("shapes.cpp", &["-g"]);
    compare(&load_with(&program, Vec::new()), &program, &program).are_near();
}

/// This very test, thousands of functions of Rust.
#[test]
fn a_rust_program() {
    let program = std::env::current_exe().unwrap();
    compare(&load_with(&program, Vec::new()), &program, &program).are_near();
}

#[test]
fn libc_by_its_debug_file() {
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let notes = run("readelf", &["-n", libc.to_str().unwrap()]);
    let id = notes
        .lines()
        .find_map(|l| l.trim().strip_prefix("Build ID: "))
        .unwrap();
    let (head, tail) = id.split_at(2);
    let debug = PathBuf::from(format!("/usr/lib/debug/.build-id/{head}/{tail}.debug"));
    if !debug.exists() {
        println!("skipped: no separate debug file of libc on this machine (package libc6-dbg)");
        return;
    }
    let timeline = load_with(libc, vec![PathBuf::from("/usr/lib/debug")]);
    compare(&timeline, &debug, &debug).are_near();
}

/// All versions and forms say the same as the plainest.
#[test]
fn forms_of_debug_information() {
    let workshop = Workshop::new();
    let frames = |options: &[&str]| {
        let program = workshop.build("shapes.cpp", options);
        let symbols = nm(&program, &[]);
        let timeline = load_with(&program, Vec::new());
        let lines = timeline.images().next().unwrap().lines().unwrap();
        let mut frames = Vec::new();
        for symbol in symbols.iter().filter(|s| s.letter != 'w' && s.size > 0) {
            for offset in (0..symbol.size).step_by(3) {
                frames.push(said(&lines.frames(symbol.start + offset)));
            }
        }
        frames
    };
    let plain = frames(&["-gdwarf-5"]);
    let known = plain.iter().filter(|f| !f.is_empty()).count();
    assert!(known > 200 && plain.iter().any(|f| f.len() > 1), "{known}");
    for options in [
        &["-gdwarf-4"][..],
        &["-gdwarf-3", "-gstrict-dwarf"],
        &["-gdwarf-5", "-gz=zlib"],
        &["-gdwarf-5", "-gsplit-dwarf"],
    ] {
        let found = frames(options);
        let same = plain.iter().zip(&found).filter(|(a, b)| a == b).count();
        // Old versions say less about inlined calls.
        assert!(
            same * 100 >= plain.len() * 90,
            "{options:?}: {same} of {}",
            plain.len()
        );
    }
}
