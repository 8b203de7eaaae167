//! Several byte streams in one temporary file, for formats that want one thread behind the other
//! while the decoder tells of all threads at once.

use std::{fs::File, io, os::unix::fs::FileExt as _};

/// Bytes of a stream that stay in memory. A chunk of the file is at least this large.
const CHUNK: usize = 32 << 10;

/// The streams, numbered from 0.
pub(crate) struct Spool {
    file: File,
    written: u64,
    streams: Vec<Stream>,
}

#[derive(Default)]
struct Stream {
    /// Where its chunks are in the file, in order: start and length.
    chunks: Vec<(u64, usize)>,
    /// What comes after the chunks.
    tail: Vec<u8>,
    length: u64,
    /// Place, and the range of `inserted`.
    insertions: Vec<(u64, std::ops::Range<usize>)>,
    inserted: Vec<u8>,
}

impl Spool {
    /// No stream yet.
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            written: 0,
            streams: Vec::new(),
        }
    }

    /// One more stream.
    pub(crate) fn add(&mut self) {
        self.streams.push(Stream::default());
    }

    /// Number of bytes appended to a stream so far.
    pub(crate) fn position(&self, stream: usize) -> u64 {
        self.streams[stream].length
    }

    /// Number of bytes it will have with all insertions.
    pub(crate) fn length(&self, stream: usize) -> u64 {
        let stream = &self.streams[stream];
        stream.length + stream.inserted.len() as u64
    }

    pub(crate) fn append(&mut self, stream: usize, bytes: &[u8]) -> io::Result<()> {
        let stream = &mut self.streams[stream];
        stream.tail.extend_from_slice(bytes);
        stream.length += bytes.len() as u64;
        if stream.tail.len() >= CHUNK {
            self.file.write_all_at(&stream.tail, self.written)?;
            stream.chunks.push((self.written, stream.tail.len()));
            self.written += stream.tail.len() as u64;
            stream.tail.clear();
        }
        Ok(())
    }

    /// Puts bytes in front of what was appended when the position was `place`, and in front of
    /// what was inserted there before.
    pub(crate) fn insert(&mut self, stream: usize, place: u64, bytes: &[u8]) {
        let stream = &mut self.streams[stream];
        let start = stream.inserted.len();
        stream.inserted.extend_from_slice(bytes);
        stream
            .insertions
            .push((place, start..stream.inserted.len()));
    }

    /// Hands out a stream with all insertions, piece by piece. The stream is empty afterwards.
    pub(crate) fn take<E: From<io::Error>>(
        &mut self,
        stream: usize,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Stream {
            chunks,
            tail,
            mut insertions,
            inserted,
            ..
        } = std::mem::take(&mut self.streams[stream]);
        insertions.reverse();
        insertions.sort_by_key(|&(place, _)| place);
        let mut insertions = insertions.into_iter().peekable();
        let mut position = 0;
        let mut chunk = Vec::new();
        for index in 0..=chunks.len() {
            let mut rest = &tail[..];
            if let Some(&(start, len)) = chunks.get(index) {
                chunk.resize(len, 0);
                self.file.read_exact_at(&mut chunk, start)?;
                rest = &chunk;
            }
            let end = position + rest.len() as u64;
            while let Some((place, range)) = insertions.next_if(|&(place, _)| place < end) {
                let (before, after) = rest.split_at((place - position) as usize);
                write(before)?;
                write(&inserted[range])?;
                (position, rest) = (place, after);
            }
            write(rest)?;
            position = end;
        }
        insertions.try_for_each(|(_, range)| write(&inserted[range]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(spool: &mut Spool, stream: usize) -> String {
        let mut bytes = Vec::new();
        spool
            .take(stream, |piece| {
                bytes.extend_from_slice(piece);
                Ok::<_, io::Error>(())
            })
            .unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn streams_come_back_apart_and_whole() {
        let mut spool = Spool::new(tempfile::tempfile().unwrap());
        let mut truth = [String::new(), String::new(), String::new()];
        for _ in &truth {
            spool.add();
        }
        for number in 0..60_000 {
            let (stream, text) = (number % 2, format!("{number} "));
            assert_eq!(spool.position(stream), truth[stream].len() as u64);
            spool.append(stream, text.as_bytes()).unwrap();
            truth[stream] += &text;
        }
        assert!(spool.streams[0].chunks.len() > 3);
        for (stream, truth) in truth.iter().enumerate() {
            assert_eq!(taken(&mut spool, stream), *truth);
        }
    }

    #[test]
    fn insertions_stand_before_their_place_and_before_earlier_ones() {
        let mut spool = Spool::new(tempfile::tempfile().unwrap());
        spool.add();
        let filler = "x".repeat(CHUNK - 3);
        let mut places = Vec::new();
        for text in ["one ", &filler, "two ", &filler, "three "] {
            places.push(spool.position(0));
            spool.append(0, text.as_bytes()).unwrap();
        }
        spool.insert(0, places[2], b"c ");
        spool.insert(0, places[1], b"b ");
        spool.insert(0, places[1], b"a ");
        spool.insert(0, spool.position(0), b"end");
        spool.insert(0, 0, b"start ");
        assert_eq!(
            taken(&mut spool, 0),
            format!("start one a b {filler}c two {filler}three end")
        );
    }
}
