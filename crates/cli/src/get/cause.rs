//! What a failure of HTTP is to somebody who fetches.

use clearway::http::Error;
use clearway::{ConnectAnyError, ConnectError, ConnectionError};

use crate::failure::{Failure, Kind};

/// Alerts about the server's certificate (RFC 8446 §6.2): bad_certificate to
/// certificate_unknown, unknown_ca, decrypt_error (a signature on it or by it is
/// wrong), bad_certificate_status_response.
const ABOUT_CERTIFICATES: [u64; 8] = [42, 43, 44, 45, 46, 48, 51, 113];

/// Error codes of QUIC with alerts in them begin here (RFC 9001 §4.8).
const ALERTS: u64 = 0x100;

/// The failure of `url`.
pub(super) fn failure(url: impl core::fmt::Display, error: &Error) -> Failure {
    Failure::caused(kind(error), url, error)
}

fn kind(error: &Error) -> Kind {
    match error {
        Error::Url(..) => Kind::Arguments,
        Error::Endpoint(_) | Error::Resolve { .. } => Kind::Address,
        Error::Connect { cause, .. } => match cause {
            ConnectAnyError::Failed(failures) => {
                let kinds = failures.iter().map(|(_, error)| of_connecting(error));
                // A certificate that was refused says more than an address
                // nobody listens at.
                kinds
                    .max_by_key(|&kind| kind as u8)
                    .unwrap_or(Kind::Connection)
            }
            _ => Kind::Address,
        },
        Error::ConnectionLost(_) | Error::Reset(_) | Error::Stopped(_) | Error::Rejected => {
            Kind::Incomplete
        }
        Error::Protocol(_) | Error::Malformed(_) => Kind::Content,
        _ => Kind::Other,
    }
}

fn of_connecting(error: &ConnectError) -> Kind {
    match error {
        ConnectError::ServerName(_) | ConnectError::Config(_) => Kind::Arguments,
        ConnectError::Unreachable(_) => Kind::Address,
        ConnectError::Connection(ConnectionError::Transport(error))
            if ABOUT_CERTIFICATES.contains(&error.code.0.wrapping_sub(ALERTS)) =>
        {
            Kind::Certificate
        }
        _ => Kind::Connection,
    }
}
