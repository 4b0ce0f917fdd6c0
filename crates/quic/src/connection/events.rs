//! What a connection tells the application and the endpoint.

use core::fmt;
use std::net::SocketAddr;

use crate::cid::{ConnectionId, ResetToken};
use crate::error::ConnectionError;
use crate::stream::StreamEvent;

/// An event for the application. Events are edge-triggered: one is not repeated until
/// something new happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete. ALPN and certificates are known.
    Connected,
    /// The handshake is confirmed: both ends know that it is complete (RFC 9001 §4.1.2).
    Confirmed,
    /// An event of a stream.
    Stream(StreamEvent),
    /// `recv_datagram` has a message.
    DatagramReceived,
    /// Packets are now sent to another address.
    PathChanged {
        /// The peer's address.
        remote: SocketAddr,
    },
    /// The server rejected 0-RTT. Data written so far is sent again in 1-RTT packets.
    ZeroRttRejected,
    /// The connection has ended. Reported once.
    Closed(ConnectionError),
}

/// An event for the endpoint, which keeps its routes up to date with these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointEvent {
    /// Route datagrams with this connection ID to the connection.
    AddCid(ConnectionId),
    /// No longer route this connection ID.
    RemoveCid(ConnectionId),
    /// The peer's stateless reset tokens for the connection: datagrams that end in one of
    /// them reset it. Replaces the tokens of earlier events (RFC 9000 §10.3.1).
    ResetTokens(Vec<ResetToken>),
    /// The handshake is confirmed and no longer counts against the limit on handshakes.
    HandshakeDone,
    /// The connection is over and can be forgotten.
    Drained,
}

/// The reason why a key update cannot be initiated now (RFC 9001 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateKeysError {
    /// The handshake is not confirmed yet.
    HandshakeNotConfirmed,
    /// No packet of the current key phase has been acknowledged yet.
    TooSoon,
}

impl fmt::Display for UpdateKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HandshakeNotConfirmed => "the handshake is not confirmed yet",
            Self::TooSoon => "the previous key update has not been acknowledged yet",
        })
    }
}

impl std::error::Error for UpdateKeysError {}
