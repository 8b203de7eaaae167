//! A reader of protobuf's wire format that knows only field numbers.

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in their order.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_at(8);
                bytes = rest;
                Value::Number(u64::from_le_bytes(value.try_into().unwrap()))
            }
            2 => {
                let len = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(len);
                bytes = rest;
                Value::Bytes(value)
            }
            wire => panic!("wire type {wire}"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

/// All numbers of a field, packed or not.
pub(crate) fn numbers(message: &[u8], field: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    for (number, value) in fields(message) {
        match value {
            _ if number != field => {}
            Value::Number(value) => numbers.push(value),
            Value::Bytes(mut packed) => {
                while !packed.is_empty() {
                    numbers.push(varint(&mut packed));
                }
            }
        }
    }
    numbers
}

pub(crate) fn number(message: &[u8], field: u64) -> u64 {
    numbers(message, field).first().copied().unwrap_or(0)
}

pub(crate) fn messages(message: &[u8], field: u64) -> Vec<&[u8]> {
    let fields = fields(message).into_iter();
    fields
        .filter_map(|(number, value)| match value {
            Value::Bytes(bytes) if number == field => Some(bytes),
            _ => None,
        })
        .collect()
}

/// All texts of a field.
pub(crate) fn strings(message: &[u8], field: u64) -> Vec<String> {
    let all = messages(message, field).into_iter();
    all.map(|text| String::from_utf8(text.to_vec()).unwrap())
        .collect()
}

pub(crate) fn text(message: &[u8], field: u64) -> String {
    strings(message, field)
        .into_iter()
        .next()
        .unwrap_or_default()
}
