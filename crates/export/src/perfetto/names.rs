//! What is interned: function names, modules and mangled names.
//!
//! Interned data belongs to one packet sequence, so each sequence says a name once, in the packet
//! that first refers to it.

use std::collections::HashMap;

use prost::Message as _;
use ptrail_pt::Ip;
use ptrail_trace::{Function, FunctionId, SourceLine};

use super::{
    args::Arg,
    proto::{DebugAnnotation, InternedData, InternedName, SourceLocation, TrackEvent},
};

/// A function, as events need it.
pub(super) struct Named {
    pub(super) name: String,
    mangled: Option<String>,
    module: u32,
    address: Ip,
    source: Option<SourceLine>,
    /// Fields of each of its begins and ends, encoded: what refers to interned data.
    pub(super) begin_fields: Vec<u8>,
    pub(super) end_fields: Vec<u8>,
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

impl Named {
    /// Its place in the source, without a number.
    pub(super) fn location(&self) -> Option<SourceLocation> {
        self.source.as_ref().map(|source| SourceLocation {
            iid: None,
            file_name: Some(source.file.clone()),
            function_name: Some(self.name.clone()),
            line_number: Some(source.line),
        })
    }
}

/// Interning id of a function's name, and of its place in the source.
fn name_iid(function: FunctionId) -> u64 {
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
        let mut named = Named {
            name: function.name.clone(),
            mangled,
            module,
            address: function.address,
            source: function.source.clone(),
            begin_fields: Vec::new(),
            end_fields: Vec::new(),
        };
        let end = TrackEvent {
            name_iid: Some(name_iid(function.id)),
            ..Default::default()
        };
        named.end_fields = end.encode_to_vec();
        let begin = TrackEvent {
            debug_annotations: self.interned_args(&named, function.id),
            source_location_iid: named.source.as_ref().map(|_| name_iid(function.id)),
            ..end
        };
        named.begin_fields = begin.encode_to_vec();
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
            source_locations: named
                .location()
                .map(|location| SourceLocation {
                    iid: Some(name_iid(function)),
                    ..location
                })
                .into_iter()
                .collect(),
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
    fn interned_args(&self, named: &Named, function: FunctionId) -> Vec<DebugAnnotation> {
        let mut args = Vec::new();
        if !self.modules[named.module as usize].is_empty() {
            args.push(Arg::Module.interned(module_iid(named.module)));
        }
        args.push(Arg::Address.pointer(named.address));
        if named.mangled.is_some() {
            args.push(Arg::MangledName.interned(mangled_iid(function)));
        }
        args
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
