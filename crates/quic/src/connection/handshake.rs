//! TLS over CRYPTO frames, transport parameters, 0-RTT, Retry and Version
//! Negotiation (RFC 9000 §7, RFC 9001 §4).

use core::time::Duration;

use clearway_recovery::Space;

use super::parameters::limits_of;
use super::peer_parameters::PeerParameters;
use super::state::HandshakeState;
use super::{Connection, EndpointEvent, Event};
use crate::cid::ConnectionId;
use crate::count::Count;
use crate::crypto::initial_keys;
use crate::crypto::retry::retry_is_genuine;
use crate::error::{Code, TransportError};
use crate::event::{ConnectionState, DropReason, TraceEvent};
use crate::wire::retry::MAX_TOKEN_LEN;
use crate::wire::{TransportParameters, Version};
use crate::{Instant, Role};

/// TLS alert (RFC 8446 §6).
const MISSING_EXTENSION: u8 = 109;

impl Connection {
    /// Handles a CRYPTO frame.
    pub(super) fn on_crypto(
        &mut self,
        now: Instant,
        space: Space,
        offset: u64,
        data: &[u8],
    ) -> Result<(), TransportError> {
        let crypto = &mut self.frames.spaces.get_mut(space).crypto;
        crypto.on_frame(space, offset, data)?;
        if space == Space::Initial {
            self.settle_version();
        }
        while let Some(bytes) = self.frames.spaces.get_mut(space).crypto.read() {
            let before = self.tls.versions.current();
            let result = self.tls.read(space, &bytes);
            self.apply_chosen_version(now, before);
            result?;
            self.drive_tls(now)?;
        }
        Ok(())
    }

    /// Takes bytes and keys from TLS, and advances the handshake.
    pub(super) fn drive_tls(&mut self, now: Instant) -> Result<(), TransportError> {
        if self.tls.session.is_none() {
            return Ok(());
        }
        let spaces = &mut self.frames.spaces;
        let (keys, reports) = (&mut self.keys, &mut self.reports);
        self.tls
            .drain(now, self.config.key_update_after, spaces, keys, reports);
        self.apply_peer_parameters(now)?;
        self.install_zero_rtt_keys();
        self.update_pto_context(now);
        let finished = self.tls.has_finished() && self.keys.one_rtt.is_some();
        if self.lifecycle.handshake == HandshakeState::Running && finished {
            self.complete_handshake(now)?;
        }
        Ok(())
    }

    /// Installs a server's 0-RTT keys, which exist once TLS has read the ClientHello. If there
    /// are none by then, 0-RTT packets that arrived before it are dropped (RFC 9001 §5.7).
    fn install_zero_rtt_keys(&mut self) {
        if self.role == Role::Server
            && self.lifecycle.handshake == HandshakeState::Running
            && self.keys.awaits_zero_rtt()
            && let Some(session) = &self.tls.session
        {
            self.keys.zero_rtt = session.early_keys();
            // The Handshake keys follow from the ClientHello.
            if self.keys.zero_rtt.is_none() && self.keys.handshake.is_some() {
                self.keys.reject_zero_rtt();
            }
        }
    }

    /// Applies the server's transport parameters that a client remembers, so that it can
    /// write before the handshake (RFC 9000 §7.4.1).
    pub(super) fn start_zero_rtt(&mut self) {
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
        self.frames.streams.set_peer_limits(limits_of(&remembered));
        self.tls.remembered = Some(Box::new(remembered));
    }

