//! The entry point of loss recovery: three packet number spaces, one or more paths, one
//! timer.

use core::time::Duration;

use crate::controller::{Controller, SavedPath, SendIndex};
use crate::detection::lost;
use crate::limit::{Limit, LimitClock};
use crate::loss::{PACKET_THRESHOLD, TIME_THRESHOLD_EIGHTHS};
use crate::outcome::{LossCause, Outcome};
use crate::packet::{Packet, SentInfo};
use crate::path::{Gate, PathId, PathRecovery};
use crate::pto::PtoContext;
use crate::space::{Space, Spaces};
use crate::time::Instant;

/// The parameters that RFC 9002 leaves open. The defaults are the RFC's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// RTT assumed before the first sample (RFC 9002 §6.2.2, kInitialRtt).
    pub initial_rtt: Duration,
    /// Initial reordering threshold in packets (§6.1.1, kPacketThreshold);
    /// at least 3.
    pub packet_threshold: u64,
    /// Initial reordering threshold in eighths of an RTT (§6.1.2,
    /// kTimeThreshold); at least 9.
    pub time_threshold_eighths: u32,
    /// The peer's max_ack_delay (RFC 9000 §18.2).
    pub max_ack_delay: Duration,
    /// PTOs that losses have to span (§7.6.1, kPersistentCongestionThreshold).
    pub persistent_congestion_threshold: u32,
    /// A known bug to run with, for detectors to find.
    #[cfg(feature = "specimens")]
    pub specimen: Option<crate::specimens::Specimen>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            initial_rtt: Duration::from_millis(333),
            packet_threshold: PACKET_THRESHOLD,
            time_threshold_eighths: TIME_THRESHOLD_EIGHTHS,
            max_ack_delay: Duration::from_millis(25),
            persistent_congestion_threshold: 3,
            #[cfg(feature = "specimens")]
            specimen: None,
        }
    }
}

/// Loss detection and congestion control of a connection.
///
/// `F` is what the connection stores with each packet and gets back when it is acknowledged
/// or lost: usually its frames.
#[derive(Debug)]
pub struct Recovery<F> {
    pub(crate) config: Config,
    pub(crate) spaces: Spaces<F>,
    pub(crate) paths: Vec<PathRecovery>,
    pub(crate) active: PathId,
    pub(crate) context: PtoContext,
    /// When a client with nothing in flight began to wait for a server that may be blocked
    /// by its amplification limit.
    pub(crate) deadlock_since: Option<Instant>,
    limits: LimitClock,
    /// Packets that loss detection has looked at.
    #[cfg(test)]
    pub(crate) scanned: u64,
    /// Ranges of ACK frames that were looked up among the packets.
    #[cfg(test)]
    pub(crate) looked_up: u64,
}

impl<F> Recovery<F> {
    /// Creates the recovery of a connection that begins at `now`, without paths yet.
    #[must_use]
    pub fn new(mut config: Config, now: Instant) -> Self {
        config.packet_threshold = config.packet_threshold.max(PACKET_THRESHOLD);
        config.time_threshold_eighths = config.time_threshold_eighths.max(TIME_THRESHOLD_EIGHTHS);
        Self {
            config,
            spaces: Spaces::new(),
            paths: Vec::with_capacity(1),
            active: PathId(0),
            context: PtoContext::default(),
            deadlock_since: None,
            limits: LimitClock::new(Limit::Handshake, now),
            #[cfg(test)]
            scanned: 0,
            #[cfg(test)]
            looked_up: 0,
        }
    }

    /// Adds a path. The first one becomes the active path. No path may have this number
    /// yet: remove it first with [`Self::remove_path`].
    pub fn add_path(
        &mut self,
        id: PathId,
        controller: Box<dyn Controller>,
        mds: u64,
        now: Instant,
    ) {
        debug_assert!(self.path(id).is_none(), "{id:?} exists");
        if self.paths.is_empty() {
            self.active = id;
        }
        let limit = self.limits.current();
        let mut path = PathRecovery::new(id, controller, mds, limit, &self.config, now);
        path.first_number = self.next_number(Space::Data);
        path.oldest = path.first_number;
        self.paths.push(path);
    }

