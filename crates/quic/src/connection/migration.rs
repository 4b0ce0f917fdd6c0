//! Paths: found, validated, chosen, given up (RFC 9000 §8.2, §9).

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use clearway_recovery::PathId;

use super::life::Handshake;
use super::paths::Path;
use super::receive::Packet;
use super::{Connection, Event, Received};
use crate::Instant;
use crate::error::{Code, TransportError};
use crate::event::{MigrationState, TraceEvent};
use crate::path::amplification::Amplification;
use crate::path::ecn::{Mark, PathEcn};
use crate::path::mtu::MtuDiscovery;
use crate::path::validation::{PathResponses, PathValidation, Proof};

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

impl Connection {
    /// The application or the host moved the client to another local address:
    /// use a fresh connection ID and validate the new path (RFC 9000 §9.2).
    /// Send from the new socket from now on.
    ///
    /// # Errors
    /// See [`MigrateError`]; the connection goes on as before.
    pub fn migrate(&mut self, now: Instant, local_ip: Option<IpAddr>) -> Result<(), MigrateError> {
        let remote = self.paths.active().remote;
        if self.tls.peer_disables_migration() {
            return Err(MigrateError::Forbidden);
        }
        self.move_to(now, remote, local_ip)
    }

    fn move_to(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
    ) -> Result<(), MigrateError> {
        if !self.is_client() {
            return Err(MigrateError::NotClient);
        }
        if self.handshake != Handshake::Confirmed {
            return Err(MigrateError::HandshakeNotConfirmed);
        }
        let id = self.paths.next_id();
        if self.remote_cids.assign(id).is_none() {
            return Err(MigrateError::NoConnectionId);
        }
        self.make_room(now);
        // A client is not bound by the amplification limit (RFC 9000 §8.1).
        let path = self.new_path(now, id, remote, local_ip, Amplification::validated());
        self.paths.add(path);
        self.activate(now, id);
        Ok(())
    }

    /// Goes to the address the server prefers, once confirmed (RFC 9000 §9.6).
    pub(crate) fn move_to_preferred_address(&mut self, now: Instant) {
        let remote = self.paths.active().remote;
        if let Some(preferred) = self.tls.preferred_address(remote.is_ipv6()) {
            // Refusal leaves the connection where it is, which always works.
            let _ = self.move_to(now, preferred, None);
        }
    }

    /// A path with nothing known about it but its addresses, being validated.
    fn new_path(
        &mut self,
        now: Instant,
        id: PathId,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        amplification: Amplification,
    ) -> Path {
        let mut mtu = MtuDiscovery::new(self.config.max_mtu);
        mtu.set_peer_limit(self.tls.peer_max_udp_payload());
        let mds = u64::from(mtu.current());
        let seed = self.rng.child("congestion").u64();
        let controller = self.config.build_controller(mds, seed);
        let mark = self.config.mark(controller.as_ref());
        self.recovery.add_path(id, controller, mds, now);
        let mut validation = PathValidation::new();
        validation.start(now, self.pto_of(self.paths.active_id()));
        self.trace_migration(now, MigrationState::ProbingStarted, remote);
        Path {
            id,
            remote,
            local_ip,
            validation,
            responses: PathResponses::default(),
            amplification,
            ecn: PathEcn::new(mark),
            train_mark: Mark::NotEct,
            mtu,
            busy: false,
        }
    }

    /// Whether a datagram comes from where the peer can't be.
    pub(crate) fn is_unwelcome(&self, from: &Received) -> bool {
        if self.paths.find(from).is_some() {
            return false;
        }
        // A client talks to addresses it chose (RFC 9000 §9); a server's client
        // does not move before the handshake is confirmed, nor if forbidden.
        // The local address may not be known yet, hence only the remote counts.
        let known = self.paths.iter().any(|path| path.remote == from.remote);
        if self.is_client() {
            !known
        } else {
            !known && (self.handshake != Handshake::Confirmed || !self.config.allow_migration)
        }
    }

