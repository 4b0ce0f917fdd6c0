//! The keys of a connection by packet type: sealing, opening, and when each key is
//! discarded (RFC 9001 §4.9).

use core::ops::Range;

use clearway_recovery::Space;

use super::space::SPACES;
use super::state::HandshakeState;
use crate::crypto::{Direction, InitialKeys, Keys, OneRttKeys};
use crate::error::{Code, TransportError};
use crate::wire::PacketKind;
use crate::wire::header::UnprotectedHeader;
use crate::{Instant, Role};

/// The keys that the connection has now.
#[derive(Debug)]
pub(crate) struct Keyring {
    role: Role,
    pub(super) initial: Option<Box<InitialKeys>>,
    /// The client seals with it, the server opens with it.
    pub(super) zero_rtt: Option<Direction>,
    /// When a server discards its 0-RTT key: late 0-RTT packets may arrive until then (RFC
    /// 9001 §4.9.3).
    pub(super) zero_rtt_until: Option<Instant>,
    pub(super) handshake: Option<Box<Keys>>,
    pub(super) one_rtt: Option<OneRttKeys>,
    /// Initial keys were discarded.
    initial_discarded: bool,
    /// Handshake keys were discarded.
    handshake_discarded: bool,
    /// 0-RTT keys were discarded or rejected.
    zero_rtt_discarded: bool,
}

/// A packet whose protection was removed.
pub(crate) struct OpenedPacket {
    pub(super) number: u64,
    /// The range of its payload in the packet.
    pub(super) payload: Range<usize>,
    /// The key generation that opened it (1-RTT), to check the ACK frames in it.
    pub(super) generation: u64,
    /// Set if it is the first packet of its key generation. The previous keys remain until
    /// [`Keyring::retain_previous_until`].
    pub(super) update: Option<KeyUpdate>,
}

/// A key update that a packet of the peer shows.
pub(crate) enum KeyUpdate {
    /// The peer initiated it.
    Initiated,
    /// The peer responds to ours.
    Answered,
}

