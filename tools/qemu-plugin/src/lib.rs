//! The plugin that tells ptrail what a program executes under `qemu-x86_64`.
//!
//! The recorder starts QEMU with `-plugin` and the arguments of [`arguments`], and with this file in
//! LD_PRELOAD too. What runs:
//!
//! 1. QEMU translates a block: the plugin gives it a number and writes its code down ([`blocks`]).
//! 2. QEMU executes a block: the plugin writes its number ([`rings`]).
//! 3. System calls, new mappings of code and signals are events between the blocks ([`kernel`]).
//! 4. Another program that takes the process over is started under QEMU too ([`exec`]).
//!
//! A block counts when it begins. If a fault ends it early, the signal's handler follows, and the
//! signal frame says where the fault was; if there is no handler, QEMU kills itself by `kill(2)`,
//! which goes through the plugin, as it is preloaded.

mod api;
mod arguments;
mod blocks;
mod exec;
mod guest;
mod idle;
mod kernel;
mod mappings;
mod rings;
#[allow(unreachable_pub)] // It is the recorder's too.
mod shared;

use std::ffi::{CStr, c_char, c_int, c_void};

use api::PluginId;

/// The version of QEMU's plugin interface.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = api::VERSION;

/// Called by QEMU with the arguments behind the plugin's file.
///
/// # Safety
/// `arguments` points to `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    _info: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: as QEMU promises.
    let words = (0..count as usize).map(|i| unsafe { CStr::from_ptr(*arguments.add(i)) });
    let is_ready = arguments::set(words.filter_map(|word| word.to_str().ok()))
        && guest::find()
        && rings::map();
    if !is_ready {
        return 1;
    }
    // SAFETY: the callbacks have the types that QEMU calls them with.
    unsafe {
        api::qemu_plugin_register_vcpu_init_cb(id, rings::vcpu_starts);
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, blocks::translated);
        api::qemu_plugin_register_vcpu_syscall_cb(id, kernel::entered);
        api::qemu_plugin_register_vcpu_syscall_ret_cb(id, kernel::left);
        api::pthread_atfork(Some(rings::forks), None, Some(rings::forked));
    }
    0
}
