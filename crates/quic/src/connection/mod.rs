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
//! A [`Connection`] is put together of parts. Each part is in a file of its own, with
//! methods that borrow what they need and know nothing of the connection:
//!
//! | part | file | what it owns |
//! |---|---|---|
//! | `Lifecycle` | `lifecycle`, `state` | how far the handshake is, how the connection ends |
//! | `Tls` | `tls`, `peer_parameters`, `parameters` | TLS, and what the handshake agreed on |
//! | `Keyring` | `keyring` | keys: what opens and seals packets |
//! | `Network` | `network` | paths and loss recovery |
//! | | `migration` | what follows when paths come, go, answer, carry data |
//! | | `delivery` | what acknowledgements, losses and probe timeouts mean |
//! | `FrameOwners` | `owners`, `space`, `crypto_stream`, `control`, `ack_frequency` | what frames carry |
//! | `PacketWriter` | `train`, `packet`, `fill`, `skipped_numbers` | the way out (borrows all of the above for a train) |
//! | `Timers` | `timers`, `silence_timer` | deadlines that no other part owns |
//! | `Reports` | `reports`, `trace`, `counters`, `events` | what others hear |
//! | `WorkBudget` | `work` | how much work a peer may ask for without progress |
//! | `UndecryptablePackets` | `undecryptable` | packets that came before their keys |
//!
//! The rest puts them together:
//!
//! | file | what happens in it |
//! |---|---|
//! | `setup` | a connection begins |
//! | `receive`, `frames` | the way in, and which part each frame goes to |
//! | `handshake` | TLS, transport parameters, 0-RTT, Retry, Version Negotiation |
//! | `transmit`, `timeouts`, `close`, `rest` | the other calls from outside |
//! | `api`, `observe`, `stats`, `memory`, `buffers`, `invariants` | what callers ask and are told |

mod ack_frequency;
mod api;
mod arrival;
mod buffers;
mod close;
mod config;
mod control;
mod counters;
mod crypto_stream;
mod delivery;
mod events;
mod fill;
mod frames;
mod handshake;
mod invariants;
mod keyring;
mod lifecycle;
mod memory;
mod migration;
mod network;
mod observe;
mod owners;
mod packet;
mod parameters;
mod peer_parameters;
mod receive;
mod reports;
mod rest;
mod reusable;
mod sent_frame;
mod setup;
mod silence_timer;
mod skipped_numbers;
mod space;
mod state;
mod stats;
mod timeouts;
mod timers;
mod tls;
mod trace;
mod train;
mod transmit;
mod undecryptable;
mod work;

use std::sync::Arc;

use clearway_recovery::Outcome;

pub use self::arrival::RecvMeta;
pub use self::config::Config;
pub use self::counters::Counters;
pub use self::events::{EndpointEvent, Event, UpdateKeysError};
pub use self::memory::MemoryUsage;
pub use self::migration::MigrateError;
#[cfg(feature = "testing")]
pub use self::packet::Forgery;
pub use self::setup::ConnectOptions;
pub(crate) use self::setup::{AcceptOptions, CommonOptions};
pub use self::state::ConnectionError;
pub use self::stats::{PathStats, Stats};
pub use self::train::Transmit;

use self::keyring::Keyring;
use self::lifecycle::Lifecycle;
use self::network::{Context, HandshakeProgress, Network};
use self::owners::FrameOwners;
use self::reports::Reports;
use self::reusable::Reusable;
use self::sent_frame::SentFrames;
use self::skipped_numbers::SkippedNumbers;
use self::state::HandshakeState;
use self::timers::Timers;
use self::tls::Tls;
use self::undecryptable::UndecryptablePackets;
use self::work::WorkBudget;
use crate::Instant;
use crate::Role;
use crate::cid::ConnectionId;
use crate::cid::generator::CidGenerator;
use crate::cid::local::RoutingChange;
use crate::crypto::ResetKey;
use crate::rng::Rng;

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
    lifecycle: Lifecycle,
    tls: Tls,
    keys: Keyring,
    network: Network,
    frames: FrameOwners,
    /// Reused for every ACK and timer, so that neither allocates.
    outcome: Reusable<Outcome<SentFrames>>,
    skipped_numbers: SkippedNumbers,
    timers: Timers,
    reports: Reports,
    /// Packets whose keys don't exist yet, bounded (RFC 9001 §5.7).
    undecryptable: UndecryptablePackets,
    /// What frames without progress may still cost.
    work: WorkBudget,
    generator: Box<dyn CidGenerator>,
    reset_key: Arc<ResetKey>,
    /// It has given back its memory, and nobody was told.
    rested: bool,
    last_activity: Instant,
    /// Destination Connection ID of the packet being processed.
    receiving_cid: ConnectionId,
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

    fn progress(&self) -> HandshakeProgress {
        HandshakeProgress {
            role: self.role,
            handshake: self.lifecycle.handshake,
            has_handshake_keys: self.keys.handshake.is_some(),
        }
    }

    /// The network, what its events may concern besides, and memory for what recovery
    /// finds.
    #[inline]
    fn network_parts(
        &mut self,
        now: Instant,
    ) -> (
        &mut Network,
        Context<'_>,
        &mut Reusable<Outcome<SentFrames>>,
    ) {
        let context = Context {
            now,
            role: self.role,
            handshake: self.lifecycle.handshake,
            config: &self.config,
            peer: self.tls.peer.as_ref(),
            rng: &mut self.rng,
            keys: &mut self.keys,
            frames: &mut self.frames,
            reports: &mut self.reports,
        };
        (&mut self.network, context, &mut self.outcome)
    }

    /// Keeps the peer supplied with connection IDs, and the endpoint's routes
    /// true (RFC 9000 §5.1.1).
    fn issue_cids(&mut self) {
        if self.lifecycle.handshake != HandshakeState::Running {
            let Self {
                frames,
                generator,
                reset_key,
                rng,
                ..
            } = self;
            frames.local_cids.replenish(|| {
                let cid = generator.generate(rng);
                (cid, reset_key.token(&cid))
            });
        }
        while let Some(change) = self.frames.local_cids.routing_change() {
            self.reports.endpoint_events.push_back(match change {
                RoutingChange::Add(cid) => EndpointEvent::AddCid(cid),
                RoutingChange::Remove(cid) => EndpointEvent::RemoveCid(cid),
            });
        }
    }

    /// What the endpoint has to do, until there is nothing.
    pub fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.reports
            .endpoint_events
            .pop_front()
            .or_else(|| self.new_reset_tokens())
    }

    /// The peer's tokens, if they are not those that the endpoint knows.
    fn new_reset_tokens(&mut self) -> Option<EndpointEvent> {
        if !self.frames.remote_cids.take_tokens_changed() || self.is_drained() {
            return None;
        }
        let tokens = self.frames.remote_cids.reset_tokens().collect();
        Some(EndpointEvent::ResetTokens(tokens))
    }
}
