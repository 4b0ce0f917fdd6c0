//! Control messages: the kernel's type-length-value records beside a message.
//!
//! The layout is the kernel's `struct cmsghdr`: a `size_t` length that counts the header, two
//! `int`s, then data, padded to a word.

use std::mem::size_of;

const WORD: usize = size_of::<usize>();
const HEADER: usize = WORD + 2 * size_of::<i32>();

/// The room for what is received with one datagram: 24 bytes each for TOS, traffic class, segment size
/// and drop count, 40 for packet info, 64 for an extended error with its reporter.
const RECEIVED: usize = 256;

/// The room for what is sent with one: TOS or traffic class, packet info, segment size.
const SENT: usize = 88;

/// The buffer for what is sent with one datagram or train.
pub(super) type SentControl = ControlBuffer<SENT>;

/// A buffer of control messages, aligned as the kernel's headers want it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct ControlBuffer<const ROOM: usize = RECEIVED> {
    bytes: [u8; ROOM],
    len: usize,
}

impl<const ROOM: usize> ControlBuffer<ROOM> {
    pub(super) const EMPTY: Self = Self {
        bytes: [0; ROOM],
        len: 0,
    };

    /// The encoded messages.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The whole buffer, for the kernel to write to; call [`ControlBuffer::set_len`] afterwards.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len.min(ROOM);
    }

    /// Appends one message. The buffer is large enough for all that sending uses.
    pub(super) fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let end = self.append(level, kind, data);
        debug_assert!(end.is_some(), "control messages outgrow their buffer");
        self.len = end.unwrap_or(self.len);
    }

    /// Writes one message after the others; returns where it ends, or `None` if there is no room.
    fn append(&mut self, level: i32, kind: i32, data: &[u8]) -> Option<usize> {
        let len = HEADER.checked_add(data.len())?;
        let end = self.len.checked_add(len.checked_next_multiple_of(WORD)?)?;
        let record = self.bytes.get_mut(self.len..end)?;
        record.fill(0);
        let (length, record) = record.split_first_chunk_mut()?;
        *length = len.to_ne_bytes();
        let (place, record) = record.split_first_chunk_mut()?;
        *place = level.to_ne_bytes();
        let (place, record) = record.split_first_chunk_mut()?;
        *place = kind.to_ne_bytes();
        record.get_mut(..data.len())?.copy_from_slice(data);
        Some(end)
    }

    /// The messages one by one, as (level, type, data).
    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let mut rest = self.as_bytes();
        std::iter::from_fn(move || {
            let len = usize::from_ne_bytes(*rest.first_chunk()?);
            let level = i32::from_ne_bytes(*rest.get(WORD..)?.first_chunk()?);
            let kind = i32::from_ne_bytes(*rest.get(WORD + 4..)?.first_chunk()?);
            let data = rest.get(HEADER..len)?;
            rest = rest.get(len.next_multiple_of(WORD)..).unwrap_or_default();
            Some((level, kind, data))
        })
    }
}

/// The leading native-endian `u32` of a control message's data.
pub(super) fn u32_of(data: &[u8]) -> Option<u32> {
    data.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_round_trip() {
        let mut control = SentControl::EMPTY;
        control.push(0, 1, &[7]);
        control.push(17, 103, &1452u16.to_ne_bytes());
        control.push(41, 50, &[9; 20]);
        let got: Vec<_> = control.iter().map(|(l, k, d)| (l, k, d.to_vec())).collect();
        assert_eq!(
            got,
            [
                (0, 1, vec![7]),
                (17, 103, 1452u16.to_ne_bytes().to_vec()),
                (41, 50, vec![9; 20]),
            ]
        );
    }

    #[test]
    fn truncated_control_message_ends_the_list() {
        let mut control = SentControl::EMPTY;
        control.push(0, 1, &[7; 4]);
        control.push(0, 2, &[8; 4]);
        let whole = control.as_bytes().len();
        for len in 0..whole {
            let mut cut = control;
            cut.set_len(len);
            let messages = cut.iter().count();
            assert!(
                messages <= 1 || len >= whole - WORD,
                "{messages} messages in {len} bytes"
            );
        }
        // A length of zero must not loop for ever.
        let mut zeros: ControlBuffer = ControlBuffer::EMPTY;
        zeros.set_len(RECEIVED);
        assert_eq!(zeros.iter().count(), 0);
    }
}
