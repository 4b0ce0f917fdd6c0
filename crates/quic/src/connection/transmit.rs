//! The way out: which path, how many datagrams, how large, and why no more.

use std::net::{IpAddr, SocketAddr};

use clearway_recovery::limit::Limit;
use clearway_recovery::{Gate, PathId, Space};

use super::Connection;
use super::life::{Handshake, Life};
use super::packet::{Permit, Shape};
use super::space::SPACES;
use crate::Instant;
use crate::crypto::OneRttKeys;
use crate::path::Path;
use crate::path::ecn::Mark;
use crate::stream::Sendability;
use crate::wire::MIN_MTU;

/// Room that holds a short header with the longest connection ID, both path
/// frames and the tag.
pub(crate) const MIN_PACKET: usize = 64;

/// A train that [`Connection::transmit`] wrote into the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where it goes.
    pub remote: SocketAddr,
    /// The local address to send from, if one is known.
    pub local_ip: Option<IpAddr>,
    /// The ECN mark of every datagram in it.
    pub ecn: Mark,
    /// Bytes written, over all datagrams.
    pub len: usize,
    /// Size of each datagram but the last; `None` if there is one datagram.
    pub segment: Option<usize>,
}

impl Connection {
    /// Writes the next train into `buffer`, at most `max_datagrams` of one
    /// size, ready for segmentation offload. `None`: nothing may leave now; ask
    /// again after the next datagram, timer or write.
    ///
    /// `buffer` has to hold the largest datagram (`Config::max_mtu`); 64 KiB is
    /// the useful maximum.
    pub fn transmit(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        max_datagrams: usize,
    ) -> Option<Transmit> {
        match self.life {
            Life::Open => {}
            Life::Closing(_) => return self.transmit_close(now, buffer),
            Life::Draining { .. } | Life::Drained => return None,
        }
        // RFC 9001 §6.6: while enough packets are left to say so.
        let worn = self.keys.one_rtt.as_ref().map(OneRttKeys::check_limits);
        if let Some(Err(error)) = worn {
            self.fail(now, error);
            return self.transmit_close(now, buffer);
        }
        let sent = self
            .transmit_path_frames(now, buffer)
            .or_else(|| self.transmit_mtu_probe(now, buffer))
            .or_else(|| self.transmit_train(now, buffer, max_datagrams));
        if sent.is_some() {
            return sent;
        }
        if !self.life.is_open() {
            // Writing failed: that is what the peer has to hear.
            return self.transmit_close(now, buffer);
        }
        self.note_limit(now);
        None
    }

    /// The socket or the host did not take what `transmit` had ready.
    pub fn on_scheduling_limited(&mut self, now: Instant) {
        if self.life.is_open() {
            self.set_limit(now, Limit::Scheduling);
        }
    }

