//! System calls and signals.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::api::{self, PluginId};
use crate::rings::halves;
use crate::shared::event;
use crate::{arguments, blocks, exec, guest, idle, mappings, rings};

const SYS_MMAP: i64 = 9;
const SYS_MPROTECT: i64 = 10;
const SYS_RT_SIGACTION: i64 = 13;
const SYS_RT_SIGRETURN: i64 = 15;
const SYS_MREMAP: i64 = 25;
const SYS_SHMAT: i64 = 30;
const SYS_CLONE: i64 = 56;
const SYS_FORK: i64 = 57;
const SYS_VFORK: i64 = 58;
const SYS_EXECVE: i64 = 59;
const SYS_EXIT_GROUP: i64 = 231;
const SYS_EXECVEAT: i64 = 322;
const SYS_KILL: i64 = 62;
const SYS_PRCTL: i64 = 157;
const SYS_PKEY_MPROTECT: i64 = 329;

/// In the kernel's `struct sigaction` on x86-64.
const FLAGS: u64 = 8;
const RESTORER: u64 = 16;
const SA_SIGINFO: u64 = 4;
/// In the frame of a signal: where RIP and `siginfo` stand behind the `ucontext` at its start, which
/// a return address precedes (asm/sigcontext.h, asm/ucontext.h).
const SAVED_RIP: u64 = 40 + 16 * 8;
/// `si_code` in `siginfo`.
const SIGINFO_CODE: u64 = 8;
/// What it is for most faults; QEMU fills `siginfo` only for handlers that want it.
const UNKNOWN_CODE: u32 = 1;
/// In the third argument of `mmap` and `mprotect`.
const PROT_EXEC: u64 = 4;
/// In the first argument of `clone`.
const CLONE_THREAD: u64 = 0x1_0000;
const PR_SET_NAME: u64 = 15;

/// A system call under way.
#[derive(Clone, Copy)]
struct Call {
    first: u64,
    second: u64,
    third: u64,
}

thread_local! {
    static CALL: Cell<Option<Call>> = const { Cell::new(None) };
}

/// Signals whose handlers get a `siginfo`, as bits.
static HAVE_INFO: AtomicU64 = AtomicU64::new(0);

/// Where handlers return to.
static RESTORERS: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

pub(crate) extern "C" fn entered(
    _: PluginId,
    vcpu: u32,
    number: i64,
    first: u64,
    second: u64,
    third: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
) {
    CALL.set(Some(Call {
        first,
        second,
        third,
    }));
    idle::entered();
    match number {
        SYS_RT_SIGRETURN => handler_ends(),
        SYS_EXECVE => {
            idle::others_end();
            exec::replace(first, second, third);
            rings::event(vcpu, event::EXEC_AWAY, &[]);
        }
        SYS_EXECVEAT => rings::event(vcpu, event::EXEC_AWAY, &[]),
        SYS_EXIT_GROUP => idle::others_end(),
        _ => {}
    }
}

pub(crate) extern "C" fn left(_: PluginId, vcpu: u32, number: i64, result: i64) {
    let idle = idle::left().as_nanos() as u64;
    let Some(call) = CALL.take() else {
        return;
    };
    let forks = match number {
        SYS_CLONE => call.first & CLONE_THREAD == 0,
        SYS_FORK | SYS_VFORK => true,
        _ => false,
    };
    if forks && result == 0 {
        // SAFETY: a plain system call.
        let parent = unsafe { api::getppid() } as u32;
        rings::event(vcpu, event::BORN, &[parent, rings::blocks_defined()]);
    }
    let [low, high] = halves(idle);
    rings::event(vcpu, event::SYSCALL, &[number as u32, low, high]);
    match number {
        _ if forks && result > 0 && !rings::child_is_read() => {
            rings::event(vcpu, event::CHILD, &[result as u32]);
        }
        SYS_RT_SIGACTION if result == 0 && call.second != 0 => handler_set(call.first, call.second),
        SYS_MMAP | SYS_MPROTECT | SYS_PKEY_MPROTECT if call.third & PROT_EXEC != 0 => {
            mappings::follow(vcpu);
        }
        SYS_MREMAP | SYS_SHMAT => mappings::follow(vcpu),
        SYS_PRCTL if call.first == PR_SET_NAME && result == 0 => {
            if let Some(name) = guest::text(call.second) {
                let words: Vec<_> = rings::text(&name[..name.len().min(15)]).collect();
                rings::event(vcpu, event::NAMED, &words);
            }
        }
        _ => {}
    }
}