impl Keyring {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            initial: None,
            zero_rtt: None,
            zero_rtt_until: None,
            handshake: None,
            one_rtt: None,
            initial_discarded: false,
            handshake_discarded: false,
            zero_rtt_discarded: false,
        }
    }

    /// Replaces the Initial keys, because the connection begins again.
    pub(super) fn set_initial(&mut self, keys: Keys) {
        self.initial = Some(Box::new(keys.into()));
    }

    /// Returns the type of the packets that can be sent in `space` now; `None` without
    /// keys.
    #[inline]
    pub(super) fn sending_kind(&self, space: Space) -> Option<PacketKind> {
        match space {
            Space::Initial => self.initial.as_ref().map(|_| PacketKind::Initial),
            Space::Handshake => self.handshake.as_ref().map(|_| PacketKind::Handshake),
            Space::Data if self.one_rtt.is_some() => Some(PacketKind::OneRtt),
            Space::Data if self.role == Role::Client && self.zero_rtt.is_some() => {
                Some(PacketKind::ZeroRtt)
            }
            Space::Data => None,
        }
    }

    /// Returns the spaces in which packets may be sent, in the order in which packets are
    /// coalesced. Only one is left once the keys of the handshake are discarded.
    #[inline]
    pub(super) fn sending_spaces(&self) -> &'static [Space] {
        if self.initial.is_none() && self.handshake.is_none() {
            &[Space::Data]
        } else {
            &SPACES
        }
    }

    /// Returns whether packets of this type can be opened now.
    #[inline]
    pub(super) fn can_open(&self, kind: PacketKind, handshake: HandshakeState) -> bool {
        match kind {
            PacketKind::Initial => self.initial.is_some(),
            PacketKind::Handshake => self.handshake.is_some(),
            PacketKind::ZeroRtt => self.role == Role::Server && self.zero_rtt.is_some(),
            // RFC 9001 §5.7: a server must not process 1-RTT packets before
            // the handshake is complete.
            PacketKind::OneRtt => {
                self.one_rtt.is_some()
                    && (self.role == Role::Client || handshake != HandshakeState::Running)
            }
        }
    }

    /// Removes the protection of a packet whose number starts at `number_at`, in a space
    /// where `largest` is the largest number received. Returns `None` if it is not
    /// authentic. `other_version` is set for an Initial packet that has not the current version.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION for reserved bits that are set, KEY_UPDATE_ERROR for keys out of
    /// order, AEAD_LIMIT_REACHED after too many packets that are not authentic.
    pub(super) fn open(
        &mut self,
        kind: PacketKind,
        other_version: bool,
        number_at: usize,
        largest: Option<u64>,
        packet: &mut [u8],
    ) -> Result<Option<OpenedPacket>, TransportError> {
        let direction = match kind {
            PacketKind::Initial if other_version => self
                .initial
                .as_ref()
                .and_then(|keys| keys.other.as_ref())
                .map(|keys| &keys.remote),
            PacketKind::Initial => self.initial.as_ref().map(|keys| &keys.current.remote),
            PacketKind::Handshake => self.handshake.as_ref().map(|keys| &keys.remote),
            PacketKind::ZeroRtt => self.zero_rtt.as_ref(),
            PacketKind::OneRtt => return self.open_one_rtt(number_at, largest, packet),
        };
        let Some(direction) = direction else {
            return Ok(None);
        };
        let header = direction
            .unprotect_header(packet, number_at)
            .and_then(|_| UnprotectedHeader::read(packet, number_at));
        let Some(header) = header else {
            return Ok(None);
        };
        let number = header.number.recover(largest);
        let Some(len) = direction.open(number, packet, header.header_len) else {
            // RFC 9001 §6.6: the limit is the connection's, across all keys.
            if let Some(keys) = &mut self.one_rtt {
                keys.count_failed_open()?;
            }
            return Ok(None);
        };
        header.check_reserved()?;
        Ok(Some(OpenedPacket {
            number,
            payload: header.header_len..header.header_len.saturating_add(len),
            generation: 0,
            update: None,
        }))
    }

    fn open_one_rtt(
        &mut self,
        number_at: usize,
        largest: Option<u64>,
        packet: &mut [u8],
    ) -> Result<Option<OpenedPacket>, TransportError> {
        let Some(keys) = &mut self.one_rtt else {
            return Ok(None);
        };
        let header = keys
            .unprotect_header(packet, number_at)
            .and_then(|_| UnprotectedHeader::read(packet, number_at));
        let Some(header) = header else {
            return Ok(None);
        };
        let number = header.number.recover(largest);
        let before = keys.generation();
        let Some(opened) = keys.open(number, packet, header.header_len)? else {
            return Ok(None);
        };
        header.check_reserved()?;
        let update = match (opened.updated, keys.generation() > before) {
            (false, _) => None,
            (true, true) => Some(KeyUpdate::Initiated),
            (true, false) => Some(KeyUpdate::Answered),
        };
        Ok(Some(OpenedPacket {
            number,
            payload: header.header_len..header.header_len.saturating_add(opened.len),
            generation: opened.generation,
            update,
        }))
    }

    /// Returns whether a 1-RTT packet has another key phase than those that are sent now.
    #[cfg(feature = "defects")]
    pub(super) fn is_of_other_phase(&self, number_at: usize, packet: &[u8]) -> bool {
        let mut packet = packet.to_vec();
        let keys = self.one_rtt.as_ref();
        let unprotected = keys.and_then(|keys| keys.unprotect_header(&mut packet, number_at));
        let bits = packet.first().copied().unwrap_or_default();
        let phase = bits & crate::crypto::update::KEY_PHASE != 0;
        unprotected.is_some() && phase != self.key_phase()
    }

    /// Keeps the previous 1-RTT keys for packets still in flight (RFC 9001 §6.5).
    pub(super) fn retain_previous_until(&mut self, until: Instant) {
        if let Some(keys) = &mut self.one_rtt {
            keys.retain_previous_until(until);
        }
    }

    /// Seals a packet in place. Its header ends in a packet number of `number_len` bytes.
    ///
    /// # Errors
    /// AEAD_LIMIT_REACHED; INTERNAL_ERROR without keys or for a packet too short.
    #[inline]
    pub(super) fn seal(
        &mut self,
        kind: PacketKind,
        number: u64,
        packet: &mut [u8],
        header_len: usize,
        number_len: usize,
    ) -> Result<(), TransportError> {
        let direction = match kind {
            PacketKind::Initial => self.initial.as_ref().map(|keys| &keys.current.local),
            PacketKind::Handshake => self.handshake.as_ref().map(|keys| &keys.local),
            PacketKind::ZeroRtt => self.zero_rtt.as_ref(),
            PacketKind::OneRtt => {
                let keys = self.one_rtt.as_mut().ok_or_else(no_keys)?;
                return keys.seal(number, packet, header_len, number_len);
            }
        };
        direction
            .ok_or_else(no_keys)?
            .seal(number, packet, header_len, number_len)
    }

    /// Returns the Key Phase bit of 1-RTT packets (RFC 9001 §6).
    #[inline]
    pub(super) fn key_phase(&self) -> bool {
        let keys = self.one_rtt.as_ref();
        keys.is_some_and(|keys| keys.generation() & 1 == 1)
    }

    /// Checks whether the 1-RTT keys are close to their limit and cannot be updated (RFC
    /// 9001 §6.6). Call this while there are packets left to send CONNECTION_CLOSE.
    ///
    /// # Errors
    /// AEAD_LIMIT_REACHED.
    #[inline]
    pub(super) fn check_limits(&self) -> Result<(), TransportError> {
        self.one_rtt
            .as_ref()
            .map_or(Ok(()), OneRttKeys::check_limits)
    }

    /// Discards the Initial or the Handshake keys. Returns false if there are none.
    pub(super) fn discard(&mut self, space: Space) -> bool {
        match space {
            Space::Initial => {
                self.initial_discarded = true;
                self.initial.take().is_some()
            }
            Space::Handshake => {
                self.handshake_discarded = true;
                self.handshake.take().is_some()
            }
            Space::Data => false,
        }
    }

    /// Discards the 0-RTT key.
    pub(super) fn discard_zero_rtt(&mut self) {
        self.zero_rtt = None;
        self.zero_rtt_until = None;
        self.zero_rtt_discarded = true;
    }

    /// Returns whether 0-RTT keys may still become available.
    pub(super) fn awaits_zero_rtt(&self) -> bool {
        self.zero_rtt.is_none() && !self.zero_rtt_discarded
    }

    /// Records that TLS has no key for 0-RTT packets, and will have none.
    pub(super) fn reject_zero_rtt(&mut self) {
        self.zero_rtt_discarded = true;
    }

    /// Returns whether packets of this type can never be opened, or never again.
    pub(super) fn is_discarded(&self, kind: PacketKind) -> bool {
        match kind {
            PacketKind::Initial => self.initial_discarded,
            PacketKind::Handshake => self.handshake_discarded,
            // Only clients send them.
            PacketKind::ZeroRtt => self.zero_rtt_discarded || self.role == Role::Client,
            PacketKind::OneRtt => false,
        }
    }

    /// Returns whether Initial and Handshake keys have been discarded.
    #[inline]
    pub(super) fn are_early_discarded(&self) -> bool {
        self.initial_discarded && self.handshake_discarded
    }

    /// Returns when the 0-RTT key and the previous 1-RTT keys are discarded.
    pub(super) fn next_timeouts(&self) -> [Option<Instant>; 2] {
        let previous = self.one_rtt.as_ref().and_then(OneRttKeys::discard_at);
        [self.zero_rtt_until, previous]
    }

    /// Discards the previous 1-RTT keys if it is time. Returns whether it was.
    pub(super) fn discard_previous(&mut self, now: Instant) -> bool {
        if let Some(keys) = &mut self.one_rtt
            && keys.discard_at().is_some_and(|at| now >= at)
        {
            keys.discard_previous(now);
            return true;
        }
        false
    }
}

