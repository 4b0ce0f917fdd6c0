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
//! A [`Connection`] is composed of parts. Each part has its own file, with methods that
//! borrow what they need and do not know the connection:
//!
//! | part | file | what it owns |
//! |---|---|---|
//! | `Lifecycle` | `lifecycle`, `state` | handshake state, and how the connection ends |
//! | `Tls` | `tls`, `client_start`, `server_start`, `versions`, `peer_parameters`, `parameters` | the TLS session, and what the handshake agreed on |
//! | `Keyring` | `keyring` | the keys that open and seal packets |
//! | `Network` | `network` | paths and loss recovery |
//! | | `migration` | events of paths: migration and validation |
//! | | `delivery` | acknowledgements, losses and probe timeouts |
//! | `FrameOwners` | `owners`, `space`, `crypto_stream`, `control`, `ack_frequency` | the state behind frames: streams, CRYPTO, connection IDs, control frames |
//! | `PacketWriter` | `train`, `packet`, `fill`, `skipped_numbers` | writing packets (borrows all of the above for a train) |
//! | `Timers` | `timers`, `silence_timer` | deadlines that no other part owns |
//! | `Reports` | `reports`, `trace`, `counters`, `events` | events, counters, traces |
//! | `WorkBudget` | `work` | how much work a peer may cause without progress |
//! | `UndecryptablePackets` | `undecryptable` | packets that arrived before their keys |
//!
//! The other files combine them:
//!
//! | file | contents |
//! |---|---|
//! | `setup` | how a connection is created |
//! | `receive`, `frames` | the receive path, and the part that handles each frame |
//! | `handshake` | TLS, transport parameters, 0-RTT, Retry |
//! | `version_negotiation` | changes of the QUIC version |
//! | `transmit`, `timeouts`, `close`, `rest` | sending, timers, closing, releasing memory |
//! | `api`, `observe`, `stats`, `memory`, `buffers`, `invariants` | the rest of the public methods |

mod ack_frequency;
mod api;
mod arrival;
mod buffers;
mod cid_replacement;
mod client_start;
mod close;
mod config;
mod control;
mod counters;
mod crypto_stream;
#[cfg(feature = "defects")]
mod defective;
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
mod path_memory;
mod peer_parameters;
mod receive;
mod received;
mod reports;
mod rest;
mod reusable;
mod sent_frame;
mod server_start;
mod setup;
mod silence_timer;
mod skipped_numbers;
#[cfg(not(feature = "defects"))]
mod sound;
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
mod version_negotiation;
mod versions;
mod work;

use std::sync::Arc;

use clearway_recovery::Outcome;

pub use self::arrival::RecvMeta;
pub use self::config::{CarefulResume, Config};
pub use self::counters::Counters;
pub use self::events::{EndpointEvent, Event, UpdateKeysError};
pub use self::memory::MemoryUsage;
pub use self::migration::MigrateError;
#[cfg(feature = "testing")]
pub use self::packet::Forgery;
pub use self::setup::ConnectOptions;
pub(crate) use self::setup::{AcceptOptions, CommonOptions};
pub use self::stats::{PathStats, Stats};
pub use self::train::Transmit;
pub use crate::error::ConnectionError;

use self::cid_replacement::CidReplacement;
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

/// A QUIC connection, client or server. Performs no I/O.
///
/// To drive it, pass datagrams to [`receive`](Self::receive), call
/// [`transmit`](Self::transmit) until it returns `None`, call
/// [`handle_timeout`](Self::handle_timeout) at [`next_timeout`](Self::next_timeout), and
/// drain [`poll_event`](Self::poll_event) and
/// [`poll_endpoint_event`](Self::poll_endpoint_event) after each of these.
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
    /// Reused for every ACK and timer, so that they do not allocate.
    outcome: Reusable<Outcome<SentFrames>>,
    skipped_numbers: SkippedNumbers,
    timers: Timers,
    reports: Reports,
    /// Packets whose keys are not available yet, bounded (RFC 9001 §5.7).
    undecryptable: UndecryptablePackets,
    /// The budget for frames without progress.
    work: WorkBudget,
    generator: Box<dyn CidGenerator>,
    cid_replacement: CidReplacement,
    reset_key: Arc<ResetKey>,
    /// It has released memory, and `take_rested` has not reported it yet.
    rested: bool,
    last_activity: Instant,
    /// Destination Connection ID of the packet being processed.
    receiving_cid: ConnectionId,
}

impl Connection {
    /// Returns which end this is.
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

    /// Borrows the network, the other parts that its events concern, and memory for the
    /// results of recovery.
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

    /// Keeps the peer supplied with connection IDs (RFC 9000 §5.1.1), and the endpoint's
    /// routes up to date.
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

    /// Returns the next event for the endpoint, or `None` when there is none left.
    pub fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.reports
            .endpoint_events
            .pop_front()
            .or_else(|| self.new_reset_tokens())
    }

    /// Returns the peer's reset tokens if they changed since the endpoint was last told.
    fn new_reset_tokens(&mut self) -> Option<EndpointEvent> {
        if !self.frames.remote_cids.take_tokens_changed() || self.is_drained() {
            return None;
        }
        let tokens = self.frames.remote_cids.reset_tokens().collect();
        Some(EndpointEvent::ResetTokens(tokens))
    }
}
