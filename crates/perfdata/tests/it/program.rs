//! A tiny program, where its instructions lie, and the packets of its run, put together by hand
//! after the SDM ("Trace Packets and Data Types").

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use ptrail_perfdata::Record;

use crate::clock;

/// Each instruction has a label, so that `nm` gives the truth about addresses.
const SOURCE: &str = "
    .globl _start
_start: mov $3, %ecx
again:  dec %ecx
branch: jnz again
call:   call callee
load:   lea pointed(%rip), %rax
icall:  call *%rax
number: mov $60, %eax
zero:   xor %edi, %edi
leave:  syscall
callee: nop
cret:   ret
pointed: ret
";

/// Executed instructions in order.
pub(crate) const RUN: [&str; 16] = [
    "_start", "again", "branch", "again", "branch", "again", "branch", "call", "callee", "cret",
    "load", "icall", "pointed", "number", "zero", "leave",
];

/// Taken branches in order, from and to.
pub(crate) const BRANCHES: [(&str, &str); 6] = [
    ("branch", "again"),
    ("branch", "again"),
    ("call", "callee"),
    ("cret", "load"),
    ("icall", "pointed"),
    ("pointed", "number"),
];

pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) labels: BTreeMap<String, u64>,
    pub(crate) map: Record,
}

/// Output of a program that must succeed; `None`, said aloud, if it is not installed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: {program}: {error}");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

impl Program {
    pub(crate) fn build(folder: &Path) -> Option<Program> {
        let (source, file) = (folder.join("tiny.s"), folder.join("tiny program"));
        std::fs::write(&source, SOURCE).unwrap();
        let name = file.to_str().unwrap();
        let options = ["-nostdlib", "-static", "-Wl,--build-id=sha1", "-o", name];
        run("gcc", &[&options[..], &[source.to_str().unwrap()]].concat())?;
        let labels = run("nm", &[name])?
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                Some((words.nth(1)?.to_owned(), address))
            })
            .collect();
        let map = Self::map(name)?;
        Some(Program { file, labels, map })
    }

    /// The mapping that the kernel makes of the code.
    fn map(name: &str) -> Option<Record> {
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let headers = run("readelf", &["-lW", name])?;
        let load = headers
            .lines()
            .find(|l| l.contains("LOAD") && l.contains("R E"))
            .unwrap();
        let words: Vec<_> = load.split_whitespace().collect();
        let (offset, address, len) = (hex(words[1]), hex(words[2]), hex(words[4]));
        assert_eq!(offset % 4096, 0);
        let notes = run("readelf", &["-nW", name])?;
        let id = notes
            .split("Build ID: ")
            .nth(1)
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap();
        let build_id = (0..id.len() / 2)
            .map(|i| hex(&id[2 * i..2 * i + 2]) as u8)
            .collect();
        Some(Record::Mmap2 {
            address,
            len: len.next_multiple_of(4096),
            file_offset: offset,
            executable: true,
            path: name.to_owned(),
            build_id: Some(build_id),
        })
    }

    pub(crate) fn addresses<'a>(&self, labels: impl IntoIterator<Item = &'a str>) -> Vec<u64> {
        labels.into_iter().map(|label| self.labels[label]).collect()
    }

    /// The run from the first instruction to the system call, in two parts, both of which end
    /// between packets.
    pub(crate) fn packets(&self, time: u64) -> [Vec<u8>; 2] {
        let mut start = [0x02, 0x82].repeat(8); // PSB
        let tsc = (time - clock().zero) * 2; // mult / 2^shift of the clock is one half
        start.push(0x19); // TSC
        start.extend(&tsc.to_le_bytes()[..7]);
        start.extend([0x02, 0x03, 20, 0]); // CBR
        start.extend([0x99, 0x01]); // MODE.Exec: 64 bit
        start.extend([0x02, 0x23]); // PSBEND
        start.push(0x71); // TIP.PGE, 48 bits sign-extended
        start.extend(&self.labels["_start"].to_le_bytes()[..6]);
        start.push(0b1_1100); // TNT: taken, taken, not taken
        start.push(0b110); // TNT: the compressed return
        let mut end = vec![0x6d]; // TIP, 48 bits sign-extended
        end.extend(&self.labels["pointed"].to_le_bytes()[..6]);
        end.push(0b110); // TNT: the compressed return
        end.push(0x01); // TIP.PGD without address
        [start, end]
    }
}