    /// Every byte received from an unvalidated address may be answered
    /// threefold (RFC 9000 §8.1), whether or not it authenticates.
    pub(crate) fn credit_path(&mut self, now: Instant, from: &Received, len: usize) {
        let Some(id) = self.paths.find(from) else {
            return;
        };
        let blocked = self.is_amplification_blocked();
        if let Some(path) = self.paths.get_mut(id) {
            path.amplification.on_received(len);
            path.local_ip = path.local_ip.or(from.local_ip);
        }
        if blocked && !self.is_amplification_blocked() {
            self.sync_recovery(now);
        }
    }

    /// The path a packet arrived on, made if the address is new.
    fn path_of(&mut self, now: Instant, packet: &Packet<'_>) -> Option<PathId> {
        // An earlier frame of this packet may have made it already, or ended it:
        // a PATH_RESPONSE before a PATH_CHALLENGE.
        let known = packet.path.filter(|&id| self.paths.get(id).is_some());
        if let Some(id) = known.or_else(|| self.paths.find(&packet.from)) {
            return Some(id);
        }
        let id = self.paths.next_id();
        // RFC 9000 §9.5: a connection ID of its own for each path. Without one
        // to spare we stay silent there until the peer issues more.
        let _ = self.remote_cids.assign(id);
        self.make_room(now);
        let mut amplification = Amplification::new();
        amplification.on_received(packet.datagram_len);
        let path = self.new_path(
            now,
            id,
            packet.from.remote,
            packet.from.local_ip,
            amplification,
        );
        self.paths.add(path)
    }

    fn make_room(&mut self, now: Instant) {
        if self.paths.iter().count() >= super::paths::MAX_PATHS
            && let Some(spare) = self.paths.spare()
        {
            self.forget_path(now, spare);
        }
    }

    fn forget_path(&mut self, now: Instant, id: PathId) {
        self.paths.remove(id);
        self.withdraw(now, |recovery, outcome| recovery.remove_path(id, outcome));
        self.remote_cids.release(id);
    }

    /// The newest 1-RTT packet so far: if it came from elsewhere and was more
    /// than a probe, the peer has moved (RFC 9000 §9.3).
    pub(crate) fn after_newest(&mut self, now: Instant, packet: &Packet<'_>, probing_only: bool) {
        if packet.path == Some(self.paths.active_id()) || self.is_client() || probing_only {
            return;
        }
        if let Some(id) = self.path_of(now, packet) {
            self.activate(now, id);
        }
    }

    /// From now on packets go to path `id`.
    fn activate(&mut self, now: Instant, id: PathId) {
        let old = self.paths.active_id();
        if old == id {
            return;
        }
        let pto = self.pto_of(old);
        if self.paths.active().is_validated() {
            if let Some(older) = self.paths.previous.replace(old)
                && older != id
            {
                self.forget_path(now, older);
            }
            // RFC 9000 §9.3.3: ask the old address too, an attacker may have
            // forwarded the packet.
            if !self.is_client() {
                self.paths.active_mut().validation.start(now, pto);
            }
        }
        self.paths.set_active(id);
        self.remote_cids.set_active(id);
        self.recovery.set_active_path(id, now);
        #[cfg(feature = "specimens")]
        self.flawed_migration(now, old);
        self.sync_recovery(now);
        self.counters.migrations += 1;
        let remote = self.paths.active().remote;
        self.events.push_back(Event::PathChanged { remote });
        self.trace_path_changed(now);
        self.trace_migration(now, MigrationState::MigrationStarted, remote);
    }

    /// `retransmit-all-on-migration`: what is on its way is sent again.
    #[cfg(feature = "specimens")]
    fn flawed_migration(&mut self, now: Instant, old: PathId) {
        use clearway_recovery::congestion::Specimen;

        if self.config.specimen == Some(Specimen::RetransmitAllOnMigration) {
            let mut outcome = core::mem::take(&mut self.outcome);
            self.recovery.lose_in_flight(old, &mut outcome);
            self.apply(now, &mut outcome);
            self.outcome = outcome;
        }
    }

