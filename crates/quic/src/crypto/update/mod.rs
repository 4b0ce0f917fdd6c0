//! 1-RTT keys over all key updates (RFC 9001 §6), and their usage limits (§6.6).
//!
//! A generation is a set of packet keys; its lowest bit is the Key Phase bit.
//! Sending and receiving advance independently, never more than one generation apart:
//!
//! ```text
//! we initiate           local + 1
//! the peer answers      remote + 1            (local == remote again)
//!
//! the peer initiates    remote + 1, local + 1 at once
//! ```
//!
//! Of the receive keys the current, the next and, for a while, the previous ones are kept. The
//! next ones exist before they are needed, so that rejecting a packet takes the same time in
//! either phase (RFC 9001 §9.5). That begins when the peer has acknowledged a packet: a packet of
//! the second phase is hardly ever genuine before, so there is nothing to hide, and a handshake
//! spares six HKDF expansions. The keys after the next are derived when a genuine packet needs
//! them, which §6.3 permits. For the next send key there is no such timing to hide, so it is
//! derived when it is needed: a cipher takes 600 bytes, and most connections never update.

use rustls::quic::{PacketKey as _, Secrets};

use super::generation::{KeyChoice, PreviousKeys, ReceiveKeys, SendKeys};
use super::header_key::HeaderKey;
use super::key_export::unsupported_keys;
use super::keys::{self, Unprotected};
use super::packet_key::PacketKey;
use super::secrets::{SecretPair, UpdateSecrets};
use crate::Instant;
use crate::count::Count;
use crate::error::{Code, TransportError};
use crate::wire::version::KeyLabels;

/// The Key Phase bit of a short header (RFC 9000 §17.3.1).
pub(crate) const KEY_PHASE: u8 = 0x04;

/// Packets kept in reserve below the confidentiality limit, so that a connection that cannot
/// update its keys can still send CONNECTION_CLOSE.
const CLOSING_RESERVE: u64 = 128;

/// A successfully decrypted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedPacket {
    /// Length of the payload, which starts after the header.
    pub len: usize,
    /// The generation that sealed it; for [`OneRttKeys::on_ack`].
    pub generation: u64,
    /// Whether it is the first of its generation. The caller then sets the end of the previous
    /// generation with [`OneRttKeys::retain_previous_until`].
    pub updated: bool,
}

/// Why a key update cannot be initiated now (RFC 9001 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyUpdateError {
    /// The handshake is not confirmed.
    #[error("the handshake is not confirmed")]
    NotConfirmed,
    /// The peer has not acknowledged a packet of the current generation.
    #[error("the last key update is not acknowledged")]
    NotAcknowledged,
    /// The previous receive keys are still in use for late packets; the peer
    /// may be in the same position (RFC 9001 §6.5).
    #[error("the last key update is less than three PTOs ago")]
    TooSoon,
}

/// The keys of 1-RTT packets.
pub struct OneRttKeys {
    local_header: HeaderKey,
    remote_header: HeaderKey,
    local: SendKeys,
    remote: ReceiveKeys,
    previous: Option<Box<PreviousKeys>>,
    /// The receive key after `remote`; `None` until the first packet of a connection in use, and after
    /// [`release_ciphers`](OneRttKeys::release_ciphers), until the next packet.
    next: Option<Box<PacketKey>>,
    /// The secrets of the generation after `remote`.
    secrets: UpdateSecrets,
    confirmed: bool,
    failed: u64,
    update_after: u64,
    confidentiality_limit: u64,
    integrity_limit: u64,
}

impl OneRttKeys {
    /// Creates them from the output of TLS: the first generation, and the secrets of the second.
    ///
    /// # Errors
    /// `INTERNAL_ERROR` if the keys were not made by a [`Suite`](super::Suite), because the TLS
    /// configuration was not built by [`ClientCrypto`](super::ClientCrypto) or
    /// [`ServerCrypto`](super::ServerCrypto).
    pub fn new(keys: &rustls::quic::Keys, secrets: Secrets) -> Result<Self, TransportError> {
        let header = |key| HeaderKey::from_rustls(key).ok_or_else(unsupported_keys);
        let packet = |key| PacketKey::from_rustls(key).ok_or_else(unsupported_keys);
        let local = (packet(&*keys.local.packet)?, header(&*keys.local.header)?);
        let remote = (packet(&*keys.remote.packet)?, header(&*keys.remote.header)?);
        Self::with_keys(local, remote, UpdateSecrets::Tls(secrets))
    }

    /// Derives them from the first secrets, for another version than that of the TLS session.
    pub(super) fn derive(
        first: &SecretPair,
        labels: &'static KeyLabels,
    ) -> Result<Self, TransportError> {
        let second = Box::new(first.updated(labels));
        let (local, remote) = (first.local.keys(labels), first.remote.keys(labels));
        Self::with_keys(local, remote, UpdateSecrets::Derived(second, labels))
    }

