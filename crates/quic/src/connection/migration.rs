//! What follows when paths come, go, and carry data (RFC 9000 §8.2, §9).
//!
//! Every event of a path has a method here: datagrams, PATH_CHALLENGE, PATH_RESPONSE,
//! timers, the client's own moves. Each asks [`Paths`](crate::path::paths::Paths) what the
//! event means, and `follow` has loss recovery, connection IDs, events and traces follow
//! the [`Effect`]s. The table of what happens when is in [`crate::path::paths`].
//!
//! Which path is active is a fact of `Paths`. Loss recovery, which is usable without this
//! crate and has timers that depend on it, is told in `Network::send_on` and nowhere else.

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

use super::arrival::{Packet, Received};
use super::content::Content;
use super::events::Event;
use super::kept::Kept;
use super::life::Handshake;
use super::network::{Context, Network, Progress};
use super::peer::Peer;
use crate::count::Count;
use crate::event::{MigrationState, TraceEvent};
use crate::path::paths::{Effect, Effects, MoveError, Removal};
use crate::path::{Addresses, scope};
use crate::wire::MIN_MTU;
use crate::{Instant, Role};

/// Memory for what recovery hands back.
type KeptOutcome = Kept<Outcome<Content>>;

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

impl Network {
    /// The client moves to another of its addresses at once (RFC 9000 §9.2).
    pub(super) fn migrate(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut KeptOutcome,
        local_ip: Option<IpAddr>,
    ) -> Result<(), MigrateError> {
        self.check_migration(cx)?;
        let effects = self.paths.migrate(cx.now, self.pto(), local_ip)?;
        self.follow(cx, outcome, effects);
        Ok(())
    }

    /// The client probes the path from another of its addresses, to go there once the
    /// server has answered (RFC 9000 §9.1).
    pub(super) fn probe(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut KeptOutcome,
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
        if cx.peer.is_some_and(Peer::disables_migration) {
            return Err(MigrateError::Forbidden);
        }
        self.paths.check_may_move()?;
        if cx.frames.remote_cids.can_assign() {
            Ok(())
        } else {
            Err(MigrateError::NoConnectionId)
        }
    }

    fn join(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut KeptOutcome,
        to: Addresses,
    ) -> Result<(), MigrateError> {
        let effects = self.paths.join(cx.now, self.pto(), to)?;
        self.follow(cx, outcome, effects);
        Ok(())
    }

    /// Probes the address that the server prefers, to go there once it answers
    /// (RFC 9000 §9.6).
    pub(super) fn move_to_preferred_address(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut KeptOutcome,
    ) {
        let from = self.paths.active().remote;
        let preferred = cx
            .peer
            .and_then(|peer| peer.preferred_address(from.is_ipv6()));
        let welcome = |to: &SocketAddr| scope::may_be_preferred(from, *to);
        if let Some(remote) = preferred.filter(welcome)
            && cx.frames.remote_cids.can_assign()
        {
            let local_ip = None;
            // A refusal leaves the connection where it is, which always works.
            let _ = self.join(cx, outcome, Addresses { remote, local_ip });
        }
    }

    /// Whether a datagram comes from where the peer can't be. `allow_migration` tells
    /// whether the peer may move at all.
    pub(super) fn is_unwelcome(
        &self,
        from: &Received,
        progress: Progress,
        allow_migration: bool,
    ) -> bool {
        // The local address may not be known yet, hence only the remote counts.
        if self.paths.iter().any(|path| path.remote == from.remote) {
            return false;
        }
        // A client talks to addresses it chose (RFC 9000 §9); a server's client
        // does not move before the handshake is confirmed, nor if forbidden.
        progress.role == Role::Client
            || progress.handshake != Handshake::Confirmed
            || !allow_migration
            || !scope::may_turn_up(self.paths.active().remote, from.remote)
    }

    /// A datagram of `len` bytes is credited to its path before anything in it
    /// authenticates. `now` and `progress` are for the timers that waited for credit.
    #[inline]
    pub(super) fn credit(&mut self, now: Instant, progress: Progress, from: &Received, len: usize) {
        let blocked = self.is_amplification_blocked(progress.handshake);
        self.paths.on_datagram(&from.into(), len);
        if blocked && !self.is_amplification_blocked(progress.handshake) {
            self.sync(now, progress);
        }
    }

    /// A packet with more than probing frames was processed: a server follows its client
    /// (RFC 9000 §9.3).
    pub(super) fn on_non_probing(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut KeptOutcome,
        packet: &Packet<'_>,
    ) {
        let from = Addresses::from(&packet.from);
        let (pto, len) = (self.pto(), packet.datagram_len);
        let effects = self
            .paths
            .on_non_probing(cx.now, pto, packet.number, &from, len);
        self.follow(cx, outcome, effects);
    }

