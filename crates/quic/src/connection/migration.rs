//! What a connection does about its paths. Which path is used, and why, is
//! decided by [`Paths`](crate::path::paths::Paths) (RFC 9000 §8.2, §9); here loss
//! recovery, connection IDs, events and traces follow.

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

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use clearway_recovery::PathId;

use super::life::Handshake;
use super::receive::Packet;
use super::{Connection, Event, Received};
use crate::Instant;
use crate::count::Count;
use crate::event::{MigrationState, TraceEvent};
use crate::path::paths::{Effect, Effects, MoveError, Removal};
use crate::path::{Addresses, scope};

/// A migration that can't be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MigrateError {
    /// Only clients migrate (RFC 9000 §9).
    NotClient,
    /// Not before the handshake is confirmed (RFC 9000 §9).
    HandshakeNotConfirmed,
    /// The peer forbade it (`disable_active_migration`).
    Forbidden,
    /// The peer has issued no connection ID to spare.
    NoConnectionId,
}

impl core::fmt::Display for MigrateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotClient => "only the client migrates",
            Self::HandshakeNotConfirmed => "the handshake is not confirmed yet",
            Self::Forbidden => "the server forbids migration",
            Self::NoConnectionId => "the server has issued no spare connection ID",
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

impl From<&Received> for Addresses {
    fn from(from: &Received) -> Self {
        Self {
            remote: from.remote,
            local_ip: from.local_ip,
        }
    }
}

impl Connection {
    /// Moves the client to another local address at once, for a host whose old
    /// address is gone or going: takes a fresh connection ID, sends from there
    /// from now on, and validates the path meanwhile (RFC 9000 §9.2). If nothing
    /// answers, the connection returns to the last path that worked. See
    /// [`probe`](Self::probe) for when the old path still works.
    ///
    /// # Errors
    /// See [`MigrateError`]; the connection goes on as before.
    pub fn migrate(&mut self, now: Instant, local_ip: Option<IpAddr>) -> Result<(), MigrateError> {
        self.check_migration()?;
        let effects = self.paths.migrate(now, self.path_pto(), local_ip)?;
        self.apply_path_effects(now, effects);
        Ok(())
    }

    /// Validates the path from another local address, and moves the client there
    /// once the server has answered (RFC 9000 §9.1). Until then data goes where
    /// it went; if nothing answers, that is all that happens. A later call, and
    /// the move to a preferred address, replace the one before.
    ///
    /// # Errors
    /// See [`MigrateError`]; the connection goes on as before.
    pub fn probe(&mut self, now: Instant, local_ip: IpAddr) -> Result<(), MigrateError> {
        self.check_migration()?;
        let to = Addresses {
            remote: self.paths.active().remote,
            local_ip: Some(local_ip),
        };
        self.join(now, to)
    }

    fn check_migration(&self) -> Result<(), MigrateError> {
        if self.tls.peer_disables_migration() {
            return Err(MigrateError::Forbidden);
        }
        self.paths.check_may_move()?;
        if self.remote_cids.can_assign() {
            Ok(())
        } else {
            Err(MigrateError::NoConnectionId)
        }
    }

    fn join(&mut self, now: Instant, to: Addresses) -> Result<(), MigrateError> {
        let effects = self.paths.join(now, self.path_pto(), to)?;
        self.apply_path_effects(now, effects);
        Ok(())
    }

    /// Probes the address that the server prefers, to go there once it answers
    /// (RFC 9000 §9.6).
    pub(crate) fn move_to_preferred_address(&mut self, now: Instant) {
        let from = self.paths.active().remote;
        let preferred = self.tls.preferred_address(from.is_ipv6());
        let welcome = |to: &SocketAddr| scope::may_be_preferred(from, *to);
        if let Some(remote) = preferred.filter(welcome)
            && self.remote_cids.can_assign()
        {
            let local_ip = None;
            // A refusal leaves the connection where it is, which always works.
            let _ = self.join(now, Addresses { remote, local_ip });
        }
    }

    /// Whether a datagram comes from where the peer can't be.
    pub(crate) fn is_unwelcome(&self, from: &Received) -> bool {
        // The local address may not be known yet, hence only the remote counts.
        if self.paths.iter().any(|path| path.remote == from.remote) {
            return false;
        }
        // A client talks to addresses it chose (RFC 9000 §9); a server's client
        // does not move before the handshake is confirmed, nor if forbidden.
        self.is_client()
            || self.handshake != Handshake::Confirmed
            || !self.config.allow_migration
            || !scope::may_turn_up(self.paths.active().remote, from.remote)
    }

    /// A datagram is credited to its path before anything in it authenticates.
    pub(crate) fn credit_path(&mut self, now: Instant, from: &Received, len: usize) {
        let blocked = self.is_amplification_blocked();
        self.paths.on_datagram(&from.into(), len);
        if blocked && !self.is_amplification_blocked() {
            self.sync_recovery(now);
        }
    }

