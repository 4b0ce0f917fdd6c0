//! The receive path: datagram, coalesced packets, headers, frames.

use clearway_recovery::Space;

use super::Connection;
use super::arrival::{Arrival, AuthenticatedPacket, RecvMeta};
use super::keyring::{KeyUpdate, OpenedPacket, space_of};
use super::reports::DroppedPacket;
use super::state::LifecycleState;
use super::work::FrameCost;
use crate::Instant;
use crate::ack::{ReceivedEcn, ReceivedPacket};
use crate::count::Count;
use crate::defects::Quirk;
use crate::error::ConnectionError;
use crate::error::TransportError;
use crate::event::{DropReason, TraceEvent};
use crate::path::Addresses;
use crate::wire::header::HeaderKind;
use crate::wire::reset::candidate;
use crate::wire::{Frame, Frames, MIN_MTU, PacketKind, PartialHeader, frame};

enum PacketError {
    Dropped(DroppedPacket),
    Fatal(TransportError),
}

impl From<TransportError> for PacketError {
    fn from(error: TransportError) -> Self {
        Self::Fatal(error)
    }
}

impl Connection {
    /// Processes a received UDP datagram. Decrypts it in place.
    pub fn receive(&mut self, now: Instant, from: RecvMeta, datagram: &mut [u8]) {
        self.begin_trace(now);
        self.reports.counters.datagrams_received.count_one();
        self.reports
            .counters
            .bytes_received
            .count(datagram.len() as u64);
        match self.lifecycle.state {
            LifecycleState::Open => {}
            LifecycleState::Closing(_) => return self.lifecycle.on_datagram_while_closing(),
            LifecycleState::Draining { .. } | LifecycleState::Drained => return,
        }
        let progress = self.progress();
        let moved = || !self.network.paths.has_remote(from.remote);
        if self.config.shows(Quirk::DropsMovedClients, moved)
            || self
                .network
                .is_unexpected_source(&from, self.role, self.config.allow_migration)
        {
            return self
                .reports
                .packet_dropped(now, (None, DropReason::Unexpected));
        }
        let len = datagram.len();
        self.network.credit_received(now, progress, &from, len);
        // Opening a packet may overwrite the bytes where a stateless reset has its token.
        let token = candidate(datagram);
        let mut authenticated = false;
        if let Err(error) =
            self.receive_packets(now, Arrival { at: now, from }, datagram, &mut authenticated)
        {
            self.fail(now, error);
            return;
        }
        if let Err(error) = self.process_undecryptable(now) {
            self.fail(now, error);
            return;
        }
        if progress.handshake != self.lifecycle.handshake && self.lifecycle.is_open() {
            // After the packets that waited for this: those came earlier, and would lead back.
            let (network, mut cx, outcome) = self.network_parts(now);
            network.on_completing_datagram(&mut cx, outcome, &from, len);
        }
        self.discard_early_spaces();
        if self.frames.streams.take_progress() {
            self.last_activity = now;
        }
        if authenticated {
            self.replace_due_cids(now);
        }
        // RFC 9000 §10.3: whatever the first byte looks like.
        if !authenticated && token.is_some_and(|token| self.frames.remote_cids.is_reset(&token.0)) {
            self.on_peer_close(now, ConnectionError::StatelessReset);
        }
    }

    fn receive_packets(
        &mut self,
        now: Instant,
        arrival: Arrival,
        datagram: &mut [u8],
        authenticated: &mut bool,
    ) -> Result<(), TransportError> {
        let datagram_len = datagram.len();
        let mut rest = datagram;
        let mut first_dcid = None;
        while !rest.is_empty() {
            let header = match PartialHeader::parse(rest, self.generator.cid_lengths()) {
                Ok(header) => header,
                Err(error) => {
                    self.reports
                        .packet_dropped(now, (None, DropReason::Malformed));
                    let Some((_, tail)) = error
                        .packet_len()
                        .and_then(|skip| rest.split_at_mut_checked(skip))
                    else {
                        break;
                    };
                    rest = tail;
                    continue;
                }
            };
            let Some((packet, tail)) = rest.split_at_mut_checked(header.packet_len) else {
                break;
            };
            let dcid = header.dcid.cid(packet);
            // RFC 9000 §12.2: coalesced packets are all for one connection.
            if *first_dcid.get_or_insert(dcid) != dcid {
                self.reports
                    .packet_dropped(now, (header.kind.packet(), DropReason::Unexpected));
                break;
            }
            match self.receive_packet(now, arrival, datagram_len, &header, packet) {
                Ok(()) => *authenticated = true,
                Err(PacketError::Dropped(dropped)) => {
                    if dropped.1 == DropReason::DecryptionFailed {
                        self.config.refuse_if(Quirk::RefusesForgedPackets)?;
                    }
                    self.reports.packet_dropped(now, dropped);
                }
                Err(PacketError::Fatal(error)) => self.config.forgive(error)?,
            }
            if !self.lifecycle.is_open() {
                break;
            }
            rest = tail;
        }
        Ok(())
    }

