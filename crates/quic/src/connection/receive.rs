//! The way in: datagram, coalesced packets, header, payload.

use super::keyring::space_of;
use super::life::{Handshake, Life};
use super::{Connection, Received};
use crate::ack::ReceivedPacket;
use crate::count::Count;
use crate::error::TransportError;
use crate::event::{DropReason, TraceEvent};
use crate::path::Addresses;
use crate::wire::header::{HeaderKind, OpenHeader};
use crate::wire::reset::candidate;
use crate::wire::{Frame, Frames, MIN_MTU, PacketKind, PartialHeader, RangeSet, frame};
use crate::{Instant, Role};

/// When and from where a datagram came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) from: Received,
}

/// A packet that authenticated.
pub(crate) struct Packet<'a> {
    pub(crate) kind: PacketKind,
    pub(crate) number: u64,
    /// Key generation that opened it (1-RTT), for ACKs in it.
    pub(crate) generation: u64,
    pub(crate) payload: &'a [u8],
    /// Size of the datagram it came in, in bytes.
    pub(crate) datagram_len: usize,
    /// When it arrived: before now if it waited for its keys.
    pub(crate) arrived: Instant,
    pub(crate) from: Received,
}

/// Why a packet was not processed without that being anybody's error.
type Dropped = (Option<PacketKind>, DropReason);

/// What opening a packet gave.
struct Plain {
    number: u64,
    payload: core::ops::Range<usize>,
    generation: u64,
}

enum Failure {
    Dropped(Dropped),
    Fatal(TransportError),
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        Self::Fatal(error)
    }
}

impl Connection {
    /// Takes in one UDP datagram, decrypting it in place.
    pub fn receive(&mut self, now: Instant, from: Received, datagram: &mut [u8]) {
        self.counters.datagrams_received.count_one();
        self.counters.bytes_received.count(datagram.len() as u64);
        match &mut self.life {
            Life::Open => {}
            Life::Closing(_) => return self.receive_while_closing(),
            Life::Draining { .. } | Life::Drained => return,
        }
        if self.is_unwelcome(&from) {
            return self.drop_packet(now, (None, DropReason::Unexpected));
        }
        self.credit_path(now, &from, datagram.len());
        // Opening a packet may overwrite the bytes that a stateless reset would
        // have its token in.
        let token = candidate(datagram);
        let mut authenticated = false;
        if let Err(error) =
            self.receive_packets(now, Arrival { at: now, from }, datagram, &mut authenticated)
        {
            self.fail(now, error);
            return;
        }
        if let Err(error) = self.retry_undecryptable(now) {
            self.fail(now, error);
            return;
        }
        self.end_early_spaces();
        self.note_activity(now);
        // Whatever the first byte looks like (RFC 9000 §10.3).
        if !authenticated && token.is_some_and(|token| self.remote_cids.is_reset(&token.0)) {
            self.on_stateless_reset(now);
        }
    }

