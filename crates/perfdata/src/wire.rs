//! Little-endian words in and out.
//!
//! `perf.data` is written in the byte order of the recording machine, and Intel PT means x86:
//! little-endian. [`Bytes`] reads from a slice and answers `None` where the slice ends, so that no
//! length in a file can lead outside of it. [`Builder`] is the way back.

/// What is left to read of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// The bytes in front of the first NUL, as text; what is not UTF-8 is replaced by U+FFFD.
pub(crate) fn text_until_nul(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Bytes under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Builder(pub(crate) Vec<u8>);

impl Builder {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64s(&mut self, values: &[u64]) -> &mut Self {
        for value in values {
            self.u64(*value);
        }
        self
    }

    /// `bytes`, then one to `to` zero bytes up to the next multiple of `to`.
    pub(crate) fn terminated(&mut self, bytes: &[u8], to: usize) -> &mut Self {
        self.bytes(bytes).u8(0);
        self.pad(to)
    }

    /// Zero bytes up to the next multiple of `to`.
    pub(crate) fn pad(&mut self, to: usize) -> &mut Self {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_read_back() {
        let mut built = Builder::default();
        built.u8(1).u16(0x203).u32(0x4050607).u64(u64::MAX - 1);
        let mut bytes = Bytes(&built.0);
        assert_eq!(bytes.u8(), Some(1));
        assert_eq!(bytes.u16(), Some(0x203));
        assert_eq!(bytes.u32(), Some(0x4050607));
        assert_eq!(bytes.u64(), Some(u64::MAX - 1));
        assert_eq!(bytes.u8(), None);
    }

    #[test]
    fn reading_past_the_end_takes_nothing() {
        let mut bytes = Bytes(&[1, 2, 3]);
        assert_eq!(bytes.u32(), None);
        assert_eq!(bytes.take(usize::MAX), None);
        assert_eq!(bytes.take(3), Some(&[1, 2, 3][..]));
    }

    #[test]
    fn terminated_text_always_ends_in_nul() {
        let mut built = Builder::default();
        built.terminated(b"1234567", 8).terminated(b"12345678", 8);
        assert_eq!(built.0.len(), 8 + 16);
        assert_eq!(text_until_nul(&built.0[8..]), "12345678");
    }
}