    pub(crate) fn on_path_challenge(&mut self, now: Instant, packet: &Packet<'_>, data: [u8; 8]) {
        if let Some(id) = self.path_of(now, packet)
            && let Some(path) = self.paths.get_mut(id)
        {
            path.responses.on_challenge(data);
        }
    }

    pub(crate) fn on_path_response(&mut self, now: Instant, data: [u8; 8]) {
        // RFC 9000 §8.2.3: a response may arrive on any path; what counts is
        // where the challenge went.
        let validated = self.paths.iter_mut().find_map(|path| {
            let proof = path.validation.on_response(now, data)?;
            path.amplification.validate();
            Some((path.id, proof))
        });
        let Some((id, proof)) = validated else { return };
        if proof == Proof::Path {
            self.trace_validated(now, id);
        }
        if proof == Proof::Path && id == self.paths.active_id() {
            if self.config.mtu_discovery {
                self.paths.active_mut().mtu.start(now);
            }
            if let Some(previous) = self.paths.previous.take() {
                self.forget_path(now, previous);
            }
        }
        self.sync_recovery(now);
    }

    /// A path answered in full size.
    fn trace_validated(&mut self, now: Instant, id: PathId) {
        let Some(remote) = self.paths.get(id).map(|path| path.remote) else {
            return;
        };
        self.trace_migration(now, MigrationState::ProbingSuccessful, remote);
        if id == self.paths.active_id() {
            self.trace_migration(now, MigrationState::MigrationComplete, remote);
        }
    }

    pub(crate) fn on_path_timeouts(&mut self, now: Instant) -> bool {
        let mut failed = None;
        let mut did = false;
        for path in self.paths.iter_mut() {
            did |= path.mtu.next_timeout().is_some_and(|at| now >= at);
            if path.validation.next_timeout().is_some_and(|at| now >= at) {
                did = true;
                if path.validation.handle_timeout(now).is_some() {
                    failed = Some(path.id);
                }
            }
        }
        if let Some(id) = failed {
            if let Some(remote) = self.paths.get(id).map(|path| path.remote) {
                self.trace_migration(now, MigrationState::ProbingAbandoned, remote);
            }
            self.on_path_failed(now, id);
        }
        did
    }

    /// RFC 9000 §9.3.2: return to the last validated path; without one, the
    /// connection ends silently.
    fn on_path_failed(&mut self, now: Instant, id: PathId) {
        if id != self.paths.active_id() {
            // The old path may have been silent because nothing gets through
            // at all for a while: while the new one is not proven either, it
            // is still what to return to.
            let needed = self.paths.previous == Some(id) && !self.paths.active().is_validated();
            if !needed {
                self.forget_path(now, id);
            }
            return;
        }
        match self.paths.previous.take() {
            Some(previous) => {
                self.activate(now, previous);
                self.paths.previous = None;
                self.forget_path(now, id);
            }
            // It was proven once, and there is none better: whether anything
            // gets through again is for the idle timeout to judge.
            None if self.paths.active().is_validated() => {}
            None => self.fail(
                now,
                TransportError::new(
                    Code::NO_VIABLE_PATH,
                    "the only path did not answer PATH_CHALLENGE",
                ),
            ),
        }
    }

    /// PTO of a path without backoff, the active one's if it is unknown.
    pub(crate) fn pto_of(&self, id: PathId) -> Duration {
        let path = self.recovery.path(id);
        let rtt = path.unwrap_or_else(|| self.active_recovery()).rtt();
        rtt.pto() + self.peer_max_ack_delay()
    }

    pub(crate) fn on_mtu_change(&mut self, now: Instant, id: PathId, change: Option<u16>) {
        let Some(size) = change else { return };
        self.recovery.set_mds(id, u64::from(size));
        self.counters.mtu_changes += 1;
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
