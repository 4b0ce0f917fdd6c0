//! The capsules that end a session (draft-ietf-webtrans-http3 §4.7, §6).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::capsule::Capsule;
use crate::error::StreamError;

/// WT_CLOSE_SESSION: the session is over, and why.
pub const CLOSE_SESSION: u64 = 0x2843;
/// WT_DRAIN_SESSION: the session should be ended soon.
pub const DRAIN_SESSION: u64 = 0x78ae;
/// The longest reason of a close, in bytes (§6).
pub const MAX_REASON: usize = 1024;
/// The length of a close without a reason, in bytes.
const CODE_LEN: usize = 4;

/// The value of a WT_CLOSE_SESSION capsule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloseSession {
    /// The application's error code.
    pub code: u32,
    /// The reason, of at most [`MAX_REASON`] bytes.
    pub reason: String,
}

impl CloseSession {
    /// The longest value, in bytes.
    pub const MAX_LEN: usize = CODE_LEN + MAX_REASON;

    /// Creates a close. A reason that is too long is cut off between two characters.
    #[must_use]
    pub fn new(code: u32, reason: &str) -> Self {
        let end = (0..=MAX_REASON.min(reason.len()))
            .rev()
            .find(|&end| reason.is_char_boundary(end));
        let reason = reason.get(..end.unwrap_or(0)).unwrap_or_default();
        Self {
            code,
            reason: reason.to_owned(),
        }
    }

    /// Decodes the value of a capsule.
    ///
    /// # Errors
    /// `H3_MESSAGE_ERROR` if it is too short, too long or no UTF-8.
    pub fn decode(mut value: Bytes) -> Result<Self, StreamError> {
        if value.len() < CODE_LEN || value.len() > Self::MAX_LEN {
            return Err(StreamError::malformed(
                "WT_CLOSE_SESSION must have between 4 and 1,028 bytes",
            ));
        }
        let code = value.get_u32();
        match String::from_utf8(value.into()) {
            Ok(reason) => Ok(Self { code, reason }),
            Err(_) => Err(StreamError::malformed(
                "the reason of WT_CLOSE_SESSION must be UTF-8",
            )),
        }
    }

    /// Returns the capsule.
    #[must_use]
    pub fn capsule(&self) -> Capsule {
        let mut value = BytesMut::with_capacity(CODE_LEN.saturating_add(self.reason.len()));
        value.put_u32(self.code);
        value.put_slice(self.reason.as_bytes());
        Capsule {
            kind: CLOSE_SESSION,
            value: value.freeze(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_round_trips_with_its_code_and_reason() {
        for (code, reason) in [(0, ""), (7, "bye"), (u32::MAX, "größer")] {
            let close = CloseSession::new(code, reason);
            let capsule = close.capsule();
            assert_eq!(capsule.kind, CLOSE_SESSION);
            assert_eq!(CloseSession::decode(capsule.value), Ok(close));
        }
    }

    #[test]
    fn reason_is_cut_off_between_characters() {
        let close = CloseSession::new(1, &"é".repeat(1_000));
        assert_eq!(close.reason, "é".repeat(512));
        let odd = CloseSession::new(1, &format!("x{}", "é".repeat(1_000)));
        assert_eq!(odd.reason.len(), 1_023);
    }

    #[test]
    fn short_long_and_invalid_values_are_malformed() {
        for value in [vec![0; 3], vec![b'x'; 1_029], vec![0, 0, 0, 0, 0xff]] {
            assert!(CloseSession::decode(value.into()).is_err());
        }
        assert!(CloseSession::decode(vec![b'x'; 1_028].into()).is_ok());
    }
}
