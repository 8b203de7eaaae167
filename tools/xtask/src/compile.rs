//! Compiles the programs of `testdata/programs`, each variant into a folder of its own.
//!
//! The folder is `programs/NAME/VARIANT` below cargo's target folder. It is made beside its place and
//! renamed when complete: tests in several processes may ask for the same program at the same time,
//! and a folder that is there is whole. It is made anew when a source, the header or the manifest is
//! newer.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};

use crate::manifest::{Compiler, Manifest, Program, Variant};

/// The test programs and the place where they are built.
#[derive(Debug)]
pub struct Corpus {
    sources: PathBuf,
    output: PathBuf,
    programs: Vec<Program>,
}

/// The folder of the workspace's `Cargo.toml`.
pub fn workspace_root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

impl Corpus {
    /// Reads the manifest. Builds go below `CARGO_TARGET_DIR`, else the workspace's `target`.
    ///
    /// # Errors
    /// When the manifest can't be read, or isn't as [`Program`] says.
    pub fn load() -> Result<Self> {
        let target = env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
        Self::load_into(&workspace_root().join(target).join("programs"))
    }

    /// The same, with builds below `output`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_into(output: &Path) -> Result<Self> {
        let sources = workspace_root().join("testdata/programs");
        let path = sources.join("manifest.json");
        let text = fs::read(&path).with_context(|| format!("can't read {}", path.display()))?;
        let manifest: Manifest =
            serde_json::from_slice(&text).with_context(|| format!("in {}", path.display()))?;
        Ok(Self {
            sources,
            output: output.to_owned(),
            programs: manifest.programs,
        })
    }

    /// The programs in the manifest's order.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The program of this name and its variant of that name.
    ///
    /// # Errors
    /// When the manifest has no such program or variant.
    pub fn find(&self, program: &str, variant: &str) -> Result<(&Program, &Variant)> {
        let program = self
            .programs
            .iter()
            .find(|known| known.name == program)
            .with_context(|| format!("no test program {program}"))?;
        let variant = program
            .variants
            .iter()
            .find(|known| known.name == variant)
            .with_context(|| format!("no variant {variant} of {}", program.name))?;
        Ok((program, variant))
    }

    /// Compiles `variant` of `program` unless that is done already; gives the path of the executable.
    ///
    /// # Errors
    /// When the compiler is missing or refuses the sources.
    pub fn build(&self, program: &Program, variant: &Variant) -> Result<PathBuf> {
        static ATTEMPT: AtomicU32 = AtomicU32::new(0);

        let parent = self.output.join(&program.name);
        let place = parent.join(&variant.name);
        let executable = place.join(&program.name);
        if self.is_fresh(&executable, program)? {
            return Ok(executable);
        }
        let attempt = ATTEMPT.fetch_add(1, Ordering::Relaxed);
        let making = parent.join(format!("{}.{}.{attempt}", variant.name, process::id()));
        fs::create_dir_all(&making)
            .with_context(|| format!("can't create {}", making.display()))?;
        let made = self.compile(program, variant, &making);
        let placed = made.and_then(|()| self.put_in_place(program, &making, &place));
        // After a rename there is nothing left to remove; after a failure this is only tidiness.
        let _ = fs::remove_dir_all(&making);
        placed.map(|()| executable)
    }

    fn compile(&self, program: &Program, variant: &Variant, folder: &Path) -> Result<()> {
        for library in &program.libraries {
            let output = folder.join(&library.file);
            self.compile_one(Compiler::Cc, &library.sources, &library.flags, &output)?;
        }
        let output = folder.join(&program.name);
        self.compile_one(program.compiler, &program.sources, &variant.flags, &output)
    }

    fn compile_one(
        &self,
        compiler: Compiler,
        sources: &[String],
        flags: &[String],
        output: &Path,
    ) -> Result<()> {
        let (variable, default) = match compiler {
            Compiler::Cc => ("CC", "gcc"),
            Compiler::Cxx => ("CXX", "g++"),
            Compiler::Rustc => ("RUSTC", "rustc"),
        };
        let driver = env::var_os(variable).unwrap_or_else(|| default.into());
        let folder = output.parent().context("the output has a folder")?;
        let mut command = Command::new(&driver);
        command.current_dir(&self.sources).args(sources);
        for flag in flags {
            command.arg(flag.replace("$OUT", &folder.to_string_lossy()));
        }
        if compiler == Compiler::Rustc {
            command.arg("--edition=2024");
        }
        let result = command
            .arg("-o")
            .arg(output)
            .output()
            .with_context(|| format!("can't start {}", driver.display()))?;
        if !result.status.success() {
            bail!(
                "{command:?} failed:\n{}",
                String::from_utf8_lossy(&result.stderr)
            );
        }
        Ok(())
    }

    /// Renames `making` to `place`, replacing an older build.
    fn put_in_place(&self, program: &Program, making: &Path, place: &Path) -> Result<()> {
        // Others may be doing the same; each round either they or we have a complete folder there.
        for _ in 0..10 {
            if fs::rename(making, place).is_ok() {
                return Ok(());
            }
            if self.is_fresh(&place.join(&program.name), program)? {
                return Ok(());
            }
            let old = making.with_extension("old");
            if fs::rename(place, &old).is_ok() {
                fs::remove_dir_all(&old)
                    .with_context(|| format!("can't remove {}", old.display()))?;
            }
        }
        bail!("can't rename {} to {}", making.display(), place.display())
    }

    fn is_fresh(&self, executable: &Path, program: &Program) -> Result<bool> {
        let Ok(built) = modified(executable) else {
            return Ok(false);
        };
        let mut inputs = vec!["manifest.json", "called.h"];
        inputs.extend(program.sources.iter().map(String::as_str));
        for library in &program.libraries {
            inputs.extend(library.sources.iter().map(String::as_str));
        }
        for input in inputs {
            ensure!(!input.contains('/'), "{input} isn't a plain file name");
            if modified(&self.sources.join(input))? > built {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn modified(path: &Path) -> Result<SystemTime> {
    fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .with_context(|| format!("can't read {}", path.display()))
}
