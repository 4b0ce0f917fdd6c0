//! Why a connection ends: transport errors with code, frame type and reason, and the rest.

use core::fmt;
use std::borrow::Cow;

/// A transport error code (RFC 9000 §20.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u64);

impl Code {
    /// The connection was closed without an error.
    pub const NO_ERROR: Self = Self(0x00);
    /// The endpoint encountered an internal error.
    pub const INTERNAL_ERROR: Self = Self(0x01);
    /// The server refused a new connection.
    pub const CONNECTION_REFUSED: Self = Self(0x02);
    /// The peer sent more data than its flow control limits allow.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x03);
    /// The peer opened more streams than its limit allows.
    pub const STREAM_LIMIT_ERROR: Self = Self(0x04);
    /// A frame arrived for a stream in a state that does not permit it.
    pub const STREAM_STATE_ERROR: Self = Self(0x05);
    /// The final size of a stream changed, or data lies beyond it.
    pub const FINAL_SIZE_ERROR: Self = Self(0x06);
    /// A frame could not be decoded.
    pub const FRAME_ENCODING_ERROR: Self = Self(0x07);
    /// Transport parameters were malformed, invalid or missing.
    pub const TRANSPORT_PARAMETER_ERROR: Self = Self(0x08);
    /// The peer issued more connection IDs than the limit.
    pub const CONNECTION_ID_LIMIT_ERROR: Self = Self(0x09);
    /// Any other protocol violation.
    pub const PROTOCOL_VIOLATION: Self = Self(0x0a);
    /// A client's Initial packet contained an invalid token.
    pub const INVALID_TOKEN: Self = Self(0x0b);
    /// The application closed the connection during the handshake.
    pub const APPLICATION_ERROR: Self = Self(0x0c);
    /// The peer sent more CRYPTO data than is buffered.
    pub const CRYPTO_BUFFER_EXCEEDED: Self = Self(0x0d);
    /// A key update was not permitted.
    pub const KEY_UPDATE_ERROR: Self = Self(0x0e);
    /// The confidentiality or integrity limit of the AEAD was reached (RFC 9001 §6.6).
    pub const AEAD_LIMIT_REACHED: Self = Self(0x0f);
    /// No network path can carry QUIC.
    pub const NO_VIABLE_PATH: Self = Self(0x10);
    /// The version is not the one that both ends would have chosen without interference
    /// (RFC 9368 §4).
    pub const VERSION_NEGOTIATION_ERROR: Self = Self(0x11);

    /// Returns the error code for a TLS alert (RFC 9001 §4.8).
    #[must_use]
    pub const fn crypto(alert: u8) -> Self {
        Self(0x100 | alert as u64)
    }

    /// Whether a connection is closed with this code because of what the peer sent. TLS alerts do
    /// not count: most are about settings that do not agree.
    #[must_use]
    pub const fn blames_peer(self) -> bool {
        matches!(
            self,
            Self::FLOW_CONTROL_ERROR
                | Self::STREAM_LIMIT_ERROR
                | Self::STREAM_STATE_ERROR
                | Self::FINAL_SIZE_ERROR
                | Self::FRAME_ENCODING_ERROR
                | Self::TRANSPORT_PARAMETER_ERROR
                | Self::CONNECTION_ID_LIMIT_ERROR
                | Self::PROTOCOL_VIOLATION
                | Self::CRYPTO_BUFFER_EXCEEDED
                | Self::KEY_UPDATE_ERROR
        )
    }

    fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0x00 => "NO_ERROR",
            0x01 => "INTERNAL_ERROR",
            0x02 => "CONNECTION_REFUSED",
            0x03 => "FLOW_CONTROL_ERROR",
            0x04 => "STREAM_LIMIT_ERROR",
            0x05 => "STREAM_STATE_ERROR",
            0x06 => "FINAL_SIZE_ERROR",
            0x07 => "FRAME_ENCODING_ERROR",
            0x08 => "TRANSPORT_PARAMETER_ERROR",
            0x09 => "CONNECTION_ID_LIMIT_ERROR",
            0x0a => "PROTOCOL_VIOLATION",
            0x0b => "INVALID_TOKEN",
            0x0c => "APPLICATION_ERROR",
            0x0d => "CRYPTO_BUFFER_EXCEEDED",
            0x0e => "KEY_UPDATE_ERROR",
            0x0f => "AEAD_LIMIT_REACHED",
            0x10 => "NO_VIABLE_PATH",
            0x11 => "VERSION_NEGOTIATION_ERROR",
            _ => return None,
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None if (0x100..0x200).contains(&self.0) => {
                let alert = self.0 & 0xff;
                match alert_name(alert) {
                    Some(name) => write!(f, "CRYPTO_ERROR (TLS alert {alert}: {name})"),
                    None => write!(f, "CRYPTO_ERROR (TLS alert {alert})"),
                }
            }
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the name of a TLS alert (RFC 8446 §6), since many peers send no reason with it. That
/// of `certificate_required` says more: only the application can do something about it.
fn alert_name(alert: u64) -> Option<&'static str> {
    Some(match alert {
        0 => "close_notify",
        10 => "unexpected_message",
        20 => "bad_record_mac",
        22 => "record_overflow",
        40 => "handshake_failure",
        42 => "bad_certificate",
        43 => "unsupported_certificate",
        44 => "certificate_revoked",
        45 => "certificate_expired",
        46 => "certificate_unknown",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        49 => "access_denied",
        50 => "decode_error",
        51 => "decrypt_error",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        86 => "inappropriate_fallback",
        90 => "user_canceled",
        109 => "missing_extension",
        110 => "unsupported_extension",
        112 => "unrecognized_name",
        113 => "bad_certificate_status_response",
        115 => "unknown_psk_identity",
        116 => "certificate_required, the server accepts only clients with a certificate",
        120 => "no_application_protocol",
        _ => return None,
    })
}

/// An error that closes the connection with a CONNECTION_CLOSE frame of type 0x1c (RFC 9000
/// §19.19).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportError {
    /// The error code.
    pub code: Code,
    /// The type of the frame that caused the error, if one did.
    pub frame: Option<u64>,
    /// The reason in words, for the logs of both ends.
    pub reason: Cow<'static, str>,
}

impl TransportError {
    /// Creates an error without a frame type.
    pub fn new(code: Code, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            frame: None,
            reason: reason.into(),
        }
    }

    /// Sets the frame type that caused the error, unless it is set already.
    #[must_use]
    pub(crate) fn in_frame(mut self, frame_type: u64) -> Self {
        self.frame.get_or_insert(frame_type);
        self
    }
}

/// Most characters of a reason that are displayed.
const MAX_REASON_CHARS: usize = 256;

/// Displays a reason phrase safely. It can contain anything, even from somebody who only
/// forged an Initial packet: control characters are escaped as in Rust, and no more than
/// [`MAX_REASON_CHARS`] characters are displayed.
pub(crate) struct EscapedReason<'a>(pub(crate) &'a str);