    /// Tells the controller of a path what an earlier connection measured of it. Has no effect once
    /// there was an ACK, nor with controllers that do not resume ([`Controller::resume`]).
    pub fn resume_path(&mut self, id: PathId, saved: &SavedPath) {
        if let Some(path) = self.path_mut(id) {
            path.controller.resume(saved);
        }
    }

    /// Gives path `new` a copy of the congestion window and the RTT estimate of `old`, because
    /// only the peer's port differs (RFC 9000 §9.4). Packets in flight stay with `old`. Does
    /// nothing, and returns false, if anything was sent on `new`, or if the controller cannot be
    /// copied ([`Controller::duplicate`]).
    pub fn continue_path(&mut self, old: PathId, new: PathId) -> bool {
        let (Some(old), Some(at)) = (self.path(old), self.position(new)) else {
            return false;
        };
        let new = &self.paths[at];
        let continued = (new.next_index == 0).then(|| old.continued_as(new));
        let Some(continued) = continued.flatten() else {
            return false;
        };
        self.paths[at] = continued;
        true
    }

    /// Removes a path. Its packets in flight are returned as lost, without a congestion
    /// signal. Use it for a path that is known to be dead; after a migration keep the old
    /// path, because its packets may still arrive.
    pub fn remove_path(&mut self, id: PathId, out: &mut Outcome<F>) {
        for space in Space::ALL {
            self.return_as_lost(space, LossCause::PathRemoved, Some(id), out);
        }
        self.paths.retain(|path| path.id != id);
    }

    /// Sets the active path, on which the connection sends (RFC 9000 §9).
    pub fn set_active_path(&mut self, id: PathId, now: Instant) {
        let Some(limit) = self.path(id).map(|path| path.limits.current()) else {
            debug_assert!(false, "{id:?} does not exist");
            return;
        };
        self.active = id;
        self.limits.set(limit, now);
    }

    /// Returns the active path, on which the connection sends.
    #[must_use]
    pub const fn active_path(&self) -> PathId {
        self.active
    }

    /// Returns a path, or `None` if no path has this number.
    #[must_use]
    pub fn path(&self, id: PathId) -> Option<&PathRecovery> {
        self.paths.iter().find(|path| path.id == id)
    }

    /// Returns all paths.
    pub fn paths(&self) -> impl Iterator<Item = &PathRecovery> {
        self.paths.iter()
    }

    fn path_mut(&mut self, id: PathId) -> Option<&mut PathRecovery> {
        let path = self.paths.iter_mut().find(|path| path.id == id);
        debug_assert!(path.is_some(), "{id:?} does not exist");
        path
    }

    pub(crate) fn position(&self, id: PathId) -> Option<usize> {
        self.paths.iter().position(|path| path.id == id)
    }

    /// Returns the configuration, with the peer's max_ack_delay.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns why the connection was not sending, and for how long: the active path's
    /// limits, over the connection's life.
    #[must_use]
    pub const fn limits(&self) -> &LimitClock {
        &self.limits
    }

    /// Returns the number that the next packet of a space gets.
    #[must_use]
    pub fn next_number(&self, space: Space) -> u64 {
        self.spaces[space.index()].next
    }

    /// Leaves a number unused, to detect a peer that acknowledges packets it has not
    /// received (RFC 9000 §21.4).
    pub fn skip_number(&mut self, space: Space) {
        self.spaces[space.index()].skip();
    }

    /// Returns the largest number acknowledged, relative to which packet numbers are
    /// truncated (RFC 9000 §17.1).
    #[must_use]
    pub fn largest_acked(&self, space: Space) -> Option<u64> {
        self.spaces[space.index()].largest_acked
    }

    /// Records a packet that was sent. Returns its place in the path's send order.
    pub fn on_sent(&mut self, info: SentInfo, content: F) -> SendIndex {
        debug_assert!(!info.ack_eliciting || info.in_flight, "RFC 9002 §2");
        debug_assert!(
            !self.spaces[info.space.index()].discarded,
            "{:?} has no keys",
            info.space
        );
        let Some(path) = self.path_mut(info.path) else {
            // Even after this error a number must never be used twice, because it is the
            // AEAD's nonce (RFC 9001 §5.3).
            self.spaces[info.space.index()].next = info.number + 1;
            return 0;
        };
        let (index, rate) = path.on_sent(&info);
        self.deadlock_since = Some(info.now);
        let packet = Packet {
            path: info.path,
            index,
            time: info.now,
            size: info.size,
            ack_eliciting: info.ack_eliciting,
            in_flight: info.in_flight,
            mtu_probe: info.mtu_probe,
            ect: info.ect,
            rate,
            content,
        };
        self.spaces[info.space.index()].push(info.number, packet);
        index
    }

