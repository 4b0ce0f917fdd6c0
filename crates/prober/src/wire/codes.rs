//! Error codes and their names (RFC 9000 §20.1, RFC 9001 §4.8, RFC 9114 §8.1, RFC 9204 §6).

use core::fmt;

/// Where a connection error comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorSpace {
    /// CONNECTION_CLOSE of type 0x1c: QUIC, and TLS alerts.
    Transport,
    /// CONNECTION_CLOSE of type 0x1d: HTTP/3 and QPACK.
    Application,
}

/// An error code in its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub struct ErrorCode {
    /// Where it comes from.
    pub space: ErrorSpace,
    /// The number on the wire.
    pub code: u64,
}

const TRANSPORT: &[(&str, u64)] = &[
    ("NO_ERROR", 0x00),
    ("INTERNAL_ERROR", 0x01),
    ("CONNECTION_REFUSED", 0x02),
    ("FLOW_CONTROL_ERROR", 0x03),
    ("STREAM_LIMIT_ERROR", 0x04),
    ("STREAM_STATE_ERROR", 0x05),
    ("FINAL_SIZE_ERROR", 0x06),
    ("FRAME_ENCODING_ERROR", 0x07),
    ("TRANSPORT_PARAMETER_ERROR", 0x08),
    ("CONNECTION_ID_LIMIT_ERROR", 0x09),
    ("PROTOCOL_VIOLATION", 0x0a),
    ("INVALID_TOKEN", 0x0b),
    ("APPLICATION_ERROR", 0x0c),
    ("CRYPTO_BUFFER_EXCEEDED", 0x0d),
    ("KEY_UPDATE_ERROR", 0x0e),
    ("AEAD_LIMIT_REACHED", 0x0f),
    ("NO_VIABLE_PATH", 0x10),
    ("VERSION_NEGOTIATION_ERROR", 0x11),
];

/// TLS alerts (RFC 8446 §6): 0x100 is added on the wire.
const ALERTS: &[(&str, u64)] = &[
    ("unexpected_message", 10),
    ("handshake_failure", 40),
    ("bad_certificate", 42),
    ("illegal_parameter", 47),
    ("decode_error", 50),
    ("decrypt_error", 51),
    ("protocol_version", 70),
    ("internal_error", 80),
    ("missing_extension", 109),
    ("unsupported_extension", 110),
    ("no_application_protocol", 120),
];

const HTTP: &[(&str, u64)] = &[
    ("H3_DATAGRAM_ERROR", 0x33),
    ("H3_NO_ERROR", 0x100),
    ("H3_GENERAL_PROTOCOL_ERROR", 0x101),
    ("H3_INTERNAL_ERROR", 0x102),
    ("H3_STREAM_CREATION_ERROR", 0x103),
    ("H3_CLOSED_CRITICAL_STREAM", 0x104),
    ("H3_FRAME_UNEXPECTED", 0x105),
    ("H3_FRAME_ERROR", 0x106),
    ("H3_EXCESSIVE_LOAD", 0x107),
    ("H3_ID_ERROR", 0x108),
    ("H3_SETTINGS_ERROR", 0x109),
    ("H3_MISSING_SETTINGS", 0x10a),
    ("H3_REQUEST_REJECTED", 0x10b),
    ("H3_REQUEST_CANCELLED", 0x10c),
    ("H3_REQUEST_INCOMPLETE", 0x10d),
    ("H3_MESSAGE_ERROR", 0x10e),
    ("H3_CONNECT_ERROR", 0x10f),
    ("H3_VERSION_FALLBACK", 0x110),
    ("QPACK_DECOMPRESSION_FAILED", 0x200),
    ("QPACK_ENCODER_STREAM_ERROR", 0x201),
    ("QPACK_DECODER_STREAM_ERROR", 0x202),
];