    /// A 1-RTT packet was processed: a server follows its client (RFC 9000 §9.3).
    pub(crate) fn follow_peer(&mut self, now: Instant, packet: &Packet<'_>, probing_only: bool) {
        if probing_only || self.is_client() {
            return;
        }
        let from = Addresses::from(&packet.from);
        let (pto, len) = (self.path_pto(), packet.datagram_len);
        let effects = self
            .paths
            .on_non_probing(now, pto, packet.number, &from, len);
        self.apply_path_effects(now, effects);
    }

    pub(crate) fn on_path_challenge(&mut self, now: Instant, packet: &Packet<'_>, data: [u8; 8]) {
        let from = Addresses::from(&packet.from);
        let (pto, len) = (self.path_pto(), packet.datagram_len);
        let effects = self.paths.on_challenge(now, pto, &from, len, data);
        self.apply_path_effects(now, effects);
    }

    pub(crate) fn on_path_response(&mut self, now: Instant, data: [u8; 8]) {
        let effects = self.paths.on_response(now, self.path_pto(), data);
        self.apply_path_effects(now, effects);
        // The address may be validated without further effect.
        self.sync_recovery(now);
    }

    /// True if a timer of a path was due.
    pub(crate) fn on_path_timeouts(&mut self, now: Instant) -> bool {
        let due = self.paths.next_timeout(|_| true);
        if due.is_none_or(|at| now < at) {
            return false;
        }
        let effects = self.paths.on_timeout(now);
        self.apply_path_effects(now, effects);
        true
    }

    /// Has everything else that knows of paths follow `effects`.
    fn apply_path_effects(&mut self, now: Instant, effects: Effects) {
        if effects.is_empty() {
            return;
        }
        for effect in effects {
            match effect {
                Effect::Added { id, remote } => {
                    self.add_recovery_path(now, id);
                    // RFC 9000 §9.5: a connection ID of its own for each path. Without
                    // one to spare we are silent there until the peer issues more.
                    let _ = self.remote_cids.assign(id);
                    self.trace_migration(now, MigrationState::ProbingStarted, remote);
                }
                Effect::Proven { id, remote } => {
                    self.trace_migration(now, MigrationState::ProbingSuccessful, remote);
                    if id == self.paths.active_id() {
                        self.trace_migration(now, MigrationState::MigrationComplete, remote);
                    }
                }
                Effect::Activated { id, remote, .. } => self.send_on(now, id, remote),
                Effect::ChallengeDropped { .. } => {
                    self.counters.unanswered_challenges.count_one();
                }
                Effect::Removed { id, remote, why } => self.forget_path(now, id, remote, why),
            }
        }
        self.sync_recovery(now);
    }

    /// A controller for a new path.
    fn add_recovery_path(&mut self, now: Instant, id: PathId) {
        let mds = self.paths.get(id).map(|path| path.mtu.current());
        let mds = u64::from(mds.unwrap_or(crate::path::mtu::BASE_SIZE));
        let seed = self.rng.child("congestion").u64();
        let controller = self.config.build_controller(mds, seed);
        self.recovery.add_path(id, controller, mds, now);
    }

    fn forget_path(&mut self, now: Instant, id: PathId, remote: SocketAddr, why: Removal) {
        match why {
            Removal::Failed => {
                self.trace_migration(now, MigrationState::ProbingAbandoned, remote);
            }
            Removal::Evicted => {
                self.counters.paths_evicted.count_one();
            }
            Removal::Unused | Removal::Superseded => {}
        }
        self.withdraw(now, |recovery, outcome| recovery.remove_path(id, outcome));
        self.remote_cids.release(id);
    }

    /// Data goes to path `id` from now on.
    fn send_on(&mut self, now: Instant, id: PathId, remote: SocketAddr) {
        self.remote_cids.set_active(id);
        self.recovery.set_active_path(id, now);
        self.counters.migrations.count_one();
        self.events.push_back(Event::PathChanged { remote });
        self.trace_path_changed(now);
        self.trace_migration(now, MigrationState::MigrationStarted, remote);
    }

    /// PTO of the active path without backoff.
    pub(crate) fn path_pto(&self) -> Duration {
        self.pto_of(self.paths.active_id())
    }

    /// PTO of a path without backoff, the active one's if it is unknown.
    pub(crate) fn pto_of(&self, id: PathId) -> Duration {
        let path = self.recovery.path(id);
        let rtt = path.unwrap_or_else(|| self.active_recovery()).rtt();
        rtt.pto().saturating_add(self.peer_max_ack_delay())
    }

    pub(crate) fn on_mtu_change(&mut self, now: Instant, id: PathId, change: Option<u16>) {
        let Some(size) = change else { return };
        self.recovery.set_mds(id, u64::from(size));
        self.counters.mtu_changes.count_one();
        self.trace(now, || TraceEvent::MtuChanged { size });
    }

    /// A datagram of `size` bytes was refused by the host as too large.
    pub fn on_datagram_too_large(&mut self, now: Instant, size: usize) {
        let id = self.paths.active_id();
        let size = u16::try_from(size).unwrap_or(u16::MAX);
        let change = self.paths.active_mut().mtu.on_send_refused(now, size);
        self.on_mtu_change(now, id, change);
    }
}
