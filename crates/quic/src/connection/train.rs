//! How a train is written: on which path, how many datagrams, how large, and why no more.

use std::net::{IpAddr, SocketAddr};

use clearway_recovery::limit::Limit;
use clearway_recovery::{Gate, PathId, Space};

use super::network::can_send;
use super::packet::{DatagramPurpose, PacketWriter, SendPermit};
use super::state::HandshakeState;
use crate::path::ecn::Mark;
use crate::stream::Sendability;
use crate::wire::MIN_MTU;

/// A train of datagrams that [`Connection::transmit`](super::Connection::transmit) wrote
/// into the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The address to send to.
    pub remote: SocketAddr,
    /// The local address to send from, if known.
    pub local_ip: Option<IpAddr>,
    /// The ECN mark of every datagram.
    pub ecn: Mark,
    /// Bytes written, the sum of all datagrams.
    pub len: usize,
    /// Size of each datagram except the last, which may be shorter; `None` if there is only
    /// one.
    pub segment: Option<usize>,
}

impl PacketWriter<'_> {
    fn is_blocked(&self) -> bool {
        self.network
            .is_amplification_blocked(self.lifecycle.handshake)
    }

    /// Writes CONNECTION_CLOSE in every space whose keys the peer may have (RFC 9000
    /// §10.2.3).
    pub(super) fn write_close(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let id = self.network.paths.active_id();
        self.network.paths.active_mut().begin_train(self.now);
        let path = self.network.paths.active();
        let size = usize::from(path.mtu.current()).min(buffer.len());
        let credit = in_memory(path.amplification.available());
        let mut permit = SendPermit::Closed;
        let slot = buffer.get_mut(..size.min(credit))?;
        let len = self.write_datagram(id, slot, &mut permit, DatagramPurpose::Close);
        self.finish_train(id, len, None)
    }

    /// Writes PATH_CHALLENGE and PATH_RESPONSE for a path other than the active one, in a
    /// datagram of its own that is not paced.
    pub(super) fn write_path_frames(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let path = self
            .network
            .paths
            .inactive()
            .find(|path| path.has_frames_due(self.now) && can_send(path, self.frames))?;
        let id = path.id;
        let size = usize::from(MIN_MTU)
            .min(buffer.len())
            .min(in_memory(path.amplification.available()));
        let slot = buffer.get_mut(..size)?;
        if let Some(path) = self.network.paths.get_mut(id) {
            path.begin_train(self.now);
        }
        let mut permit = SendPermit::Closed;
        let len = self.write_datagram(id, slot, &mut permit, DatagramPurpose::PathFrames);
        self.finish_train(id, len, None)
    }

    /// Writes a datagram larger than the path is known to carry (RFC 9000 §14.4). Probes go
    /// before data: a sender that always has data would otherwise never have room for one,
    /// and send small datagrams for as long as the transfer lasts.
    pub(super) fn write_mtu_probe(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if self.lifecycle.handshake != HandshakeState::Confirmed {
            return None;
        }
        let id = self.network.paths.active_id();
        if !self.network.paths.is_active_validated() {
            return None;
        }
        // The gate last, because it costs the most and a probe is seldom due.
        let size = usize::from(self.network.paths.active_mut().mtu.next_probe(self.now)?);
        if !matches!(self.network.recovery.gate(id, self.now), Gate::Open { .. }) {
            return None;
        }
        let slot = buffer.get_mut(..size)?;
        self.network.paths.active_mut().mtu.on_probe_sent();
        self.network.paths.active_mut().begin_train(self.now);
        let mut permit = SendPermit::Closed;
        let len = self.write_datagram(id, slot, &mut permit, DatagramPurpose::MtuProbe);
        self.finish_train(id, len, None)
    }

    /// Writes everything due on the active path, in datagrams of one size.
    pub(super) fn write_train(
        &mut self,
        buffer: &mut [u8],
        max_datagrams: usize,
    ) -> Option<Transmit> {
        let id = self.network.paths.active_id();
        if !self.has_anything_for(id) {
            // Window and pacer need not be asked, which costs more than all else here.
            self.timers.pacing = None;
            return None;
        }
        self.network.paths.active_mut().begin_train(self.now);
        let mut permit = self.permit(id);
        let mut written = 0;
        let mut segment = None;
        for following in (0..max_datagrams.max(1)).rev() {
            let size =
                segment.unwrap_or_else(|| usize::from(self.network.paths.active().mtu.current()));
            let Some(rest) = buffer.get_mut(written..) else {
                break;
            };
            let room = rest.len();
            if room < size || self.is_blocked() {
                break;
            }
            let credit = self.network.paths.active().amplification.available();
            let Some(slot) = rest.get_mut(..size.min(in_memory(credit))) else {
                break;
            };
            permit.require(slot.len());
            let shape = if following > 0 && room >= size.saturating_mul(2) {
                DatagramPurpose::OrdinaryNotLast
            } else {
                DatagramPurpose::Ordinary
            };
            let len = self.write_datagram(id, slot, &mut permit, shape);
            if len == 0 {
                break;
            }
            written = written.saturating_add(len);
            segment.get_or_insert(len);
            if Some(len) != segment || len < size {
                break;
            }
        }
        self.finish_train(id, written, segment)
    }

    /// Returns what may be sent now: as many bytes as window and pacer allow, or only what
    /// they do not apply to.
    fn permit(&mut self, id: PathId) -> SendPermit {
        if self.network.paths.active().busy
            && self.network.active_recovery().data_in_flight() == 0
            && self.network.limit() == Limit::Application
            && self.frames.has_pending_data()
        {
            self.network.recovery.restart_from_idle(id, self.now);
            self.network.paths.active_mut().busy = false;
        }
        match self.network.recovery.gate(id, self.now) {
            Gate::Open { bytes } => {
                self.timers.pacing = None;
                SendPermit::Bytes(bytes)
            }
            Gate::Congestion => {
                self.timers.pacing = None;
                SendPermit::Closed
            }
            Gate::Pacing { until } => {
                self.timers.pacing = Some(until);
                SendPermit::Closed
            }
        }
    }

    fn finish_train(&self, id: PathId, written: usize, segment: Option<usize>) -> Option<Transmit> {
        if written == 0 {
            return None;
        }
        let path = self.network.paths.get(id)?;
        Some(Transmit {
            remote: path.remote,
            local_ip: path.local_ip,
            ecn: path.train_mark,
            len: written,
            segment: segment.filter(|&size| size < written),
        })
    }

    /// Returns the reason for not sending. [`Limit`] documents the order.
    pub(super) fn limit(&self) -> Limit {
        let blocked = self
            .timers
            .pacing
            .map_or(Limit::Congestion, |_| Limit::Pacing);
        let wants_crypto = self.keys.sending_spaces().iter().any(|&space| {
            let state = self.frames.spaces.get(space);
            self.keys.sending_kind(space).is_some()
                && state.is_some_and(|state| state.crypto.has_data_to_send())
        });
        let wants_data =
            self.keys.sending_kind(Space::Data).is_some() && self.frames.has_pending_data();
        // What is left of the anti-amplification credit may be too little for the next
        // frame.
        if self.network.paths.active().amplification.available() < u64::from(MIN_MTU) {
            return Limit::Amplification;
        }
        if wants_crypto || wants_data {
            return blocked;
        }
        if self.lifecycle.handshake == HandshakeState::Running {
            return Limit::Handshake;
        }
        match self.frames.streams.sendability() {
            Sendability::Ready => blocked,
            Sendability::Blocked(limit) => limit,
        }
    }
}

/// Converts a size that may exceed the address space.
fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
