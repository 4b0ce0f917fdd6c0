//! Why something failed: each error names its cause.

use std::io;
use std::sync::Arc;

use clearway_quic::connection::ConnectionError;
use clearway_quic::crypto::ConfigError;
use clearway_quic::error::TransportError;

use crate::panic::CaughtPanic;

/// Why an endpoint's event loop ended before the endpoint was closed. The
/// connections of that loop ended with it; [`Endpoint::restart_failed_shards`]
/// starts another loop at the same address.
///
/// [`Endpoint::restart_failed_shards`]: crate::Endpoint::restart_failed_shards
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The operating system reported an error after which the socket is of no use.
    #[error("the endpoint's UDP socket failed: {0}")]
    Socket(Arc<io::Error>),
    /// The event loop itself panicked: a defect of this library. A panic in the
    /// service of one connection ends that connection only.
    #[error("the endpoint's event loop panicked: {0}")]
    Panicked(CaughtPanic),
    /// The tokio runtime that the event loop ran on was shut down, or aborted it.
    #[error("the tokio runtime that ran the endpoint's event loop has shut down")]
    RuntimeGone,
}

/// An endpoint that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The socket could not be bound or made part of the event loop.
    #[error("UDP socket: {0}")]
    Socket(#[from] io::Error),
    /// A certificate, a key or a choice does not fit.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A shard on the caller's runtime needs a tokio runtime to run on.
    #[error("no tokio runtime here to run the endpoint on")]
    NoRuntime,
    /// Shards were asked for in a way that cannot be.
    #[error("{0}")]
    Shards(&'static str),
    /// Connection IDs of this length cannot be told apart or steered to shards.
    #[error("connection IDs of {len} bytes: expected {least} to 20 bytes")]
    ConnectionIdLength {
        /// What the generator said.
        len: usize,
        /// The least that this endpoint can do with: 8 with several shards.
        least: usize,
    },
}

/// A connection that did not come about.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Neither a DNS name nor an IP address.
    #[error("{0:?} is no server name")]
    ServerName(String),
    /// The endpoint was made without client settings.
    #[error("the endpoint has no client settings")]
    NoClientConfig,
    /// The endpoint was closed.
    #[error("the endpoint is closed")]
    EndpointClosed,
    /// The endpoint's event loop ended.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// An IPv4 socket cannot reach an IPv6 address, nor any socket port 0.
    #[error("the endpoint's socket cannot reach {0}")]
    Unreachable(std::net::SocketAddr),
    /// A certificate, a key or a choice does not fit.
    #[error("{0}")]
    Config(String),
    /// TLS refused to begin.
    #[error("TLS: {0}")]
    Tls(TransportError),
    /// The handshake failed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

/// A server none of whose addresses could be connected to.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectAnyError {
    /// There was no address to try.
    #[error("no address to connect to")]
    NoAddress,
    /// What became of each address, in the order in which they failed.
    #[error("{}", each(.0))]
    Failed(Vec<(std::net::SocketAddr, ConnectError)>),
}

fn each(failures: &[(std::net::SocketAddr, ConnectError)]) -> String {
    let texts: Vec<_> = failures
        .iter()
        .map(|(address, error)| format!("{address}: {error}"))
        .collect();
    texts.join("; ")
}

/// A read that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The peer abandoned the stream with this code.
    #[error("the peer reset the stream with code {0}")]
    Reset(u64),
    /// [`RecvStream::stop`](crate::RecvStream::stop) was called.
    #[error("the stream was stopped by this end")]
    Stopped,
    /// The connection ended before the stream did.
    #[error("connection lost: {0}")]
    ConnectionLost(#[from] ConnectionError),
}

/// A read of a given length that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadExactError {
    /// The stream ended first.
    #[error("the stream ended after {0} bytes")]
    FinishedEarly(usize),
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// A read to the end that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadToEndError {
    /// The stream is longer than the caller allows.
    #[error("the stream is longer than {0} bytes")]
    TooLong(usize),
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// A write that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The peer does not want the data, with this code.
    #[error("the peer stopped the stream with code {0}")]
    Stopped(u64),
    /// This end finished or reset the stream before.
    #[error("the stream was finished or reset by this end")]
    Closed,
    /// The connection ended.
    #[error("connection lost: {0}")]
    ConnectionLost(#[from] ConnectionError),
}

/// A datagram that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendDatagramError {
    /// The peer accepts no DATAGRAM frames.
    #[error("the peer does not accept datagrams")]
    Unsupported,
    /// It fits no packet on this path, or exceeds what the peer takes.
    #[error("datagram too large: at most {max} bytes fit now")]
    TooLarge {
        /// Largest datagram that could be sent now, in bytes.
        max: usize,
    },
    /// The queue is full.
    #[error("the queue of outgoing datagrams is full")]
    Full,
    /// The connection ended.
    #[error("connection lost: {0}")]
    ConnectionLost(#[from] ConnectionError),
}

impl From<clearway_quic::datagram::SendDatagramError> for SendDatagramError {
    fn from(error: clearway_quic::datagram::SendDatagramError) -> Self {
        use clearway_quic::datagram::SendDatagramError as Inner;
        match error {
            Inner::Unsupported => Self::Unsupported,
            Inner::TooLarge { max } => Self::TooLarge { max },
            Inner::Full => Self::Full,
        }
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = match &error {
            ReadError::Reset(_) => io::ErrorKind::ConnectionReset,
            ReadError::Stopped => io::ErrorKind::NotConnected,
            ReadError::ConnectionLost(cause) => kind(cause),
        };
        Self::new(kind, error)
    }
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        let kind = match &error {
            WriteError::Stopped(_) => io::ErrorKind::ConnectionReset,
            WriteError::Closed => io::ErrorKind::BrokenPipe,
            WriteError::ConnectionLost(cause) => kind(cause),
        };
        Self::new(kind, error)
    }
}

fn kind(error: &ConnectionError) -> io::ErrorKind {
    match error {
        ConnectionError::IdleTimeout | ConnectionError::HandshakeTimeout => io::ErrorKind::TimedOut,
        ConnectionError::Refused => io::ErrorKind::ConnectionRefused,
        ConnectionError::StatelessReset => io::ErrorKind::ConnectionReset,
        ConnectionError::LocalApplication { .. } => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::ConnectionAborted,
    }
}
