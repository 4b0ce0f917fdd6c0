//! What a failure is to somebody who fetches, and what else fails with it.

use std::io;

use clearway::http::Error;
use clearway::{ConnectAnyError, ConnectError, ConnectionError};

use super::destination::Destination;
use crate::failure::{Failure, Kind};

/// Alerts about the server's certificate (RFC 8446 §6.2): bad_certificate to
/// certificate_unknown, unknown_ca, decrypt_error (a signature on it or by it is
/// wrong), bad_certificate_status_response.
const ABOUT_CERTIFICATES: [u64; 8] = [42, 43, 44, 45, 46, 48, 51, 113];

/// Error codes of QUIC with alerts in them begin here (RFC 9001 §4.8).
const ALERTS: u64 = 0x100;

/// What else would fail for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Nothing, as far as one knows.
    One,
    /// What the same server has.
    Origin,
    Everything,
}

/// The end of a transfer that failed.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    pub(super) failure: Failure,
    pub(super) reach: Reach,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            reach: Reach::One,
        }
    }
}

impl Failure {
    pub(super) fn reaching(self, reach: Reach) -> Stop {
        Stop {
            failure: self,
            reach,
        }
    }
}

/// What cannot be written. A name or a directory is one file's, a full disk
/// everybody's.
pub(super) fn unwritable(to: &Destination, error: &io::Error) -> Stop {
    let full = matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    );
    let reach = match to {
        Destination::File { .. } if !full => Reach::One,
        Destination::Special(_) => Reach::One,
        Destination::File { .. } | Destination::Stdout => Reach::Everything,
    };
    Failure::caused(Kind::Output, format!("cannot write {to}"), error).reaching(reach)
}

/// The failure of `url`.
pub(super) fn failure(url: impl core::fmt::Display, error: &Error) -> Failure {
    if let Error::ConnectionLost(ConnectionError::StatelessReset) = error {
        let what = format!("{url}: the server was restarted or has lost its memory");
        return Failure::caused(kind(error), what, error);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_everybodys_and_a_bad_name_is_not() {
        let file = Destination::of("/none/file".into());
        let reach = |to: &Destination, kind: io::ErrorKind| unwritable(to, &kind.into()).reach;
        for (kind, expected) in [
            (io::ErrorKind::StorageFull, Reach::Everything),
            (io::ErrorKind::QuotaExceeded, Reach::Everything),
            (io::ErrorKind::NotFound, Reach::One),
            (io::ErrorKind::PermissionDenied, Reach::One),
        ] {
            assert_eq!(reach(&file, kind), expected, "{kind}");
        }
        // One device is full for ever; nothing else need be.
        let device = Destination::of("/dev/full".into());
        assert_eq!(reach(&device, io::ErrorKind::StorageFull), Reach::One);
        let closed = reach(&Destination::Stdout, io::ErrorKind::BrokenPipe);
        assert_eq!(closed, Reach::Everything);
    }
}
