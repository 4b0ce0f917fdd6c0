//! What a connection tells the application and the endpoint.

use core::fmt;
use std::net::SocketAddr;

use super::state::ConnectionError;
use crate::cid::{ConnectionId, ResetToken};
use crate::stream::StreamEvent;

/// What happened that the application may want to know. Edge-triggered: an
/// event is not repeated until something new happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete: keys, ALPN and certificates are known.
    Connected,
    /// Both ends know that it is (RFC 9001 §4.1.2).
    Confirmed,
    /// Something of a stream.
    Stream(StreamEvent),
    /// `recv_datagram` has something.
    DatagramReceived,
    /// Packets go to another address now.
    PathChanged {
        /// The peer's address.
        remote: SocketAddr,
    },
    /// The server refused 0-RTT: what was written is sent again in 1-RTT.
    ZeroRttRejected,
    /// The connection has ended; said once.
    Closed(ConnectionError),
}

/// What the endpoint has to do for a connection: keep its routes true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointEvent {
    /// Datagrams to this connection ID are this connection's.
    AddCid(ConnectionId),
    /// They no longer are.
    RemoveCid(ConnectionId),
    /// Datagrams that end in one of these are the peer's stateless resets of
    /// this connection; replaces those said before (RFC 9000 §10.3.1).
    ResetTokens(Vec<ResetToken>),
    /// The handshake is complete: it no longer counts against the budget.
    HandshakeDone,
    /// The connection is over; forget it.
    Drained,
}

/// A key update that can't begin now (RFC 9001 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateKeysError {
    /// The handshake is not confirmed.
    HandshakeNotConfirmed,
    /// The last update is not acknowledged yet.
    TooSoon,
}

impl fmt::Display for UpdateKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HandshakeNotConfirmed => "the handshake is not confirmed yet",
            Self::TooSoon => "the last key update is not acknowledged yet",
        })
    }
}

impl std::error::Error for UpdateKeysError {}