    /// Processes kept packets whose keys are now available: a server's Handshake flight
    /// after its ServerHello, 0-RTT after the ClientHello.
    fn process_undecryptable(&mut self, now: Instant) -> Result<(), TransportError> {
        // One packet may provide the keys of others.
        while self.lifecycle.is_open()
            && let Some(mut kept) = self
                .undecryptable
                .next_openable(&self.keys, self.lifecycle.handshake)
        {
            self.receive_packets(now, kept.arrival, &mut kept.packet, &mut false)?;
        }
        Ok(())
    }

    fn receive_packet(
        &mut self,
        now: Instant,
        arrival: Arrival,
        datagram_len: usize,
        header: &PartialHeader,
        packet: &mut [u8],
    ) -> Result<(), PacketError> {
        let kind = match header.kind {
            HeaderKind::Initial { .. } => PacketKind::Initial,
            HeaderKind::ZeroRtt => PacketKind::ZeroRtt,
            HeaderKind::Handshake => PacketKind::Handshake,
            HeaderKind::Short { .. } => PacketKind::OneRtt,
            HeaderKind::Retry { token, .. } => {
                let Some(scid) = header.scid.cid(packet) else {
                    return Err(PacketError::Dropped((None, DropReason::Malformed)));
                };
                return self
                    .on_retry(now, packet, header.version, scid, token.of(packet))
                    .map_err(|reason| PacketError::Dropped((None, reason)));
            }
            HeaderKind::VersionNegotiation { versions } => {
                return self
                    .on_version_negotiation(now, header, packet, versions.of(packet))
                    .map_err(|reason| PacketError::Dropped((None, reason)));
            }
            HeaderKind::UnsupportedVersion => {
                return Err(PacketError::Dropped((None, DropReason::Unexpected)));
            }
        };
        let dropped = |reason| PacketError::Dropped((Some(kind), reason));
        let handshake = self.lifecycle.handshake;
        if self
            .network
            .is_unexpected_packet(&arrival.from, handshake, kind)
        {
            return Err(dropped(DropReason::Unexpected));
        }
        if let HeaderKind::Initial { token } = header.kind
            && self.is_client()
            && !token.is_empty()
        {
            // RFC 9000 §17.2.2: a server's have none.
            return Err(dropped(DropReason::Malformed));
        }
        if kind == PacketKind::Initial
            && !self.is_client()
            && datagram_len < usize::from(MIN_MTU)
            && !self.config.has(Quirk::AcceptsSmallInitials)
        {
            // RFC 9000 §14.1, and not only for the first: each permits answers of three
            // times its size.
            return Err(dropped(DropReason::Malformed));
        }
        if !header.fixed_bit && !self.config.grease {
            // RFC 9000 §17.2: the fixed bit is set, unless this end offered RFC 9287.
            return Err(dropped(DropReason::Malformed));
        }
        if !header.fixed_bit {
            self.config.refuse_if(Quirk::RefusesUnsetFixedBit)?;
        }
        if kind != PacketKind::OneRtt
            && !(self.tls.is_from_peer(header.scid.cid(packet))
                && self.tls.versions.accepts(self.role, kind, header.version))
        {
            return Err(dropped(DropReason::Unexpected));
        }
        if !self.keys.can_open(kind, self.lifecycle.handshake) {
            let kept = &mut self.undecryptable;
            return Err(dropped(kept.keep(arrival, kind, packet, &self.keys)));
        }
        let OpenedPacket {
            number,
            payload,
            generation,
            ..
        } = self
            .unprotect(now, kind, header, packet)?
            .ok_or_else(|| dropped(DropReason::DecryptionFailed))?;
        let state = self.frames.spaces.get_mut(space_of(kind));
        if state.received.is_seen(number) {
            return Err(dropped(DropReason::Duplicate));
        }
        self.reports.trace(now, || TraceEvent::PacketReceived {
            kind,
            number,
            size: header.packet_len as u16,
            ecn: arrival.from.ecn,
            payload: packet.get(payload.clone()).unwrap_or_default(),
        });
        self.network
            .paths
            .on_authenticated(&Addresses::from(&arrival.from));
        self.on_authenticated(now, kind, header, packet);
        self.receiving_cid = header.dcid.cid(packet).unwrap_or(self.receiving_cid);
        let payload = packet.get(payload).unwrap_or_default();
        self.process_frames(
            now,
            &AuthenticatedPacket {
                kind,
                number,
                generation,
                payload,
                datagram_len,
                arrived: arrival.at,
                from: arrival.from,
            },
        )?;
        Ok(())
    }

