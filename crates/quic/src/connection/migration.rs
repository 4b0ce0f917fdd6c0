//! Migration and path validation (RFC 9000 §8.2, §9).
//!
//! Every event of a path has a method here: datagrams, PATH_CHALLENGE, PATH_RESPONSE,
//! timers, the client's own moves. Each asks [`Paths`](crate::path::paths::Paths) for the
//! [`Effect`]s of the event, and `apply_effects` applies them to loss recovery, connection
//! IDs, events and traces. The table of events and effects is in [`crate::path::paths`].
//!
//! `Paths` owns which path is active. Loss recovery, which can be used without this crate
//! and whose timers depend on it, is told in `Network::activate_path` and nowhere else.

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

use std::net::{IpAddr, SocketAddr};

use clearway_recovery::{Outcome, PathId};

use super::arrival::{AuthenticatedPacket, RecvMeta};
use super::events::Event;
use super::network::{Context, HandshakeProgress, Network};
use super::path_memory::PathMemory;
use super::peer_parameters::PeerParameters;
use super::reusable::Reusable;
use super::sent_frame::SentFrames;
use super::state::HandshakeState;
use crate::count::Count;
use crate::event::{MigrationState, TraceEvent};
use crate::path::paths::{Effect, Effects, MoveError, RemovalReason};
use crate::path::{Addresses, scope};
use crate::wire::{MIN_MTU, PacketKind};
use crate::{Instant, Role};

/// Reusable memory for the results of recovery.
type ReusableOutcome = Reusable<Outcome<SentFrames>>;

/// The reason why a client cannot migrate now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MigrateError {
    /// Only clients can migrate (RFC 9000 §9).
    NotClient,
    /// The handshake is not confirmed yet (RFC 9000 §9).
    HandshakeNotConfirmed,
    /// The server disabled migration (`disable_active_migration`).
    Forbidden,
    /// The server has not issued an unused connection ID.
    NoConnectionId,
}

impl core::fmt::Display for MigrateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotClient => "a server cannot migrate: only clients can",
            Self::HandshakeNotConfirmed => "the handshake is not confirmed yet",
            Self::Forbidden => "the server disabled migration (disable_active_migration)",
            Self::NoConnectionId => {
                "the server has not issued an unused connection ID for another path"
            }
        })
    }
}

impl std::error::Error for MigrateError {}

impl From<MoveError> for MigrateError {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::NotClient => Self::NotClient,
            MoveError::NotConfirmed => Self::HandshakeNotConfirmed,
        }
    }
}

impl Network {
    /// Moves the client to another of its addresses at once (RFC 9000 §9.2).
    pub(super) fn migrate(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut ReusableOutcome,
        local_ip: Option<IpAddr>,
    ) -> Result<(), MigrateError> {
        self.check_migration(cx)?;
        let effects = self.paths.migrate(cx.now, self.pto(), local_ip)?;
        self.apply_effects(cx, outcome, effects);
        Ok(())
    }

    /// Validates the path from another of the client's addresses, to move there once the
    /// server has answered (RFC 9000 §9.1).
    pub(super) fn probe(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut ReusableOutcome,
        local_ip: IpAddr,
    ) -> Result<(), MigrateError> {
        self.check_migration(cx)?;
        let to = Addresses {
            remote: self.paths.active().remote,
            local_ip: Some(local_ip),
        };
        self.join(cx, outcome, to)
    }

    fn check_migration(&self, cx: &Context<'_>) -> Result<(), MigrateError> {
        if cx.peer.is_some_and(PeerParameters::disables_migration) {
            return Err(MigrateError::Forbidden);
        }
        self.paths.check_may_migrate()?;
        if cx.frames.remote_cids.can_assign() {
            Ok(())
        } else {
            Err(MigrateError::NoConnectionId)
        }
    }

    fn join(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut ReusableOutcome,
        to: Addresses,
    ) -> Result<(), MigrateError> {
        let effects = self.paths.probe(cx.now, self.pto(), to)?;
        self.apply_effects(cx, outcome, effects);
        Ok(())
    }

    /// Validates the path to the server's preferred address, to move there once it answers
    /// (RFC 9000 §9.6).
    pub(super) fn move_to_preferred_address(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut ReusableOutcome,
    ) {
        let from = self.paths.active().remote;
        let preferred = cx
            .peer
            .and_then(|peer| peer.preferred_address(from.is_ipv6()));
        let welcome = |to: &SocketAddr| scope::is_allowed_preferred_address(from, *to);
        if let Some(remote) = preferred.filter(welcome)
            && cx.frames.remote_cids.can_assign()
        {
            let local_ip = None;
            // If this fails, the connection stays on its path, which always works.
            let _ = self.join(cx, outcome, Addresses { remote, local_ip });
        }
    }

