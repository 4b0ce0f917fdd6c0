//! Changes of the QUIC version: a client that begins again after a Version Negotiation packet
//! (RFC 9000 §6.2), a client that follows its server, and a server that switches a client
//! (RFC 9368 §2.3, RFC 9369 §4.1).

use clearway_recovery::Space;

use super::crypto_stream::CryptoStream;
use super::setup::INITIAL_DCID_LEN;
use super::tls::SessionStart;
use super::versions::VersionChoice;
use super::{Connection, Event};
use crate::cid::ConnectionId;
use crate::crypto::initial_keys;
use crate::error::ConnectionError;
use crate::event::{DropReason, TraceEvent};
use crate::wire::{PartialHeader, Reader, Version};
use crate::{Instant, Role};

impl Connection {
    /// Handles a Version Negotiation packet (RFC 9000 §6.2): begins again with a version that both
    /// ends speak, or ends.
    pub(super) fn on_version_negotiation(
        &mut self,
        now: Instant,
        header: &PartialHeader,
        packet: &[u8],
        versions: &[u8],
    ) -> Result<(), DropReason> {
        // RFC 8999 §6: it repeats both connection IDs, which shows that its sender saw our
        // packet.
        let echoes = *header.dcid.of(packet) == *self.tls.local_cid
            && *header.scid.of(packet) == *self.tls.original_dcid;
        let mut list = Reader::new(versions);
        let offered: Vec<Version> = core::iter::from_fn(|| list.u32()).map(Version).collect();
        let before = self.tls.versions;
        if !self.is_client()
            || !echoes
            || self.tls.peer_cid.is_some()
            || self.tls.retry_scid.is_some()
            // RFC 9368 §4: a server that speaks the version of the first flight has no reason to
            // send this, and one that was followed already is not followed again.
            || offered.contains(&before.original())
            || before.is_restarted()
        {
            return Err(DropReason::Unexpected);
        }
        let begun = before
            .after_negotiation(&offered)
            .is_some_and(|versions| self.begin_again(now, versions));
        if !begun {
            self.end_silently(now, ConnectionError::VersionMismatch);
        }
        Ok(())
    }

    /// Begins a client's connection again with another version: a new ClientHello, keys and
    /// connection ID, as if nothing had been sent. Returns false if that is not possible.
    fn begin_again(&mut self, now: Instant, versions: VersionChoice) -> bool {
        let Some(SessionStart::Client(mut start)) = self.tls.start.take().map(|start| *start)
        else {
            return false;
        };
        let random = self.rng.array::<INITIAL_DCID_LEN>();
        let Some(dcid) = ConnectionId::new(&random) else {
            return false;
        };
        let Ok((session, tickets)) = start.session(versions) else {
            return false;
        };
        self.withdraw_zero_rtt(now);
        let (network, mut cx, outcome) = self.network_parts(now);
        network.abandon_packets(&mut cx, outcome, |recovery, out| {
            recovery.on_retry(now, out);
        });
        self.frames.spaces.get_mut(Space::Initial).crypto = CryptoStream::default();
        self.frames.remote_cids.replace_first(dcid);
        let keys = initial_keys(versions.original(), &dcid, Role::Client);
        self.keys.set_initial(keys);
        self.tls.restart(session, tickets, versions, dcid);
        self.trace_version(now);
        self.drive_tls(now).is_ok()
    }

    /// Takes back what was sent as 0-RTT data, which only a server of that version could have read.
    fn withdraw_zero_rtt(&mut self, now: Instant) {
        if self.keys.zero_rtt.is_none() {
            return;
        }
        self.keys.discard_zero_rtt();
        self.tls.remembered = None;
        self.tls.zero_rtt_accepted = Some(false);
        let (network, mut cx, outcome) = self.network_parts(now);
        network.discard_zero_rtt_packets(&mut cx, outcome);
        self.frames.streams.on_zero_rtt_rejected();
        self.reports.events.push_back(Event::ZeroRttRejected);
    }

    /// Prepares a client for an Initial packet of another version than its own, with which the
    /// server may have answered.
    pub(super) fn expect_version(&mut self, version: Version) {
        if self.is_client()
            && let Some(initial) = &mut self.keys.initial
        {
            let dcid = self.tls.initial_dcid();
            let keys = || initial_keys(version, &dcid, Role::Client);
            initial.other.get_or_insert_with(keys);
        }
    }

    /// Follows the server to the version of an authentic Initial packet of it (RFC 9369 §4.1).
    pub(super) fn follow_server_to(&mut self, now: Instant, version: Version) {
        if version != self.tls.versions.current() {
            self.tls.follow_to(version);
            if let Some(initial) = &mut self.keys.initial {
                initial.switch();
                initial.other = None;
            }
            self.trace_version(now);
        }
    }

    /// Settles the client's version, because the server has sent CRYPTO data with it.
    pub(super) fn settle_version(&mut self) {
        if self.is_client() && self.tls.versions.may_change() {
            let current = self.tls.versions.current();
            self.tls.versions.decide(current);
            if let Some(initial) = &mut self.keys.initial {
                initial.other = None;
            }
        }
    }

    /// Applies the version that a server has chosen after reading the ClientHello, if it is not
    /// `before`. Packets of that version can be opened as before (RFC 9369 §4.1).
    pub(super) fn apply_chosen_version(&mut self, now: Instant, before: Version) {
        let version = self.tls.versions.current();
        if version == before {
            return;
        }
        let dcid = self.tls.initial_dcid();
        if let Some(initial) = &mut self.keys.initial {
            initial.other = Some(initial_keys(version, &dcid, Role::Server));
            initial.switch();
        }
        self.frames.control.set_token_version(version);
        self.trace_version(now);
    }

    /// Traces the version of the connection.
    fn trace_version(&mut self, now: Instant) {
        let versions = self.tls.versions;
        self.reports.trace(now, || TraceEvent::VersionChosen {
            original: versions.original(),
            current: versions.current(),
        });
    }
}