    /// Returns the ack-eliciting packets in flight, oldest first: what a probe may
    /// repeat when there is nothing new to send (RFC 9002 §6.2.4).
    pub fn unacked(&self, space: Space) -> impl Iterator<Item = (u64, &F)> {
        self.spaces[space.index()]
            .sent
            .iter()
            .filter(|(_, packet)| packet.ack_eliciting)
            .map(|(number, packet)| (number, &packet.content))
    }

    /// Returns whether any ack-eliciting packet of a space is in flight.
    #[must_use]
    pub fn has_unacked(&self, space: Space) -> bool {
        self.paths
            .iter()
            .any(|path| path.spaces[space.index()].ack_eliciting > 0)
    }

    /// Discards the Initial or Handshake space together with its keys (RFC 9002 §6.2.2
    /// and §6.4): nothing of the space can be acknowledged or lost any more.
    pub fn discard_space(&mut self, space: Space, now: Instant) {
        debug_assert!(space != Space::Data, "1-RTT keys stay");
        if self.spaces[space.index()].discarded {
            return;
        }
        self.spaces[space.index()].discarded = true;
        self.remove_packets(space, None, |_, _| {});
        self.spaces[space.index()].sent.release_memory();
        self.restart_timers(now);
    }

    /// Returns all Initial and 0-RTT packets after a Retry, because the server has kept
    /// nothing (RFC 9002 §6.3). Their numbers are not used again (RFC 9000
    /// §17.2.5.3).
    pub fn on_retry(&mut self, now: Instant, out: &mut Outcome<F>) {
        self.return_as_lost(Space::Initial, LossCause::NotAccepted, None, out);
        self.return_as_lost(Space::Data, LossCause::NotAccepted, None, out);
        self.restart_timers(now);
    }

    /// Returns all 0-RTT packets after the server has rejected them, without a
    /// congestion signal (RFC 9002 §6.4). Call it before any 1-RTT packet is sent.
    pub fn on_zero_rtt_rejected(&mut self, now: Instant, out: &mut Outcome<F>) {
        self.return_as_lost(Space::Data, LossCause::NotAccepted, None, out);
        self.restart_timers(now);
    }

    /// Forgets every packet sent and releases the memory: for a connection that has
    /// ended. Packet numbers go on.
    pub fn abandon(&mut self) {
        for space in Space::ALL {
            self.remove_packets(space, None, |_, _| {});
        }
        self.release_memory();
    }

    fn restart_timers(&mut self, now: Instant) {
        for path in &mut self.paths {
            path.pto_count = 0;
            path.restart_pto(now);
        }
        self.deadlock_since = self.deadlock_since.map(|_| now);
    }

    /// Returns a space's packets, of one path or of all, as lost.
    pub(crate) fn return_as_lost(
        &mut self,
        space: Space,
        cause: LossCause,
        only: Option<PathId>,
        out: &mut Outcome<F>,
    ) {
        self.remove_packets(space, only, |number, packet| {
            out.lost.push(lost(space, number, packet, cause));
        });
    }

    /// Removes a space's packets, of one path or of all, and passes those in flight to
    /// `take`.
    fn remove_packets(
        &mut self,
        space: Space,
        only: Option<PathId>,
        mut take: impl FnMut(u64, Packet<F>),
    ) {
        self.reset_loss_tally();
        let Self { spaces, paths, .. } = self;
        let ledger = &mut spaces[space.index()];
        if only.is_none() {
            ledger.loss_time = None;
            ledger.lost.clear();
        }
        // Packets sent before a path was added cannot be on it. Starting after them keeps
        // it cheap to remove a path that an attacker's packet created: no walk over
        // everything in flight.
        let mut from = match (space, only) {
            (Space::Data, Some(only)) => first_number(paths, only),
            (Space::Initial | Space::Handshake, Some(_)) | (_, None) => 0,
        };
        while let Some((number, packet)) = ledger.sent.first_from(from) {
            from = number + 1;
            if only.is_some_and(|only| only != packet.path) {
                continue;
            }
            let Some(packet) = ledger.sent.remove(number) else {
                continue;
            };
            if let Some(path) = paths.iter_mut().find(|path| path.id == packet.path) {
                path.leave_flight(space, &packet);
            }
            if packet.in_flight {
                take(number, packet);
            }
        }
        for path in paths.iter_mut() {
            let bytes = path.loss.in_flight_before - path.in_flight;
            if bytes > 0 {
                path.controller.on_discarded(bytes);
            }
        }
    }

