//! TLS over CRYPTO frames, transport parameters, 0-RTT, Retry and Version
//! Negotiation (RFC 9000 §7, RFC 9001 §4).

use core::time::Duration;

use clearway_recovery::{PtoContext, Space};

use super::life::{ConnectionError, Handshake};
use super::peer::Peer;
use super::{Connection, EndpointEvent, Event};
use crate::cid::ConnectionId;
use crate::count::Count;
use crate::crypto::retry::retry_is_genuine;
use crate::crypto::{KeyStep, Level, Session, initial_keys};
use crate::error::{Code, TransportError};
use crate::event::{ConnectionState, DropReason, TraceEvent};
use crate::stream::PeerLimits;
use crate::wire::retry::MAX_TOKEN_LEN;
use crate::wire::transport_parameters::HandshakeCids;
use crate::wire::{PacketKind, PartialHeader, Reader, TransportParameters, Version};
use crate::{Instant, Role};

/// TLS alerts (RFC 8446 §6).
const UNEXPECTED_MESSAGE: u8 = 10;
const MISSING_EXTENSION: u8 = 109;

impl Connection {
    /// A CRYPTO frame arrived.
    pub(crate) fn on_crypto(
        &mut self,
        now: Instant,
        space: Space,
        offset: u64,
        data: &[u8],
    ) -> Result<(), TransportError> {
        let crypto = &mut self.space(space).crypto;
        crypto.on_frame(space, offset, data)?;
        let level = level_of(space);
        while let Some(bytes) = self.space(space).crypto.read() {
            match &mut self.tls.session {
                // A level that is complete takes nothing more (RFC 9001 §4.1.3).
                Some(session) => session.read(level, &bytes)?,
                // RFC 9001 §6: TLS KeyUpdate is forbidden, and nothing else is
                // ours to receive after the handshake.
                None => {
                    return Err(TransportError::new(
                        Code::crypto(UNEXPECTED_MESSAGE),
                        "TLS message after the handshake",
                    ));
                }
            }
            self.drive_tls(now)?;
        }
        Ok(())
    }

    /// Moves bytes and keys out of TLS.
    pub(crate) fn drive_tls(&mut self, now: Instant) -> Result<(), TransportError> {
        loop {
            let Some(session) = &mut self.tls.session else {
                return Ok(());
            };
            let mut bytes = core::mem::take(&mut self.tls.scratch);
            bytes.clear();
            let space = space_of_level(session.write_level());
            let step = session.next(&mut bytes);
            let done = step.is_none() && bytes.is_empty();
            self.space(space).crypto.write(&bytes);
            self.tls.scratch = bytes;
            match step {
                None if done => break,
                None => {}
                Some(KeyStep::Handshake(keys)) => {
                    self.keys.handshake = Some(Box::new(keys));
                    let kind = PacketKind::Handshake;
                    self.trace(now, || TraceEvent::KeysInstalled { kind });
                }
                Some(KeyStep::OneRtt(mut keys)) => {
                    if let Some(packets) = self.config.key_update_after {
                        keys.set_update_after(packets);
                    }
                    self.keys.one_rtt = Some(*keys);
                    let kind = PacketKind::OneRtt;
                    self.trace(now, || TraceEvent::KeysInstalled { kind });
                }
            }
        }
        self.take_peer_parameters(now)?;
        self.take_early_keys();
        self.sync_recovery(now);
        let finished = self
            .tls
            .session
            .as_deref()
            .is_some_and(|session| !session.is_handshaking());
        if self.handshake == Handshake::Running && finished && self.keys.one_rtt.is_some() {
            self.complete(now)?;
        }
        Ok(())
    }

    /// A server can open 0-RTT packets once the ClientHello has been read.
    fn take_early_keys(&mut self) {
        if self.role == Role::Client
            || self.keys.zero_rtt.is_some()
            || self.keys.zero_rtt_discarded
            || self.handshake != Handshake::Running
        {
            return;
        }
        if let Some(session) = &self.tls.session {
            self.keys.zero_rtt = session.early_keys();
        }
    }

