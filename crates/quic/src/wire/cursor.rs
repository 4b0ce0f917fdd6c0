//! Reading and writing integers and byte strings, and the variable-length
//! integer of RFC 9000 §16.

/// Largest value of a variable-length integer (RFC 9000 §16).
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Bytes that `value` takes as a variable-length integer: 1, 2, 4 or 8.
#[must_use]
pub const fn varint_len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// A cursor over received bytes. Every method answers `None` at the end.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How much has not been read.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether everything has been read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes the next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len)?;
        self.rest = tail;
        Some(head)
    }

    /// Takes a fixed-size array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    /// Takes one byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[b]| b)
    }

    /// Takes a big-endian 16-bit integer.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes a big-endian 32-bit integer.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a variable-length integer (RFC 9000 §16).
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let first = *self.rest.first()?;
        match first >> 6 {
            0 => self.u8().map(u64::from),
            1 => self.u16().map(|v| u64::from(v & 0x3fff)),
            2 => self.u32().map(|v| u64::from(v & 0x3fff_ffff)),
            _ => self
                .array()
                .map(|b| u64::from_be_bytes(b) & 0x3fff_ffff_ffff_ffff),
        }
    }

    /// Takes a variable-length integer, then that many bytes.
    #[inline]
    pub fn prefixed(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.bytes(len)
    }
}

/// A cursor into a caller's buffer. Writers ask [`Writer::remaining`] first;
/// writing past the end is a bug of ours and panics.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    written: usize,
}

impl<'a> Writer<'a> {
    /// Starts at the front of `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, written: 0 }
    }

    /// Bytes written so far.
    #[must_use]
    pub fn written(&self) -> usize {
        self.written
    }

    /// Bytes that still fit.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.buffer.len() - self.written
    }

    /// What has been written.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        &self.buffer[..self.written]
    }

    /// What has been written, to patch it.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.written]
    }

    /// Lends `len` bytes to fill and counts them as written.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> &mut [u8] {
        let start = self.written;
        self.written += len;
        &mut self.buffer[start..start + len]
    }

    /// Takes back everything after `written` bytes.
    pub fn truncate(&mut self, written: usize) {
        debug_assert!(written <= self.written);
        self.written = written;
    }

    /// Appends bytes.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len()).copy_from_slice(bytes);
    }

    /// Appends a byte.
    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// Appends a big-endian 16-bit integer.
    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    /// Appends a big-endian 32-bit integer.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    /// Appends a variable-length integer in its shortest form (RFC 9000 §16).
    #[inline]
    pub fn varint(&mut self, value: u64) {
        match varint_len(value) {
            1 => self.bytes(&[value.to_be_bytes()[7]]),
            2 => self.varint_as(value, 2),
            4 => self.varint_as(value, 4),
            _ => self.varint_as(value, 8),
        }
    }

    /// Appends a variable-length integer in `len` (1, 2, 4 or 8) bytes.
    #[inline]
    pub fn varint_as(&mut self, value: u64, len: usize) {
        debug_assert!(value <= VARINT_MAX && varint_len(value) <= len);
        let prefix = (len.trailing_zeros() as u8) << 6;
        let bytes = value.to_be_bytes();
        let out = self.reserve(len);
        out.copy_from_slice(&bytes[8 - len..]);
        out[0] |= prefix;
    }

    /// Appends `len` zero bytes (PADDING).
    pub fn zeros(&mut self, len: usize) {
        self.reserve(len).fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 9000 §A.1.
    #[test]
    fn varint_examples() {
        let cases: [(&[u8], u64); 5] = [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in cases {
            assert_eq!(Reader::new(bytes).varint(), Some(value));
            let mut buffer = [0; 8];
            let mut writer = Writer::new(&mut buffer);
            writer.varint_as(value, bytes.len());
            assert_eq!(writer.filled(), bytes);
            assert_eq!(Reader::new(&bytes[..bytes.len() - 1]).varint(), None);
        }
    }

    #[test]
    fn varint_takes_the_shortest_form() {
        for (value, len) in [
            (0, 1),
            (63, 1),
            (64, 2),
            (16_383, 2),
            (16_384, 4),
            (1 << 30, 8),
            (VARINT_MAX, 8),
        ] {
            let mut buffer = [0; 8];
            let mut writer = Writer::new(&mut buffer);
            writer.varint(value);
            assert_eq!(writer.written(), len);
            assert_eq!(Reader::new(writer.filled()).varint(), Some(value));
        }
    }
}