    /// Updates the state of the handshake, on which the timer depends.
    pub fn set_handshake_state(&mut self, context: PtoContext, now: Instant) {
        if context != self.context {
            self.context = context;
            self.deadlock_since = self.deadlock_since.map(|_| now);
        }
    }

    /// Sets the peer's max_ack_delay, when it is known or has changed (ACK_FREQUENCY).
    pub fn set_max_ack_delay(&mut self, max_ack_delay: Duration) {
        self.config.max_ack_delay = max_ack_delay;
    }

    /// Sets the RTT that is assumed before a path's first sample, for instance from a
    /// Retry, a resumed session or a PATH_CHALLENGE (RFC 9002 §6.2.2).
    pub fn set_initial_rtt(&mut self, path: PathId, rtt: Duration) {
        if let Some(path) = self.path_mut(path) {
            path.rtt.set_initial(rtt);
        }
    }

    /// Tells the controller of a path that the peer's CE count rose by `increase`.
    pub(crate) fn on_ecn_ce(
        &mut self,
        path: PathId,
        largest_index: SendIndex,
        increase: u64,
        now: Instant,
    ) {
        if let Some(path) = self.path_mut(path) {
            path.on_ecn_ce(largest_index, increase, now);
        }
    }

    /// Sets the maximum datagram size of a path, in bytes of UDP payload.
    pub fn set_mds(&mut self, path: PathId, mds: u64) {
        if let Some(path) = self.path_mut(path) {
            path.set_mds(mds);
        }
    }

    /// Sets the reason why the send path has stopped, or that it has resumed. Call it at
    /// the end of every train, also when the reason is the same as before: it applies
    /// to the packets sent since the last call.
    pub fn set_limit(&mut self, path: PathId, limit: Limit, now: Instant) {
        let active = path == self.active;
        if let Some(path) = self.path_mut(path) {
            path.set_limit(limit, now);
            if active {
                self.limits.set(limit, now);
            }
        }
    }

    /// Tells the controller that the connection sends again after everything had been
    /// acknowledged and nothing waited to be sent.
    pub fn restart_from_idle(&mut self, path: PathId, now: Instant) {
        if let Some(path) = self.path_mut(path) {
            path.controller.restart_from_idle(now);
        }
    }

    /// Returns whether a train of packets that count in flight may be sent. Packets with
    /// only ACKs, and probes after a PTO, are sent without asking (RFC 9002 §7.5, §7.7).
    pub fn gate(&mut self, path: PathId, now: Instant) -> Gate {
        self.path_mut(path)
            .map_or(Gate::Congestion, |path| path.gate(now))
    }

    /// Returns the bytes allocated for packets sent, losses remembered and paths.
    /// `content` returns what a packet's content has allocated besides its own size.
    /// Walks every packet in flight: too slow to be called for every packet.
    #[must_use]
    pub fn memory(&self, content: impl Fn(&F) -> usize) -> usize {
        let spaces = self.spaces.memory(&content);
        let paths = self
            .paths
            .iter()
            .map(|path| size_of_val(&*path.controller) + path.events.memory());
        spaces + paths.sum::<usize>() + self.paths.capacity() * size_of::<PathRecovery>()
    }

    /// Releases the memory that is held for reuse. For a connection that becomes idle.
    pub fn release_memory(&mut self) {
        self.spaces.release_memory();
    }
}

fn first_number(paths: &[PathRecovery], id: PathId) -> u64 {
    let path = paths.iter().find(|path| path.id == id);
    path.map_or(0, |path| path.first_number)
}
