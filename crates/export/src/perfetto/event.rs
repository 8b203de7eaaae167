//! Begins and ends of calls, put into bytes by hand.
//!
//! They are nearly all of a file. What is the same each time is encoded once: for a function its
//! arguments and numbers, for a track its sequence. Everything else goes through `prost`; the tests
//! decode these bytes with it.

use prost::Message as _;
use ptrail_pt::Ip;

use super::{
    args::Arg,
    proto::{
        CLOCK_MONOTONIC, InternedData, SEQ_NEEDS_INCREMENTAL_STATE, TYPE_SLICE_BEGIN,
        TYPE_SLICE_END,
    },
};

/// Keys: field number and wire type.
mod key {
    const NUMBER: u32 = 0;
    const BYTES: u32 = 2;
    const fn of(field: u32, wire: u32) -> u32 {
        field << 3 | wire
    }
    pub(super) const PACKET: u32 = of(1, BYTES);
    pub(super) const TIMESTAMP: u32 = of(8, NUMBER);
    pub(super) const SEQUENCE: u32 = of(10, NUMBER);
    pub(super) const TRACK_EVENT: u32 = of(11, BYTES);
    pub(super) const INTERNED_DATA: u32 = of(12, BYTES);
    pub(super) const SEQUENCE_FLAGS: u32 = of(13, NUMBER);
    pub(super) const CLOCK_ID: u32 = of(58, NUMBER);
    pub(super) const ANNOTATION: u32 = of(4, BYTES);
    pub(super) const TYPE: u32 = of(9, NUMBER);
    pub(super) const TRACK: u32 = of(11, NUMBER);
    pub(super) const ANNOTATION_NAME: u32 = of(1, NUMBER);
    pub(super) const UINT: u32 = of(3, NUMBER);
    pub(super) const TEXT: u32 = of(6, BYTES);
    pub(super) const POINTER: u32 = of(7, NUMBER);
}

/// A number in the format's variable length.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// How long it will be.
const fn len(number: u64) -> usize {
    // Seven bits a byte, and at least one.
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

fn put_field(bytes: &mut Vec<u8>, key: u32, number: u64) {
    put(bytes, u64::from(key));
    put(bytes, number);
}

/// What every packet of a sequence ends with.
pub(super) fn sequence_fields(sequence: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_field(&mut bytes, key::SEQUENCE, u64::from(sequence));
    put_field(
        &mut bytes,
        key::SEQUENCE_FLAGS,
        u64::from(SEQ_NEEDS_INCREMENTAL_STATE),
    );
    bytes
}

/// The event being put together: a `TrackEvent`.
#[derive(Default)]
pub(super) struct Event(Vec<u8>);

impl Event {
    /// A call begins. `fields` are those of its function.
    pub(super) fn begin(&mut self, fields: &[u8], call_site: Option<Ip>, track: Option<u64>) {
        self.0.clear();
        self.0.extend_from_slice(fields);
        if let Some(ip) = call_site {
            self.number(Arg::CallSite, key::POINTER, ip.0);
        }
        self.place(TYPE_SLICE_BEGIN, track);
    }

    /// A call ends. `fields` are those of its function.
    pub(super) fn end(
        &mut self,
        fields: &[u8],
        (instructions, own): (u64, u64),
        flags: Option<&str>,
        track: Option<u64>,
    ) {
        self.0.clear();
        self.0.extend_from_slice(fields);
        self.number(Arg::Instructions, key::UINT, instructions);
        self.number(Arg::SelfInstructions, key::UINT, own);
        if let Some(flags) = flags {
            let name = Arg::Flags.iid();
            let text = flags.len() as u64;
            let size = 1 + len(name) + 1 + len(text) + flags.len();
            put_field(&mut self.0, key::ANNOTATION, size as u64);
            put_field(&mut self.0, key::ANNOTATION_NAME, name);
            put_field(&mut self.0, key::TEXT, text);
            self.0.extend_from_slice(flags.as_bytes());
        }
        self.place(TYPE_SLICE_END, track);
    }

    fn number(&mut self, arg: Arg, kind: u32, value: u64) {
        let name = arg.iid();
        let size = 1 + len(name) + 1 + len(value);
        put_field(&mut self.0, key::ANNOTATION, size as u64);
        put_field(&mut self.0, key::ANNOTATION_NAME, name);
        put_field(&mut self.0, kind, value);
    }

    fn place(&mut self, kind: i32, track: Option<u64>) {
        put_field(&mut self.0, key::TYPE, u64::from(kind.cast_unsigned()));
        if let Some(track) = track {
            put_field(&mut self.0, key::TRACK, track);
        }
    }

    /// Makes `bytes` the packet with this event. `whole` says that the time is not relative to the
    /// sequence's last one; `sequence` is from [`sequence_fields`].
    pub(super) fn packet(
        &self,
        bytes: &mut Vec<u8>,
        (timestamp, whole): (u64, bool),
        sequence: &[u8],
        interned: Option<&InternedData>,
    ) {
        let clock = u64::from(CLOCK_MONOTONIC);
        let clock_size = len(u64::from(key::CLOCK_ID)) + len(clock);
        let event = self.0.len();
        let interned = interned.map(|data| (data, data.encoded_len()));
        let size = 1
            + len(timestamp)
            + if whole { clock_size } else { 0 }
            + sequence.len()
            + 1
            + len(event as u64)
            + event
            + interned.map_or(0, |(_, data)| 1 + len(data as u64) + data);
        bytes.clear();
        put_field(bytes, key::PACKET, size as u64);
        put_field(bytes, key::TIMESTAMP, timestamp);
        if whole {
            put_field(bytes, key::CLOCK_ID, clock);
        }
        bytes.extend_from_slice(sequence);
        put_field(bytes, key::TRACK_EVENT, event as u64);
        bytes.extend_from_slice(&self.0);
        if let Some((data, size)) = interned {
            put_field(bytes, key::INTERNED_DATA, size as u64);
            data.encode_raw(bytes);
        }
        debug_assert_eq!(bytes.len(), 1 + len(size as u64) + size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_said() {
        for shift in 0..64 {
            for number in [1 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let (mut bytes, mut theirs) = (Vec::new(), Vec::new());
                put(&mut bytes, number);
                prost::encoding::encode_varint(number, &mut theirs);
                assert_eq!(bytes, theirs);
                assert_eq!(len(number), bytes.len(), "{number:#x}");
            }
        }
    }
}
