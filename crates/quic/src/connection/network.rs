//! The paths of a connection and the loss recovery on them.
//!
//! [`Paths`] decides which path carries data; loss recovery, and the connection IDs among
//! the [frames](FrameOwners), know the same paths. What changes all three is in
//! [`migration`](super::migration), what acknowledgements and losses change in
//! [`delivery`](super::delivery).

use core::time::Duration;

use clearway_recovery::limit::Limit;
use clearway_recovery::{PathId, PathRecovery, PtoContext, Recovery, Space};

use super::Config;
use super::keyring::Keyring;
use super::owners::FrameOwners;
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

/// Room that holds a short header with the longest connection ID, both path
/// frames and the tag.
pub(crate) const MIN_PACKET: usize = 64;

/// The paths, and loss recovery on each.
#[derive(Debug)]
pub(crate) struct Network {
    pub(super) paths: Paths,
    pub(super) recovery: Recovery<SentFrames>,
    /// Milliseconds that the peer holds an ACK back: none until the handshake is confirmed,
    /// since it does not do so before (RFC 9002 §6.2.1).
    peer_ack_delay: u16,
}

/// What an event of the network may concern besides the network.
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

impl Context<'_> {
    pub(super) fn progress(&self) -> HandshakeProgress {
        HandshakeProgress {
            role: self.role,
            handshake: self.handshake,
            has_handshake_keys: self.keys.handshake.is_some(),
        }
    }
}

/// How far the handshake is, as far as loss recovery depends on it.
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
        }
    }

    /// The handshake is confirmed: the path is proven, and ACKs may come later.
    pub(super) fn on_confirmed(&mut self, now: Instant, peer: Option<&PeerParameters>) {
        self.peer_ack_delay = peer.map_or(0, PeerParameters::max_ack_delay_millis);
        self.paths.on_confirmed(now);
    }

    /// Loss recovery on the active path.
    #[inline]
    #[expect(
        clippy::expect_used,
        reason = "recovery gets its first path at the start, and loses none but those that `Paths` gives up, never the active one"
    )]
    pub(super) fn active_recovery(&self) -> &PathRecovery {
        let active = self.recovery.path(self.paths.active_id());
        debug_assert!(active.is_some(), "recovery has every path");
        active
            .or_else(|| self.recovery.paths().next())
            .expect("recovery has a path")
    }

    /// PTO of the active path without backoff.
    pub(super) fn pto(&self) -> Duration {
        self.pto_of(self.paths.active_id())
    }

    /// PTO of a path without backoff, the active one's if it is unknown.
    #[inline]
    pub(super) fn pto_of(&self, id: PathId) -> Duration {
        let path = self.recovery.path(id);
        let rtt = path.unwrap_or_else(|| self.active_recovery()).rtt();
        let ack_delay = Duration::from_millis(self.peer_ack_delay.into());
        rtt.pto().saturating_add(ack_delay)
    }

    /// The reason for not sending, or for having stopped.
    #[inline]
    pub(super) fn limit(&self) -> Limit {
        self.recovery.limits().current()
    }

    /// Records the one reason for not sending on the active path.
    pub(super) fn set_limit(&mut self, now: Instant, limit: Limit, reports: &mut Reports) {
        let before = self.limit();
        self.recovery.set_limit(self.paths.active_id(), limit, now);
        reports.trace.limit_changed(now, before, self.limit());
    }

    /// Room for frames in a full packet of the active path.
    #[inline]
    pub(super) fn datagram_room(&self, frames: &FrameOwners) -> usize {
        /// First byte, packet number, tag.
        const OVERHEAD: usize = 1 + 4 + 16;
        let path = self.paths.active();
        let cid = frames.remote_cids.cid(path.id).map_or(0, |cid| cid.len());
        usize::from(path.mtu.current()).saturating_sub(cid.saturating_add(OVERHEAD))
    }

    /// Whether nothing can leave on the active path until more bytes come from
    /// it (RFC 9000 §8). In the handshake datagrams have to be full; later what
    /// the credit allows is sent, or a short packet from a new address could
    /// not even be answered with PATH_CHALLENGE.
    #[inline]
    pub(super) fn is_amplification_blocked(&self, handshake: HandshakeState) -> bool {
        let least = match handshake {
            HandshakeState::Running => u64::from(MIN_MTU),
            HandshakeState::Complete | HandshakeState::Confirmed => MIN_PACKET as u64,
        };
        self.paths.active().amplification.available() < least
    }

    /// Tells recovery what its timers depend on (RFC 9002 §6.2.1, §6.2.2.1).
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

    /// Tells the observer the figures of recovery.
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

    /// The size in use on a path may have become `change`.
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

    /// The host refused a datagram of `size` bytes as too large.
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

    /// Drops the keys of a packet number space and everything that waited in it
    /// (RFC 9001 §4.9).
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

/// Whether the smallest packet may go to a path: there are credit and a
/// connection ID for it.
#[inline]
pub(crate) fn can_send(path: &Path, frames: &FrameOwners) -> bool {
    path.amplification.available() >= MIN_PACKET as u64 && frames.remote_cids.cid(path.id).is_some()
}
