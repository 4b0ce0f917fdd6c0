//! Writing the frames that streams emit (RFC 9000 §19.4–19.14).

use super::{Directionality, StreamId};
use crate::wire::Writer;
use crate::wire::cursor::varint_len;

const RESET_STREAM: u64 = 0x04;
const STOP_SENDING: u64 = 0x05;
const STREAM: u8 = 0x08;
const STREAM_OFF: u8 = 0x04;
const STREAM_LEN: u8 = 0x02;
const STREAM_FIN: u8 = 0x01;
const MAX_DATA: u64 = 0x10;
const MAX_STREAM_DATA: u64 = 0x11;
const MAX_STREAMS: u64 = 0x12;
const DATA_BLOCKED: u64 = 0x14;
const STREAM_DATA_BLOCKED: u64 = 0x15;
const STREAMS_BLOCKED: u64 = 0x16;

/// A tail shorter than this is not split off merely to use up a packet, bytes.
const MIN_FRAGMENT: usize = 32;

/// Room that any frame but STREAM fits in, bytes: a type and three integers
/// (RESET_STREAM).
pub(super) const CONTROL_ROOM: usize = 1 + 3 * 8;

/// How a STREAM frame will sit in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamLayout {
    /// Bytes of data it carries.
    pub(super) len: usize,
    /// Whether the length is written; without it the frame ends the packet.
    pub(super) with_length: bool,
}

/// Lays out up to `available` bytes from `offset` on in `room` bytes of packet, or
/// `None` when it is not worth it there.
pub(super) fn layout_stream(
    id: StreamId,
    offset: u64,
    available: u64,
    room: usize,
) -> Option<StreamLayout> {
    let available = usize::try_from(available).unwrap_or(usize::MAX);
    let room = room.checked_sub(header_len(id, offset))?;
    let most = available.min(usize::from(u16::MAX));
    if most >= room && room >= MIN_FRAGMENT.min(available) {
        return Some(StreamLayout {
            len: room,
            with_length: false,
        });
    }
    let length_field = varint_len(most as u64);
    let len = most.min(room.checked_sub(length_field)?);
    (len >= MIN_FRAGMENT.min(available)).then_some(StreamLayout {
        len,
        with_length: true,
    })
}

fn header_len(id: StreamId, offset: u64) -> usize {
    let offset_field = if offset > 0 { varint_len(offset) } else { 0 };
    1 + varint_len(id.as_u64()) + offset_field
}

/// Writes a STREAM header and lends the room for its data (RFC 9000 §19.8).
pub(super) fn stream<'w>(
    w: &'w mut Writer<'_>,
    id: StreamId,
    offset: u64,
    layout: StreamLayout,
    fin: bool,
) -> &'w mut [u8] {
    let mut kind = STREAM;
    if offset > 0 {
        kind |= STREAM_OFF;
    }
    if layout.with_length {
        kind |= STREAM_LEN;
    }
    if fin {
        kind |= STREAM_FIN;
    }
    w.u8(kind);
    w.varint(id.as_u64());
    if offset > 0 {
        w.varint(offset);
    }
    if layout.with_length {
        w.varint(layout.len as u64);
    }
    w.reserve(layout.len)
}

/// Writes RESET_STREAM (RFC 9000 §19.4).
pub(super) fn reset_stream(w: &mut Writer<'_>, id: StreamId, code: u64, final_size: u64) {
    integers(w, &[RESET_STREAM, id.as_u64(), code, final_size]);
}

/// Writes STOP_SENDING (RFC 9000 §19.5).
pub(super) fn stop_sending(w: &mut Writer<'_>, id: StreamId, code: u64) {
    integers(w, &[STOP_SENDING, id.as_u64(), code]);
}

/// Writes MAX_DATA (RFC 9000 §19.9).
pub(super) fn max_data(w: &mut Writer<'_>, limit: u64) {
    integers(w, &[MAX_DATA, limit]);
}

/// Writes MAX_STREAM_DATA (RFC 9000 §19.10).
pub(super) fn max_stream_data(w: &mut Writer<'_>, id: StreamId, limit: u64) {
    integers(w, &[MAX_STREAM_DATA, id.as_u64(), limit]);
}

/// Writes MAX_STREAMS (RFC 9000 §19.11).
pub(super) fn max_streams(w: &mut Writer<'_>, dir: Directionality, limit: u64) {
    integers(w, &[MAX_STREAMS + kind_bit(dir), limit]);
}