impl fmt::Display for EscapedReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        for c in text.chars().take(MAX_REASON_CHARS) {
            match c {
                '"' | '\'' | '\\' => write!(f, "{c}")?,
                c => write!(f, "{}", c.escape_debug())?,
            }
        }
        match text.chars().skip(MAX_REASON_CHARS).count() {
            0 => Ok(()),
            more => write!(f, "… ({more} more characters)"),
        }
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, EscapedReason(&self.reason))?;
        match self.frame {
            Some(frame) => write!(f, " (in frame type {frame:#x})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for TransportError {}

/// The reason why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionError {
    /// This end closed the connection because of a protocol violation of the peer or an
    /// internal error.
    Transport(TransportError),
    /// The peer's transport closed the connection.
    PeerTransport(TransportError),
    /// The peer's application closed the connection.
    PeerApplication {
        /// The application's error code.
        code: u64,
        /// The application's reason phrase, as received.
        reason: Vec<u8>,
    },
    /// The local application closed the connection.
    LocalApplication {
        /// The application's error code.
        code: u64,
    },
    /// The peer lost the connection's state and sent a stateless reset (RFC 9000 §10.3).
    StatelessReset,
    /// Nothing was received for the idle timeout (RFC 9000 §10.1).
    IdleTimeout,
    /// The handshake did not complete in time
    /// ([`Config::handshake_timeout`](crate::connection::Config::handshake_timeout)).
    HandshakeTimeout,
    /// The server supports none of our QUIC versions (RFC 9000 §6.2).
    VersionMismatch,
    /// The server refused the connection without saying more.
    Refused,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => write!(f, "connection closed by us: {error}"),
            Self::PeerTransport(error) => write!(f, "connection closed by the peer: {error}"),
            Self::PeerApplication { code, reason } => write!(
                f,
                "closed by the peer's application with code {code}: {}",
                EscapedReason(&String::from_utf8_lossy(reason))
            ),
            Self::LocalApplication { code } => {
                write!(f, "closed by the local application with code {code}")
            }
            Self::StatelessReset => {
                f.write_str("stateless reset: the peer no longer knows the connection")
            }
            Self::IdleTimeout => f.write_str("idle timeout: nothing was received from the peer"),
            Self::HandshakeTimeout => f.write_str("the handshake did not complete in time"),
            Self::VersionMismatch => f.write_str(
                "no common QUIC version: the server supports none of the versions offered",
            ),
            Self::Refused => f.write_str("the server refused the connection"),
        }
    }
}

impl std::error::Error for ConnectionError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RFC 9000 §20.1 (and RFC 9001 §6 for the last but one).
    #[test]
    fn known_codes_are_displayed_by_their_registered_names() {
        let names = [
            "NO_ERROR",
            "INTERNAL_ERROR",
            "CONNECTION_REFUSED",
            "FLOW_CONTROL_ERROR",
            "STREAM_LIMIT_ERROR",
            "STREAM_STATE_ERROR",
            "FINAL_SIZE_ERROR",
            "FRAME_ENCODING_ERROR",
            "TRANSPORT_PARAMETER_ERROR",
            "CONNECTION_ID_LIMIT_ERROR",
            "PROTOCOL_VIOLATION",
            "INVALID_TOKEN",
            "APPLICATION_ERROR",
            "CRYPTO_BUFFER_EXCEEDED",
            "KEY_UPDATE_ERROR",
            "AEAD_LIMIT_REACHED",
            "NO_VIABLE_PATH",
        ];
        for (code, name) in (0..).zip(names) {
            assert_eq!(Code(code).to_string(), name);
        }
    }

    #[test]
    fn other_codes_are_displayed_as_alerts_or_numbers() {
        for (code, shown) in [
            (0x11, "VERSION_NEGOTIATION_ERROR"),
            (0x12, "error 0x12"),
            (0xff, "error 0xff"),
            (0x100, "CRYPTO_ERROR (TLS alert 0: close_notify)"),
            (0x128, "CRYPTO_ERROR (TLS alert 40: handshake_failure)"),
            (
                0x174,
                "CRYPTO_ERROR (TLS alert 116: certificate_required, the server accepts only \
                 clients with a certificate)",
            ),
            (0x12a, "CRYPTO_ERROR (TLS alert 42: bad_certificate)"),
            (0x130, "CRYPTO_ERROR (TLS alert 48: unknown_ca)"),
            (
                0x178,
                "CRYPTO_ERROR (TLS alert 120: no_application_protocol)",
            ),
            (0x1ff, "CRYPTO_ERROR (TLS alert 255)"),
            (0x200, "error 0x200"),
        ] {
            assert_eq!(Code(code).to_string(), shown);
        }
        assert_eq!(Code::crypto(120), Code(0x178));
        // Every alert of RFC 8446 §6 has a name, and no other number has.
        let alerts = [
            0, 10, 20, 22, 40, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 70, 71, 80, 86, 90, 109,
            110, 112, 113, 115, 116, 120,
        ];
        for alert in 0..=255 {
            let shown = Code::crypto(alert).to_string();
            assert_eq!(shown.contains(':'), alerts.contains(&alert), "{shown}");
        }
    }
}
