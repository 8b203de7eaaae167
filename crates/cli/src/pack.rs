//! `ptrail pack`: a capture and the files that decoding it needs, in one archive.
//!
//! The archive is a tar file: `capture` is the capture (a file, or a folder), and below `root/` stand
//! the recorded programs and libraries, their debug files, jitdump files and perf maps under the
//! paths that they had.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use indicatif::HumanBytes;
use ptrail_perfdata::Record;
use ptrail_pipeline::timeline;
use tar::{Archive, Builder};
use tempfile::{NamedTempFile, TempDir};

use crate::args::PackArgs;
use crate::report::plural;

const CAPTURE: &str = "capture";
const ROOT: &str = "root";

pub(crate) fn pack(args: &PackArgs) -> Result<()> {
    let Some(input) = &args.input.input else {
        bail!("only captures can be packed; --raw packets are given with their code already");
    };
    if input.is_dir() && !input.join("data").is_file() || input.extension() == Some("json".as_ref())
    {
        bail!(
            "{}: a trace bundle is a folder with all its files already",
            input.display()
        );
    }
    let output = args.output.clone().unwrap_or_else(|| {
        let mut name = input.file_name().unwrap_or_default().to_os_string();
        name.push(".tar");
        PathBuf::from(name)
    });
    let opened = args.input.open()?;
    let timeline = timeline(&opened.capture, &opened.code)?;

    // What lies where in the archive.
    let mut files: BTreeSet<(PathBuf, PathBuf)> = BTreeSet::new();
    let mut missing = Vec::new();
    for image in timeline.images() {
        match (image.status(), image.found()) {
            (Ok(()), Some(found)) => {
                files.insert((image.path().into(), found.to_owned()));
                files.extend(image.debug_file().map(|(id, path)| {
                    (
                        Path::new("/usr/lib/debug/.build-id").join(id),
                        path.to_owned(),
                    )
                }));
            }
            (Ok(()), None) => {}
            (Err(reason), _) => missing.push(reason.to_string()),
        }
    }
    let mut helpers: BTreeSet<String> = BTreeSet::new();
    for entry in &opened.capture.sideband {
        helpers.extend(entry.pid.map(|pid| format!("/tmp/perf-{pid}.map")));
        if let Record::Mmap2 { path, .. } = &entry.record
            && path.ends_with(".dump")
        {
            helpers.insert(path.clone());
        }
    }
    for path in helpers {
        if let Some(found) = opened.code.search.find(Path::new(&path)) {
            files.insert((path.into(), found));
        }
    }

    let size = write(input, &files, &output)
        .with_context(|| format!("{}: can't be written", output.display()))?;
    let mut text = format!(
        "packed    {} with {}, {}\n",
        input.display(),
        plural(files.len() as u64, "file"),
        HumanBytes(size)
    );
    for reason in missing {
        text.push_str(&format!("missing   {reason}\n"));
    }
    text.push_str(&format!(
        "written   {}\nnext      ptrail decode {}\n",
        output.display(),
        output.display()
    ));
    io::stdout()
        .write_all(text.as_bytes())
        .context("standard output")
}

fn write(input: &Path, files: &BTreeSet<(PathBuf, PathBuf)>, output: &Path) -> io::Result<u64> {
    let folder = output
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let temporary = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    let mut archive = Builder::new(BufWriter::new(temporary));
    if input.is_dir() {
        archive.append_dir_all(CAPTURE, input)?;
    } else {
        archive.append_file(CAPTURE, &mut File::open(input)?)?;
    }
    for (name, found) in files {
        let name = Path::new(ROOT).join(name.strip_prefix("/").unwrap_or(name));
        archive.append_file(name, &mut File::open(found)?)?;
    }
    let written = archive
        .into_inner()?
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    let size = written.as_file().metadata()?.len();
    written.persist(output)?;
    Ok(size)
}

/// An archive, unpacked for as long as this lives.
pub(crate) struct Unpacked {
    folder: TempDir,
}

impl Unpacked {
    /// Unpacks a packed capture; `None` if the file is something else.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        if !path.is_file() || !is_tar(path) {
            return Ok(None);
        }
        let folder = tempfile::Builder::new().prefix("ptrail-").tempdir()?;
        let unpack = || -> io::Result<()> {
            let mut archive = Archive::new(File::open(path)?);
            archive.set_preserve_permissions(false);
            // Nothing is written outside of the folder, whatever the names in the archive.
            archive.unpack(folder.path())
        };
        unpack().with_context(|| format!("{}: can't be unpacked", path.display()))?;
        let unpacked = Self { folder };
        if !unpacked.capture().exists() {
            bail!(
                "{}: an archive, but not one that `ptrail pack` wrote",
                path.display()
            );
        }
        Ok(Some(unpacked))
    }

    pub(crate) fn capture(&self) -> PathBuf {
        self.folder.path().join(CAPTURE)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join(ROOT)
    }
}

/// Whether a file begins like a tar archive.
fn is_tar(path: &Path) -> bool {
    const MAGIC_AT: u64 = 257;
    let mut magic = [0; 5];
    File::open(path)
        .and_then(|file| std::os::unix::fs::FileExt::read_exact_at(&file, &mut magic, MAGIC_AT))
        .is_ok()
        && &magic == b"ustar"
}
