//! The paths of a connection and the loss recovery on them.
//!
//! [`Paths`] decides which path carries data; loss recovery and the connection IDs in
//! [`FrameOwners`] know the same paths. Events that change all three are handled in
//! [`migration`](super::migration), acknowledgements and losses in
//! [`delivery`](super::delivery).

use core::time::Duration;

use clearway_recovery::limit::Limit;
use clearway_recovery::{PathId, PathRecovery, PtoContext, Recovery, Space};

use super::config::Config;
use super::keyring::Keyring;
use super::owners::FrameOwners;
use super::path_memory::PathMemory;
use super::peer_parameters::PeerParameters;
use super::reports::Reports;
use super::sent_frame::SentFrames;
use super::state::HandshakeState;
use crate::count::Count;
use crate::event::TraceEvent;
use crate::path::Path;
use crate::path::paths::Paths;
use crate::rng::Rng;
use crate::wire::MIN_MTU;
use crate::{Instant, Role};

/// Room for a packet with a short header, the longest connection ID, both path frames and
/// the tag.
pub(crate) const MIN_PACKET: usize = 64;

/// The paths, and loss recovery on each.
#[derive(Debug)]
pub(crate) struct Network {
    pub(super) paths: Paths,
    pub(super) recovery: Recovery<SentFrames>,
    /// The peer's longest ACK delay in milliseconds; 0 until the handshake is confirmed,
    /// since it does not delay ACKs before (RFC 9002 §6.2.1).
    peer_ack_delay: u16,
    /// Another port of the same host is the same network path. Not so for a client, who moves
    /// on purpose, nor behind a balancer, whose ports stand for clients anywhere.
    pub(super) keeps_state_across_ports: bool,
    pub(super) memory: PathMemory,
}

/// The other parts of a connection that an event of the network may concern.
pub(crate) struct Context<'a> {
    pub(super) now: Instant,
    pub(super) role: Role,
    pub(super) handshake: HandshakeState,
    pub(super) config: &'a Config,
    pub(super) peer: Option<&'a PeerParameters>,
    pub(super) rng: &'a mut Rng,
    pub(super) keys: &'a mut Keyring,
    pub(super) frames: &'a mut FrameOwners,
    pub(super) reports: &'a mut Reports,
}

impl<'a> Context<'a> {
    /// Returns the peer's parameters, if it may be asked how often to acknowledge
    /// (draft-ietf-quic-ack-frequency).
    pub(super) fn peer_with_ack_frequency(&self) -> Option<&'a PeerParameters> {
        let may_ask = self.config.ack_frequency && self.handshake == HandshakeState::Confirmed;
        self.peer
            .filter(|peer| may_ask && peer.min_ack_delay().is_some())
    }

    pub(super) fn progress(&self) -> HandshakeProgress {
        HandshakeProgress {
            role: self.role,
            handshake: self.handshake,
            has_handshake_keys: self.keys.handshake.is_some(),
        }
    }
}

/// The state of the handshake, as far as loss recovery depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeProgress {
    pub(super) role: Role,
    pub(super) handshake: HandshakeState,
    pub(super) has_handshake_keys: bool,
}

impl Network {
    pub(super) fn new(paths: Paths, recovery: Recovery<SentFrames>) -> Self {
        Self {
            paths,
            recovery,
            peer_ack_delay: 0,
            keeps_state_across_ports: false,
            memory: PathMemory::default(),
        }
    }

    /// Handles the confirmation of the handshake: the path is validated, and the peer may
    /// delay ACKs.
    pub(super) fn on_confirmed(&mut self, now: Instant, peer: Option<&PeerParameters>) {
        self.peer_ack_delay = peer.map_or(0, PeerParameters::max_ack_delay_millis);
        self.paths.on_confirmed(now);
    }