    fn with_keys(
        local: (PacketKey, HeaderKey),
        remote: (PacketKey, HeaderKey),
        secrets: UpdateSecrets,
    ) -> Result<Self, TransportError> {
        let confidentiality_limit = local.0.confidentiality_limit();
        let integrity_limit = remote.0.integrity_limit();
        Ok(Self {
            local_header: local.1,
            remote_header: remote.1,
            local: SendKeys::new(local.0, 0),
            remote: ReceiveKeys {
                key: remote.0,
                generation: 0,
                floor: 0,
                seen: None,
            },
            previous: None,
            next: None,
            secrets,
            confirmed: false,
            failed: 0,
            update_after: confidentiality_limit / 2,
            confidentiality_limit,
            integrity_limit,
        })
    }

    /// Called when the handshake is confirmed (RFC 9001 §4.1.2): allows key updates.
    pub fn on_handshake_confirmed(&mut self) {
        self.confirmed = true;
    }

    /// Sets the number of packets sealed with a key before it is updated. Default and maximum:
    /// half the confidentiality limit.
    pub fn set_update_after(&mut self, packets: u64) {
        self.update_after = packets.clamp(1, self.confidentiality_limit / 2);
    }

    /// Returns the generation that seals packets now, from 0.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.local.generation
    }

    /// Returns the number of packets that have failed to open.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn failed_opens(&self) -> u64 {
        self.failed
    }

    /// Seals like [`Direction::seal`](super::keys::Direction::seal) and sets
    /// the Key Phase bit, whatever the caller left there. Initiates a key
    /// update by itself when one is due and permitted.
    ///
    /// # Errors
    /// `AEAD_LIMIT_REACHED` at the confidentiality limit; `INTERNAL_ERROR` for
    /// a packet too short to protect.
    #[inline]
    pub fn seal(
        &mut self,
        pn: u64,
        packet: &mut [u8],
        header_len: usize,
        pn_len: usize,
    ) -> Result<(), TransportError> {
        if self.local.sealed >= self.update_after {
            self.update_before_the_limit()?;
        }
        if let Some(first) = packet.first_mut() {
            let phase = if self.local.generation & 1 == 1 {
                KEY_PHASE
            } else {
                0
            };
            *first = *first & !KEY_PHASE | phase;
        }
        keys::seal(
            &self.local.key,
            &self.local_header,
            pn,
            packet,
            header_len,
            pn_len,
        )?;
        self.local.sealed.count_one();
        self.local.first.get_or_insert(pn);
        Ok(())
    }

    #[cold]
    fn update_before_the_limit(&mut self) -> Result<(), TransportError> {
        // Waiting three PTOs is only a recommendation, the limit is not. So this checks only what
        // keeps the peer able to follow the keys.
        match self.may_update() {
            Ok(()) => self.advance_local()?,
            Err(_) if self.local.sealed >= self.confidentiality_limit => {
                return Err(keys::confidentiality_exhausted());
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Checks that the connection need not close because its keys are used up and cannot be
    /// updated (RFC 9001 §6.6). Fails early enough to seal the close.
    ///
    /// # Errors
    /// `AEAD_LIMIT_REACHED`.
    pub(crate) fn check_limits(&self) -> Result<(), TransportError> {
        let worn = self.confidentiality_limit.saturating_sub(CLOSING_RESERVE);
        if self.local.sealed >= worn && self.may_update().is_err() {
            return Err(keys::confidentiality_exhausted());
        }
        Ok(())
    }

    /// Starts a key update: every packet sealed from now on uses new keys.
    ///
    /// # Errors
    /// If RFC 9001 §6.1 does not permit it yet, or it would come less than
    /// three PTOs after the last (§6.5).
    pub fn initiate_update(&mut self, now: Instant) -> Result<(), KeyUpdateError> {
        self.discard_previous(now);
        self.may_update()?;
        if self.previous.is_some() {
            return Err(KeyUpdateError::TooSoon);
        }
        // Does not fail: TLS makes keys as it made the first ones.
        self.advance_local()
            .map_err(|_| KeyUpdateError::NotConfirmed)
    }

    fn may_update(&self) -> Result<(), KeyUpdateError> {
        if !self.confirmed {
            return Err(KeyUpdateError::NotConfirmed);
        }
        let first_update = self.local.generation == 0;
        let answered = self.local.generation == self.remote.generation;
        if !(first_update || answered && self.local.acknowledged) {
            return Err(KeyUpdateError::NotAcknowledged);
        }
        Ok(())
    }

    fn advance_local(&mut self) -> Result<(), TransportError> {
        // `may_update` and `promote` only come here while both directions are
        // of one generation: the secrets are those of the one after it.
        debug_assert_eq!(self.local.generation, self.remote.generation);
        let key = self.secrets.local_key()?;
        self.local = SendKeys::new(key, self.local.generation.saturating_add(1));
        Ok(())
    }

    /// Called when the peer acknowledges `largest` in a packet of the generation `carrier`
    /// ([`OpenedPacket::generation`]).
    ///
    /// # Errors
    /// `KEY_UPDATE_ERROR` if the peer acknowledges packets of a generation
    /// that it does not itself use (RFC 9001 §6.2).
    pub fn on_ack(&mut self, largest: u64, carrier: u64) -> Result<(), TransportError> {
        if self.local.first.is_none_or(|first| largest < first) {
            return Ok(());
        }
        if carrier < self.local.generation {
            return Err(update_error(
                "acknowledgment of packets with new keys in a packet with old keys",
            ));
        }
        self.local.acknowledged = true;
        Ok(())
    }

    /// Same as [`Direction::unprotect_header`](super::keys::Direction::unprotect_header).
    #[inline]
    pub fn unprotect_header(&self, packet: &mut [u8], pn_offset: usize) -> Option<Unprotected> {
        keys::unprotect(&self.remote_header, packet, pn_offset)
    }

    /// Decrypts the payload in place with the keys that the Key Phase bit and the full packet
    /// number `pn` call for. Returns `Ok(None)` if it does not authenticate; the bytes after the
    /// header are then undefined.
    ///
    /// # Errors
    /// `KEY_UPDATE_ERROR` if a genuine packet breaks the order of generations;
    /// `AEAD_LIMIT_REACHED` after too many packets that were not genuine.
    #[inline]
    pub fn open(
        &mut self,
        pn: u64,
        packet: &mut [u8],
        header_len: usize,
    ) -> Result<Option<OpenedPacket>, TransportError> {
        let Some(first) = packet.first() else {
            return Ok(None);
        };
        let which = self.select(pn, u64::from(first & KEY_PHASE != 0));
        if self.next.is_none() && (self.is_in_use() || which != KeyChoice::Current) {
            self.derive_next()?;
        }
        let key = match (which, &self.previous, &self.next) {
            (KeyChoice::Previous, Some(previous), _) => &previous.key,
            (KeyChoice::Previous | KeyChoice::Next, _, Some(next)) => next,
            (KeyChoice::Current, ..) | (_, _, None) => &self.remote.key,
        };
        match keys::open(key, pn, packet, header_len) {
            Some(len) => self.accept(which, pn, len).map(Some),
            None => self.on_failed_open().map(|()| None),
        }
    }

    /// Returns whether the peer has acknowledged a packet, or keys were updated. From then on the next
    /// receive key exists before any packet is opened, so that the time does not reveal its phase.
    #[inline]
    fn is_in_use(&self) -> bool {
        self.local.acknowledged || self.local.generation > 0
    }

    /// Derives the next receive key, and makes the ciphers of both phases.
    #[cold]
    fn derive_next(&mut self) -> Result<(), TransportError> {
        self.remote.key.make_cipher();
        self.next = Some(receive_key(&self.secrets)?);
        Ok(())
    }

    /// Selects the keys for a packet. A packet of the other phase belongs to the previous
    /// generation if its number is below those of the current one, otherwise to the next
    /// (RFC 9001 §6.5), so old keys never open a packet above new ones. When the previous keys
    /// are gone, the next ones are tried instead, which fails but takes the same time.
    #[inline]
    fn select(&self, pn: u64, phase: u64) -> KeyChoice {
        if phase == self.remote.generation & 1 {
            return KeyChoice::Current;
        }
        match (&self.previous, self.remote.seen) {
            (Some(_), Some(seen)) if pn < seen.lowest => KeyChoice::Previous,
            _ => KeyChoice::Next,
        }
    }

    #[inline]
    fn accept(
        &mut self,
        which: KeyChoice,
        pn: u64,
        len: usize,
    ) -> Result<OpenedPacket, TransportError> {
        let floor = match (which, &self.previous) {
            (KeyChoice::Previous, Some(previous)) => previous.floor,
            (KeyChoice::Next, _) => self.remote.next_floor(),
            (KeyChoice::Current, _) | (KeyChoice::Previous, None) => self.remote.floor,
        };
        if pn < floor {
            return Err(update_error(
                "packet with newer keys than a packet with a higher number",
            ));
        }
        let generation = match which {
            KeyChoice::Previous => self.remote.generation.saturating_sub(1),
            KeyChoice::Current => self.remote.generation,
            KeyChoice::Next => {
                self.promote()?;
                self.remote.generation
            }
        };
        if which == KeyChoice::Previous {
            self.remote.floor = self.remote.floor.max(pn.saturating_add(1));
        } else {
            self.remote.record(pn);
        }
        Ok(OpenedPacket {
            len,
            generation,
            updated: which == KeyChoice::Next,
        })
    }

    /// Makes the next generation the current one, after a genuine packet of it: the peer has
    /// updated its keys.
    #[cold]
    fn promote(&mut self) -> Result<(), TransportError> {
        let peer_initiated = self.local.generation == self.remote.generation;
        if peer_initiated {
            // The peer must have seen us acknowledge the current generation,
            // which we cannot have done without sealing a packet in it.
            if self.remote.generation > 0 && self.local.sealed == 0 {
                return Err(update_error("keys updated twice without confirmation"));
            }
            self.advance_local()?;
        }
        let fresh = match self.next.take() {
            Some(fresh) => fresh,
            None => Box::new(self.secrets.remote_key()?),
        };
        self.secrets.advance();
        self.next = Some(receive_key(&self.secrets)?);
        let floor = self.remote.next_floor();
        let old_floor = core::mem::replace(&mut self.remote.floor, floor);
        self.previous = Some(Box::new(PreviousKeys {
            key: core::mem::replace(&mut self.remote.key, *fresh),
            floor: old_floor,
            discard_at: None,
        }));
        self.remote.generation.count_one();
        self.remote.seen = None;
        Ok(())
    }

    #[cold]
    fn on_failed_open(&mut self) -> Result<(), TransportError> {
        self.failed.count_one();
        if self.failed > self.integrity_limit {
            return Err(TransportError::new(
                Code::AEAD_LIMIT_REACHED,
                "integrity limit of the packet protection reached",
            ));
        }
        Ok(())
    }

    /// Counts a packet that failed to open at another encryption level: the
    /// limit is the connection's (RFC 9001 §6.6).
    ///
    /// # Errors
    /// `AEAD_LIMIT_REACHED`.
    pub(crate) fn count_failed_open(&mut self) -> Result<(), TransportError> {
        self.on_failed_open()
    }

    /// Sets when the previous receive keys are discarded: three PTOs after the first
    /// packet of the current ones (RFC 9001 §6.5).
    pub fn retain_previous_until(&mut self, at: Instant) {
        if let Some(previous) = &mut self.previous {
            previous.discard_at = Some(at);
        }
    }

    /// Frees the ciphers until a packet is sent or received. The first packet then creates all of
    /// them, which tells an observer that the connection was idle and nothing about key phases.
    /// Forged packets do so too, but only once.
    pub fn release_ciphers(&mut self) {
        self.next = None;
        self.local.key.release_cipher();
        self.remote.key.release_cipher();
        self.local_header.release_cipher();
        self.remote_header.release_cipher();
        if let Some(previous) = &mut self.previous {
            previous.key.release_cipher();
        }
    }

    /// Returns when to call [`discard_previous`](Self::discard_previous).
    #[must_use]
    pub fn discard_at(&self) -> Option<Instant> {
        self.previous.as_ref()?.discard_at
    }

    /// Discards the previous receive keys if it is time.
    pub fn discard_previous(&mut self, now: Instant) {
        if self.discard_at().is_some_and(|at| at <= now) {
            self.previous = None;
        }
    }
}

/// Derives the receive key of the generation of `secrets`.
#[cold]
fn receive_key(secrets: &UpdateSecrets) -> Result<Box<PacketKey>, TransportError> {
    let key = Box::new(secrets.remote_key()?);
    key.make_cipher();
    Ok(key)
}

#[cfg(feature = "testing")]
impl OneRttKeys {
    /// Seals with the next generation from now on, whether permitted or not.
    pub(crate) fn force_update(&mut self) {
        let mut secrets = self.secrets.clone();
        let ahead = self.local.generation.saturating_sub(self.remote.generation);
        for _ in 0..ahead {
            secrets.advance();
        }
        if let Ok(key) = secrets.local_key() {
            self.local = SendKeys::new(key, self.local.generation.saturating_add(1));
        }
    }

    /// Lowers the number of forged packets that the connection survives.
    pub fn set_integrity_limit(&mut self, packets: u64) {
        self.integrity_limit = packets;
    }
}

impl core::fmt::Debug for OneRttKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OneRttKeys")
            .field("local", &self.local.generation)
            .field("remote", &self.remote.generation)
            .finish_non_exhaustive()
    }
}

fn update_error(reason: &'static str) -> TransportError {
    TransportError::new(Code::KEY_UPDATE_ERROR, reason)
}

#[cfg(test)]
mod tests;
