//! Errors of endpoints, connections and streams.

use std::io;
use std::sync::Arc;

use clearway_quic::connection::ConnectionError;
use clearway_quic::crypto::ConfigError;
use clearway_quic::error::TransportError;

use crate::panic::CaughtPanic;

/// The reason why an endpoint's event loop ended before the endpoint was closed.
///
/// The connections of that loop ended with it. [`Endpoint::restart_failed_shards`]
/// starts another loop at the same address.
///
/// [`Endpoint::restart_failed_shards`]: crate::Endpoint::restart_failed_shards
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The operating system reported an error after which the socket cannot be used.
    #[error("the endpoint's UDP socket failed: {0}")]
    Socket(Arc<io::Error>),
    /// The event loop itself panicked, which is a bug in this library. A panic while one
    /// connection is served ends only that connection.
    #[error("the endpoint's event loop panicked: {0}")]
    Panicked(CaughtPanic),
    /// The tokio runtime that the event loop ran on was shut down, or aborted it. Keep the
    /// runtime for as long as the endpoint, or use
    /// [`on_own_threads`](crate::EndpointBuilder::on_own_threads).
    #[error("the tokio runtime that ran the endpoint's event loop has shut down")]
    RuntimeGone,
}

/// An error while an endpoint was created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The socket could not be bound or registered with the event loop, often because the
    /// address is in use or needs a privilege.
    #[error("cannot set up the UDP socket: {0}")]
    Socket(#[from] io::Error),
    /// A certificate, a key or a TLS setting is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The event loop was to run on the caller's tokio runtime, and there is none.
    #[error("no tokio runtime: create the endpoint within one, or use on_own_threads")]
    NoRuntime,
    /// The number of shards is zero, or does not fit the runtime or the socket. The message
    /// says which.
    #[error("{0}")]
    Shards(String),
    /// The connection-ID generator has a length that cannot be routed or steered to shards.
    #[error("invalid connection ID length of {len} bytes: expected {least} to 20 bytes")]
    ConnectionIdLength {
        /// The length that the generator announces, in bytes.
        len: usize,
        /// The minimum for this endpoint, in bytes: 1, or 8 with several shards.
        least: usize,
    },
}

/// An error while a connection was established.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The server name is neither a DNS name nor an IP address.
    #[error("invalid server name {0:?}: expected a DNS name or an IP address")]
    ServerName(String),
    /// The endpoint has no client configuration: pass one to
    /// [`Endpoint::connect_with`](crate::Endpoint::connect_with) or
    /// [`EndpointBuilder::client`](crate::EndpointBuilder::client).
    #[error(
        "the endpoint has no client configuration: use connect_with or EndpointBuilder::client"
    )]
    NoClientConfig,
    /// The endpoint was closed; create another one.
    #[error("the endpoint is closed")]
    EndpointClosed,
    /// The endpoint's event loop ended. See
    /// [`Endpoint::restart_failed_shards`](crate::Endpoint::restart_failed_shards).
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The port is 0, or the address is IPv6 and the endpoint is bound to an IPv4 address.
    /// An endpoint bound to `[::]:0` reaches both families.
    #[error("cannot connect to {}: {}", .0, unreachable_reason(.0))]
    Unreachable(std::net::SocketAddr),
    /// A certificate, a key or a TLS setting of the client is invalid.
    #[error("invalid client configuration: {0}")]
    Config(String),
    /// The TLS handshake could not be started.
    #[error("cannot start the TLS handshake: {0}")]
    Tls(TransportError),
    /// The handshake failed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

/// An error of [`Endpoint::connect_any`](crate::Endpoint::connect_any): no address could be
/// connected to.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectAnyError {
    /// The list of addresses was empty.
    #[error("no addresses to connect to")]
    NoAddress,
    /// The error of each address, in the order in which they failed.
    #[error("{}", each(.0))]
    Failed(Vec<(std::net::SocketAddr, ConnectError)>),
}

fn unreachable_reason(address: &std::net::SocketAddr) -> &'static str {
    match address.port() {
        0 => "the port must be between 1 and 65535",
        _ => "the endpoint is bound to an IPv4 address (bind it to [::]:0 to reach IPv6 too)",
    }
}

fn each(failures: &[(std::net::SocketAddr, ConnectError)]) -> String {
    let texts: Vec<_> = failures
        .iter()
        .map(|(address, error)| format!("{address}: {error}"))
        .collect();
    texts.join("; ")
}

/// An error while reading from a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The peer reset the stream with this application error code. Data that was not read
    /// yet is lost.
    #[error("the peer reset the stream with code {0}")]
    Reset(u64),
    /// [`RecvStream::stop`](crate::RecvStream::stop) was called.
    #[error("the stream was stopped locally")]
    Stopped,
    /// The connection ended before the stream.
    #[error("connection lost: {0}")]
    ConnectionLost(#[from] ConnectionError),
}

/// An error of [`RecvStream::read_exact`](crate::RecvStream::read_exact).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadExactError {
    /// The stream ended before the buffer was full, after this number of bytes.
    #[error("the stream ended early, after {0} bytes")]
    FinishedEarly(usize),
    /// The read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// An error of [`RecvStream::read_to_end`](crate::RecvStream::read_to_end).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadToEndError {
    /// The stream is longer than the caller's limit, in bytes.
    #[error("the stream is longer than the limit of {0} bytes")]
    TooLong(usize),
    /// The read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// An error while writing to a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The peer stopped reading the stream with this application error code.
    #[error("the peer stopped reading the stream, with code {0}")]
    Stopped(u64),
    /// The stream was already finished or reset here.
    #[error("the stream was already finished or reset locally")]
    Closed,
    /// The connection ended.
    #[error("connection lost: {0}")]
    ConnectionLost(#[from] ConnectionError),
}

/// An error while sending a datagram.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendDatagramError {
    /// The peer accepts no DATAGRAM frames (RFC 9221 §3): use a stream.
    #[error("the peer does not accept datagrams")]
    Unsupported,
    /// The datagram does not fit into a packet on this path, or exceeds the peer's limit.
    #[error("datagram too large: the maximum is {max} bytes at present")]
    TooLarge {
        /// The largest datagram that could be sent now, in bytes.
        max: usize,
    },
    /// The queue of outgoing datagrams is full.
    /// [`send_datagram_wait`](crate::Connection::send_datagram_wait) waits for room.
    #[error("the queue of outgoing datagrams is full (send_datagram_wait waits for room)")]
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
