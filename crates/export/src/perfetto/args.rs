//! Event arguments ("debug annotations"): names by number, values by kind.

use ptrail_pt::Ip;

use super::proto::{DebugAnnotation, InternedName};

/// Name of an argument. The number, plus one, is its interning id on every sequence.
#[derive(Clone, Copy)]
pub(super) enum Arg {
    Instructions,
    SelfInstructions,
    Flags,
    CallSite,
    Module,
    Address,
    MangledName,
    Cause,
    Reason,
    Bytes,
    TraceOffset,
    DurationNs,
    Thread,
    Command,
    Source,
}

/// The names, in the order of [`Arg`].
const NAMES: [&str; 15] = [
    "instructions",
    "self_instructions",
    "flags",
    "call_site",
    "module",
    "address",
    "mangled_name",
    "cause",
    "reason",
    "bytes",
    "trace_offset",
    "duration_ns",
    "thread",
    "command",
    "source",
];

impl Arg {
    pub(super) fn iid(self) -> u64 {
        self as u64 + 1
    }

    fn named(self) -> DebugAnnotation {
        DebugAnnotation {
            name_iid: Some(self.iid()),
            ..Default::default()
        }
    }

    pub(super) fn uint(self, value: u64) -> DebugAnnotation {
        DebugAnnotation {
            uint_value: Some(value),
            ..self.named()
        }
    }

    pub(super) fn pointer(self, value: Ip) -> DebugAnnotation {
        self.hex(value.0)
    }

    /// A number shown in hexadecimal.
    pub(super) fn hex(self, value: u64) -> DebugAnnotation {
        DebugAnnotation {
            pointer_value: Some(value),
            ..self.named()
        }
    }

    pub(super) fn text(self, value: impl Into<String>) -> DebugAnnotation {
        DebugAnnotation {
            string_value: Some(value.into()),
            ..self.named()
        }
    }

    /// A text that was interned before under this number.
    pub(super) fn interned(self, iid: u64) -> DebugAnnotation {
        DebugAnnotation {
            string_value_iid: Some(iid),
            ..self.named()
        }
    }

    /// All names, to be interned at the start of a sequence.
    pub(super) fn names() -> Vec<InternedName> {
        (1..)
            .zip(NAMES)
            .map(|(iid, name)| InternedName {
                iid: Some(iid),
                name: Some(name.to_owned()),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_argument_has_its_name() {
        let names = Arg::names();
        let name = |arg: Arg| {
            names
                .iter()
                .find(|name| name.iid == arg.named().name_iid)
                .unwrap()
                .name
                .clone()
                .unwrap()
        };
        assert_eq!(name(Arg::Instructions), "instructions");
        assert_eq!(name(Arg::CallSite), "call_site");
        assert_eq!(name(Arg::MangledName), "mangled_name");
        assert_eq!(name(Arg::TraceOffset), "trace_offset");
        assert_eq!(name(Arg::Source), "source");
    }
}
