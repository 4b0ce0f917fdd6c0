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
//! | `tls`, `peer`, `handshake` | TLS, transport parameters, 0-RTT, Retry, Version Negotiation |
//! | `receive`, `undecryptable`, `frames` | the way in |
//! | `transmit`, `packet`, `fill`, `skips` | the way out |
//! | `outcome` | what acknowledgements and losses mean for the frames sent |
//! | `migration` | what follows when paths come, go, and carry data |
//! | `deadline` | how long a handshake may take |
//! | `work` | how much work a peer may ask for without progress |
//! | `timers` | everything that waits for a time |
//! | `rest` | what a connection that went quiet gives back |
//! | `buffers`, `activity` | what it holds for others to judge, when it was last of use |
//! | `api`, `stats`, `memory` | what the application calls and reads |
//! | `trace` | what observers are told |

mod activity;
mod api;
mod buffers;
mod close;
mod config;
mod content;
mod crypto_stream;
mod deadline;
mod fill;
mod frames;
mod frequency;
mod handshake;
mod invariants;
mod keyring;
mod life;
mod memory;
mod migration;
mod outcome;
mod packet;
mod peer;
mod receive;
mod rest;
mod setup;
mod silence;
mod skips;
mod space;
mod stats;
mod timers;
mod tls;
mod trace;
mod transmit;
mod undecryptable;
mod work;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use clearway_recovery::{Outcome, PathRecovery, Recovery, Space};

pub use self::api::{Event, UpdateKeysError};
pub use self::config::Config;
pub use self::life::ConnectionError;
pub use self::memory::Memory;
pub use self::migration::MigrateError;
#[cfg(feature = "testing")]
pub use self::packet::Forgery;
pub(crate) use self::setup::Common;
pub use self::setup::{Accept, Connect};
pub use self::stats::{Counters, PathStats, Stats};
pub use self::transmit::Transmit;

use self::content::{Content, SentFrame};
use self::keyring::Keyring;
use self::life::{Handshake, Life};
use self::space::{PacketSpace, PacketSpaces};
use self::timers::Timers;
use self::tls::Tls;
use crate::Instant;
use crate::Role;
use crate::ack::ReceivedEcn;
use crate::cid::generator::CidGenerator;
use crate::cid::local::{LocalCids, RoutingChange};
use crate::cid::remote::RemoteCids;
use crate::cid::{ConnectionId, ResetToken};
use crate::crypto::ResetKey;
use crate::datagram::{DatagramReceiver, DatagramSender};
use crate::path::paths::Paths;
use crate::rng::Rng;
use crate::stream::Streams;

/// Where a received datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender's address.
    pub remote: SocketAddr,
    /// The local address it was sent to, where the platform tells.
    pub local_ip: Option<IpAddr>,
    /// Its ECN mark.
    pub ecn: ReceivedEcn,
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
    spaces: PacketSpaces,
    recovery: Recovery<Content>,
    /// Reused for every ACK and timer, so that neither allocates.
    outcome: rest::Kept<Outcome<Content>>,
    paths: Paths,
    local_cids: LocalCids,
    remote_cids: RemoteCids,
    streams: Streams,
    datagrams_out: DatagramSender,
    datagrams_in: DatagramReceiver,
    control: fill::Control,
    skips: skips::SkippedNumbers,
    timers: Timers,
    events: VecDeque<Event>,
    endpoint_events: VecDeque<EndpointEvent>,
    /// Packets whose keys don't exist yet, bounded (RFC 9001 §5.7).
    undecryptable: undecryptable::UndecryptablePackets,
    counters: stats::Counters,
    /// What frames without progress may still cost.
    work: work::WorkBudget,
    trace: Option<Box<trace::Trace>>,
    generator: Box<dyn CidGenerator>,
    reset_key: Arc<ResetKey>,
    /// Frames of the packets that a probe repeats; reused.
    probe_frames: rest::Kept<Vec<SentFrame>>,
    /// It has given back its memory, and nobody was told.
    rested: bool,
    last_activity: Instant,
    /// Destination Connection ID of the packet being processed.
    receiving_cid: ConnectionId,
    /// Handed to the application once.
    error: Option<Box<ConnectionError>>,
}

impl Connection {
    /// Which end this is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    fn is_client(&self) -> bool {
        self.role == Role::Client
    }

    fn space(&mut self, space: Space) -> &mut PacketSpace {
        self.spaces.get_mut(space)
    }

    /// Keeps the peer supplied with connection IDs, and the endpoint's routes
    /// true (RFC 9000 §5.1.1).
    fn issue_cids(&mut self) {
        if self.handshake != Handshake::Running {
            let Self {
                local_cids,
                generator,
                reset_key,
                rng,
                ..
            } = self;
            local_cids.replenish(|| {
                let cid = generator.generate(rng);
                (cid, reset_key.token(&cid))
            });
        }
        while let Some(change) = self.local_cids.routing_change() {
            self.endpoint_events.push_back(match change {
                RoutingChange::Add(cid) => EndpointEvent::AddCid(cid),
                RoutingChange::Remove(cid) => EndpointEvent::RemoveCid(cid),
            });
        }
    }

    /// What the endpoint has to do, until there is nothing.
    pub fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.endpoint_events
            .pop_front()
            .or_else(|| self.new_reset_tokens())
    }

    /// The peer's tokens, if they are not those that the endpoint knows.
    fn new_reset_tokens(&mut self) -> Option<EndpointEvent> {
        if !self.remote_cids.take_tokens_changed() || self.is_drained() {
            return None;
        }
        let tokens = self.remote_cids.reset_tokens().collect();
        Some(EndpointEvent::ResetTokens(tokens))
    }

    /// Recovery's view of the active path.
    #[expect(
        clippy::expect_used,
        reason = "recovery gets its first path at the start, and loses none but those that `Paths` gives up, never the active one"
    )]
    fn active_recovery(&self) -> &PathRecovery {
        let active = self.recovery.path(self.paths.active_id());
        debug_assert!(active.is_some(), "recovery has every path");
        active
            .or_else(|| self.recovery.paths().next())
            .expect("recovery has a path")
    }
}