    pub(crate) fn receive_packets(
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
            let header = match PartialHeader::parse(rest, self.generator.cid_len()) {
                Ok(header) => header,
                Err(error) => {
                    self.drop_packet(now, (None, DropReason::Malformed));
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
                self.drop_packet(now, (header.kind.packet(), DropReason::Unexpected));
                break;
            }
            match self.receive_packet(now, arrival, datagram_len, &header, packet) {
                Ok(()) => *authenticated = true,
                Err(Failure::Dropped(dropped)) => self.drop_packet(now, dropped),
                Err(Failure::Fatal(error)) => return Err(error),
            }
            if !self.life.is_open() {
                break;
            }
            rest = tail;
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
    ) -> Result<(), Failure> {
        let kind = match header.kind {
            HeaderKind::Initial { .. } => PacketKind::Initial,
            HeaderKind::ZeroRtt => PacketKind::ZeroRtt,
            HeaderKind::Handshake => PacketKind::Handshake,
            HeaderKind::Short { .. } => PacketKind::OneRtt,
            HeaderKind::Retry { token, .. } => {
                let Some(scid) = header.scid.cid(packet) else {
                    return Err(Failure::Dropped((None, DropReason::Malformed)));
                };
                return self
                    .on_retry(now, packet, scid, token.of(packet))
                    .map_err(|reason| Failure::Dropped((None, reason)));
            }
            HeaderKind::VersionNegotiation { versions } => {
                return self
                    .on_version_negotiation(now, header, packet, versions.of(packet))
                    .map_err(|reason| Failure::Dropped((None, reason)));
            }
            HeaderKind::UnsupportedVersion => {
                return Err(Failure::Dropped((None, DropReason::Unexpected)));
            }
        };
        let dropped = |reason| Failure::Dropped((Some(kind), reason));
        if kind == PacketKind::Initial && !self.is_client() && datagram_len < usize::from(MIN_MTU) {
            // RFC 9000 §14.1, not only for the first: each buys three times
            // its size in answers.
            return Err(dropped(DropReason::Malformed));
        }
        if !header.fixed_bit && !self.config.grease {
            // RFC 9000 §17.2: the fixed bit is set, unless we offered RFC 9287.
            return Err(dropped(DropReason::Malformed));
        }
        if kind != PacketKind::OneRtt && !self.tls.is_from_peer(header.scid.cid(packet)) {
            return Err(dropped(DropReason::Unexpected));
        }
        if !self.can_open(kind) {
            let reason = self.keep_for_later(arrival, kind, packet);
            return Err(dropped(reason));
        }
        let Plain {
            number,
            payload,
            generation,
        } = self
            .unseal(now, kind, header.number_at, packet)?
            .ok_or_else(|| dropped(DropReason::DecryptionFailed))?;
        let state = self.space(space_of(kind));
        if state.received.is_seen(number) {
            return Err(dropped(DropReason::Duplicate));
        }
        self.trace(now, || TraceEvent::PacketReceived {
            kind,
            number,
            size: header.packet_len as u16,
            ecn: arrival.from.ecn,
            payload: packet.get(payload.clone()).unwrap_or_default(),
        });
        self.paths.on_authenticated(&Addresses::from(&arrival.from));
        self.on_authenticated(now, kind, header, packet);
        self.receiving_cid = header.dcid.cid(packet).unwrap_or(self.receiving_cid);
        let payload = packet.get(payload).unwrap_or_default();
        self.process(
            now,
            &Packet {
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

    /// Whether keys for this packet type are at hand.
    pub(crate) fn can_open(&self, kind: PacketKind) -> bool {
        match kind {
            PacketKind::Initial => self.keys.initial.is_some(),
            PacketKind::Handshake => self.keys.handshake.is_some(),
            PacketKind::ZeroRtt => self.role == Role::Server && self.keys.zero_rtt.is_some(),
            // RFC 9001 §5.7: a server must not process 1-RTT packets before
            // the handshake is complete.
            PacketKind::OneRtt => {
                self.keys.one_rtt.is_some()
                    && (self.is_client() || self.handshake != Handshake::Running)
            }
        }
    }

    /// Removes protection; `None` = not authentic.
    fn unseal(
        &mut self,
        now: Instant,
        kind: PacketKind,
        number_at: usize,
        packet: &mut [u8],
    ) -> Result<Option<Plain>, TransportError> {
        let largest = self.space(space_of(kind)).received.max();
        let keys = &mut self.keys;
        let direction = match kind {
            PacketKind::Initial => keys.initial.as_ref().map(|keys| &keys.remote),
            PacketKind::Handshake => keys.handshake.as_ref().map(|keys| &keys.remote),
            PacketKind::ZeroRtt => keys.zero_rtt.as_ref(),
            PacketKind::OneRtt => return self.unseal_one_rtt(now, number_at, largest, packet),
        };
        let Some(direction) = direction else {
            return Ok(None);
        };
        let header = direction
            .unprotect_header(packet, number_at)
            .and_then(|_| OpenHeader::read(packet, number_at));
        let Some(header) = header else {
            return Ok(None);
        };
        let number = header.number.recover(largest);
        let Some(len) = direction.open(number, packet, header.header_len) else {
            // RFC 9001 §6.6: the limit is the connection's, across all keys.
            if let Some(keys) = &mut self.keys.one_rtt {
                keys.note_failed_open()?;
            }
            return Ok(None);
        };
        header.check_reserved()?;
        Ok(Some(Plain {
            number,
            payload: header.header_len..header.header_len.saturating_add(len),
            generation: 0,
        }))
    }

    fn unseal_one_rtt(
        &mut self,
        now: Instant,
        number_at: usize,
        largest: Option<u64>,
        packet: &mut [u8],
    ) -> Result<Option<Plain>, TransportError> {
        let pto = self.pto_of(self.paths.active_id());
        let Some(keys) = &mut self.keys.one_rtt else {
            return Ok(None);
        };
        let header = keys
            .unprotect_header(packet, number_at)
            .and_then(|_| OpenHeader::read(packet, number_at));
        let Some(header) = header else {
            return Ok(None);
        };
        let number = header.number.recover(largest);
        let before = keys.generation();
        let Some(opened) = keys.open(number, packet, header.header_len)? else {
            return Ok(None);
        };
        header.check_reserved()?;
        if opened.updated {
            // RFC 9001 §6.5: old keys for packets still on their way.
            keys.retain_previous_until(now + pto.saturating_mul(3));
            // Otherwise it is the answer to an update of ours.
            if keys.generation() > before {
                self.on_key_phase(now, true);
            }
        }
        Ok(Some(Plain {
            number,
            payload: header.header_len..header.header_len.saturating_add(opened.len),
            generation: opened.generation,
        }))
    }

    /// What an authenticated packet proves, whatever it carries.
    fn on_authenticated(
        &mut self,
        now: Instant,
        kind: PacketKind,
        header: &PartialHeader,
        packet: &[u8],
    ) {
        self.counters.packets_received.count_one();
        self.timers.on_packet_received(now);
        self.listen(now);
        match kind {
            PacketKind::Initial if self.is_client() => {
                if let Some(scid) = header.scid.cid(packet) {
                    self.guess_round_trip(now);
                    self.on_server_cid(scid);
                }
            }
            PacketKind::Handshake if !self.is_client() => {
                // The client has our Handshake keys, so it received at the
                // address it claims (RFC 9000 §8.1), and Initial is over
                // (RFC 9001 §4.9.1).
                self.paths.on_address_validated();
                self.discard_keys(now, PacketKind::Initial);
            }
            PacketKind::Initial
            | PacketKind::ZeroRtt
            | PacketKind::Handshake
            | PacketKind::OneRtt => {}
        }
    }

    /// Frames, then acknowledgement state, then migration.
    fn process(&mut self, now: Instant, packet: &Packet<'_>) -> Result<(), TransportError> {
        let space = space_of(packet.kind);
        frame::check_not_empty(packet.payload)?;
        let mut ack_eliciting = false;
        let mut probing_only = true;
        let mut acks: u32 = 0;
        for frame in Frames::new(packet.payload) {
            let frame = frame?;
            frame.check_allowed(packet.kind, self.role.peer())?;
            ack_eliciting |= frame.is_ack_eliciting();
            probing_only &= frame.is_probing();
            let kind = frame.frame_type();
            acks = acks.saturating_add(u32::from(matches!(frame, Frame::Ack(_))));
            self.charge_frame(now, &frame, acks <= 1)
                .and_then(|()| self.on_frame(now, packet, &frame))
                .map_err(|error| error.in_frame(kind))?;
            if !self.life.is_open() {
                return Ok(());
            }
        }
        let state = self.space(space);
        state.received.insert(packet.number);
        let received = &state.received;
        state.ack.on_packet(
            ReceivedPacket {
                number: packet.number,
                ack_eliciting,
                ecn: packet.from.ecn,
                at: packet.arrived,
            },
            |from| first_missing(received, from),
        );
        if packet.kind == PacketKind::OneRtt {
            self.follow_peer(now, packet, probing_only);
        }
        Ok(())
    }

    pub(crate) fn drop_packet(&mut self, now: Instant, (kind, reason): Dropped) {
        self.counters.packets_dropped.count_one();
        self.trace(now, || TraceEvent::PacketDropped { kind, reason });
    }
}

/// The lowest number from `from` on that is not in `received`.
fn first_missing(received: &RangeSet, from: u64) -> u64 {
    received
        .iter()
        .find(|range| range.contains(&from))
        .map_or(from, |range| range.end().saturating_add(1))
}
