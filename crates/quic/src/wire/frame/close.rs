//! CONNECTION_CLOSE frames with a reason cut to fit (RFC 9000 §19.19).

use super::Frame;
use crate::error::TransportError;
use crate::wire::Writer;
use crate::wire::cursor::varint_len;

/// Writes a CONNECTION_CLOSE of type 0x1c for `error`, with as much of its
/// reason as fits; false, with nothing written, if not even an empty one does.
pub fn encode_transport(w: &mut Writer<'_>, error: &TransportError) -> bool {
    let frame = |reason| Frame::ConnectionClose {
        code: error.code,
        frame_type: error.frame.unwrap_or(0),
        reason,
    };
    encode_cut(w, error.reason.as_bytes(), frame)
}

/// Writes a CONNECTION_CLOSE of type 0x1d, likewise.
pub fn encode_application(w: &mut Writer<'_>, code: u64, reason: &[u8]) -> bool {
    encode_cut(w, reason, |reason| Frame::ApplicationClose { code, reason })
}

fn encode_cut<'a>(
    w: &mut Writer<'_>,
    reason: &'a [u8],
    frame: impl Fn(&'a [u8]) -> Frame<'a>,
) -> bool {
    let Some(room) = w.remaining().checked_sub(frame(&[]).size()) else {
        return false;
    };
    // A longer reason may need a longer length field.
    let mut len = reason.len().min(room);
    while len + varint_len(len as u64) - 1 > room {
        len -= 1;
    }
    // Do not end within a UTF-8 character.
    while len < reason.len() && len > 0 && reason[len] & 0xc0 == 0x80 {
        len -= 1;
    }
    frame(&reason[..len]).encode(w);
    true
}
