//! How a STREAM frame fits into the rest of a packet.

use super::StreamId;
use crate::wire::Writer;
use crate::wire::cursor::varint_len;
use crate::wire::frame::data;

/// Data is not split for a fragment shorter than this, bytes.
const MIN_FRAGMENT: usize = 32;

/// Size of the largest control frame, bytes: a type and four integers (RESET_STREAM_AT).
pub(super) const CONTROL_ROOM: usize = 1 + 4 * 8;

/// The layout of a STREAM frame in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamLayout {
    /// Bytes of data in the frame.
    pub(super) len: usize,
    /// Whether the length is written; without it the frame ends the packet.
    pub(super) with_length: bool,
}

/// Lays out up to `available` bytes from `offset` on in `room` bytes of a packet. Returns `None`
/// if too little would fit.
pub(super) fn layout_stream(
    id: StreamId,
    offset: u64,
    available: u64,
    room: usize,
) -> Option<StreamLayout> {
    let available = usize::try_from(available).unwrap_or(usize::MAX);
    let room = room.checked_sub(data::stream_header_size(id, offset, None))?;
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

impl StreamLayout {
    /// Writes the header (RFC 9000 §19.8) and returns the buffer for the data. Returns `None` if
    /// `w` has overflowed, which cannot happen with the room of the layout.
    pub(super) fn write_header<'w>(
        self,
        w: &'w mut Writer<'_>,
        id: StreamId,
        offset: u64,
        fin: bool,
    ) -> Option<&'w mut [u8]> {
        let length = self.with_length.then_some(self.len);
        data::encode_stream_header(w, id, offset, length, fin);
        w.reserve(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Frame;
    use crate::wire::cursor::VARINT_MAX;

    /// Whatever the sizes, a layout fits, and without a length it fits exactly.
    #[test]
    fn every_layout_fits_and_layout_without_length_fills_packet() {
        for (id, offset) in [(0, 0), (4, 70), (1 << 20, 1 << 40)] {
            let id = StreamId::from_wire(id);
            for room in 0..400 {
                for available in (0..330).chain([70_000]) {
                    let Some(layout) = layout_stream(id, offset, available, room) else {
                        let header = data::stream_header_size(id, offset, None);
                        let need = header + MIN_FRAGMENT + 2;
                        assert!(room < need, "{available} refused in {room}");
                        continue;
                    };
                    let mut buffer = vec![0; room];
                    let mut w = Writer::new(&mut buffer);
                    let data = layout.write_header(&mut w, id, offset, false);
                    let data = data.expect("room").len();
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
    fn stream_frame_of_exact_fit_omits_length() {
        let id = StreamId::from_wire(0);
        let open = layout_stream(id, 0, 98, 100);
        assert_eq!(open.map(|l| (l.len, l.with_length)), Some((98, false)));
        let closed = layout_stream(id, 0, 97, 100);
        assert_eq!(closed.map(|l| (l.len, l.with_length)), Some((96, true)));
        let fin = layout_stream(id, 0, 0, 3);
        assert_eq!(fin.map(|l| (l.len, l.with_length)), Some((0, true)));
    }

    #[test]
    fn control_reserve_holds_any_control_frame() {
        let id = StreamId::from_wire(VARINT_MAX);
        let largest = Frame::ResetStreamAt {
            id,
            code: VARINT_MAX,
            final_size: VARINT_MAX,
            reliable_size: VARINT_MAX,
        };
        assert_eq!(largest.size(), CONTROL_ROOM);
    }
}
