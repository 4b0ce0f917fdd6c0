//! Why a request or a response failed.

use std::io;
use std::sync::Arc;

use clearway_http3::{Deadline, error as protocol};
use clearway_quic::connection::ConnectionError;

pub use clearway_http3::error::Code;

use crate::error::{BuildError, ConnectAnyError};

/// A failure of somebody else's code: a body's or a service's.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a request or a response failed. Clones share their cause.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not the URL of something that HTTP/3 could fetch.
    #[error("{0:?}: {1}")]
    Url(String, &'static str),
    /// The client's endpoint could not be made.
    #[error("cannot make an endpoint: {0}")]
    Endpoint(Arc<BuildError>),
    /// The host has no address, or none that could be found.
    #[error("cannot resolve {host}: {cause}")]
    Resolve {
        /// The host in question.
        host: String,
        /// What the resolver says.
        cause: Arc<io::Error>,
    },
    /// No connection to the server came about.
    #[error("cannot connect to {authority}: {cause}")]
    Connect {
        /// Host and port.
        authority: String,
        /// What became of each address.
        cause: ConnectAnyError,
    },
    /// The connection ended.
    #[error("connection lost: {0}")]
    ConnectionLost(ConnectionError),
    /// The peer broke HTTP/3, and the connection ended for it.
    #[error("the peer broke HTTP/3: {0}")]
    Protocol(protocol::ConnectionError),
    /// The peer gave up sending, with this code.
    #[error("the peer gave up: {0}")]
    Reset(Code),
    /// The peer does not want what we send, with this code.
    #[error("the peer wants no more: {0}")]
    Stopped(Code),
    /// The server did not process the request: it can be sent again, on another
    /// connection.
    #[error("the server did not process the request")]
    Rejected,
    /// What the peer sent is malformed or too large.
    #[error("the peer's message is malformed: {0}")]
    Malformed(protocol::StreamError),
    /// The client kept the server waiting for too long ([`Timeouts`](super::Timeouts)).
    #[error("timed out: {0}")]
    TimedOut(Deadline),
    /// What was to be sent cannot be.
    #[error("cannot be sent: {0}")]
    Unsendable(protocol::SendError),
    /// The body to be sent failed.
    #[error("the body to send: {0}")]
    Body(Arc<dyn std::error::Error + Send + Sync>),
    /// A body is longer than the caller allows.
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// A body that was to be text is not UTF-8.
    #[error("the body is not UTF-8")]
    NotText,
}

impl Error {
    /// Whether the server certainly did not act on the request, so that sending it
    /// again does no harm whatever its method (RFC 9114 §4.1.1).
    #[must_use]
    pub fn is_safe_to_retry(&self) -> bool {
        match self {
            Self::Rejected | Self::Resolve { .. } | Self::Connect { .. } => true,
            Self::Reset(code) | Self::Stopped(code) => *code == Code::REQUEST_REJECTED,
            Self::Unsendable(error) => matches!(error, protocol::SendError::GoingAway),
            _ => false,
        }
    }

    pub(super) fn body(error: impl Into<BoxError>) -> Self {
        Self::Body(Arc::from(error.into()))
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Reset(_) | Error::Stopped(_) => io::ErrorKind::ConnectionReset,
            Error::TimedOut(_)
            | Error::ConnectionLost(
                ConnectionError::IdleTimeout | ConnectionError::HandshakeTimeout,
            ) => io::ErrorKind::TimedOut,
            Error::ConnectionLost(_) => io::ErrorKind::ConnectionAborted,
            Error::Malformed(_) | Error::Protocol(_) | Error::NotText => io::ErrorKind::InvalidData,
            Error::Url(..) | Error::Unsendable(_) | Error::TooLong(_) => {
                io::ErrorKind::InvalidInput
            }
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