    /// Returns loss recovery of the active path.
    #[inline]
    #[expect(
        clippy::expect_used,
        reason = "recovery has every path in `Paths`, which never removes the active one"
    )]
    pub(super) fn active_recovery(&self) -> &PathRecovery {
        let active = self.recovery.path(self.paths.active_id());
        debug_assert!(active.is_some(), "recovery has every path");
        active
            .or_else(|| self.recovery.paths().next())
            .expect("recovery has a path")
    }

    /// Returns the PTO of the active path without backoff.
    pub(super) fn pto(&self) -> Duration {
        self.pto_of(self.paths.active_id())
    }

    /// Returns the PTO of a path without backoff; that of the active path if `id` is
    /// unknown.
    #[inline]
    pub(super) fn pto_of(&self, id: PathId) -> Duration {
        let path = self.recovery.path(id);
        let rtt = path.unwrap_or_else(|| self.active_recovery()).rtt();
        let ack_delay = Duration::from_millis(self.peer_ack_delay.into());
        rtt.pto().saturating_add(ack_delay)
    }

    /// Returns the current reason for not sending.
    #[inline]
    pub(super) fn limit(&self) -> Limit {
        self.recovery.limits().current()
    }

    /// Sets the reason for not sending on the active path.
    pub(super) fn set_limit(&mut self, now: Instant, limit: Limit, reports: &mut Reports) {
        let before = self.limit();
        self.recovery.set_limit(self.paths.active_id(), limit, now);
        reports.trace.limit_changed(now, before, self.limit());
    }

    /// Returns the bytes for frames in a full packet of the active path.
    #[inline]
    pub(super) fn datagram_room(&self, frames: &FrameOwners) -> usize {
        /// First byte, packet number, tag.
        const OVERHEAD: usize = 1 + 4 + 16;
        let path = self.paths.active();
        let cid = frames.remote_cids.cid(path.id).map_or(0, |cid| cid.len());
        usize::from(path.mtu.current()).saturating_sub(cid.saturating_add(OVERHEAD))
    }

    /// Returns whether the anti-amplification limit blocks the active path until more bytes
    /// arrive (RFC 9000 §8). During the handshake, datagrams must be full. Later, whatever
    /// the credit allows is sent, since otherwise a short packet from a new address could
    /// not even be answered with PATH_CHALLENGE.
    #[inline]
    pub(super) fn is_amplification_blocked(&self, handshake: HandshakeState) -> bool {
        let least = match handshake {
            HandshakeState::Running => u64::from(MIN_MTU),
            HandshakeState::Complete | HandshakeState::Confirmed => MIN_PACKET as u64,
        };
        self.paths.active().amplification.available() < least
    }

    /// Updates what the timers of loss recovery depend on (RFC 9002 §6.2.1, §6.2.2.1).
    pub(super) fn update_pto_context(&mut self, now: Instant, progress: HandshakeProgress) {
        let confirmed = progress.handshake == HandshakeState::Confirmed;
        let context = PtoContext {
            handshake_confirmed: confirmed,
            has_handshake_keys: progress.has_handshake_keys,
            peer_completed_address_validation: progress.role == Role::Server
                || confirmed
                || self.recovery.largest_acked(Space::Handshake).is_some(),
            amplification_blocked: self.is_amplification_blocked(progress.handshake),
        };
        self.recovery.set_handshake_state(context, now);
    }

    /// Traces the metrics of recovery.
    #[inline]
    pub(super) fn trace(&self, now: Instant, reports: &mut Reports) {
        if !reports.trace.is_enabled() {
            return;
        }
        let ce_marks = reports.counters.ce_marks;
        reports.trace.recovery_updated(
            now,
            &self.recovery,
            self.active_recovery(),
            self.paths.active().ecn.state(),
            ce_marks,
        );
    }

    /// Applies a change of a path's MTU, if there is one.
    pub(super) fn on_mtu_change(
        &mut self,
        now: Instant,
        id: PathId,
        change: Option<u16>,
        reports: &mut Reports,
    ) {
        let Some(size) = change else { return };
        self.recovery.set_mds(id, u64::from(size));
        reports.counters.mtu_changes.count_one();
        reports.trace(now, || TraceEvent::MtuChanged { size });
    }

    /// Handles a datagram of `size` bytes that the host rejected as too large.
    pub(super) fn on_datagram_too_large(
        &mut self,
        now: Instant,
        size: usize,
        reports: &mut Reports,
    ) {
        let size = u16::try_from(size).unwrap_or(u16::MAX);
        let active = self.paths.active_mut();
        let (id, change) = (active.id, active.mtu.on_send_refused(now, size));
        self.on_mtu_change(now, id, change, reports);
    }

    /// Discards the keys of a packet number space and everything queued in it (RFC 9001
    /// §4.9).
    pub(super) fn discard_space(
        &mut self,
        now: Instant,
        space: Space,
        keys: &mut Keyring,
        frames: &mut FrameOwners,
        reports: &mut Reports,
    ) {
        if keys.discard(space) {
            self.recovery.discard_space(space, now);
            frames.discard_space(space);
            let kind = super::keyring::kind_of(space);
            reports.trace(now, || TraceEvent::KeysDiscarded { kind });
        }
    }
}

/// Returns whether the smallest packet can be sent on a path: there are credit and a
/// connection ID for it.
#[inline]
pub(crate) fn can_send(path: &Path, frames: &FrameOwners) -> bool {
    path.amplification.available() >= MIN_PACKET as u64 && frames.remote_cids.has_cid(path.id)
}
