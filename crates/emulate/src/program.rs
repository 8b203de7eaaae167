//! Finding the program, and saying beforehand why it can't be recorded.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::{Endianness, elf, pod};

use crate::Error;

/// How many interpreters (`#!`) may follow each other; the kernel's own limit.
const SCRIPT_DEPTH: usize = 4;
/// The kernel reads this much of a script's first line (`BINPRM_BUF_SIZE`).
const SCRIPT_LINE: usize = 256;

/// A program with its arguments, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// Its arguments; the first is the name as given.
    pub args: Vec<OsString>,
}

impl Program {
    /// Finds the program `args[0]` in `PATH` (unless it holds a `/`) and checks that it can be
    /// recorded.
    ///
    /// # Errors
    /// It does not exist, is not executable, is not a 64-bit x86 program (or a script for one), or
    /// is set-user-ID.
    pub fn find(args: Vec<OsString>) -> Result<Self, Error> {
        let name = args.first().cloned().unwrap_or_default();
        let path = if name.as_bytes().contains(&b'/') {
            existing(&name)?
        } else {
            in_path(&name)?
        };
        check(&path, SCRIPT_DEPTH)?;
        Ok(Self { path, args })
    }

    /// The arguments as text.
    pub(crate) fn words(&self) -> Vec<String> {
        self.args
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    /// The name that the kernel gives a process that runs it: 15 bytes of the file's.
    pub(crate) fn kernel_name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().as_bytes();
        String::from_utf8_lossy(&name[..name.len().min(15)]).into_owned()
    }

    /// What the kernel would run: for a script the interpreter, with the arguments that it gets.
    pub(crate) fn without_script(&self) -> (PathBuf, Vec<OsString>) {
        let (mut path, mut args) = (self.path.clone(), self.args.clone());
        for _ in 0..SCRIPT_DEPTH {
            let Some((interpreter, argument)) = script_line(&path) else {
                break;
            };
            let script = std::mem::replace(&mut path, interpreter.clone()).into_os_string();
            args.splice(
                ..1,
                [Some(interpreter.into()), argument, Some(script)]
                    .into_iter()
                    .flatten(),
            );
        }
        (path, args)
    }

    pub(crate) fn c_path(&self) -> CString {
        c_string(self.path.as_os_str().as_bytes())
    }

    pub(crate) fn c_args(&self) -> Vec<CString> {
        self.args
            .iter()
            .map(|arg| c_string(arg.as_bytes()))
            .collect()
    }
}

fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).expect("arguments and paths came from the system, where a NUL ends them")
}

fn existing(name: &std::ffi::OsStr) -> Result<PathBuf, Error> {
    let path = PathBuf::from(name);
    if fs::metadata(&path).is_ok() {
        return Ok(path);
    }
    Err(Error::NotFound {
        name: name.to_string_lossy().into_owned(),
        hint: String::new(),
    })
}

fn in_path(name: &std::ffi::OsStr) -> Result<PathBuf, Error> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut unusable = None;
    for folder in std::env::split_paths(&search) {
        let path = folder.join(name);
        match fs::metadata(&path) {
            Ok(meta) if meta.is_file() && meta.permissions().mode() & 0o111 != 0 => {
                return Ok(path);
            }
            Ok(meta) if meta.is_file() => unusable = Some(path),
            _ => {}
        }
    }
    if let Some(path) = unusable {
        return Err(Error::NotExecutable { path });
    }
    let here = Path::new(name);
    let hint = if here.is_file() {
        format!(" in PATH; did you mean ./{}?", name.to_string_lossy())
    } else {
        " in PATH".to_string()
    };
    Err(Error::NotFound {
        name: name.to_string_lossy().into_owned(),
        hint,
    })
}

/// Checks a program file, and the interpreter behind it if it is a script.
fn check(path: &Path, depth: usize) -> Result<(), Error> {
    let start = |source| Error::Start {
        path: path.to_path_buf(),
        source,
    };
    let meta = fs::metadata(path).map_err(start)?;
    if meta.is_dir() {
        return Err(Error::IsFolder {
            path: path.to_path_buf(),
        });
    }
    if nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_err() {
        return Err(Error::NotExecutable {
            path: path.to_path_buf(),
        });
    }
    check_set_id(path, &meta)?;
    let mut file = match File::open(path) {
        Ok(file) => file,
        // Executable but not readable: run it, its own code bytes will be missing.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return Err(start(error)),
    };
    let mut head = Vec::with_capacity(SCRIPT_LINE);
    file.by_ref()
        .take(SCRIPT_LINE as u64)
        .read_to_end(&mut head)
        .map_err(start)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        return match interpreter(line) {
            Some(interpreter) if depth > 0 => check(&interpreter, depth - 1),
            _ => Ok(()),
        };
    }
    check_elf(path, &head)
}

fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|&byte| byte == b'\n').next()?;
    let word = line
        .split(|&byte| byte == b' ' || byte == b'\t')
        .find(|word| !word.is_empty())?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(word)))
}

/// Interpreter and argument of a script's first line; `None` if it is no script.
fn script_line(path: &Path) -> Option<(PathBuf, Option<OsString>)> {
    let mut head = Vec::with_capacity(SCRIPT_LINE);
    let file = File::open(path).ok()?;
    file.take(SCRIPT_LINE as u64).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?;
    let interpreter = interpreter(line)?;
    let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let rest = line[interpreter.as_os_str().len()..].trim_ascii();
    let argument = (!rest.is_empty()).then(|| std::ffi::OsStr::from_bytes(rest).to_owned());
    Some((interpreter, argument))
}

fn check_set_id(path: &Path, meta: &fs::Metadata) -> Result<(), Error> {
    let ours = (
        nix::unistd::geteuid().as_raw(),
        nix::unistd::getegid().as_raw(),
    );
    let root = ours.0 == 0;
    let mode = meta.permissions().mode();
    let which = if mode & 0o4000 != 0 && meta.uid() != ours.0 {
        "uid"
    } else if mode & 0o2010 == 0o2010 && meta.gid() != ours.1 {
        "gid"
    } else {
        return Ok(());
    };
    if root {
        Ok(())
    } else {
        Err(Error::SetId {
            path: path.to_path_buf(),
            which,
        })
    }
}

fn check_elf(path: &Path, head: &[u8]) -> Result<(), Error> {
    let wrong = |what: &str| Error::WrongKind {
        path: path.to_path_buf(),
        what: what.to_string(),
    };
    if !head.starts_with(&elf::ELFMAG) {
        return Err(wrong(
            "is neither an ELF program nor a script with a #! line",
        ));
    }
    if head.get(4) == Some(&elf::ELFCLASS32.0) {
        return Err(wrong("is a 32-bit program"));
    }
    let header = pod::from_bytes::<elf::FileHeader64<Endianness>>(head).map(|(header, _)| header);
    let machine = header.map(|header| header.e_machine.get(Endianness::Little));
    match machine {
        Ok(elf::EM_X86_64) => Ok(()),
        Ok(elf::EM_AARCH64) => Err(wrong("is a program for 64-bit ARM")),
        Ok(_) => Err(wrong("is a program for another kind of machine")),
        Err(()) => Err(wrong("is cut off within its ELF header")),
    }
}
