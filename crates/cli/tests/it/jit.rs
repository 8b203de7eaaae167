//! A program that makes code as it runs, and tells of it as JIT compilers do.

use std::path::{Path, PathBuf};

use crate::recorded::{Recorded, dump, fnv1a64, ptrail};

/// Makes `triple(n)` in memory and calls it; writes a jitdump file or a perf map if asked to.
const SOURCE: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
static const unsigned char code[] = { 0x8d, 0x04, 0x7f, 0xc3 }; /* lea eax, [rdi + rdi*2]; ret */
static void jitdump(const char *folder, void *at) {
    char path[4096];
    snprintf(path, sizeof path, "%s/jit-%d.dump", folder, getpid());
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    struct { uint32_t magic, version, size, machine, pad, pid; uint64_t time, flags; } head =
        { 0x4A695444, 1, 40, 62, 0, getpid(), 0, 0 };
    struct { uint32_t kind, size; uint64_t time; uint32_t pid, tid; uint64_t vma, address, size2, number; } load =
        { 0, 56 + 7 + sizeof code, 0, getpid(), getpid(), (uint64_t)at, (uint64_t)at, sizeof code, 1 };
    write(fd, &head, sizeof head);
    write(fd, &load, sizeof load);
    write(fd, "triple", 7);
    write(fd, code, sizeof code);
    mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
}
static void perf_map(void *at) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *file = fopen(path, "w");
    fprintf(file, "%lx 1 old\n0x%lx %zx triple\n", (long)at, (long)at, sizeof code);
    fclose(file);
}
int main(int argc, char **argv) {
    void *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(at, code, sizeof code);
    if (argc > 1 && strcmp(argv[1], "map")) jitdump(argv[1], at);
    else perf_map(at);
    return ((int (*)(int))at)(argc) != 3 * argc;
}
"#;

struct Built {
    folder: tempfile::TempDir,
    program: PathBuf,
}

fn build() -> Built {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("jit.c");
    let program = folder.path().join("program");
    std::fs::write(&source, SOURCE).unwrap();
    let output = std::process::Command::new("gcc")
        .args(["-O1", "-static", "-w", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    Built { folder, program }
}

fn functions(capture: &Path) -> Vec<(String, String)> {
    let spans = dump(capture, &["--spans"]);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    spans
        .iter()
        .map(|s| (text(&s["function"]), text(&s["module"])))
        .collect()
}

/// The capture as perf would have written it: without the code that our recorder copies.
fn without_copied_code(capture: &Path) -> PathBuf {
    const TRAILER: usize = 40;
    let mut bytes = std::fs::read(capture).unwrap();
    bytes.truncate(bytes.len() - TRAILER);
    let path = capture.with_file_name("bare.data");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn code_and_names_from_a_jitdump_file() {
    let built = build();
    let folder = built.folder.path().to_str().unwrap();
    let program = [built.program.to_str().unwrap(), folder];
    let recorded = Recorded::new(&[], &program, "");
    let bare = without_copied_code(&recorded.capture());
    let dumps = std::fs::read_dir(built.folder.path()).unwrap();
    let mut dumps = dumps.map(|entry| entry.unwrap().path());
    let dumped = dumps.find(|path| path.extension().is_some_and(|e| e == "dump"));
    let dumped = dumped.unwrap();
    // A real compiler takes the time from the clock that perf records with. Ours is virtual: the
    // code is said to lie there from the first record on.
    let info = ptrail()
        .args(["info", "--json"])
        .arg(&bare)
        .output()
        .unwrap();
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    let time = info["base_ns"].as_u64().unwrap() + 1;
    let mut bytes = std::fs::read(&dumped).unwrap();
    bytes[48..56].copy_from_slice(&time.to_le_bytes());
    std::fs::write(&dumped, bytes).unwrap();

    let found = dump(&bare, &["--instructions", "--digest"]);
    assert_eq!(found[0]["instructions"], recorded.truth.len());
    assert_eq!(found[0]["ip_fnv1a64"], fnv1a64(&recorded.truth));
    assert!(functions(&bare).contains(&("triple".to_owned(), "[jit]".to_owned())));

    std::fs::remove_file(dumped).unwrap();
    let found = dump(&bare, &["--instructions", "--digest"]);
    assert_ne!(found[0]["losses"], 0);
}

#[test]
fn names_from_a_perf_map() {
    let built = build();
    let program = [built.program.to_str().unwrap(), "map"];
    let recorded = Recorded::new(&[], &program, "");
    let found = functions(&recorded.capture());
    let pid = dump(&recorded.capture(), &["--instructions", "--digest"])[0]["pid"].clone();
    let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
    assert!(
        found.contains(&("triple".to_owned(), "[jit]".to_owned())),
        "{found:?}"
    );
}
