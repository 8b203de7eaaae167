//! `.spall` files, read by the structures of the format's public header and replayed.

use std::collections::HashMap;

use ptrail_export::{Format, create};

use crate::{
    program,
    stream::{BASE, Slice, Stream},
};

fn written(stream: &Stream) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spall");
    let mut sink = create(Format::from_path(&path).unwrap(), &path).unwrap();
    stream.play(sink.as_mut());
    std::fs::read(path).unwrap()
}

/// Process, thread, name, module, begin, duration, depth.
type Call = (u32, u32, String, String, i64, i64, i64);

fn replayed(file: &[u8]) -> Vec<Call> {
    let (header, mut rest) = file.split_at(32);
    let words: Vec<_> = header
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(words, [0x0bad_f00d, 1, 0.001_f64.to_bits(), 0]);
    let mut take = |count: usize| {
        let (bytes, behind) = rest.split_at(count);
        rest = behind;
        bytes.to_vec()
    };
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let mut threads = HashMap::<(u32, u32), (Vec<Call>, Vec<usize>)>::new();
    let mut left = file.len() - 32;
    while left > 0 {
        let kind = take(1)[0];
        let category = if kind == 3 { take(1)[0] } else { 0 };
        assert_eq!(category, 0);
        let (pid, tid) = (number(&take(4)), number(&take(4)));
        let ticks = f64::from_le_bytes(take(8).try_into().unwrap());
        let at = BASE as i64 + ticks as i64;
        let (calls, open) = threads.entry((pid, tid)).or_default();
        if kind == 3 {
            let lengths = take(2);
            let name = String::from_utf8(take(lengths[0].into())).unwrap();
            let module = String::from_utf8(take(lengths[1].into())).unwrap();
            left -= 20 + name.len() + module.len();
            open.push(calls.len());
            calls.push((pid, tid, name, module, at, -1, open.len() as i64 - 1));
        } else {
            assert_eq!(kind, 4);
            left -= 17;
            let call = &mut calls[open.pop().unwrap()];
            call.5 = at - call.4;
        }
    }
    assert!(threads.values().all(|(_, open)| open.is_empty()));
    let mut threads: Vec<_> = threads.into_iter().collect();
    threads.sort();
    threads
        .into_iter()
        .flat_map(|(_, (calls, _))| calls)
        .collect()
}

/// What fits into the format.
fn short(text: &str) -> String {
    let mut end = text.len().min(255);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[test]
fn every_call_in_its_place() {
    for mut stream in [
        program::random(0x5eed_0070, 20_000),
        program::late_ties(),
        program::odd_names(),
        program::deep(10_000, 1_000),
    ] {
        let seen = replayed(&written(&stream));
        let call = |slice: Slice| {
            let module = crate::sums::arg(&slice, "module");
            let (pid, tid, _) = slice.thread;
            (
                pid,
                tid,
                short(&slice.name),
                module,
                slice.ts,
                slice.dur,
                slice.depth,
            )
        };
        let truth: Vec<_> = stream.slices().into_iter().map(call).collect();
        assert!(seen == truth);
    }
}
