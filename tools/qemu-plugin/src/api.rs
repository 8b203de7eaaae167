//! The part of QEMU's plugin interface that is needed (version 1, QEMU 7.0 and later).

use std::ffi::{c_char, c_int, c_void};

/// The version of the interface that the plugin is written for.
pub(crate) const VERSION: c_int = 1;
/// `QEMU_PLUGIN_CB_NO_REGS`.
pub(crate) const NO_REGISTERS: c_int = 0;

pub(crate) type PluginId = u64;

/// A block being translated.
#[repr(C)]
pub(crate) struct Translation {
    _opaque: [u8; 0],
}

/// One of its instructions.
#[repr(C)]
pub(crate) struct TranslatedInstruction {
    _opaque: [u8; 0],
}

pub(crate) type VcpuCallback = extern "C" fn(PluginId, u32);
pub(crate) type BlockCallback = extern "C" fn(u32, *mut c_void);
pub(crate) type TranslationCallback = extern "C" fn(PluginId, *mut Translation);
pub(crate) type SyscallCallback =
    extern "C" fn(PluginId, u32, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub(crate) type SyscallEndCallback = extern "C" fn(PluginId, u32, i64, i64);

unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_init_cb(id: PluginId, callback: VcpuCallback);
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: PluginId,
        callback: TranslationCallback,
    );
    pub(crate) fn qemu_plugin_register_vcpu_syscall_cb(id: PluginId, callback: SyscallCallback);
    pub(crate) fn qemu_plugin_register_vcpu_syscall_ret_cb(
        id: PluginId,
        callback: SyscallEndCallback,
    );
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Translation,
        callback: BlockCallback,
        flags: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_tb_n_insns(block: *const Translation) -> usize;
    pub(crate) fn qemu_plugin_tb_vaddr(block: *const Translation) -> u64;
    pub(crate) fn qemu_plugin_tb_get_insn(
        block: *const Translation,
        number: usize,
    ) -> *mut TranslatedInstruction;
    pub(crate) fn qemu_plugin_insn_data(instruction: *const TranslatedInstruction) -> *const u8;
    pub(crate) fn qemu_plugin_insn_size(instruction: *const TranslatedInstruction) -> usize;
}

// The C library.
unsafe extern "C" {
    pub(crate) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(crate) fn mmap(
        address: *mut c_void,
        len: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void;
    pub(crate) fn close(fd: c_int) -> c_int;
    pub(crate) fn getpid() -> c_int;
    pub(crate) fn gettid() -> c_int;
    pub(crate) fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    pub(crate) fn access(path: *const c_char, mode: c_int) -> c_int;
    pub(crate) fn execve(
        path: *const c_char,
        arguments: *const *const c_char,
        environment: *const *const c_char,
    ) -> c_int;
    pub(crate) fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int;
    pub(crate) fn getppid() -> c_int;
    pub(crate) fn sched_getcpu() -> c_int;
    pub(crate) fn sched_setaffinity(process: c_int, size: usize, mask: *const c_void) -> c_int;
    pub(crate) fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
    pub(crate) fn syscall(number: i64, ...) -> i64;
}