    fn transmit_train(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        max_datagrams: usize,
    ) -> Option<Transmit> {
        let id = self.paths.active_id();
        self.paths.active_mut().begin_train();
        let mut permit = self.permit(now, id);
        let mut written = 0;
        let mut segment = None;
        for following in (0..max_datagrams.max(1)).rev() {
            let size = segment.unwrap_or_else(|| usize::from(self.paths.active().mtu.current()));
            let Some(rest) = buffer.get_mut(written..) else {
                break;
            };
            let room = rest.len();
            if room < size || self.is_amplification_blocked() {
                break;
            }
            let credit = self.paths.active().amplification.available();
            let Some(slot) = rest.get_mut(..size.min(in_memory(credit))) else {
                break;
            };
            let shape = if following > 0 && room >= size.saturating_mul(2) {
                Shape::Linked
            } else {
                Shape::Train
            };
            let len = self.write_datagram(now, id, slot, &mut permit, shape);
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

    /// What may leave now: everything, or only what no window holds back.
    fn permit(&mut self, now: Instant, id: PathId) -> Permit {
        if self.paths.active().busy
            && self.active_recovery().in_flight() == 0
            && self.recovery.limits().current() == Limit::Application
            && self.wants_data()
        {
            self.recovery.restart_from_idle(id, now);
            self.paths.active_mut().busy = false;
        }
        match self.recovery.gate(id, now) {
            Gate::Open { bytes } => {
                self.timers.pacing = None;
                Permit::Bytes(bytes)
            }
            Gate::Congestion => {
                self.timers.pacing = None;
                Permit::Closed
            }
            Gate::Pacing { until } => {
                self.timers.pacing = Some(until);
                Permit::Closed
            }
        }
    }

    pub(crate) fn finish_train(
        &self,
        id: PathId,
        written: usize,
        segment: Option<usize>,
    ) -> Option<Transmit> {
        if written == 0 {
            return None;
        }
        let path = self.paths.get(id)?;
        Some(Transmit {
            remote: path.remote,
            local_ip: path.local_ip,
            ecn: path.train_mark,
            len: written,
            segment: segment.filter(|&size| size < written),
        })
    }

    /// PATH_CHALLENGE and PATH_RESPONSE on paths other than the active one: a
    /// datagram of its own each, never paced.
    fn transmit_path_frames(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let path = self
            .paths
            .inactive()
            .find(|path| path.has_frames_due(now) && self.may_speak(path))?;
        let id = path.id;
        let size = usize::from(MIN_MTU)
            .min(buffer.len())
            .min(in_memory(path.amplification.available()));
        let slot = buffer.get_mut(..size)?;
        if let Some(path) = self.paths.get_mut(id) {
            path.begin_train();
        }
        let mut permit = Permit::Closed;
        let len = self.write_datagram(now, id, slot, &mut permit, Shape::PathFrames);
        self.finish_train(id, len, None)
    }

    /// Whether nothing can leave on the active path until more bytes come from
    /// it (RFC 9000 §8). In the handshake datagrams have to be full; later what
    /// the credit allows is sent, or a short packet from a new address could
    /// not even be answered with PATH_CHALLENGE.
    pub(crate) fn is_amplification_blocked(&self) -> bool {
        let least = match self.handshake {
            Handshake::Running => usize::from(MIN_MTU),
            Handshake::Complete | Handshake::Confirmed => MIN_PACKET,
        };
        self.paths.active().amplification.available() < least as u64
    }

    /// Whether the smallest packet may go to a path: there are credit and a
    /// connection ID for it.
    pub(crate) fn may_speak(&self, path: &Path) -> bool {
        path.amplification.available() >= MIN_PACKET as u64
            && self.remote_cids.cid(path.id).is_some()
    }

    /// A datagram larger than the path is known to carry (RFC 9000 §14.4). It goes
    /// before the data: a sender that always has some would else never find room
    /// for it, and send small datagrams for as long as the transfer lasts.
    fn transmit_mtu_probe(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if self.handshake != Handshake::Confirmed {
            return None;
        }
        let id = self.paths.active_id();
        if !self.paths.is_proven() || !matches!(self.recovery.gate(id, now), Gate::Open { .. }) {
            return None;
        }
        let size = usize::from(self.paths.active_mut().mtu.next_probe(now)?);
        let slot = buffer.get_mut(..size)?;
        self.paths.active_mut().mtu.on_probe_sent();
        self.paths.active_mut().begin_train();
        let mut permit = Permit::Closed;
        let len = self.write_datagram(now, id, slot, &mut permit, Shape::MtuProbe);
        self.finish_train(id, len, None)
    }

    /// Records the one reason for not sending (spec of `Limit` for the order).
    fn note_limit(&mut self, now: Instant) {
        let limit = self.reason();
        self.set_limit(now, limit);
    }

    fn reason(&mut self) -> Limit {
        let blocked = self
            .timers
            .pacing
            .map_or(Limit::Congestion, |_| Limit::Pacing);
        let wants_crypto = SPACES.into_iter().any(|space| {
            self.keys.sending_kind(space, self.is_client()).is_some()
                && self.space(space).crypto.next_to_send().is_some()
        });
        let wants_data = self
            .keys
            .sending_kind(Space::Data, self.is_client())
            .is_some()
            && self.wants_data();
        // What little is left of the credit may not hold the next frame.
        if self.paths.active().amplification.available() < u64::from(MIN_MTU) {
            return Limit::Amplification;
        }
        if wants_crypto || wants_data {
            return blocked;
        }
        if self.handshake == Handshake::Running {
            return Limit::Handshake;
        }
        match self.streams.sendability() {
            Sendability::Ready => blocked,
            Sendability::Blocked(limit) => limit,
        }
    }

    fn set_limit(&mut self, now: Instant, limit: Limit) {
        let before = self.recovery.limits().current();
        self.recovery.set_limit(self.paths.active_id(), limit, now);
        self.trace_limit(now, before);
    }
}

/// A size that may be more than memory has.
pub(crate) fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "transmit_tests.rs"]
mod tests;
