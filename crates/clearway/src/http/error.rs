//! Errors of HTTP/3 requests and responses.

use std::io;
use std::sync::Arc;

use clearway_http3::{Deadline, error as protocol};
use clearway_quic::connection::ConnectionError;

pub use clearway_http3::error::Code;

use crate::error::{BuildError, ConnectAnyError};

/// An error of the application: of a body or a service.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of an HTTP/3 request or response. Clones share their cause.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL cannot be fetched with HTTP/3: the URL, and what is wrong with it.
    #[error("invalid URL {0:?}: {1}")]
    Url(String, &'static str),
    /// The client's endpoint could not be created.
    #[error("cannot create the client's endpoint: {0}")]
    Endpoint(Arc<BuildError>),
    /// The host name could not be resolved.
    #[error("cannot resolve {host}: {cause}")]
    Resolve {
        /// The host name.
        host: String,
        /// The resolver's error.
        cause: Arc<io::Error>,
    },
    /// No connection to the server could be established.
    #[error("cannot connect to {authority}: {cause}")]
    Connect {
        /// Host and port.
        authority: String,
        /// The error of each address.
        cause: ConnectAnyError,
    },
    /// The connection ended.
    #[error("connection lost: {0}")]
    ConnectionLost(ConnectionError),
    /// The peer violated HTTP/3, and the connection was closed for it.
    #[error("the peer violated HTTP/3: {0}")]
    Protocol(protocol::ConnectionError),
    /// The peer reset the stream with this code: the rest of the message will not come.
    #[error("the peer reset the stream: {0}")]
    Reset(Code),
    /// The peer stopped reading what is sent, with this code.
    #[error("the peer stopped reading the stream: {0}")]
    Stopped(Code),
    /// The server did not process the request. It can be sent again, on another
    /// connection.
    #[error("the server did not process the request: it can be sent again")]
    Rejected,
    /// The peer's message is malformed or exceeds a limit.
    #[error("invalid message from the peer: {0}")]
    Malformed(protocol::StreamError),
    /// The client exceeded one of the server's [`Timeouts`](super::Timeouts).
    #[error("timed out: {0}")]
    TimedOut(Deadline),
    /// The message cannot be sent.
    #[error("cannot send the message: {0}")]
    Unsendable(protocol::SendError),
    /// The body to be sent returned an error.
    #[error("the body to be sent failed: {0}")]
    Body(Arc<dyn std::error::Error + Send + Sync>),
    /// The body is longer than the caller's limit, in bytes.
    #[error("the body is longer than the limit of {0} bytes")]
    TooLong(usize),
    /// The body was to be read as text and is not UTF-8.
    #[error("the body is not valid UTF-8")]
    NotText,
}

impl Error {
    /// Whether the server certainly did not act on the request, so that it can be sent
    /// again whatever its method (RFC 9114 §4.1.1).
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