    /// Returns whether a datagram comes from an address that the peer may not use.
    /// `allow_migration`: whether the peer may migrate at all.
    pub(super) fn is_unexpected_source(
        &self,
        from: &RecvMeta,
        role: Role,
        allow_migration: bool,
    ) -> bool {
        // A client talks to addresses it chose (RFC 9000 §9); a server's client does not
        // move if that is forbidden.
        !self.paths.has_remote(from.remote)
            && (role == Role::Client
                || !allow_migration
                || !scope::is_allowed_client_address(self.paths.active().remote, from.remote))
    }

    /// Returns whether a packet comes from an address that the peer may not use yet. A client
    /// does not move before the handshake is confirmed (RFC 9000 §9), but its NAT may. Of its
    /// packets then, those with Handshake protection are processed: only the client can have
    /// sent them, and without them the handshake would never complete.
    #[inline]
    pub(super) fn is_unexpected_packet(
        &self,
        from: &RecvMeta,
        handshake: HandshakeState,
        kind: PacketKind,
    ) -> bool {
        handshake != HandshakeState::Confirmed
            && kind != PacketKind::Handshake
            && !self.paths.has_remote(from.remote)
    }

    /// Handles the completion of the handshake by a datagram of `len` bytes. If its address is
    /// not that of the handshake, a server follows its client there.
    pub(super) fn on_completing_datagram(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut ReusableOutcome,
        from: &RecvMeta,
        len: usize,
    ) {
        let pto = self.pto();
        let effects = self
            .paths
            .on_completing_datagram(cx.now, pto, &from.into(), len);
        self.apply_effects(cx, outcome, effects);
    }

    /// Counts a datagram of `len` bytes towards the anti-amplification limit of its path,
    /// before anything in it is authenticated. `now` and `progress` are for timers that
    /// waited for credit.
    #[inline]
    pub(super) fn credit_received(
        &mut self,
        now: Instant,
        progress: HandshakeProgress,
        from: &RecvMeta,
        len: usize,
    ) {
        let blocked = self.is_amplification_blocked(progress.handshake);
        self.paths.on_datagram(&from.into(), len);
        if blocked && !self.is_amplification_blocked(progress.handshake) {
            self.update_pto_context(now, progress);
        }
    }

    /// Handles a packet with a non-probing frame: a server follows its client (RFC 9000
    /// §9.3).
    pub(super) fn on_non_probing(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut ReusableOutcome,
        packet: &AuthenticatedPacket<'_>,
    ) {
        let from = Addresses::from(&packet.from);
        let (pto, len) = (self.pto(), packet.datagram_len);
        let effects = self
            .paths
            .on_non_probing(cx.now, pto, packet.number, &from, len);
        self.apply_effects(cx, outcome, effects);
    }

    /// Handles PATH_CHALLENGE.
    pub(super) fn on_path_challenge(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut ReusableOutcome,
        packet: &AuthenticatedPacket<'_>,
        data: [u8; 8],
    ) {
        let from = Addresses::from(&packet.from);
        let (pto, len) = (self.pto(), packet.datagram_len);
        let effects = self.paths.on_challenge(cx.now, pto, &from, len, data);
        self.apply_effects(cx, outcome, effects);
    }

    /// Handles PATH_RESPONSE.
    pub(super) fn on_path_response(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut ReusableOutcome,
        data: [u8; 8],
    ) {
        let effects = self.paths.on_response(cx.now, self.pto(), data);
        self.apply_effects(cx, outcome, effects);
        // The address may have been validated without another effect.
        self.update_pto_context(cx.now, cx.progress());
    }

    /// Returns whether a timer of a path is due.
    pub(super) fn is_path_timer_due(&self, now: Instant) -> bool {
        let due = self.paths.next_timeout(|_| true);
        due.is_some_and(|at| now >= at)
    }

    /// Handles a path timer: a challenge is due again, or a validation fails.
    pub(super) fn on_path_timeout(&mut self, cx: &mut Context<'_>, outcome: &mut ReusableOutcome) {
        let effects = self.paths.on_timeout(cx.now);
        self.apply_effects(cx, outcome, effects);
    }

