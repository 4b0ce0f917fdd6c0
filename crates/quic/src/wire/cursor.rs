//! Reading and writing integers and byte strings, and the variable-length
//! integer of RFC 9000 §16.

/// Largest value of a variable-length integer (RFC 9000 §16).
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Returns the number of bytes that `value` takes as a variable-length integer: 1, 2, 4 or 8.
#[must_use]
pub const fn varint_len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// A cursor over received bytes. Every method returns `None` if there are too few bytes left.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the unread bytes.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the number of unread bytes.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Returns whether everything has been read.
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
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes a big-endian 32-bit integer.
    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
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
    pub(crate) fn prefixed(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.bytes(len)
    }
}

/// A cursor into a caller's buffer that never writes past its end.
///
/// A write that does not fit writes nothing, and so do all later writes; [`Writer::overflowed`] is
/// true from then on. So a packet can be written without checking each write, with one check at the
/// end. The content of an overflowed writer is incomplete and must not be sent.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    /// At most `buffer.len()`.
    written: usize,
    overflowed: bool,
}

impl<'a> Writer<'a> {
    /// Creates a writer at the start of `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self {
            buffer,
            written: 0,
            overflowed: false,
        }
    }

    /// Returns the number of bytes written so far.
    #[must_use]
    pub fn written(&self) -> usize {
        self.written
    }

    /// Returns the number of bytes that still fit.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.buffer.len().saturating_sub(self.written)
    }

    /// Returns whether a write did not fit.
    #[must_use]
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Returns the bytes written so far.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        self.buffer.get(..self.written).unwrap_or_default()
    }

    /// Returns the bytes written so far, to modify them.
    pub(crate) fn filled_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(..self.written).unwrap_or_default()
    }

    /// Marks the writer as overflowed.
    #[cold]
    pub(in crate::wire) fn overflow(&mut self) {
        self.overflowed = true;
        let buffer = core::mem::take(&mut self.buffer);
        self.buffer = buffer.get_mut(..self.written).unwrap_or_default();
    }

    /// Returns a buffer of `len` bytes to fill, which count as written. Returns `None` if they do not
    /// fit.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        let start = self.written;
        let end = start.wrapping_add(len);
        if end < start || end > self.buffer.len() {
            self.overflow();
            return None;
        }
        self.written = end;
        self.buffer.get_mut(start..end)
    }

    /// Appends bytes.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        if let Some(place) = self.reserve(bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Appends an array: one check and one store.
    #[inline]
    #[expect(clippy::arithmetic_side_effects, reason = "the end of a slice")]
    pub fn array<const N: usize>(&mut self, bytes: [u8; N]) {
        let rest = self.buffer.get_mut(self.written..);
        match rest.and_then(<[u8]>::first_chunk_mut) {
            Some(place) => {
                *place = bytes;
                self.written += N;
            }
            None => self.overflow(),
        }
    }

    /// Appends a byte.
    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.array([value]);
    }

    /// Appends a big-endian 16-bit integer.
    #[inline]
    pub(crate) fn u16(&mut self, value: u16) {
        self.array(value.to_be_bytes());
    }

    /// Appends a big-endian 32-bit integer.
    #[inline]
    pub(crate) fn u32(&mut self, value: u32) {
        self.array(value.to_be_bytes());
    }

    /// Appends a variable-length integer in its shortest form (RFC 9000 §16). A
    /// value over [`VARINT_MAX`] has none and counts as not fitting.
    #[inline]
    pub fn varint(&mut self, value: u64) {
        match value {
            0..=0x3f => self.array([value as u8]),
            0x40..=0x3fff => self.two_byte_varint(value as u16),
            0x4000..=0x3fff_ffff => self.array((value as u32 | 0x8000_0000).to_be_bytes()),
            0x4000_0000..=VARINT_MAX => {
                self.array((value | 0xc000_0000_0000_0000).to_be_bytes());
            }
            _ => self.overflow(),
        }
    }

    /// Appends a variable-length integer in two bytes, whatever its value, as a field that is filled
    /// in later. A value over [`TWO_BYTE_VARINT_MAX`] counts as not
    /// fitting.
    #[inline]
    pub(crate) fn two_byte_varint(&mut self, value: u16) {
        match two_byte_varint(value) {
            Some(bytes) => self.array(bytes),
            None => self.overflow(),
        }
    }

    /// Appends `len` zero bytes (PADDING).
    pub fn zeros(&mut self, len: usize) {
        if let Some(place) = self.reserve(len) {
            place.fill(0);
        }
    }
}

