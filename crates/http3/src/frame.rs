//! Frames: a type, a length and a payload (RFC 9114 §7, RFC 9218 §7).

use clearway_quic::wire::Reader;
use clearway_quic::wire::cursor::{VARINT_MAX, varint_len};

use crate::error::{Code, ConnectionError};

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// DATA: bytes of a body.
    Data,
    /// HEADERS: a header or trailer section.
    Headers,
    /// CANCEL_PUSH: cancels a server push.
    CancelPush,
    /// SETTINGS: the configuration of the connection.
    Settings,
    /// PUSH_PROMISE: the request of a server push.
    PushPromise,
    /// GOAWAY: the connection is being shut down.
    Goaway,
    /// MAX_PUSH_ID: how many pushes the client allows.
    MaxPushId,
    /// PRIORITY_UPDATE for a request stream (RFC 9218 §7.2).
    PriorityUpdateRequest,
    /// PRIORITY_UPDATE for a push stream (RFC 9218 §7.2).
    PriorityUpdatePush,
    /// A frame type of HTTP/2 without a counterpart in HTTP/3; always an error (RFC 9114 §7.2.8).
    Http2(u64),
    /// Any other type, reserved ones included; ignored (RFC 9114 §9).
    Unknown(u64),
}

impl FrameKind {
    /// Converts the type on the wire.
    #[must_use]
    pub const fn from_wire(kind: u64) -> Self {
        match kind {
            0x00 => Self::Data,
            0x01 => Self::Headers,
            0x03 => Self::CancelPush,
            0x04 => Self::Settings,
            0x05 => Self::PushPromise,
            0x07 => Self::Goaway,
            0x0d => Self::MaxPushId,
            0xf_0700 => Self::PriorityUpdateRequest,
            0xf_0701 => Self::PriorityUpdatePush,
            0x02 | 0x06 | 0x08 | 0x09 => Self::Http2(kind),
            _ => Self::Unknown(kind),
        }
    }

    /// Returns the type on the wire.
    #[must_use]
    pub(crate) const fn as_u64(self) -> u64 {
        match self {
            Self::Data => 0x00,
            Self::Headers => 0x01,
            Self::CancelPush => 0x03,
            Self::Settings => 0x04,
            Self::PushPromise => 0x05,
            Self::Goaway => 0x07,
            Self::MaxPushId => 0x0d,
            Self::PriorityUpdateRequest => 0xf_0700,
            Self::PriorityUpdatePush => 0xf_0701,
            Self::Http2(kind) | Self::Unknown(kind) => kind,
        }
    }

    /// Returns the name in the RFC.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Data => "DATA",
            Self::Headers => "HEADERS",
            Self::CancelPush => "CANCEL_PUSH",
            Self::Settings => "SETTINGS",
            Self::PushPromise => "PUSH_PROMISE",
            Self::Goaway => "GOAWAY",
            Self::MaxPushId => "MAX_PUSH_ID",
            Self::PriorityUpdateRequest | Self::PriorityUpdatePush => "PRIORITY_UPDATE",
            Self::Http2(_) => "HTTP/2 frame",
            Self::Unknown(_) => "unknown frame",
        }
    }
}

/// The type and length of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The frame type.
    pub kind: FrameKind,
    /// The length of the payload, in bytes.
    pub len: u64,
}

impl FrameHeader {
    /// The maximum length on the wire, in bytes: two of the longest integers.
    pub(crate) const MAX_LEN: usize = 16;

    /// Reads a header from the front of `bytes`. Returns it with its encoded length, or `None` if
    /// more bytes are needed.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut r = Reader::new(bytes);
        let kind = FrameKind::from_wire(r.varint()?);
        let len = r.varint()?;
        let size = bytes.len().saturating_sub(r.remaining());
        Some((Self { kind, len }, size))
    }

    /// Appends the encoded header to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.kind.as_u64());
        put_varint(out, self.len);
    }
}

