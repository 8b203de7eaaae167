//! Another program takes the process over: it goes on under QEMU, and is recorded.
//!
//! QEMU would hand `execve` to the kernel, and the new program would run by itself. So the plugin
//! makes the call in its place, with QEMU as the program.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::{api, arguments, guest, rings};

/// How many interpreters (`#!`) may follow each other; the kernel's own limit.
const SCRIPT_DEPTH: usize = 4;
/// The kernel reads this much of a script's first line (`BINPRM_BUF_SIZE`).
const HEAD: u64 = 256;
/// The longest list of arguments or of environment variables.
const LIST: u64 = 1 << 20;

/// The program with these arguments to `execve` runs from now on; returns if it can't run under
/// QEMU, or can't run.
pub(crate) fn replace(path: u64, list: u64, environment: u64) {
    if !rings::are_read() {
        return;
    }
    let Some(words) = words(path, list) else {
        return;
    };
    let Some((variables, preload)) = variables(environment) else {
        return;
    };
    let Some(command) = command(words, preload) else {
        return;
    };
    let (Some(command), Some(variables)) = (strings(command), strings(variables)) else {
        return;
    };
    let (commands, environments) = (pointers(&command), pointers(&variables));
    // SAFETY: lists of pointers to strings, with a null pointer at the end.
    unsafe {
        api::execve(
            command[0].as_ptr(),
            commands.as_ptr(),
            environments.as_ptr(),
        )
    };
}

/// File and arguments, with the interpreter if it is a script; `None` if it is no 64-bit x86 program.
fn words(path: u64, list: u64) -> Option<(PathBuf, Vec<OsString>)> {
    let mut path = PathBuf::from(OsString::from_vec(guest::text(path)?));
    if path.as_os_str() == "/proc/self/exe" {
        path = PathBuf::from(arguments::program()?);
    }
    let mut words = texts(list)?;
    if words.is_empty() {
        words.push(OsString::new());
    }
    for _ in 0..=SCRIPT_DEPTH {
        let head = head(&path)?;
        let Some(line) = head.strip_prefix(b"#!") else {
            return is_program(&head).then_some((path, words));
        };
        let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
        let end = line
            .iter()
            .position(|byte| byte.is_ascii_whitespace())
            .unwrap_or(line.len());
        let (interpreter, argument) = line.split_at(end);
        let argument = argument.trim_ascii();
        let argument = (!argument.is_empty()).then(|| OsStr::from_bytes(argument).to_owned());
        let interpreter = PathBuf::from(OsStr::from_bytes(interpreter));
        let script = std::mem::replace(&mut path, interpreter.clone());
        let new = [Some(interpreter.into()), argument, Some(script.into())];
        words.splice(..1, new.into_iter().flatten());
    }
    None
}

/// The start of a file that this process may execute, and that gives it no privileges.
fn head(path: &PathBuf) -> Option<Vec<u8>> {
    const EXECUTE: i32 = 1;
    const SET_IDS: u32 = 0o6000;
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: a path that ends with a NUL.
    if unsafe { api::access(name.as_ptr(), EXECUTE) } != 0 {
        return None;
    }
    let file = File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.mode() & SET_IDS != 0 {
        return None;
    }
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).ok()?;
    Some(head)
}

/// ELF, 64 bits, x86-64.
fn is_program(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF\x02") && head.get(18..20) == Some(&[62, 0])
}

/// The environment, and its LD_PRELOAD, which is not QEMU's.
fn variables(environment: u64) -> Option<(Vec<OsString>, Option<OsString>)> {
    let mut variables = texts(environment)?;
    let is_preload = |word: &OsString| word.as_bytes().starts_with(b"LD_PRELOAD=");
    let preload = variables.iter().find(|word| is_preload(word)).cloned();
    variables.retain(|word| !is_preload(word));
    variables.push(format!("LD_PRELOAD={}", arguments::file("code")?).into());
    Some((variables, preload))
}

/// QEMU's command line for a program.
fn command(
    (path, words): (PathBuf, Vec<OsString>),
    preload: Option<OsString>,
) -> Option<Vec<OsString>> {
    let mut command = arguments::of_qemu()?.to_vec();
    command[0] = std::fs::read_link("/proc/self/exe").ok()?.into();
    match preload {
        Some(value) => command.extend(["-E".into(), value]),
        None => command.extend(["-U".into(), "LD_PRELOAD".into()]),
    }
    command.push("-plugin".into());
    command.push(
        format!(
            "file={},recorder={},memory={},code={},area={},exec=1",
            arguments::file("code")?,
            arguments::value("recorder")?,
            arguments::value("memory")?,
            arguments::value("code")?,
            rings::area(),
        )
        .into(),
    );
    let mut words = words.into_iter();
    command.extend(["-0".into(), words.next()?, path.into()]);
    command.extend(words);
    Some(command)
}

/// The strings of a list that a null pointer ends.
fn texts(list: u64) -> Option<Vec<OsString>> {
    let mut texts = Vec::new();
    if list == 0 {
        return Some(texts);
    }
    for number in 0..LIST {
        match guest::value(list + number * 8)? {
            0 => return Some(texts),
            text => texts.push(OsString::from_vec(guest::text(text)?)),
        }
    }
    None
}

fn strings(texts: Vec<OsString>) -> Option<Vec<CString>> {
    texts
        .into_iter()
        .map(|text| CString::new(text.into_vec()).ok())
        .collect()
}

fn pointers(strings: &[CString]) -> Vec<*const std::ffi::c_char> {
    strings
        .iter()
        .map(|string| string.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}