    /// Applies the peer's transport parameters once TLS has them (RFC 9000 §7.4).
    fn apply_peer_parameters(&mut self, now: Instant) -> Result<(), TransportError> {
        let found = self.tls.take_peer_parameters(self.role);
        #[cfg(feature = "defects")]
        let found = self.with_defect(found);
        let Some(mut peer) = found? else {
            return Ok(());
        };
        self.frames.streams.set_peer_limits(limits_of(&peer));
        (self.frames.streams).set_reliable_resets(peer.reset_stream_at);
        if let Some(token) = peer.stateless_reset_token {
            self.frames.remote_cids.set_first_reset_token(token);
        }
        if let Some(preferred) = &peer.preferred_address {
            let active = self.network.paths.active_id();
            self.frames
                .remote_cids
                .on_preferred(preferred.cid, preferred.reset_token, active)?;
        }
        self.frames
            .local_cids
            .set_peer_limit(peer.active_connection_id_limit);
        self.tls.grease_quic_bit = self.config.grease && peer.grease_quic_bit;
        self.timers
            .negotiate_idle_timeout(now, peer.max_idle_timeout);
        self.network
            .recovery
            .set_max_ack_delay(Duration::from_millis(peer.max_ack_delay));
        self.frames
            .datagrams_out
            .set_peer_limit(peer.max_datagram_frame_size);
        let max_payload = peer.max_udp_payload_size;
        // It has been checked, and every byte that is kept is one for each connection.
        peer.version_information = None;
        self.tls.peer = Some(PeerParameters::new(&peer));
        self.network.paths.set_peer_limit(max_payload);
        self.trace_peer_parameters(now);
        Ok(())
    }

    /// Looks at the peer's transport parameters with the defect of this connection.
    #[cfg(feature = "defects")]
    fn with_defect(
        &self,
        found: Result<Option<TransportParameters>, TransportError>,
    ) -> Result<Option<TransportParameters>, TransportError> {
        let session = self.tls.session.as_deref();
        let encoded = session.and_then(crate::crypto::Session::peer_transport_parameters);
        if let Some(encoded) = encoded {
            self.config.check_parameters(encoded)?;
        }
        found.or_else(|error| {
            self.config.forgive(error)?;
            Ok(Some(crate::defects::harmless_parameters()))
        })
    }

    /// Handles the completion of the TLS handshake (RFC 9001 §4.1.1).
    fn complete_handshake(&mut self, now: Instant) -> Result<(), TransportError> {
        if self.tls.peer.is_none() {
            return Err(TransportError::new(
                Code::crypto(MISSING_EXTENSION),
                "no transport parameters in the TLS handshake",
            ));
        }
        self.lifecycle.handshake = HandshakeState::Complete;
        self.tls.fill_summary();
        self.trace_complete(now);
        self.last_activity = now;
        self.finish_zero_rtt(now);
        self.reports.events.push_back(Event::Connected);
        self.issue_cids();
        if self.role == Role::Server {
            // Only now, so that the first flight does not wait for the token to be made.
            let ip = self.network.paths.active().remote.ip();
            self.frames
                .control
                .on_handshake_done(now, ip, &mut self.rng);
            self.confirm_handshake(now);
        }
        self.update_pto_context(now);
        Ok(())
    }

    /// Ends 0-RTT: the server accepted or rejected it.
    fn finish_zero_rtt(&mut self, now: Instant) {
        if self.keys.zero_rtt.is_none() {
            return;
        }
        if self.role == Role::Server {
            self.tls.zero_rtt_accepted = Some(true);
            let late = self.network.pto().saturating_mul(3);
            self.keys.zero_rtt_until = Some(now + late);
            return;
        }
        let accepted = self.tls.accepts_early_data();
        self.tls.zero_rtt_accepted = Some(accepted);
        self.keys.discard_zero_rtt();
        if accepted {
            return;
        }
        // RFC 9001 §4.6.2: everything that depended on 0-RTT starts again.
        let (network, mut cx, outcome) = self.network_parts(now);
        network.discard_zero_rtt_packets(&mut cx, outcome);
        self.frames.streams.on_zero_rtt_rejected();
        if let Some(peer) = &self.tls.peer_parameters(self.role) {
            self.frames.streams.set_peer_limits(limits_of(peer));
        }
        self.reports.events.push_back(Event::ZeroRttRejected);
    }

    /// Handles the confirmation of the handshake (RFC 9001 §4.1.2).
    pub(super) fn confirm_handshake(&mut self, now: Instant) {
        self.lifecycle.handshake = HandshakeState::Confirmed;
        self.reports
            .state_changed(now, ConnectionState::HandshakeConfirmed);
        self.discard_keys(now, Space::Handshake);
        if let Some(keys) = &mut self.keys.one_rtt {
            keys.on_handshake_confirmed();
        }
        self.update_pto_context(now);
        self.network.on_confirmed(now, self.tls.peer.as_ref());
        self.reports
            .endpoint_events
            .push_back(EndpointEvent::HandshakeDone);
        self.reports.events.push_back(Event::Confirmed);
        match self.role {
            // A client's TLS session still receives tickets.
            Role::Client => {
                let (network, mut cx, outcome) = self.network_parts(now);
                network.move_to_preferred_address(&mut cx, outcome);
            }
            Role::Server => self.tls.drop_session(),
        }
    }

