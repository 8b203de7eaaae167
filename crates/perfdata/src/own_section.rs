//! ptrail's own section at the end of the file, in both directions.
//!
//! perf reads a file by the offsets in its header and never looks behind the last feature. There
//! stand, in this order:
//!
//! 1. JSON text: `{"extra": …, "code": [{"pid", "address", "time", "name", "offset", "size"}, …]}`,
//!    where `extra` is [`Extra`] and `offset` counts from the start of the blobs;
//! 2. the code blobs, one behind the other, without gaps;
//! 3. the trailer, the last 40 bytes of the file: `u64` offset of the JSON text in the file, `u64`
//!    its size, `u64` size of all blobs, `u32` version, `u32` 0, the 8 bytes `PTRAILXT`.
//!
//! Offset and both sizes lead exactly to the trailer; a reader that finds otherwise leaves the
//! section alone.

use serde::{Deserialize, Serialize};

use crate::wire::{Builder, Bytes};
use crate::{CodeBlob, Extra};

const MAGIC: &[u8; 8] = b"PTRAILXT";
const TRAILER_SIZE: usize = 40;
const VERSION: u32 = 1;

#[derive(Serialize)]
struct WrittenJson<'a> {
    extra: &'a Extra,
    code: Vec<CodeEntry>,
}

#[derive(Deserialize)]
struct ReadJson {
    extra: Extra,
    code: Vec<CodeEntry>,
}

#[derive(Serialize, Deserialize)]
struct CodeEntry {
    pid: u32,
    address: u64,
    time: u64,
    name: String,
    offset: u64,
    size: u64,
}

/// The section for a file that has `at` bytes so far.
pub(crate) fn write(extra: &Extra, at: u64) -> serde_json::Result<Vec<u8>> {
    let mut offset = 0;
    let mut code = Vec::with_capacity(extra.code.len());
    for blob in &extra.code {
        let size = blob.bytes.len() as u64;
        let CodeBlob {
            pid,
            address,
            time,
            name,
            ..
        } = blob;
        let (pid, address, time, name) = (*pid, *address, *time, name.clone());
        code.push(CodeEntry {
            pid,
            address,
            time,
            name,
            offset,
            size,
        });
        offset += size;
    }
    let blobs_size = offset;
    let json = serde_json::to_vec(&WrittenJson { extra, code })?;
    let json_size = json.len() as u64;
    let mut built = Builder(json);
    for blob in &extra.code {
        built.bytes(&blob.bytes);
    }
    built
        .u64s(&[at, json_size, blobs_size])
        .u32(VERSION)
        .u32(0)
        .bytes(MAGIC);
    Ok(built.0)
}

/// The section of a file; `Ok(None)` if it has none, `Err` with the reason if it is damaged.
pub(crate) fn read(file: &[u8]) -> Result<Option<Extra>, String> {
    let Some((before, trailer)) = file.split_last_chunk::<TRAILER_SIZE>() else {
        return Ok(None);
    };
    if !trailer.ends_with(MAGIC) {
        return Ok(None);
    }
    let mut trailer = Bytes(trailer);
    let mut number = || trailer.u64().unwrap_or(0);
    let (at, json_size, blobs_size) = (number(), number(), number());
    let version = trailer.u32().unwrap_or(0);
    if version != VERSION {
        return Err(format!(
            "ptrail's section has version {version}, this ptrail reads version {VERSION}: \
             take a newer one; the rest of the file was read"
        ));
    }
    let (json, blobs) = usize::try_from(at)
        .ok()
        .and_then(|at| before.get(at..))
        .zip(usize::try_from(json_size).ok())
        .and_then(|(section, size)| section.split_at_checked(size))
        .filter(|(_, blobs)| blobs.len() as u64 == blobs_size)
        .ok_or_else(|| {
            format!(
                "the trailer says that ptrail's section is {json_size} + {blobs_size} bytes at \
                 {at:#x}, which does not end at the trailer; the section was left out"
            )
        })?;
    parse(json, blobs).map(Some)
}