/// Appends a variable-length integer in its shortest encoding (RFC 9000 §16). A value above
/// [`VARINT_MAX`], which cannot be encoded, is written as [`VARINT_MAX`].
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0x3f => out.push(value as u8),
        0x40..=0x3fff => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => {
            out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes());
        }
        _ => {
            let value = value.min(VARINT_MAX) | 0xc000_0000_0000_0000;
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

/// Decodes the payload of a frame that carries exactly one integer.
pub(crate) fn decode_single_varint(
    kind: FrameKind,
    payload: &[u8],
) -> Result<u64, ConnectionError> {
    let mut r = Reader::new(payload);
    match r.varint() {
        Some(value) if r.is_empty() => Ok(value),
        Some(_) | None => Err(ConnectionError::new(
            Code::FRAME_ERROR,
            format!("{} payload is not exactly one integer", kind.name()),
        )),
    }
}

/// Appends a frame whose payload is one integer.
pub(crate) fn put_varint_frame(out: &mut Vec<u8>, kind: FrameKind, value: u64) {
    let len = varint_len(value) as u64;
    FrameHeader { kind, len }.encode(out);
    put_varint(out, value);
}

/// Bytes to reserve before a payload of unknown length: a type of one byte and a length of four.
pub(crate) const HEADER_ROOM: usize = 5;

/// Writes the header of a frame whose payload begins at `payload` in `out` into the [`HEADER_ROOM`]
/// before it. Returns where the frame begins, or `None` if the header does not fit.
pub(crate) fn write_header_before(
    out: &mut [u8],
    payload: usize,
    kind: FrameKind,
) -> Option<usize> {
    let len = out.len().checked_sub(payload)? as u64;
    let mut header = [0; FrameHeader::MAX_LEN];
    let mut w = clearway_quic::wire::Writer::new(&mut header);
    w.varint(kind.as_u64());
    w.varint(len);
    let start = payload.checked_sub(w.written())?;
    out.get_mut(start..payload)?.copy_from_slice(w.filled());
    Some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_types_round_trip() {
        for kind in (0..0x100).chain(0xf_0700..0xf_0702) {
            assert_eq!(FrameKind::from_wire(kind).as_u64(), kind);
        }
        assert_eq!(FrameKind::from_wire(6), FrameKind::Http2(6));
        assert_eq!(FrameKind::from_wire(0x21), FrameKind::Unknown(0x21));
    }

    #[test]
    fn header_round_trips_and_is_none_while_incomplete() {
        for (kind, len) in [(0, 0), (1, 63), (0xf_0700, 64), (0x21, (1 << 62) - 1)] {
            let header = FrameHeader {
                kind: FrameKind::from_wire(kind),
                len,
            };
            let mut out = Vec::new();
            header.encode(&mut out);
            assert!(out.len() <= FrameHeader::MAX_LEN);
            assert_eq!(FrameHeader::parse(&out), Some((header, out.len())));
            for short in 0..out.len() {
                assert_eq!(FrameHeader::parse(&out[..short]), None);
            }
        }
    }

    #[test]
    fn integer_above_62_bits_is_encoded_as_the_largest() {
        for value in [VARINT_MAX, VARINT_MAX + 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut r = Reader::new(&out);
            assert_eq!(
                (r.varint(), r.remaining()),
                (Some(VARINT_MAX), 0),
                "{value:#x}"
            );
        }
    }

    #[test]
    fn header_that_does_not_fit_its_room_is_rejected() {
        let mut out = vec![0; 1 + 64];
        assert_eq!(write_header_before(&mut out, 1, FrameKind::Headers), None);
        assert_eq!(write_header_before(&mut out, 66, FrameKind::Headers), None);
    }

    #[test]
    fn payload_other_than_one_integer_is_a_frame_error() {
        let kind = FrameKind::Goaway;
        assert_eq!(decode_single_varint(kind, &[0x40, 7]), Ok(7));
        for wrong in [&[][..], &[0x40], &[0, 0]] {
            let error = decode_single_varint(kind, wrong).unwrap_err();
            assert_eq!(error.code, Code::FRAME_ERROR);
        }
    }

    #[test]
    fn header_room_fits_the_header_of_any_field_section() {
        for len in [0, 63, 64, 16_383, 16_384, 70_000] {
            let mut out = vec![0; HEADER_ROOM + len];
            let start = write_header_before(&mut out, HEADER_ROOM, FrameKind::Headers).unwrap();
            let (header, size) = FrameHeader::parse(&out[start..]).unwrap();
            assert_eq!((header.kind, header.len), (FrameKind::Headers, len as u64));
            assert_eq!(start + size, HEADER_ROOM);
        }
    }
}