/// Largest variable-length integer of two bytes.
pub(crate) const TWO_BYTE_VARINT_MAX: u16 = 0x3fff;

/// Returns a variable-length integer in two bytes, whatever its value; `None` for a
/// value over [`TWO_BYTE_VARINT_MAX`].
#[inline]
#[must_use]
pub(crate) const fn two_byte_varint(value: u16) -> Option<[u8; 2]> {
    if value > TWO_BYTE_VARINT_MAX {
        return None;
    }
    Some((value | 0x4000).to_be_bytes())
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
            if bytes == [0x40, 0x25] {
                writer.two_byte_varint(37);
            } else {
                writer.varint(value);
            }
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

    fn reserve(w: &mut Writer<'_>, len: usize) {
        if let Some(place) = w.reserve(len) {
            place.fill(7);
        }
    }

    type Write = fn(&mut Writer<'_>);

    /// Everything that can be written, by the bytes it takes.
    fn writes() -> Vec<(usize, Write)> {
        vec![
            (0, |w| w.bytes(&[])),
            (0, |w| w.zeros(0)),
            (0, |w| reserve(w, 0)),
            (1, |w| w.u8(7)),
            (2, |w| w.u16(7)),
            (4, |w| w.u32(7)),
            (5, |w| w.bytes(&[7; 5])),
            (9, |w| w.zeros(9)),
            (3, |w| reserve(w, 3)),
            (7, |w| w.array([7; 7])),
            (1, |w| w.varint(0x3f)),
            (2, |w| w.varint(0x40)),
            (2, |w| w.varint(0x3fff)),
            (4, |w| w.varint(0x4000)),
            (8, |w| w.varint(1 << 30)),
            (8, |w| w.varint(VARINT_MAX)),
            (2, |w| w.two_byte_varint(0)),
            (2, |w| w.two_byte_varint(TWO_BYTE_VARINT_MAX)),
        ]
    }

    /// Every pair of writes into every room.
    #[test]
    fn write_past_end_changes_nothing_and_is_reported() {
        for room in 0..20 {
            for (first_len, first) in writes() {
                for (second_len, second) in writes() {
                    let mut buffer = [0xee; 24];
                    let mut w = Writer::new(&mut buffer[..room]);
                    let mut expected = 0;
                    for (len, write) in [(first_len, first), (second_len, second)] {
                        write(&mut w);
                        if !w.overflowed() {
                            expected += len;
                        }
                        assert_eq!(w.written(), expected);
                    }
                    assert_eq!(w.overflowed(), first_len + second_len > room);
                    assert_eq!(w.filled().len(), expected);
                    assert_eq!(w.filled_mut().len(), expected);
                    if w.overflowed() {
                        assert_eq!(w.remaining(), 0, "a smaller write must not follow");
                    } else {
                        assert_eq!(w.remaining(), room - expected);
                    }
                    assert!(buffer[expected..].iter().all(|&byte| byte == 0xee));
                }
            }
        }
    }

    #[test]
    fn value_without_encoding_is_reported() {
        for value in [VARINT_MAX + 1, u64::MAX] {
            let mut buffer = [0; 16];
            let mut w = Writer::new(&mut buffer);
            w.varint(value);
            assert!(w.overflowed() && w.written() == 0);
        }
        for value in [TWO_BYTE_VARINT_MAX + 1, u16::MAX] {
            let mut buffer = [0; 16];
            let mut w = Writer::new(&mut buffer);
            w.two_byte_varint(value);
            assert!(w.overflowed() && w.written() == 0);
        }
    }

    #[test]
    fn reserve_of_any_length_is_safe() {
        let mut buffer = [0; 16];
        for len in [17, usize::MAX - 1, usize::MAX] {
            let mut w = Writer::new(&mut buffer);
            w.u8(1);
            assert!(w.reserve(len).is_none() && w.overflowed());
        }
    }
}
