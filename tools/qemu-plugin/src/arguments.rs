//! What the recorder told the plugin: the arguments behind its file, and QEMU's own.

use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use crate::api;

static ARGUMENTS: OnceLock<Arguments> = OnceLock::new();

/// `recorder=PID,memory=FD,code=FD,area=N[,exec=1]`, and QEMU's command line.
struct Arguments {
    plugin: Vec<(String, u32)>,
    qemu: Vec<OsString>,
}

/// Takes the plugin's arguments; false if one is none of ours.
pub(crate) fn set<'a>(arguments: impl Iterator<Item = &'a str>) -> bool {
    let parse = |argument: &str| {
        let (name, value) = argument.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    let Some(plugin) = arguments.map(parse).collect() else {
        return false;
    };
    let line = fs::read("/proc/self/cmdline").unwrap_or_default();
    let qemu = line
        .split(|&byte| byte == 0)
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    ARGUMENTS.set(Arguments { plugin, qemu }).is_ok()
}

/// The value of one of the plugin's arguments.
pub(crate) fn value(name: &str) -> Option<u32> {
    let arguments = ARGUMENTS.get()?;
    let (_, value) = arguments.plugin.iter().find(|(known, _)| known == name)?;
    Some(*value)
}

/// Where one of the recorder's files is found.
pub(crate) fn file(name: &str) -> Option<String> {
    Some(format!("/proc/{}/fd/{}", value("recorder")?, value(name)?))
}

/// Opens it.
pub(crate) fn open(name: &str) -> Option<i32> {
    const READ_WRITE_CLOEXEC: i32 = 0x8_0002;
    let path = CString::new(file(name)?).ok()?;
    // SAFETY: a path that ends with a NUL.
    let file = unsafe { api::open(path.as_ptr(), READ_WRITE_CLOEXEC) };
    (file >= 0).then_some(file)
}

/// QEMU's arguments before those about the plugin and the program; the first is QEMU's file.
pub(crate) fn of_qemu() -> Option<&'static [OsString]> {
    let all = &ARGUMENTS.get()?.qemu;
    let end = all.iter().position(|word| word == "-U" || word == "-E")?;
    Some(&all[..end])
}

/// The program's file, as given to QEMU.
pub(crate) fn program() -> Option<&'static OsString> {
    let all = &ARGUMENTS.get()?.qemu;
    all.get(all.iter().position(|word| word == "-0")? + 2)
}

/// The name that the kernel gives a process that runs this file: its last part, 15 bytes of it.
pub(crate) fn kernel_name(path: &[u8]) -> &[u8] {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    &name[..name.len().min(15)]
}