fn parse(json: &[u8], blobs: &[u8]) -> Result<Extra, String> {
    let ReadJson { mut extra, code } = serde_json::from_slice(json)
        .map_err(|e| format!("ptrail's section was left out: its JSON text is broken: {e}"))?;
    // Entries that share their bytes would make a small file ask for much memory.
    let mut free = blobs.len() as u64;
    for entry in code {
        let CodeEntry {
            pid,
            address,
            time,
            name,
            offset,
            size,
        } = entry;
        free = free
            .checked_sub(size)
            .ok_or("code blobs in ptrail's section overlap")?;
        let bytes = offset
            .checked_add(size)
            .and_then(|end| blobs.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?))
            .ok_or_else(|| format!("code blob `{name}` lies outside of ptrail's section"))?
            .to_vec();
        extra.code.push(CodeBlob {
            pid,
            address,
            time,
            name,
            bytes,
        });
    }
    Ok(extra)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SourceNote;

    fn extra() -> Extra {
        Extra {
            source: SourceNote::Software {
                engine: "step".into(),
                clock: "1 ns each".into(),
            },
            wall_clock: u64::MAX,
            wall_clock_at: 3,
            command: vec!["./a b".into(), "ü".into()],
            end: "exited with status 0".into(),
            notes: vec!["no children".into()],
            triggers: vec![crate::TriggerNote {
                trigger: "f>5us".into(),
                hits: 7,
                calls: Some(u64::MAX),
            }],
            snapshots: vec![crate::SnapshotNote {
                trigger: 0,
                pid: 4,
                tid: 5,
                ip: u64::MAX,
                time: 3,
                took: Some(6_000),
                arguments: Some([1, 2, 3, 4, 5, u64::MAX]),
            }],
            code: vec![
                blob("[vdso]", vec![0x0f, 0x05, 0xc3]),
                blob("empty", Vec::new()),
                blob("jit", vec![0x90; 1000]),
            ],
        }
    }

    fn blob(name: &str, bytes: Vec<u8>) -> CodeBlob {
        CodeBlob {
            pid: 4,
            address: 0x7fff_0000_0000,
            time: 1 << 60,
            name: name.into(),
            bytes,
        }
    }

    fn file() -> Vec<u8> {
        let mut file = vec![1; 77];
        file.extend(write(&extra(), 77).unwrap());
        file
    }

    #[test]
    fn it_comes_back() {
        assert_eq!(read(&file()), Ok(Some(extra())));
    }

    #[test]
    fn a_cut_file_has_none() {
        let file = file();
        for len in 0..file.len() {
            assert_eq!(read(&file[..len]), Ok(None), "{len}");
        }
    }

    #[test]
    fn a_broken_trailer_is_named() {
        let file = file();
        for at in file.len() - TRAILER_SIZE..file.len() - 16 {
            let mut broken = file.clone();
            broken[at] ^= 1;
            let error = read(&broken).unwrap_err();
            assert!(error.contains("does not end at the trailer"), "{error}");
        }
        let mut newer = file;
        let at = newer.len() - 16;
        newer[at] = 2;
        assert!(read(&newer).unwrap_err().contains("version 2"));
    }

    #[test]
    fn blobs_that_overlap_are_refused() {
        let json = br#"{"extra":{"source":{"kind":"hardware"},"wall_clock":0,"wall_clock_at":0,
            "command":[],"end":"","notes":[]},"code":[
            {"pid":1,"address":0,"time":0,"name":"a","offset":0,"size":3},
            {"pid":1,"address":0,"time":0,"name":"b","offset":0,"size":3}]}"#;
        assert_eq!(parse(json, &[0; 6]).unwrap().code.len(), 2);
        assert!(parse(json, &[0; 5]).unwrap_err().contains("overlap"));
    }
}
