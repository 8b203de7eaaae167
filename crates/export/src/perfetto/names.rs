//! What is interned: function names, modules and mangled names.
//!
//! Interned data belongs to one packet sequence, so each sequence says a name once, in the packet
//! that first refers to it.

use std::collections::HashMap;

use ptrail_pt::Ip;
use ptrail_trace::{Function, FunctionId};

use super::{
    args::Arg,
    proto::{DebugAnnotation, InternedData, InternedName},
};

/// A function, as events need it.
pub(super) struct Named {
    pub(super) name: String,
    mangled: Option<String>,
    module: u32,
    address: Ip,
}

/// All functions and modules.
#[derive(Default)]
pub(super) struct Names {
    functions: Vec<Option<Named>>,
    modules: Vec<String>,
    module_ids: HashMap<String, u32>,
}

/// What one sequence has said.
#[derive(Default)]
pub(super) struct Known {
    functions: Bits,
    modules: Bits,
}

/// A growing set of small numbers.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    /// Adds a number; the result is whether it is new.
    fn insert(&mut self, number: u32) -> bool {
        let (word, bit) = (number as usize / 64, 1u64 << (number % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }
}

/// Interning id of a function's name.
pub(super) fn name_iid(function: FunctionId) -> u64 {
    u64::from(function.0) + 1
}

/// Modules and mangled names share one table: odd numbers and even numbers.
fn module_iid(module: u32) -> u64 {
    u64::from(module) * 2 + 1
}

fn mangled_iid(function: FunctionId) -> u64 {
    u64::from(function.0) * 2 + 2
}

impl Names {
    pub(super) fn add(&mut self, function: &Function) {
        let module = match self.module_ids.get(&function.module) {
            Some(&module) => module,
            None => {
                let module = self.modules.len() as u32;
                self.modules.push(function.module.clone());
                self.module_ids.insert(function.module.clone(), module);
                module
            }
        };
        let mangled = function
            .mangled
            .clone()
            .filter(|mangled| *mangled != function.name);
        let named = Named {
            name: function.name.clone(),
            mangled,
            module,
            address: function.address,
        };
        let index = function.id.0 as usize;
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, || None);
        }
        self.functions[index] = Some(named);
    }

    pub(super) fn get(&self, function: FunctionId) -> Option<&Named> {
        self.functions.get(function.0 as usize)?.as_ref()
    }

    /// The data a sequence needs before it can refer to a function; `None` if it has it all.
    pub(super) fn unknown(
        &self,
        function: FunctionId,
        known: &mut Known,
    ) -> Option<Box<InternedData>> {
        let named = self.get(function)?;
        if !known.functions.insert(function.0) {
            return None;
        }
        let entry = |iid, name: &String| InternedName {
            iid: Some(iid),
            name: Some(name.clone()),
        };
        let mut data = InternedData {
            event_names: vec![entry(name_iid(function), &named.name)],
            ..Default::default()
        };
        let strings = &mut data.debug_annotation_string_values;
        if let Some(mangled) = &named.mangled {
            strings.push(entry(mangled_iid(function), mangled));
        }
        let module = &self.modules[named.module as usize];
        if !module.is_empty() && known.modules.insert(named.module) {
            strings.push(entry(module_iid(named.module), module));
        }
        Some(Box::new(data))
    }

    /// A function's arguments, texts by number.
    pub(super) fn interned_args(&self, function: FunctionId, args: &mut Vec<DebugAnnotation>) {
        let Some(named) = self.get(function) else {
            return;
        };
        if !self.modules[named.module as usize].is_empty() {
            args.push(Arg::Module.interned(module_iid(named.module)));
        }
        args.push(Arg::Address.pointer(named.address));
        if named.mangled.is_some() {
            args.push(Arg::MangledName.interned(mangled_iid(function)));
        }
    }

    /// The same with the texts themselves, for packets that stand before the interned data.
    pub(super) fn plain_args(&self, function: FunctionId, args: &mut Vec<DebugAnnotation>) {
        let Some(named) = self.get(function) else {
            return;
        };
        let module = &self.modules[named.module as usize];
        if !module.is_empty() {
            args.push(Arg::Module.text(module));
        }
        args.push(Arg::Address.pointer(named.address));
        if let Some(mangled) = &named.mangled {
            args.push(Arg::MangledName.text(mangled));
        }
    }
}