impl ErrorCode {
    /// Returns the code with this name: one of RFC 9000 §20.1, of HTTP/3 or QPACK, or
    /// `tls:` with an alert. Numbers are written `transport:0x10` and `application:0x10`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let of = |space, code| Some(Self { space, code });
        if let Some(alert) = name.strip_prefix("tls:") {
            let known = find(ALERTS, alert).or_else(|| alert.parse().ok())?;
            return (known < 0x100)
                .then_some(known)
                .and_then(|alert| of(ErrorSpace::Transport, 0x100 + alert));
        }
        if let Some(number) = name.strip_prefix("transport:") {
            return of(ErrorSpace::Transport, number_of(number)?);
        }
        if let Some(number) = name.strip_prefix("application:") {
            return of(ErrorSpace::Application, number_of(number)?);
        }
        match (find(TRANSPORT, name), find(HTTP, name)) {
            (Some(code), _) => of(ErrorSpace::Transport, code),
            (None, Some(code)) => of(ErrorSpace::Application, code),
            (None, None) => None,
        }
    }

    /// Returns whether the code may stand in for any more specific one of its layer: RFC 9000
    /// §11 permits generic transport errors, RFC 9001 §4.8 a generic alert, and
    /// H3_GENERAL_PROTOCOL_ERROR is for who declines to say more (RFC 9114 §8.1).
    #[must_use]
    pub fn is_generic_for(self, expected: Self) -> bool {
        if self.space != expected.space {
            return false;
        }
        match self.space {
            ErrorSpace::Transport if expected.code >= 0x100 => {
                matches!(self.code, 0x01 | 0x0a | 0x128)
            }
            ErrorSpace::Transport => matches!(self.code, 0x01 | 0x0a),
            ErrorSpace::Application => matches!(self.code, 0x101 | 0x102),
        }
    }

    /// Returns every name, for an error message.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        TRANSPORT.iter().chain(HTTP).map(|(name, _)| *name)
    }
}

fn number_of(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn find(table: &[(&str, u64)], name: &str) -> Option<u64> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|(_, code)| *code)
}

fn name_in(table: &'static [(&str, u64)], code: u64) -> Option<&'static str> {
    let found = table.iter().find(|(_, known)| *known == code);
    found.map(|(name, _)| *name)
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { space, code } = *self;
        match space {
            ErrorSpace::Transport if (0x100..0x200).contains(&code) => {
                let alert = code - 0x100;
                match name_in(ALERTS, alert) {
                    Some(name) => write!(f, "TLS alert {name}"),
                    None => write!(f, "TLS alert {alert}"),
                }
            }
            ErrorSpace::Transport => match name_in(TRANSPORT, code) {
                Some(name) => f.write_str(name),
                None => write!(f, "transport error {code:#x}"),
            },
            ErrorSpace::Application => match name_in(HTTP, code) {
                Some(name) => f.write_str(name),
                None => write!(f, "application error {code:#x}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_round_trip() {
        for name in ErrorCode::names() {
            assert_eq!(ErrorCode::named(name).unwrap().to_string(), name);
        }
        let alert = ErrorCode::named("tls:missing_extension").unwrap();
        assert_eq!((alert.space, alert.code), (ErrorSpace::Transport, 0x16d));
        assert_eq!(alert.to_string(), "TLS alert missing_extension");
        assert_eq!(ErrorCode::named("tls:300"), None);
        assert_eq!(
            ErrorCode::named("application:0x33").unwrap().to_string(),
            "H3_DATAGRAM_ERROR"
        );
        assert_eq!(ErrorCode::named("NOT_A_CODE"), None);
    }

    #[test]
    fn generic_codes_stand_in_within_their_layer_only() {
        let code = |name| ErrorCode::named(name).unwrap();
        let specific = code("FINAL_SIZE_ERROR");
        assert!(code("PROTOCOL_VIOLATION").is_generic_for(specific));
        assert!(code("INTERNAL_ERROR").is_generic_for(specific));
        assert!(!code("NO_ERROR").is_generic_for(specific));
        assert!(!code("H3_GENERAL_PROTOCOL_ERROR").is_generic_for(specific));
        assert!(!code("tls:handshake_failure").is_generic_for(specific));
        let alert = code("tls:no_application_protocol");
        assert!(code("tls:handshake_failure").is_generic_for(alert));
        assert!(code("H3_GENERAL_PROTOCOL_ERROR").is_generic_for(code("H3_FRAME_ERROR")));
        assert!(!code("H3_NO_ERROR").is_generic_for(code("H3_FRAME_ERROR")));
        assert!(!code("PROTOCOL_VIOLATION").is_generic_for(code("H3_FRAME_ERROR")));
    }
}