    /// Removes the protection of a packet. Returns `None` if it is not authentic.
    fn unprotect(
        &mut self,
        now: Instant,
        kind: PacketKind,
        header: &PartialHeader,
        packet: &mut [u8],
    ) -> Result<Option<OpenedPacket>, TransportError> {
        let other_version =
            kind == PacketKind::Initial && header.version != self.tls.versions.current();
        if other_version {
            self.expect_version(header.version);
        }
        let number_at = header.number_at;
        #[cfg(feature = "defects")]
        if kind == PacketKind::OneRtt {
            let updated = || self.keys.is_of_other_phase(number_at, packet);
            if self.config.shows(Quirk::IgnoresKeyUpdates, updated) {
                return Ok(None);
            }
        }
        let space = self.frames.spaces.get_mut(space_of(kind));
        let largest = space.received.max();
        let opened = self
            .keys
            .open(kind, other_version, number_at, largest, packet)?;
        if let Some(OpenedPacket {
            update: Some(update),
            ..
        }) = &opened
        {
            // RFC 9001 §6.5: keep the old keys for packets still in flight.
            let late = self.network.pto().saturating_mul(3);
            self.keys.retain_previous_until(now + late);
            match update {
                KeyUpdate::Initiated => {
                    self.config.refuse_if(Quirk::RefusesKeyUpdates)?;
                    self.reports.key_updated(now, true);
                }
                KeyUpdate::Answered => {}
            }
        }
        Ok(opened)
    }

    /// Handles what an authentic packet shows, whatever its frames.
    fn on_authenticated(
        &mut self,
        now: Instant,
        kind: PacketKind,
        header: &PartialHeader,
        packet: &[u8],
    ) {
        self.reports.counters.packets_received.count_one();
        self.timers.on_packet_received(now);
        self.restart_silence_timer(now);
        match kind {
            PacketKind::Initial if self.is_client() => {
                self.follow_server_to(now, header.version);
                if let Some(scid) = header.scid.cid(packet) {
                    self.bound_initial_rtt(now);
                    self.on_server_cid(scid);
                }
            }
            PacketKind::Handshake if !self.is_client() => {
                // The client has the Handshake keys, so it receives at its address (RFC
                // 9000 §8.1), and the Initial keys are no longer needed (RFC 9001 §4.9.1).
                self.network.paths.on_address_validated();
                self.discard_keys(now, Space::Initial);
            }
            PacketKind::Initial
            | PacketKind::ZeroRtt
            | PacketKind::Handshake
            | PacketKind::OneRtt => {}
        }
    }

    /// Processes a packet: its frames, then its acknowledgement, then migration.
    fn process_frames(
        &mut self,
        now: Instant,
        packet: &AuthenticatedPacket<'_>,
    ) -> Result<(), TransportError> {
        let space = space_of(packet.kind);
        frame::check_not_empty(packet.payload).or_else(|error| self.config.forgive(error))?;
        let mut ack_eliciting = false;
        let mut probing_only = true;
        let mut acks: u32 = 0;
        for frame in Frames::new(packet.payload) {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => {
                    self.config.forgive(error)?;
                    ack_eliciting = true;
                    break;
                }
            };
            if let Err(error) = frame.check_allowed(packet.kind, self.role.peer()) {
                self.config.forgive(error)?;
                ack_eliciting = true;
                continue;
            }
            ack_eliciting |= frame.is_ack_eliciting();
            probing_only &= frame.is_probing();
            let kind = frame.frame_type();
            acks = acks.saturating_add(u32::from(matches!(frame, Frame::Ack(_))));
            let units = FrameCost::of(&frame).upfront(acks <= 1);
            self.charge(now, units)
                .and_then(|()| self.on_frame_with_defect(now, packet, &frame))
                .or_else(|error| self.config.forgive(error.in_frame(kind)))?;
            if !self.lifecycle.is_open() {
                return Ok(());
            }
        }
        let state = self.frames.spaces.get_mut(space);
        state.received.insert(packet.number);
        let received = &state.received;
        state.ack.on_packet(
            ReceivedPacket {
                number: packet.number,
                ack_eliciting,
                ecn: match self.config.has(Quirk::IgnoresEcnMarks) {
                    true => ReceivedEcn::NotEct,
                    false => packet.from.ecn,
                },
                at: packet.arrived,
            },
            |from| received.first_unseen(from),
        );
        let moved = || self.network.paths.active().remote != packet.from.remote;
        if packet.kind == PacketKind::OneRtt
            && !probing_only
            && !self.is_client()
            && !self.config.shows(Quirk::IgnoresMoves, moved)
        {
            let (network, mut cx, outcome) = self.network_parts(now);
            network.on_non_probing(&mut cx, outcome, packet);
        }
        Ok(())
    }
}
