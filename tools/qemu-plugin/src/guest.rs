//! The program under QEMU: its registers, and its memory.
//!
//! The plugin interface has no registers before QEMU 9; so they are asked for by the function
//! that answers debuggers. QEMU exports all its symbols.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::OnceLock;

use crate::api;

/// Numbers of registers, as debuggers count them.
pub(crate) const RDX: i32 = 3;
pub(crate) const RSI: i32 = 4;
pub(crate) const RDI: i32 = 5;
pub(crate) const RSP: i32 = 7;
pub(crate) const RIP: i32 = 16;

/// `PAGE_VALID` and `PAGE_EXEC` in a page's flags.
const VALID: i32 = 8;
const EXECUTABLE: i32 = 4;

/// GLib's array of bytes; GLib grows it.
#[repr(C)]
struct ByteArray {
    data: *mut u8,
    len: u32,
}

type ReadRegister = unsafe extern "C" fn(*mut c_void, *mut ByteArray, i32) -> i32;
type WriteRegister = unsafe extern "C" fn(*mut c_void, *mut u8, i32) -> i32;
type SignalNumber = unsafe extern "C" fn(i32) -> i32;
type PageFlags = unsafe extern "C" fn(u64) -> i32;
type NewArray = unsafe extern "C" fn() -> *mut ByteArray;
type FreeArray = unsafe extern "C" fn(*mut ByteArray, i32) -> *mut u8;

struct Functions {
    read_register: ReadRegister,
    write_register: WriteRegister,
    signal_number: SignalNumber,
    page_flags: PageFlags,
    new_array: NewArray,
    free_array: FreeArray,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Looks QEMU's functions up; false if this QEMU has them not.
pub(crate) fn find() -> bool {
    let found = || {
        // SAFETY: QEMU 7 and 8 have these symbols with these types; GLib has its for ever.
        unsafe {
            Some(Functions {
                read_register: std::mem::transmute::<*mut c_void, ReadRegister>(symbol(
                    c"x86_cpu_gdb_read_register",
                )?),
                write_register: std::mem::transmute::<*mut c_void, WriteRegister>(symbol(
                    c"x86_cpu_gdb_write_register",
                )?),
                signal_number: std::mem::transmute::<*mut c_void, SignalNumber>(symbol(
                    c"host_to_target_signal",
                )?),
                page_flags: std::mem::transmute::<*mut c_void, PageFlags>(symbol(
                    c"page_get_flags",
                )?),
                new_array: std::mem::transmute::<*mut c_void, NewArray>(symbol(
                    c"g_byte_array_new",
                )?),
                free_array: std::mem::transmute::<*mut c_void, FreeArray>(symbol(
                    c"g_byte_array_free",
                )?),
            })
        }
    };
    match found() {
        Some(functions) if symbol(c"thread_cpu").is_some() => FUNCTIONS.set(functions).is_ok(),
        _ => false,
    }
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: looks the name up everywhere.
    let address = unsafe { api::dlsym(ptr::null_mut(), name.as_ptr()) };
    Some(address).filter(|address| !address.is_null())
}

/// What is added to the program's addresses to get those of the process.
fn base() -> u64 {
    // QEMU chooses it when it loads the program, after the plugin.
    // SAFETY: a variable of this type.
    symbol(c"guest_base").map_or(0, |base| unsafe { *base.cast::<u64>() })
}

/// This thread's `CPUState *`.
fn cpu() -> Option<*mut c_void> {
    let cpu = symbol(c"thread_cpu")?.cast::<*mut c_void>();
    // SAFETY: the address of this thread's variable.
    Some(unsafe { *cpu }).filter(|cpu| !cpu.is_null())
}

/// A register of this thread's virtual CPU, outside of translated code or at a block's start.
pub(crate) fn register(number: i32) -> Option<u64> {
    let functions = FUNCTIONS.get()?;
    let cpu = cpu()?;
    // SAFETY: the function appends to the array.
    unsafe {
        let array = (functions.new_array)();
        let len = (functions.read_register)(cpu, array, number);
        let mut bytes = [0; 8];
        let len = usize::try_from(len)
            .ok()?
            .min((*array).len as usize)
            .min(bytes.len());
        bytes[..len].copy_from_slice(std::slice::from_raw_parts((*array).data, len));
        (functions.free_array)(array, 1);
        (len == bytes.len()).then(|| u64::from_le_bytes(bytes))
    }
}

/// Sets such a register.
pub(crate) fn set_register(number: i32, value: u64) {
    if let (Some(functions), Some(cpu)) = (FUNCTIONS.get(), cpu()) {
        // SAFETY: the function reads the register's 8 bytes.
        unsafe { (functions.write_register)(cpu, value.to_le_bytes().as_mut_ptr(), number) };
    }
}

/// The program's number for a signal of this machine; QEMU has its own ones for real-time signals.
pub(crate) fn signal_number(signal: i32) -> i32 {
    // SAFETY: takes any number.
    FUNCTIONS.get().map_or(signal, |functions| unsafe {
        (functions.signal_number)(signal)
    })
}

/// Whether the program has mapped this page.
pub(crate) fn is_mapped(address: u64) -> bool {
    flags(address) & VALID != 0
}

/// Whether the program may execute this page.
pub(crate) fn is_executable(address: u64) -> bool {
    flags(address) & EXECUTABLE != 0
}

fn flags(address: u64) -> i32 {
    // SAFETY: takes any address.
    FUNCTIONS
        .get()
        .map_or(0, |functions| unsafe { (functions.page_flags)(address) })
}

/// The program's 64-bit value at an address, if there is memory.
pub(crate) fn value(address: u64) -> Option<u64> {
    let bytes = copy(address, 8);
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// The program's string at an address, without the NUL that ends it.
pub(crate) fn text(address: u64) -> Option<Vec<u8>> {
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    let mut at = address;
    loop {
        let part = copy(at, PAGE - at % PAGE);
        if part.is_empty() {
            return None;
        }
        at += part.len() as u64;
        match part.iter().position(|&byte| byte == 0) {
            Some(end) => {
                text.extend_from_slice(&part[..end]);
                return Some(text);
            }
            None => text.extend(part),
        }
    }
}

/// Writes the program's 64-bit value at an address, if there is memory; the stack, say.
pub(crate) fn set_value(address: u64, value: u64) -> bool {
    let there = is_mapped(address) && is_mapped(address + 7);
    if there {
        let place = (address + base()) as *mut u64;
        // SAFETY: QEMU has mapped it for the program. Were it not writable, the program's own next
        // push there would have the same end.
        unsafe { place.write_unaligned(value) };
    }
    there
}

/// The program's memory; nothing if a part of it is none.
pub(crate) fn copy(address: u64, len: u64) -> Vec<u8> {
    const PAGE: u64 = 4096;
    let Some(end) = address.checked_add(len) else {
        return Vec::new();
    };
    let mut pages = (address & !(PAGE - 1)..end).step_by(PAGE as usize);
    if !pages.all(is_mapped) {
        return Vec::new();
    }
    let begin = (address + base()) as *const u8;
    // SAFETY: QEMU has mapped these pages for the program; a copy of changing memory is still bytes.
    unsafe { std::slice::from_raw_parts(begin, len as usize) }.to_vec()
}