/// Writes DATA_BLOCKED (RFC 9000 §19.12).
pub(super) fn data_blocked(w: &mut Writer<'_>, at: u64) {
    integers(w, &[DATA_BLOCKED, at]);
}

/// Writes STREAM_DATA_BLOCKED (RFC 9000 §19.13).
pub(super) fn stream_data_blocked(w: &mut Writer<'_>, id: StreamId, at: u64) {
    integers(w, &[STREAM_DATA_BLOCKED, id.as_u64(), at]);
}

/// Writes STREAMS_BLOCKED (RFC 9000 §19.14).
pub(super) fn streams_blocked(w: &mut Writer<'_>, dir: Directionality, at: u64) {
    integers(w, &[STREAMS_BLOCKED + kind_bit(dir), at]);
}

const fn kind_bit(dir: Directionality) -> u64 {
    match dir {
        Directionality::Bidirectional => 0,
        Directionality::Unidirectional => 1,
    }
}

fn integers(w: &mut Writer<'_>, values: &[u64]) {
    for &value in values {
        w.varint(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cursor::VARINT_MAX;

    /// Whatever the sizes, a layout fits, and without a length it fits exactly.
    #[test]
    fn every_layout_fits_and_an_open_one_fits_exactly() {
        for (id, offset) in [(0, 0), (4, 70), (1 << 20, 1 << 40)] {
            let id = StreamId::from_wire(id);
            for room in 0..400 {
                for available in (0..330).chain([70_000]) {
                    let Some(layout) = layout_stream(id, offset, available, room) else {
                        let need = header_len(id, offset) + MIN_FRAGMENT + 2;
                        assert!(room < need, "{available} refused in {room}");
                        continue;
                    };
                    let mut buffer = vec![0; room];
                    let mut w = Writer::new(&mut buffer);
                    let data = stream(&mut w, id, offset, layout, false).len();
                    assert!(data as u64 <= available);
                    assert_eq!(data, layout.len);
                    if !layout.with_length {
                        assert_eq!(w.remaining(), 0);
                    }
                }
            }
        }
    }

    #[test]
    fn an_exact_fit_omits_the_length() {
        let id = StreamId::from_wire(0);
        let open = layout_stream(id, 0, 98, 100);
        assert_eq!(open.map(|l| (l.len, l.with_length)), Some((98, false)));
        let closed = layout_stream(id, 0, 97, 100);
        assert_eq!(closed.map(|l| (l.len, l.with_length)), Some((96, true)));
        let fin = layout_stream(id, 0, 0, 3);
        assert_eq!(fin.map(|l| (l.len, l.with_length)), Some((0, true)));
    }

    #[test]
    fn control_frames_match_the_rfc() {
        type Emit = fn(&mut Writer<'_>, StreamId, Directionality);
        let id = StreamId::from_wire(4);
        let uni = Directionality::Unidirectional;
        let frames: [(Emit, &[u8]); 8] = [
            (|w, id, _| reset_stream(w, id, 7, 9), &[0x04, 4, 7, 9]),
            (|w, id, _| stop_sending(w, id, 7), &[0x05, 4, 7]),
            (|w, _, _| max_data(w, 1000), &[0x10, 0x43, 0xe8]),
            (|w, id, _| max_stream_data(w, id, 5), &[0x11, 4, 5]),
            (|w, _, d| max_streams(w, d, 5), &[0x13, 5]),
            (|w, _, _| data_blocked(w, 5), &[0x14, 5]),
            (|w, id, _| stream_data_blocked(w, id, 5), &[0x15, 4, 5]),
            (|w, _, d| streams_blocked(w, d, 5), &[0x17, 5]),
        ];
        for (emit, bytes) in frames {
            let mut buffer = [0; 40];
            let mut w = Writer::new(&mut buffer);
            emit(&mut w, id, uni);
            assert_eq!(w.filled(), bytes);
        }
        let mut buffer = [0; CONTROL_ROOM];
        let mut w = Writer::new(&mut buffer);
        let biggest = StreamId::from_wire(VARINT_MAX);
        reset_stream(&mut w, biggest, VARINT_MAX, VARINT_MAX);
        assert_eq!(w.remaining(), 0);
    }
}
