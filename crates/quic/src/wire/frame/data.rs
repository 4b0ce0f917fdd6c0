//! Headers of the frames that carry data. The data is then copied straight into the packet, with
//! [`Writer::reserve`].

use super::kind;
use crate::wire::StreamId;
use crate::wire::Writer;
use crate::wire::cursor::varint_len;

/// Returns the number of bytes of the header of a STREAM frame (RFC 9000 §19.8); `len` is `None` for
/// one that runs to the end of the packet.
#[must_use]
#[expect(clippy::arithmetic_side_effects, reason = "25 at most")]
pub(crate) const fn stream_header_size(id: StreamId, offset: u64, len: Option<usize>) -> usize {
    let offset = if offset == 0 { 0 } else { varint_len(offset) };
    let length = match len {
        Some(len) => varint_len(len as u64),
        None => 0,
    };
    1 + varint_len(id.as_u64()) + offset + length
}

/// Writes the header of a STREAM frame, to be followed by the data.
pub(crate) fn encode_stream_header(
    w: &mut Writer<'_>,
    id: StreamId,
    offset: u64,
    len: Option<usize>,
    fin: bool,
) {
    let mut frame_type = kind::STREAM;
    if fin {
        frame_type |= kind::STREAM_FIN;
    }
    if offset != 0 {
        frame_type |= kind::STREAM_OFF;
    }
    if len.is_some() {
        frame_type |= kind::STREAM_LEN;
    }
    // One byte, whatever the bits.
    w.u8(frame_type as u8);
    w.varint(id.as_u64());
    if offset != 0 {
        w.varint(offset);
    }
    if let Some(len) = len {
        w.varint(len as u64);
    }
}

/// Returns how many bytes of data a frame of `room` bytes holds with a Length field,
/// after `header` bytes of other fields: the field grows with what it counts.
/// `None` if not even a frame without data fits.
#[must_use]
pub(crate) const fn capacity(room: usize, header: usize) -> Option<usize> {
    let Some(room) = room.checked_sub(header) else {
        return None;
    };
    let Some(mut len) = room.checked_sub(varint_len(room as u64)) else {
        return None;
    };
    // What is left after the field of the whole room may take a shorter one:
    // look a little higher.
    while let Some(more) = len.checked_add(1)
        && more.saturating_add(varint_len(more as u64)) <= room
    {
        len = more;
    }
    Some(len)
}

/// Returns the number of bytes of the header of a CRYPTO frame (RFC 9000 §19.6).
#[must_use]
#[expect(clippy::arithmetic_side_effects, reason = "17 at most")]
pub(crate) const fn crypto_header_size(offset: u64, len: usize) -> usize {
    1 + varint_len(offset) + varint_len(len as u64)
}

/// Writes the header of a CRYPTO frame, to be followed by `len` bytes of data.
pub(crate) fn encode_crypto_header(w: &mut Writer<'_>, offset: u64, len: usize) {
    w.varint(kind::CRYPTO);
    w.varint(offset);
    w.varint(len as u64);
}

/// Returns the number of bytes of the header of a DATAGRAM frame (RFC 9221 §4); `len` is `None` for
/// one that runs to the end of the packet.
#[must_use]
#[expect(clippy::arithmetic_side_effects, reason = "nine at most")]
pub(crate) const fn datagram_header_size(len: Option<usize>) -> usize {
    match len {
        Some(len) => 1 + varint_len(len as u64),
        None => 1,
    }
}

/// Writes the header of a DATAGRAM frame, to be followed by the data.
pub(crate) fn encode_datagram_header(w: &mut Writer<'_>, len: Option<usize>) {
    match len {
        Some(len) => {
            w.varint(kind::DATAGRAM_LEN);
            w.varint(len as u64);
        }
        None => w.varint(kind::DATAGRAM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exactly full: one byte more would not fit, at every length near the
    /// thresholds of the Length field.
    #[test]
    fn capacity_is_the_most_that_fits() {
        for header in [0, 3, 17] {
            for room in (0..200).chain(16_300..16_500) {
                let fits = |len: usize| header + varint_len(len as u64) + len <= room;
                match capacity(room, header) {
                    Some(len) => assert!(fits(len) && !fits(len + 1), "{room} {header} {len}"),
                    None => assert!(!fits(0), "{room} {header}"),
                }
            }
        }
    }
}