fn no_keys() -> TransportError {
    TransportError::new(
        Code::INTERNAL_ERROR,
        "a packet was started without its keys",
    )
}

/// Returns the packet number space of a packet type (RFC 9000 §12.3).
#[inline]
pub(crate) fn space_of(kind: PacketKind) -> Space {
    match kind {
        PacketKind::Initial => Space::Initial,
        PacketKind::Handshake => Space::Handshake,
        PacketKind::ZeroRtt | PacketKind::OneRtt => Space::Data,
    }
}

/// Returns the packet type that represents a space in traces.
pub(crate) fn kind_of(space: Space) -> PacketKind {
    match space {
        Space::Initial => PacketKind::Initial,
        Space::Handshake => PacketKind::Handshake,
        Space::Data => PacketKind::OneRtt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::Algorithms;
    use crate::crypto::testing::{configs, one_rtt_pair};

    /// Both ends would agree on the wrong bit as well.
    #[test]
    fn key_phase_is_zero_for_the_first_keys_and_toggles() {
        let (client, server) = configs(&Algorithms::default().x25519_only());
        let mut keys = Keyring::new(Role::Client);
        assert!(!keys.key_phase());
        keys.one_rtt = Some(one_rtt_pair(&client, &server).0);
        for generation in 0..4 {
            assert_eq!(keys.key_phase(), generation % 2 == 1, "{generation}");
            if let Some(keys) = &mut keys.one_rtt {
                keys.force_update();
            }
        }
    }
}
