//! Frames: a type, a length, a payload (RFC 9114 §7, RFC 9218 §7).

use clearway_quic::wire::Reader;
use clearway_quic::wire::cursor::{VARINT_MAX, varint_len};

use crate::error::{Code, ConnectionError};

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Bytes of a body.
    Data,
    /// A header or trailer section.
    Headers,
    /// A push that is not wanted, or will not come.
    CancelPush,
    /// What the peer is and takes.
    Settings,
    /// The request of a push.
    PushPromise,
    /// No further requests.
    Goaway,
    /// How many pushes are welcome.
    MaxPushId,
    /// How urgent a response is (RFC 9218 §7.2).
    PriorityUpdateRequest,
    /// How urgent a push is (RFC 9218 §7.2).
    PriorityUpdatePush,
    /// A type HTTP/2 used for what QUIC does now; never allowed (RFC 9114 §7.2.8).
    Http2(u64),
    /// Anything else, reserved types included; to be ignored.
    Unknown(u64),
}

impl FrameKind {
    /// From the type on the wire.
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

    /// The type on the wire.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
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

    /// The name in the RFC.
    #[must_use]
    pub const fn name(self) -> &'static str {
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

/// Type and length of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What it is.
    pub kind: FrameKind,
    /// Bytes of its payload.
    pub len: u64,
}

impl FrameHeader {
    /// Most bytes on the wire: two of the longest integers.
    pub const MAX_LEN: usize = 16;

    /// From the front of `bytes`, with its size there; `None` if more are needed.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut r = Reader::new(bytes);
        let kind = FrameKind::from_wire(r.varint()?);
        let len = r.varint()?;
        let size = bytes.len().saturating_sub(r.remaining());
        Some((Self { kind, len }, size))
    }

    /// Appends it to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.kind.as_u64());
        put_varint(out, self.len);
    }
}

/// Appends a variable-length integer in its shortest form (RFC 9000 §16); in place of a
/// value over [`VARINT_MAX`], which has none, that.
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

/// The payload of a frame that carries one integer and nothing else.
pub(crate) fn only_varint(kind: FrameKind, payload: &[u8]) -> Result<u64, ConnectionError> {
    let mut r = Reader::new(payload);
    match r.varint() {
        Some(value) if r.is_empty() => Ok(value),
        Some(_) | None => Err(ConnectionError::new(
            Code::FRAME_ERROR,
            format!("{} is not exactly one integer", kind.name()),
        )),
    }
}

/// Appends a frame that carries one integer.
pub(crate) fn put_varint_frame(out: &mut Vec<u8>, kind: FrameKind, value: u64) {
    let len = varint_len(value) as u64;
    FrameHeader { kind, len }.encode(out);
    put_varint(out, value);
}

/// Room to leave before a payload whose length is not known yet: a type of one
/// byte and a length of four.
pub(crate) const HEADER_GAP: usize = 5;

/// Writes the header of a frame whose payload begins at `payload` in `out`, into
/// the [`HEADER_GAP`] before it; answers where the frame begins, or `None` if the
/// gap is too small for its header.
pub(crate) fn close_gap(out: &mut [u8], payload: usize, kind: FrameKind) -> Option<usize> {
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
    fn kinds_survive_the_wire() {
        for kind in (0..0x100).chain(0xf_0700..0xf_0702) {
            assert_eq!(FrameKind::from_wire(kind).as_u64(), kind);
        }
        assert_eq!(FrameKind::from_wire(6), FrameKind::Http2(6));
        assert_eq!(FrameKind::from_wire(0x21), FrameKind::Unknown(0x21));
    }

    #[test]
    fn headers_are_read_back_and_never_guessed() {
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
    fn integer_over_62_bits_is_written_as_the_largest() {
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
    fn gap_too_small_for_the_header_is_refused() {
        let mut out = vec![0; 1 + 64];
        assert_eq!(close_gap(&mut out, 1, FrameKind::Headers), None);
        assert_eq!(close_gap(&mut out, 66, FrameKind::Headers), None);
    }

    #[test]
    fn one_integer_and_nothing_else() {
        let kind = FrameKind::Goaway;
        assert_eq!(only_varint(kind, &[0x40, 7]), Ok(7));
        for wrong in [&[][..], &[0x40], &[0, 0]] {
            let error = only_varint(kind, wrong).unwrap_err();
            assert_eq!(error.code, Code::FRAME_ERROR);
        }
    }

    #[test]
    fn a_gap_holds_any_header_of_a_field_section() {
        for len in [0, 63, 64, 16_383, 16_384, 70_000] {
            let mut out = vec![0; HEADER_GAP + len];
            let start = close_gap(&mut out, HEADER_GAP, FrameKind::Headers).unwrap();
            let (header, size) = FrameHeader::parse(&out[start..]).unwrap();
            assert_eq!((header.kind, header.len), (FrameKind::Headers, len as u64));
            assert_eq!(start + size, HEADER_GAP);
        }
    }
}
