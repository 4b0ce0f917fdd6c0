//! Paths: found, validated, chosen, given up (RFC 9000 §8.2, §9).

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use clearway_recovery::{PathId, congestion};

use super::life::Handshake;
use super::paths::Path;
use super::receive::Packet;
use super::{Connection, Event, Received};
use crate::Instant;
use crate::event::TraceEvent;
use crate::path::amplification::Amplification;
use crate::path::ecn;
use crate::path::mtu;
use crate::path::validation::{Expiry, Validation};

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
        if !self.remote_cids.assign(id) {
            return Err(MigrateError::NoConnectionId);
        }
        self.make_room();
        let mut path = self.new_path(now, id, remote, local_ip, false);
        path.amplification = Amplification::validated();
        path.validation.start();
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

    /// A path with nothing known about it.
    pub(crate) fn new_path(
        &mut self,
        now: Instant,
        id: PathId,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        validated: bool,
    ) -> Path {
        let mtu = mtu::Discovery::new(self.mtu_config());
        let mds = u64::from(mtu.current());
        let controller = congestion::build(self.config.controller, mds);
        self.recovery.add_path(id, controller, mds, now);
        Path {
            id,
            remote,
            local_ip,
            validation: Validation::new(validated),
            amplification: if validated {
                Amplification::validated()
            } else {
                Amplification::unvalidated()
            },
            ecn: ecn::Validator::new(self.config.ecn),
            mtu,
            busy: false,
        }
    }

    fn mtu_config(&self) -> mtu::Config {
        let peer = self.tls.peer_max_udp_payload();
        mtu::Config {
            enabled: self.config.mtu_discovery,
            max: self.config.max_mtu.min(peer),
            ..mtu::Config::default()
        }
    }

    /// The peer's limit is known now: search up to it.
    pub(crate) fn on_peer_max_udp_payload(&mut self) {
        let config = self.mtu_config();
        for path in self.paths.iter_mut() {
            path.mtu.set_max(config.max);
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
    pub(crate) fn credit_path(&mut self, from: &Received, len: usize) {
        let Some(id) = self.paths.find(from) else {
            return;
        };
        if let Some(path) = self.paths.get_mut(id) {
            path.amplification.on_received(len as u64);
            path.local_ip = path.local_ip.or(from.local_ip);
        }
        self.sync_recovery();
    }

    /// The path a packet arrived on, made if the address is new.
    fn path_of(&mut self, now: Instant, packet: &Packet<'_>) -> Option<PathId> {
        if let Some(id) = packet.path {
            return Some(id);
        }
        let id = self.paths.next_id();
        self.make_room();
        // RFC 9000 §9.5: a new path has a connection ID of its own, unless the
        // peer has none to spare (a NAT rebinding need not have changed it).
        if !self.remote_cids.assign(id) {
            self.remote_cids.share(self.paths.active_id(), id);
        }
        let mut path = self.new_path(now, id, packet.from.remote, packet.from.local_ip, false);
        path.amplification.on_received(packet.payload.len() as u64);
        path.validation.start();
        self.paths.add(path)
    }

    fn make_room(&mut self) {
        if self.paths.iter().count() >= super::paths::MAX_PATHS
            && let Some(spare) = self.paths.spare()
        {
            self.forget_path(spare);
        }
    }

    fn forget_path(&mut self, id: PathId) {
        self.paths.remove(id);
        self.recovery.remove_path(id);
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
        if self.paths.active().validation.is_validated() {
            self.paths.previous = Some(old);
            // RFC 9000 §9.3.3: ask the old address too, an attacker may have
            // forwarded the packet.
            if !self.is_client() {
                self.paths.active_mut().validation.start();
            }
        }
        self.paths.set_active(id);
        if let Some(path) = self.paths.get_mut(id)
            && !path.validation.is_validated()
        {
            path.validation.start();
        }
        self.recovery.set_active_path(id, now);
        self.sync_recovery();
        self.counters.migrations += 1;
        let remote = self.paths.active().remote;
        self.events.push_back(Event::PathChanged { remote });
        self.trace(now, || TraceEvent::PathChanged { remote });
    }

    pub(crate) fn on_path_challenge(&mut self, now: Instant, packet: &Packet<'_>, data: [u8; 8]) {
        if let Some(id) = self.path_of(now, packet)
            && let Some(path) = self.paths.get_mut(id)
        {
            path.validation.on_challenge(data);
        }
    }

    pub(crate) fn on_path_response(&mut self, now: Instant, packet: &Packet<'_>, data: [u8; 8]) {
        let _ = packet;
        // RFC 9000 §8.2.3: a response may arrive on any path; what counts is
        // where the challenge went.
        let validated = self
            .paths
            .iter_mut()
            .find_map(|path| path.validation.on_response(data).then_some(path.id));
        let Some(id) = validated else { return };
        if let Some(path) = self.paths.get_mut(id) {
            path.amplification.validate();
        }
        if id == self.paths.active_id()
            && let Some(previous) = self.paths.previous
        {
            self.forget_path(previous);
        }
        self.sync_recovery();
        let _ = now;
    }

    pub(crate) fn on_path_timeouts(&mut self, now: Instant) -> bool {
        let pto = self.recovery.active_rtt().pto(self.peer_max_ack_delay());
        let mut failed = None;
        let mut did = false;
        for path in self.paths.iter_mut() {
            if path.mtu.next_timeout().is_some_and(|at| now >= at) {
                path.mtu.on_timeout(now);
                did = true;
            }
            if path.validation.next_timeout().is_some_and(|at| now >= at) {
                did = true;
                match path.validation.on_timeout(now, pto) {
                    Expiry::Retry => {}
                    Expiry::Failed => failed = Some(path.id),
                }
            }
        }
        if let Some(id) = failed {
            self.on_path_failed(now, id);
        }
        did
    }

    /// RFC 9000 §9.3.2: return to the last validated path; without one, the
    /// connection ends silently.
    fn on_path_failed(&mut self, now: Instant, id: PathId) {
        if id != self.paths.active_id() {
            self.forget_path(id);
            return;
        }
        match self.paths.previous.take() {
            Some(previous) => {
                self.activate(now, previous);
                self.paths.previous = None;
                self.forget_path(id);
            }
            None => self.fail(
                now,
                crate::error::TransportError::new(
                    crate::error::Code::NO_VIABLE_PATH,
                    "the only path did not answer PATH_CHALLENGE",
                ),
            ),
        }
    }

    /// PTO of a path, for challenges.
    pub(crate) fn pto_of(&self, id: PathId) -> Duration {
        let rtt = self.recovery.path(id).map(|path| *path.rtt());
        rtt.unwrap_or(*self.recovery.active_rtt())
            .pto(self.peer_max_ack_delay())
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
        let change = self
            .paths
            .active_mut()
            .mtu
            .on_too_large(u16::try_from(size).unwrap_or(u16::MAX), now);
        self.on_mtu_change(now, id, change);
    }
}