    /// Applies what a client remembers of the server, so that it can write
    /// before the handshake (RFC 9000 §7.4.1).
    pub(crate) fn start_zero_rtt(&mut self) {
        let Some(session) = &self.tls.session else {
            return;
        };
        let Some(keys) = session.early_keys() else {
            return;
        };
        let Some(Ok(remembered)) = session
            .remembered_transport_parameters()
            .map(|bytes| TransportParameters::decode(bytes, Role::Server))
        else {
            return;
        };
        let remembered = remembered.remembered_for_0rtt();
        self.keys.zero_rtt = Some(keys);
        self.streams.set_peer_limits(limits_of(&remembered));
        self.tls.remembered = Some(Box::new(remembered));
    }

    /// Transport parameters have arrived inside TLS (RFC 9000 §7.4).
    fn take_peer_parameters(&mut self, now: Instant) -> Result<(), TransportError> {
        if self.tls.peer.is_some() {
            return Ok(());
        }
        let Some(bytes) = self
            .tls
            .session
            .as_deref()
            .and_then(Session::peer_transport_parameters)
        else {
            return Ok(());
        };
        let peer = TransportParameters::decode(bytes, self.role.peer())?;
        peer.authenticate(
            self.role.peer(),
            &HandshakeCids {
                initial_source: self.tls.peer_cid.unwrap_or(ConnectionId::EMPTY),
                original_destination: self.tls.original_dcid,
                retry_source: self.tls.retry_scid,
            },
        )?;
        if let Some(remembered) = self.tls.remembered.take()
            && self
                .tls
                .session
                .as_deref()
                .is_some_and(Session::early_data_accepted)
        {
            peer.check_not_reduced(&remembered)?;
        }
        self.streams.set_peer_limits(limits_of(&peer));
        if let Some(token) = peer.stateless_reset_token {
            self.remote_cids.set_first_reset_token(token);
        }
        if let Some(preferred) = &peer.preferred_address {
            let active = self.paths.active_id();
            self.remote_cids
                .on_preferred(preferred.cid, preferred.reset_token, active)?;
        }
        self.local_cids
            .set_peer_limit(peer.active_connection_id_limit);
        self.tls.grease_quic_bit = self.config.grease && peer.grease_quic_bit;
        self.timers.agree_on_idle(now, peer.max_idle_timeout);
        self.recovery
            .set_max_ack_delay(Duration::from_millis(peer.max_ack_delay));
        self.datagrams_out
            .set_peer_limit(peer.max_datagram_frame_size);
        let max_payload = peer.max_udp_payload_size;
        self.tls.peer = Some(Peer::new(&peer));
        self.paths.set_peer_limit(max_payload);
        self.trace_peer_parameters(now);
        Ok(())
    }

    /// TLS has finished here (RFC 9001 §4.1.1).
    fn complete(&mut self, now: Instant) -> Result<(), TransportError> {
        if self.tls.peer.is_none() {
            return Err(TransportError::new(
                Code::crypto(MISSING_EXTENSION),
                "no transport parameters in the TLS handshake",
            ));
        }
        self.handshake = Handshake::Complete;
        self.tls.fill_summary();
        self.trace_complete(now);
        self.last_activity = now;
        self.finish_zero_rtt(now);
        self.events.push_back(Event::Connected);
        self.issue_cids();
        if self.role == Role::Server {
            self.control.handshake_done = true;
            self.control.new_token_due = self.control.new_token.is_some();
            self.confirm(now);
        }
        self.sync_recovery(now);
        Ok(())
    }

