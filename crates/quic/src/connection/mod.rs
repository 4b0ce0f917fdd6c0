//! One connection.
//!
//! ```text
//! receive:   datagram -> path -> each coalesced packet: header -> open -> number
//!            -> frames -> streams / recovery / path / cid -> events
//! transmit:  path -> gate (Limit) -> each datagram: each space: header
//!            -> ACK, control, CRYPTO, DATAGRAM, STREAM -> seal -> ledger -> train
//! timers:    one next_timeout(), one handle_timeout(now)
//! ```
//!
//! | file | what it owns |
//! |---|---|
//! | `life` | how far the handshake is, how the connection ends |
//! | `keyring`, `space`, `crypto_stream` | keys and packet number spaces |
//! | `handshake` | TLS, transport parameters, 0-RTT, Retry, Version Negotiation |
//! | `receive`, `frames` | the way in |
//! | `transmit`, `packet`, `fill` | the way out |
//! | `outcome` | what acknowledgements and losses mean for the frames sent |
//! | `migration` | paths: found, validated, chosen, given up |
//! | `timers` | everything that waits for a time |
//! | `api`, `stats` | what the application calls and reads |

mod api;
mod config;
mod content;
mod crypto_stream;
mod fill;
mod frames;
mod handshake;
mod keyring;
mod life;
mod migration;
mod outcome;
mod packet;
mod paths;
mod receive;
mod space;
mod stats;
mod timers;
mod transmit;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use clearway_recovery::limit::{Limit, LimitClock};
use clearway_recovery::{Outcome, Recovery, Space};

pub use self::api::{Event, UpdateKeysError};
pub use self::config::Config;
pub use self::life::ConnectionError;
pub use self::stats::Stats;
pub use self::transmit::Transmit;

use self::content::Content;
use self::handshake::Tls;
use self::keyring::Keyring;
use self::life::{Handshake, Life};
use self::paths::Paths;
use self::space::PacketSpace;
use self::timers::Timers;
use crate::cid::{ConnectionId, LocalCids, RemoteCids, ResetToken};
use crate::datagram::Datagrams;
use crate::event::{Observer, TraceEvent};
use crate::path::ecn::Ecn;
use crate::rng::Rng;
use crate::stream::Streams;
use crate::{Instant, Role};

/// Where a received datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender's address.
    pub remote: SocketAddr,
    /// The local address it was sent to, where the platform tells.
    pub local_ip: Option<IpAddr>,
    /// Its ECN mark; `None` = not ECN-capable.
    pub ecn: Option<Ecn>,
}

/// What the endpoint has to do for a connection: keep its routes true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointEvent {
    /// Datagrams to this connection ID are this connection's.
    AddCid(ConnectionId),
    /// They no longer are.
    RemoveCid(ConnectionId),
    /// The handshake is complete: it no longer counts against the budget.
    HandshakeDone,
    /// The connection is over; forget it.
    Drained,
}

/// A QUIC connection, either role, sans-I/O.
///
/// Drive it so: feed datagrams to [`receive`](Self::receive); call
/// [`transmit`](Self::transmit) until it answers `None`; call
/// [`handle_timeout`](Self::handle_timeout) at [`next_timeout`](Self::next_timeout);
/// drain [`poll_event`](Self::poll_event) and
/// [`poll_endpoint_event`](Self::poll_endpoint_event) after each.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    config: Arc<Config>,
    rng: Rng,
    handshake: Handshake,
    life: Life,
    tls: Tls,
    keys: Keyring,
    spaces: [PacketSpace; 3],
    recovery: Recovery<Content>,
    /// Reused for every ACK and timer, so that neither allocates.
    outcome: Outcome<Content>,
    paths: Paths,
    local_cids: LocalCids,
    remote_cids: RemoteCids,
    streams: Streams,
    datagrams: Datagrams,
    control: fill::Control,
    timers: Timers,
    limits: LimitClock,
    limit: Limit,
    events: VecDeque<Event>,
    endpoint_events: VecDeque<EndpointEvent>,
    /// Packets whose keys don't exist yet, bounded (RFC 9001 §5.7).
    undecryptable: Vec<(Received, Vec<u8>)>,
    counters: stats::Counters,
    observer: Option<Box<dyn Observer>>,
    reset_key: Arc<crate::crypto::ResetKey>,
    /// Handed to the application once.
    error: Option<ConnectionError>,
}

impl Connection {
    /// Installs a trace sink. It sees everything from now on.
    pub fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Which end this is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    fn is_client(&self) -> bool {
        self.role == Role::Client
    }

    fn space(&mut self, space: Space) -> &mut PacketSpace {
        &mut self.spaces[space as usize]
    }

    fn trace(&mut self, now: Instant, event: impl FnOnce() -> TraceEvent) {
        if let Some(observer) = &mut self.observer {
            observer.on_event(now, &event());
        }
    }

    /// The stateless reset token of a connection ID of ours (RFC 9000 §10.3.2).
    fn reset_token(&self, cid: &ConnectionId) -> ResetToken {
        self.reset_key.token(cid)
    }
}