    /// PATH_CHALLENGE arrived.
    pub(super) fn on_path_challenge(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut KeptOutcome,
        packet: &Packet<'_>,
        data: [u8; 8],
    ) {
        let from = Addresses::from(&packet.from);
        let (pto, len) = (self.pto(), packet.datagram_len);
        let effects = self.paths.on_challenge(cx.now, pto, &from, len, data);
        self.follow(cx, outcome, effects);
    }

    /// PATH_RESPONSE arrived.
    pub(super) fn on_path_response(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut KeptOutcome,
        data: [u8; 8],
    ) {
        let effects = self.paths.on_response(cx.now, self.pto(), data);
        self.follow(cx, outcome, effects);
        // The address may be validated without further effect.
        self.sync(cx.now, cx.progress());
    }

    /// Whether a timer of a path is due.
    pub(super) fn is_path_timer_due(&self, now: Instant) -> bool {
        let due = self.paths.next_timeout(|_| true);
        due.is_some_and(|at| now >= at)
    }

    /// A timer of a path was due: a challenge is to be repeated, or its time is over.
    pub(super) fn on_path_timeout(&mut self, cx: &mut Context<'_>, outcome: &mut KeptOutcome) {
        let effects = self.paths.on_timeout(cx.now);
        self.follow(cx, outcome, effects);
    }

    /// Has everything else that knows of paths follow `effects`.
    #[inline]
    fn follow(&mut self, cx: &mut Context<'_>, outcome: &mut KeptOutcome, effects: Effects) {
        if !effects.is_empty() {
            self.follow_each(cx, outcome, effects);
        }
    }

    #[cold]
    fn follow_each(&mut self, cx: &mut Context<'_>, outcome: &mut KeptOutcome, effects: Effects) {
        let now = cx.now;
        for effect in effects {
            let trace = &mut cx.reports.trace;
            match effect {
                Effect::Added { id, remote } => {
                    self.add_recovery(cx, id);
                    // RFC 9000 §9.5: a connection ID of its own for each path. Without
                    // one to spare we are silent there until the peer issues more.
                    let _ = cx.frames.remote_cids.assign(id);
                    let trace = &mut cx.reports.trace;
                    trace.migration(now, MigrationState::ProbingStarted, remote);
                }
                Effect::Proven { id, remote } => {
                    trace.migration(now, MigrationState::ProbingSuccessful, remote);
                    if id == self.paths.active_id() {
                        trace.migration(now, MigrationState::MigrationComplete, remote);
                    }
                }
                Effect::Activated { id, remote, .. } => self.send_on(cx, id, remote),
                Effect::ChallengeDropped { .. } => {
                    cx.reports.counters.unanswered_challenges.count_one();
                }
                Effect::Removed { id, remote, why } => self.forget(cx, outcome, id, remote, why),
            }
        }
        self.sync(now, cx.progress());
    }

    /// A controller for a new path.
    fn add_recovery(&mut self, cx: &mut Context<'_>, id: PathId) {
        let mds = self.paths.get(id).map(|path| path.mtu.current());
        let mds = u64::from(mds.unwrap_or(MIN_MTU));
        let seed = cx.rng.child("congestion").u64();
        let controller = cx.config.build_controller(mds, seed);
        self.recovery.add_path(id, controller, mds, cx.now);
    }

    fn forget(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut KeptOutcome,
        id: PathId,
        remote: SocketAddr,
        why: Removal,
    ) {
        match why {
            Removal::Failed => {
                let trace = &mut cx.reports.trace;
                trace.migration(cx.now, MigrationState::ProbingAbandoned, remote);
            }
            Removal::Evicted => {
                cx.reports.counters.paths_evicted.count_one();
            }
            Removal::Unused | Removal::Superseded => {}
        }
        self.withdraw(cx, outcome, |recovery, out| recovery.remove_path(id, out));
        cx.frames.remote_cids.release(id);
    }

    /// Data goes to path `id` from now on.
    fn send_on(&mut self, cx: &mut Context<'_>, id: PathId, remote: SocketAddr) {
        let now = cx.now;
        cx.frames.remote_cids.set_active(id);
        let limit = self.limit();
        self.recovery.set_active_path(id, now);
        cx.reports.counters.migrations.count_one();
        cx.reports.events.push_back(Event::PathChanged { remote });
        cx.reports.trace.forget_path();
        cx.reports.trace(now, || TraceEvent::PathChanged { remote });
        self.trace(now, cx.reports);
        let trace = &mut cx.reports.trace;
        trace.limit(now, limit, self.limit());
        trace.migration(now, MigrationState::MigrationStarted, remote);
    }
}