    /// The server took our 0-RTT data, or it did not.
    fn finish_zero_rtt(&mut self, now: Instant) {
        if self.keys.zero_rtt.is_none() {
            return;
        }
        if self.role == Role::Server {
            self.tls.zero_rtt_accepted = Some(true);
            let late = self.pto_of(self.paths.active_id()).saturating_mul(3);
            self.keys.zero_rtt_until = Some(now + late);
            return;
        }
        let accepted = self
            .tls
            .session
            .as_deref()
            .is_some_and(Session::early_data_accepted);
        self.tls.zero_rtt_accepted = Some(accepted);
        self.keys.discard_zero_rtt();
        if accepted {
            return;
        }
        // RFC 9001 §4.6.2: everything that rested on 0-RTT starts anew.
        let mut outcome = core::mem::take(&mut self.outcome);
        self.recovery.on_zero_rtt_rejected(now, &mut outcome);
        for lost in &outcome.lost {
            self.trace_lost(now, lost);
        }
        outcome.clear();
        self.outcome = outcome;
        self.streams.on_zero_rtt_rejected();
        if let Some(peer) = &self.peer_transport_parameters() {
            self.streams.set_peer_limits(limits_of(peer));
        }
        self.events.push_back(Event::ZeroRttRejected);
    }

    /// Both ends know that the handshake is complete (RFC 9001 §4.1.2).
    pub(crate) fn confirm(&mut self, now: Instant) {
        self.handshake = Handshake::Confirmed;
        self.trace(now, || {
            TraceEvent::StateChanged(ConnectionState::HandshakeConfirmed)
        });
        self.discard_keys(now, PacketKind::Handshake);
        if let Some(keys) = &mut self.keys.one_rtt {
            keys.on_handshake_confirmed();
        }
        self.sync_recovery(now);
        self.paths.on_confirmed(now);
        self.endpoint_events.push_back(EndpointEvent::HandshakeDone);
        self.events.push_back(Event::Confirmed);
        self.free_tls();
        if self.is_client() {
            self.move_to_preferred_address(now);
        }
    }

    /// A server expects nothing more of TLS once its tickets are in the CRYPTO
    /// stream; a client still takes tickets in.
    fn free_tls(&mut self) {
        if self.role == Role::Server {
            self.tls.session = None;
            self.tls.scratch = Vec::new();
        }
    }

    /// Drops the keys of a packet type and everything that waited in its space
    /// (RFC 9001 §4.9).
    pub(crate) fn discard_keys(&mut self, now: Instant, kind: PacketKind) {
        let space = match kind {
            PacketKind::Initial => {
                self.keys.initial_discarded = true;
                if self.keys.initial.take().is_none() {
                    return;
                }
                Space::Initial
            }
            PacketKind::Handshake => {
                self.keys.handshake_discarded = true;
                if self.keys.handshake.take().is_none() {
                    return;
                }
                Space::Handshake
            }
            PacketKind::ZeroRtt | PacketKind::OneRtt => return,
        };
        self.recovery.discard_space(space, now);
        let state = self.space(space);
        state.crypto = super::crypto_stream::CryptoStream::default();
        state.probes = 0;
        state.ping = false;
        self.trace(now, || TraceEvent::KeysDiscarded { kind });
    }

    /// Tells recovery what its timers depend on (RFC 9002 §6.2.1, §6.2.2.1).
    pub(crate) fn sync_recovery(&mut self, now: Instant) {
        let context = PtoContext {
            handshake_confirmed: self.handshake == Handshake::Confirmed,
            has_handshake_keys: self.keys.handshake.is_some(),
            peer_completed_address_validation: !self.is_client()
                || self.handshake == Handshake::Confirmed
                || self.recovery.largest_acked(Space::Handshake).is_some(),
            amplification_blocked: self.is_amplification_blocked(),
        };
        self.recovery.set_handshake_state(context, now);
    }

    /// The server's first packet bounds the round trip, even if the ACK of
    /// ours was lost: it can't have come sooner. Not a sample, but a better
    /// guess than 333 ms, which after a loss cost a second (RFC 9002 §6.2.2).
    pub(crate) fn guess_round_trip(&mut self, now: Instant) {
        let waited = now - self.recovery.limits().started();
        if self.tls.peer_cid.is_none() && waited < self.active_recovery().rtt().smoothed() {
            self.recovery
                .set_initial_rtt(self.paths.active_id(), waited);
        }
    }