    /// Applies `effects` to everything else that knows the paths.
    #[inline]
    fn apply_effects(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut ReusableOutcome,
        effects: Effects,
    ) {
        if !effects.is_empty() {
            self.apply_each_effect(cx, outcome, effects);
        }
    }

    #[cold]
    fn apply_each_effect(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut ReusableOutcome,
        effects: Effects,
    ) {
        let now = cx.now;
        let mut renews_token = false;
        for effect in effects {
            let trace = &mut cx.reports.trace;
            match effect {
                Effect::Added { id, remote } => {
                    self.add_recovery(cx, id);
                    // RFC 9000 §9.5: each path has its own connection ID. Without an unused
                    // one, nothing is sent on the path until the peer issues more.
                    let _ = cx.frames.remote_cids.assign(id);
                    let trace = &mut cx.reports.trace;
                    trace.migration(now, MigrationState::ProbingStarted, remote);
                }
                // RFC 9002 §6.2.2: the initial RTT of a path without samples, and no sample.
                Effect::Answered { id, after } => self.recovery.set_initial_rtt(id, after),
                Effect::Validated { id, remote } => {
                    trace.migration(now, MigrationState::ProbingSuccessful, remote);
                    if id == self.paths.active_id() {
                        renews_token = true;
                        trace.migration(now, MigrationState::MigrationComplete, remote);
                    }
                }
                Effect::Activated {
                    id,
                    remote,
                    validated,
                } => {
                    renews_token = validated;
                    self.activate_path(cx, id, remote);
                }
                Effect::ChallengeDropped { .. } => {
                    cx.reports.counters.unanswered_challenges.count_one();
                }
                Effect::Removed { id, remote, reason } => {
                    self.remove_path(cx, outcome, id, remote, reason);
                }
            }
        }
        if renews_token {
            let ip = self.paths.active().remote.ip();
            cx.frames.control.renew_token(now, ip, cx.rng);
        }
        self.update_pto_context(now, cx.progress());
    }

    /// Adds loss recovery and a congestion controller for a new path.
    fn add_recovery(&mut self, cx: &mut Context<'_>, id: PathId) {
        let mds = self.paths.get(id).map(|path| path.mtu.current());
        let mds = u64::from(mds.unwrap_or(MIN_MTU));
        let seed = cx.rng.child("congestion").u64();
        let controller = cx.config.build_controller(mds, seed);
        self.recovery.add_path(id, controller, mds, cx.now);
    }

    fn remove_path(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut ReusableOutcome,
        id: PathId,
        remote: SocketAddr,
        reason: RemovalReason,
    ) {
        match reason {
            RemovalReason::Failed => {
                let trace = &mut cx.reports.trace;
                trace.migration(cx.now, MigrationState::ProbingAbandoned, remote);
            }
            RemovalReason::Evicted => {
                cx.reports.counters.paths_evicted.count_one();
            }
            RemovalReason::Unused | RemovalReason::Superseded => {}
        }
        self.abandon_packets(cx, outcome, |recovery, out| recovery.remove_path(id, out));
        cx.frames.remote_cids.release(id);
    }

    /// Continues the congestion control and the RTT of the path that was active, if path `id`
    /// differs by the client's port only, as after a NAT rebinding (RFC 9000 §9.4).
    fn continue_path(&mut self, id: PathId) {
        let left = self.recovery.active_path();
        let (Some(old), Some(new)) = (self.paths.get(left), self.paths.get(id)) else {
            return;
        };
        let same_host = old.remote.ip() == new.remote.ip() && old.local_ip == new.local_ip;
        if self.keeps_state_across_ports && same_host && old.remote != new.remote {
            self.recovery.continue_path(left, id);
        }
    }

    /// Makes path `id` the active one for loss recovery, connection IDs, events and traces.
    fn activate_path(&mut self, cx: &mut Context<'_>, id: PathId, remote: SocketAddr) {
        let now = cx.now;
        cx.frames.remote_cids.set_active(id);
        let limit = self.limit();
        self.continue_path(id);
        self.recovery.set_active_path(id, now);
        self.memory = PathMemory::default();
        cx.reports.counters.migrations.count_one();
        cx.reports.events.push_back(Event::PathChanged { remote });
        cx.reports.trace.reset_path_state();
        cx.reports.trace(now, || TraceEvent::PathChanged { remote });
        self.trace(now, cx.reports);
        let trace = &mut cx.reports.trace;
        trace.limit_changed(now, limit, self.limit());
        trace.migration(now, MigrationState::MigrationStarted, remote);
    }
}