    /// Traces the peer's transport parameters.
    fn trace_peer_parameters(&mut self, now: Instant) {
        if self.reports.trace.is_enabled()
            && let Some(parameters) = &self.tls.peer_parameters(self.role)
        {
            let remote = true;
            let event = || TraceEvent::ParametersSet { remote, parameters };
            self.reports.trace(now, event);
        }
    }

    /// Traces the completion of the handshake and the application protocol.
    fn trace_complete(&mut self, now: Instant) {
        self.reports
            .state_changed(now, ConnectionState::HandshakeComplete);
        if let Some(alpn) = &self.tls.summary.alpn {
            self.reports.trace(now, || TraceEvent::AlpnChosen(alpn));
        }
    }

    /// Discards the keys of the Initial or the Handshake space and everything queued in it
    /// (RFC 9001 §4.9).
    pub(super) fn discard_keys(&mut self, now: Instant, space: Space) {
        let (keys, frames) = (&mut self.keys, &mut self.frames);
        self.network
            .discard_space(now, space, keys, frames, &mut self.reports);
    }

    pub(super) fn update_pto_context(&mut self, now: Instant) {
        let progress = self.progress();
        self.network.update_pto_context(now, progress);
    }

    /// Lowers the initial RTT to the time until the server's first packet, which is at
    /// least a round trip after ours, even if the ACK was lost. It is not a sample, but a
    /// better estimate than 333 ms, which after a loss would cost a second (RFC 9002
    /// §6.2.2).
    pub(super) fn bound_initial_rtt(&mut self, now: Instant) {
        let waited = now - self.network.recovery.limits().started();
        if self.tls.peer_cid.is_none() && waited < self.network.active_recovery().rtt().smoothed() {
            self.network
                .recovery
                .set_initial_rtt(self.network.paths.active_id(), waited);
        }
    }

    /// Adopts the connection ID from the server's first Initial packet (RFC 9000 §7.2).
    pub(super) fn on_server_cid(&mut self, scid: ConnectionId) {
        if self.tls.peer_cid.is_none() {
            self.tls.peer_cid = Some(scid);
            // A Version Negotiation packet is too late now.
            self.tls.start = None;
            self.frames.remote_cids.replace_first(scid);
        }
    }

    /// Handles a Retry packet: starts again with its token and connection ID (RFC 9000
    /// §17.2.5).
    pub(super) fn on_retry(
        &mut self,
        now: Instant,
        packet: &[u8],
        version: Version,
        scid: ConnectionId,
        token: &[u8],
    ) -> Result<(), DropReason> {
        if !self.is_client()
            // RFC 9369 §4.1.
            || version != self.tls.versions.original()
            || self.tls.retry_scid.is_some()
            || self.tls.peer_cid.is_some()
            || token.is_empty()
            // RFC 9000 §17.2.5.1.
            || scid == self.tls.original_dcid
        {
            return Err(DropReason::Unexpected);
        }
        // The integrity key is public, so anyone who saw our Initial packet can send any
        // token, also one that does not fit into an Initial packet.
        if token.len() > MAX_TOKEN_LEN {
            self.reports.counters.oversized_tokens.count_one();
            return Err(DropReason::Overload);
        }
        if !retry_is_genuine(&self.tls.original_dcid, packet) {
            return Err(DropReason::Unexpected);
        }
        self.tls.retry_scid = Some(scid);
        self.tls.token = token.to_vec();
        self.frames.remote_cids.replace_first(scid);
        self.tls.start = None;
        self.keys
            .set_initial(initial_keys(version, &scid, Role::Client));
        let (network, mut cx, outcome) = self.network_parts(now);
        network.abandon_packets(&mut cx, outcome, |recovery, out| {
            recovery.on_retry(now, out);
        });
        let space = self.frames.spaces.get_mut(Space::Initial);
        space.crypto.resend_all();
        Ok(())
    }
}