/// The first virtual CPU of a program starts that took over from another one.
pub(crate) fn program_starts(vcpu: u32) {
    let program = arguments::program().map(|path| path.as_encoded_bytes());
    let name = arguments::kernel_name(program.unwrap_or_default());
    let words: Vec<_> = rings::text(name).collect();
    rings::event(vcpu, event::EXEC, &words);
}

/// `rt_sigaction` took this `struct sigaction`.
fn handler_set(signal: u64, action: u64) {
    let (Some(handler), Some(flags), Some(restorer)) = (
        guest::value(action),
        guest::value(action + FLAGS),
        guest::value(action + RESTORER),
    ) else {
        return;
    };
    let bit = 1 << (signal % 64);
    if flags & SA_SIGINFO == 0 {
        HAVE_INFO.fetch_and(!bit, Ordering::Relaxed);
    } else {
        HAVE_INFO.fetch_or(bit, Ordering::Relaxed);
    }
    // SIG_DFL and SIG_IGN are 0 and 1.
    if handler > 1 {
        RESTORERS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(restorer);
        blocks::handles_signals(handler);
    }
}

/// A block begins that is the start of a signal's handler: was it a signal, or a call?
#[cold]
pub(crate) fn handler_begins(vcpu: u32) {
    if let Some((signal, code, ip)) = signal_frame() {
        let [low, high] = halves(ip);
        rings::event(vcpu, event::SIGNAL, &[signal, code, low, high]);
        align_stack();
    }
}

/// QEMU 7 begins handlers with a stack that is off by 8 bytes: code that stores 16 bytes there at
/// once crashes. Another return address in front puts it right, until [`handler_ends`].
fn align_stack() {
    if let Some(stack) = guest::register(guest::RSP)
        && stack.is_multiple_of(16)
        && let Some(return_to) = guest::value(stack)
        && guest::set_value(stack - 8, return_to)
    {
        guest::set_register(guest::RSP, stack - 8);
    }
}

/// `rt_sigreturn` looks for the signal's frame below the stack pointer: skips the return address
/// that [`align_stack`] left in its place.
fn handler_ends() {
    if let Some(stack) = guest::register(guest::RSP)
        && let Some(word) = guest::value(stack)
        && RESTORERS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&word)
    {
        guest::set_register(guest::RSP, stack + 8);
    }
}

/// Signal, `si_code`, and the interrupted address.
fn signal_frame() -> Option<(u32, u32, u64)> {
    let stack = guest::register(guest::RSP)?;
    let context = guest::register(guest::RDX)?;
    let return_to = guest::value(stack)?;
    let restorers = RESTORERS.lock().unwrap_or_else(PoisonError::into_inner);
    if context != stack + 8 || !restorers.contains(&return_to) {
        return None;
    }
    let signal = guest::register(guest::RDI)? as u32;
    let code = if HAVE_INFO.load(Ordering::Relaxed) & 1 << (signal % 64) == 0 {
        UNKNOWN_CODE
    } else {
        guest::value(guest::register(guest::RSI)? + SIGINFO_CODE)? as u32
    };
    Some((signal, code, guest::value(context + SAVED_RIP)?))
}

/// In place of the C library's function: QEMU calls it for itself when a signal kills the program
/// (the program's own `kill` is a system call that QEMU makes directly).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn kill(process: i32, signal: i32) -> i32 {
    // SAFETY: plain system calls.
    let this = unsafe { api::getpid() };
    if process == this
        && let Some(vcpu) = rings::this_vcpu()
        && let Some(ip) = guest::register(guest::RIP)
    {
        let [low, high] = halves(ip);
        let number = guest::signal_number(signal) as u32;
        idle::entered();
        idle::others_end();
        rings::event(vcpu, event::KILLED, &[number, 0, low, high]);
    }
    // SAFETY: what was asked for.
    unsafe { api::syscall(SYS_KILL, i64::from(process), i64::from(signal)) as i32 }
}
