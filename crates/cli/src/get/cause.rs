//! Classification of failures: the exit code, and which other transfers are affected.

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

/// Which other transfers would fail for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureScope {
    /// No other, as far as known.
    One,
    /// Those from the same server.
    Origin,
    Everything,
}

/// The failure of a transfer.
#[derive(Clone, Debug)]
pub(super) struct TransferError {
    pub(super) failure: Failure,
    pub(super) reach: FailureScope,
}

impl From<Failure> for TransferError {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            reach: FailureScope::One,
        }
    }
}

impl Failure {
    pub(super) fn reaching(self, reach: FailureScope) -> TransferError {
        TransferError {
            failure: self,
            reach,
        }
    }
}

/// The failure to write to `to`. A name or directory concerns one file, a full disk all of them.
pub(super) fn unwritable(to: &Destination, error: &io::Error) -> TransferError {
    let full = matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    );
    let reach = match to {
        Destination::File { .. } if !full => FailureScope::One,
        Destination::Special(_) => FailureScope::One,
        Destination::File { .. } | Destination::Stdout => FailureScope::Everything,
    };
    Failure::caused(Kind::Output, format!("cannot write {to}"), error).reaching(reach)
}

/// The failure of `url`.
pub(crate) fn failure(url: impl core::fmt::Display, error: &Error) -> Failure {
    if let Error::ConnectionLost(ConnectionError::StatelessReset) = error {
        let what = format!(
            "{url}: the server lost the connection's state, probably because it was restarted"
        );
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
                // A rejected certificate is more informative than an address without a listener.
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
    fn full_disk_stops_all_transfers_and_bad_file_name_only_its_own() {
        let file = Destination::of("/none/file".into());
        let reach = |to: &Destination, kind: io::ErrorKind| unwritable(to, &kind.into()).reach;
        for (kind, expected) in [
            (io::ErrorKind::StorageFull, FailureScope::Everything),
            (io::ErrorKind::QuotaExceeded, FailureScope::Everything),
            (io::ErrorKind::NotFound, FailureScope::One),
            (io::ErrorKind::PermissionDenied, FailureScope::One),
        ] {
            assert_eq!(reach(&file, kind), expected, "{kind}");
        }
        // `/dev/full` is always full; other files need not be.
        let device = Destination::of("/dev/full".into());
        assert_eq!(
            reach(&device, io::ErrorKind::StorageFull),
            FailureScope::One
        );
        let closed = reach(&Destination::Stdout, io::ErrorKind::BrokenPipe);
        assert_eq!(closed, FailureScope::Everything);
    }
}
