//! Go: each goroutine has a stack of its own, and the runtime's functions go from one to the other.

use std::path::Path;
use std::process::Command;

use xtask::workspace_root;

use crate::recorded::{Recorded, dump, engines};
use crate::spans::Spans;

/// Compiles the program; `None`, said aloud, without a Go compiler.
fn build(into: &Path) -> Option<()> {
    let source = workspace_root().join("crates/cli/tests/it/goroutines.go");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(into)
        .arg(source)
        .env("GOCACHE", into.with_extension("cache"))
        .env("GOFLAGS", "-mod=mod")
        .output();
    let Ok(built) = built else {
        eprintln!("SKIPPED goroutines: there is no go (package golang-go)");
        return None;
    };
    let messages = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{messages}");
    Some(())
}

#[test]
fn goroutines_are_gone_back_to() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("goroutines");
    if build(&program).is_none() {
        return;
    }
    // Single-stepped, a program is so slow that the runtime interrupts its goroutines anywhere.
    for engine in engines().iter().filter(|engine| **engine == "qemu") {
        let environment = ["GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1"];
        let words = [&["env"], &environment[..], &[program.to_str().unwrap()]].concat();
        let recorded = Recorded::new(&["--source", engine], &words, "");
        let spans = Spans::from_dump(&dump(&recorded.capture(), &["--spans"]));
        assert_eq!(spans.faults(), Vec::<String>::new());
        for (function, count) in [
            ("main.main", 1),
            ("main.consume", 1),
            ("main.produce", 1),
            ("main.square", 4),
        ] {
            assert_eq!(spans.count(function), count, "{function} with {engine}");
        }
        assert!(spans.nests("main.main", "main.consume"));
        assert!(spans.nests("main.produce", "main.square"));
        assert!(spans.is_inside("main.produce", "main.square"));
        let own = spans
            .all
            .iter()
            .filter(|span| span.function.starts_with("main."));
        for span in own.clone() {
            assert!(
                !span.has("guessed") && !span.has("inferred"),
                "{engine}: {span:?}"
            );
        }
        // main's stack is never left for good; the other one is, and gone back to.
        let resumed = |name: &str| {
            let spans = own.clone().filter(|span| span.function == name);
            spans.filter(|span| span.has("resumed")).count()
        };
        assert_eq!((resumed("main.main"), resumed("main.consume")), (0, 0));
        assert!(resumed("main.produce") > 0);
    }
}
