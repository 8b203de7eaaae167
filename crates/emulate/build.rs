//! Compiles QEMU's plugin, which the `qemu` engine carries in itself.
//!
//! The plugin is a shared library of a few hundred lines without dependencies, so the compiler that
//! compiles this crate compiles it too, whatever the profile with optimization. If that fails, the
//! crate is built without it, and says so when the engine is asked for.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let source = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../tools/qemu-plugin/src");
    println!("cargo::rerun-if-changed={}", source.display());
    let plugin = PathBuf::from(variable("OUT_DIR")).join("plugin.so");
    let output = Command::new(variable("RUSTC"))
        .args(["--crate-name", "ptrail_qemu_plugin", "--edition", "2024"])
        .args(["--crate-type", "cdylib", "--target", &variable("TARGET")])
        .args([
            "-C",
            "opt-level=3",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
        ])
        .arg("-o")
        .arg(&plugin)
        .arg(source.join("lib.rs"))
        .output();
    let problem = match output {
        Ok(output) if output.status.success() => return,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    let problem: Vec<_> = problem.lines().collect();
    println!(
        "cargo::warning=QEMU's plugin can't be compiled, ptrail will have no `qemu` engine: {}",
        problem.join(" | ")
    );
    fs::write(&plugin, []).expect("cargo's output folder is writable");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
