//! Blocks: straight code that QEMU translates as a whole.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::api::{self, PluginId, Translation};
use crate::rings::halves;
use crate::shared::DEFINITION_WORDS;
use crate::{guest, kernel, mappings, rings};

const PAGE: u64 = 4096;

/// What the callback of a block's execution gets. Never freed: QEMU doesn't tell when it forgets a
/// block.
pub(crate) struct Block {
    id: u32,
    /// A signal's handler begins here.
    handles: AtomicBool,
}

/// All blocks.
struct Known {
    /// How many there are, those of earlier programs of this process among them.
    count: u32,
    by_start: HashMap<u64, Vec<&'static Block>>,
    handlers: HashSet<u64>,
}

fn known() -> MutexGuard<'static, Known> {
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(|| {
        Mutex::new(Known {
            count: rings::blocks_defined(),
            by_start: HashMap::new(),
            handlers: HashSet::new(),
        })
    });
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) extern "C" fn translated(_: PluginId, translation: *mut Translation) {
    // SAFETY: the block is valid during this callback, and its instructions with it.
    let (start, code) = unsafe {
        let start = api::qemu_plugin_tb_vaddr(translation);
        let mut code = Vec::new();
        for number in 0..api::qemu_plugin_tb_n_insns(translation) {
            let instruction = api::qemu_plugin_tb_get_insn(translation, number);
            code.extend_from_slice(std::slice::from_raw_parts(
                api::qemu_plugin_insn_data(instruction),
                api::qemu_plugin_insn_size(instruction),
            ));
        }
        (start, code)
    };
    mappings::follow_first();
    let block = add(start, &code);
    // SAFETY: the callback has the type that QEMU calls it with, and the block lives for ever.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_exec_cb(
            translation,
            executed,
            api::NO_REGISTERS,
            std::ptr::from_ref(block).cast_mut().cast(),
        );
    }
}

fn add(start: u64, code: &[u8]) -> &'static Block {
    let mut known = known();
    let block: &'static Block = Box::leak(Box::new(Block {
        id: known.count,
        handles: AtomicBool::new(known.handlers.contains(&start)),
    }));
    known.count += 1;
    known.by_start.entry(start).or_default().push(block);
    define(block.id, start, code);
    block
}

fn define(id: u32, start: u64, code: &[u8]) {
    let end = start + code.len() as u64;
    let (pages_at, pages_end) = (start & !(PAGE - 1), end.next_multiple_of(PAGE));
    let pages = if mappings::is_file(start) {
        Vec::new()
    } else {
        guest::copy(pages_at, pages_end - pages_at)
    };
    let mut words = Vec::with_capacity(DEFINITION_WORDS + code.len() / 4 + pages.len() / 4 + 2);
    words.push(id);
    words.extend(halves(start));
    words.extend([code.len() as u32, pages.len() as u32]);
    words.extend(halves(pages_at));
    for bytes in [code, &pages] {
        words.extend(rings::packed(bytes));
    }
    rings::define(&words);
}

extern "C" fn executed(vcpu: u32, data: *mut c_void) {
    // SAFETY: what was registered with this callback.
    let block = unsafe { &*data.cast::<Block>() };
    if block.handles.load(Ordering::Relaxed) {
        kernel::handler_begins(vcpu);
    }
    rings::block(vcpu, block.id);
}

/// How many blocks there are.
pub(crate) fn count() -> u32 {
    known().count
}

/// From now on a signal's handler begins at `start`.
pub(crate) fn handles_signals(start: u64) {
    let mut known = known();
    if known.handlers.insert(start) {
        for block in known.by_start.get(&start).into_iter().flatten() {
            block.handles.store(true, Ordering::Relaxed);
        }
    }
}
