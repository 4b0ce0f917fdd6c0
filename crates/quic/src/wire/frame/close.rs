//! CONNECTION_CLOSE frames with a reason that is truncated to fit (RFC 9000 §19.19).

use super::{Frame, data};
use crate::error::TransportError;
use crate::wire::Writer;

/// Writes a CONNECTION_CLOSE of type 0x1c for `error`, with as much of its reason as fits. Returns
/// false, and writes nothing, if not even a frame without a reason fits.
pub(crate) fn encode_transport(w: &mut Writer<'_>, error: &TransportError) -> bool {
    let frame = |reason| Frame::ConnectionClose {
        code: error.code,
        frame_type: error.frame.unwrap_or(0),
        reason,
    };
    encode_cut(w, error.reason.as_bytes(), frame)
}

/// Writes a CONNECTION_CLOSE of type 0x1d, with as much of `reason` as fits. Returns false, and
/// writes nothing, if not even a frame without a reason fits.
pub(crate) fn encode_application(w: &mut Writer<'_>, code: u64, reason: &[u8]) -> bool {
    encode_cut(w, reason, |reason| Frame::ApplicationClose { code, reason })
}

fn encode_cut<'a>(
    w: &mut Writer<'_>,
    reason: &'a [u8],
    frame: impl Fn(&'a [u8]) -> Frame<'a>,
) -> bool {
    // The size of a frame without a reason counts a length field of one byte.
    let fields = frame(&[]).size().saturating_sub(1);
    let Some(room) = data::capacity(w.remaining(), fields) else {
        return false;
    };
    frame(cut(reason, room)).encode(w);
    true
}

/// Returns as much of `reason` as `room` bytes hold, without ending within a UTF-8
/// character.
fn cut(reason: &[u8], room: usize) -> &[u8] {
    let Some((head, tail)) = reason.split_at_checked(room) else {
        return reason;
    };
    let mut cut = head;
    let mut next = tail.first();
    while next.is_some_and(|byte| byte & 0xc0 == 0x80) {
        let Some((last, rest)) = cut.split_last() else {
            break;
        };
        (cut, next) = (rest, Some(last));
    }
    cut
}