    /// The server's first Initial names the connection ID it wants
    /// (RFC 9000 §7.2).
    pub(crate) fn on_server_cid(&mut self, scid: ConnectionId) {
        if self.tls.peer_cid.is_none() {
            self.tls.peer_cid = Some(scid);
            self.remote_cids.replace_first(scid);
        }
    }

    /// A Retry: start again with its token and connection ID (RFC 9000 §17.2.5).
    pub(crate) fn on_retry(
        &mut self,
        now: Instant,
        packet: &[u8],
        scid: ConnectionId,
        token: &[u8],
    ) -> Result<(), DropReason> {
        if !self.is_client()
            || self.tls.retry_scid.is_some()
            || self.tls.peer_cid.is_some()
            || token.is_empty()
        {
            return Err(DropReason::Unexpected);
        }
        // The integrity key is public: anyone who saw our Initial can send any
        // token, and no Initial could carry it.
        if token.len() > MAX_TOKEN_LEN {
            self.counters.oversized_tokens.count_one();
            return Err(DropReason::Overload);
        }
        if !retry_is_genuine(&self.tls.original_dcid, packet) {
            return Err(DropReason::Unexpected);
        }
        self.tls.retry_scid = Some(scid);
        self.tls.token = token.to_vec();
        self.remote_cids.replace_first(scid);
        self.keys.initial = Some(Box::new(initial_keys(&scid, Role::Client)));
        self.withdraw(now, |recovery, outcome| recovery.on_retry(now, outcome));
        self.space(Space::Initial).crypto.resend_all();
        Ok(())
    }

    /// The server speaks other versions (RFC 9000 §6.2).
    pub(crate) fn on_version_negotiation(
        &mut self,
        now: Instant,
        header: &PartialHeader,
        packet: &[u8],
        versions: &[u8],
    ) -> Result<(), DropReason> {
        // RFC 8999 §6: it repeats both connection IDs, which shows that its
        // sender saw our packet.
        let echoes = *header.dcid.of(packet) == *self.tls.local_cid
            && *header.scid.of(packet) == *self.tls.original_dcid;
        let mut offered = Reader::new(versions);
        let ours = core::iter::from_fn(|| offered.u32())
            .any(|version| Version(version) == self.tls.version);
        if !self.is_client()
            || !echoes
            || self.tls.peer_cid.is_some()
            || self.tls.retry_scid.is_some()
            || ours
        {
            return Err(DropReason::Unexpected);
        }
        self.end_silently(now, ConnectionError::VersionMismatch);
        Ok(())
    }

    pub(crate) fn peer_max_ack_delay(&self) -> Duration {
        match (&self.tls.peer, self.handshake) {
            (Some(peer), Handshake::Confirmed) => peer.max_ack_delay(),
            _ => Duration::ZERO,
        }
    }

    pub(crate) fn on_key_phase(&mut self, now: Instant, remote: bool) {
        self.counters.key_updates.count_one();
        self.counters.peer_key_updates.count(u64::from(remote));
        let phase = self.counters.key_updates;
        self.trace(now, || TraceEvent::KeyUpdated { phase, remote });
    }
}

/// What the peer's parameters allow our streams.
fn limits_of(peer: &TransportParameters) -> PeerLimits {
    PeerLimits {
        max_data: peer.initial_max_data,
        bidi_local: peer.initial_max_stream_data_bidi_local,
        bidi_remote: peer.initial_max_stream_data_bidi_remote,
        uni: peer.initial_max_stream_data_uni,
        streams_bidi: peer.initial_max_streams_bidi,
        streams_uni: peer.initial_max_streams_uni,
    }
}

fn level_of(space: Space) -> Level {
    match space {
        Space::Initial => Level::Initial,
        Space::Handshake => Level::Handshake,
        Space::Data => Level::OneRtt,
    }
}

fn space_of_level(level: Level) -> Space {
    match level {
        Level::Initial => Space::Initial,
        Level::Handshake => Space::Handshake,
        Level::OneRtt => Space::Data,
    }
}
