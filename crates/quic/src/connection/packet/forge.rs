//! Forged packets for tests: any payload, protected with the connection's keys, to do what
//! a hostile peer could do.

use super::DatagramPurpose;
use crate::Instant;
use crate::connection::Connection;
use crate::connection::keyring::space_of;
use crate::crypto::TAG_LEN;
use crate::wire::version::LongTypes;
use crate::wire::{MIN_MTU, PacketKind, TruncatedNumber, Version};

/// Largest header: first byte, version, two connection IDs, a token of up to
/// 800 bytes, length, packet number.
const HEADER_ROOM: usize = 900;

/// A packet that violates the protocol, for tests.
#[derive(Clone, Copy, Debug)]
pub struct Forgery<'a> {
    /// Its type, which determines its keys.
    pub kind: PacketKind,
    /// Its payload: frames or any other bytes.
    pub payload: &'a [u8],
    /// Packet numbers to skip before it.
    pub skip: u64,
    /// Bits to invert in the first byte, before protection.
    pub flip: u8,
    /// Bits to invert in the first byte of the Source Connection ID of a long
    /// header, before protection.
    pub flip_source: u8,
    /// The version in a long header, if not that of the connection; a supported one.
    pub version: Option<Version>,
    /// PADDING is added until the packet has this many bytes.
    pub pad_to: usize,
}

impl<'a> Forgery<'a> {
    /// Creates an otherwise ordinary packet with this payload.
    #[must_use]
    pub fn new(kind: PacketKind, payload: &'a [u8]) -> Self {
        let pad_to = match kind {
            PacketKind::Initial => usize::from(MIN_MTU),
            PacketKind::ZeroRtt | PacketKind::Handshake | PacketKind::OneRtt => 0,
        };
        Self {
            kind,
            payload,
            skip: 0,
            flip: 0,
            flip_source: 0,
            version: None,
            pad_to,
        }
    }
}

impl Connection {
    /// Seals `forgery` with the connection's keys and enters it in the ledger, so that its
    /// acknowledgement is accepted. Returns `None` without such keys.
    pub fn forge(&mut self, now: Instant, forgery: &Forgery<'_>) -> Option<Vec<u8>> {
        let Forgery { kind, payload, .. } = *forgery;
        let space = space_of(kind);
        let has_keys = match kind {
            PacketKind::Initial => self.keys.initial.is_some(),
            PacketKind::ZeroRtt => self.is_client() && self.keys.zero_rtt.is_some(),
            PacketKind::Handshake => self.keys.handshake.is_some(),
            PacketKind::OneRtt => self.keys.one_rtt.is_some(),
        };
        if !has_keys {
            return None;
        }
        for _ in 0..forgery.skip {
            self.network.recovery.skip_number(space);
        }
        let number = self.network.recovery.next_number(space);
        // Four bytes, so that even an empty payload leaves enough for the sample.
        let truncated = TruncatedNumber::with_len(number, 4);
        self.begin_trace(now);
        let path = self.network.paths.active_id();
        let mut writer = self.writer(now);
        let room = payload.len().saturating_add(HEADER_ROOM + TAG_LEN);
        let mut packet = vec![0; room.max(forgery.pad_to)];
        let draft = writer.write_header(kind, space, path, number, truncated, &mut packet)?;
        if let Some(version) = forgery.version {
            claim_version(&mut packet, kind, version)?;
        }
        *packet.first_mut()? ^= forgery.flip;
        if kind != PacketKind::OneRtt {
            // First byte, version, then both IDs behind their lengths.
            let source_at = usize::from(*packet.get(5)?).saturating_add(7);
            *packet.get_mut(source_at)? ^= forgery.flip_source;
        }
        let place = draft.payload(&mut packet)?.get_mut(..payload.len())?;
        place.copy_from_slice(payload);
        let used = draft.size(payload.len());
        let padding = forgery.pad_to.saturating_sub(used);
        let size = writer
            .finish_packet(
                draft,
                &mut packet,
                payload.len(),
                padding,
                DatagramPurpose::Ordinary,
            )
            .ok()?;
        packet.truncate(size);
        Some(packet)
    }

    /// Updates the sending keys, even if that is not permitted now.
    pub fn force_key_update(&mut self) {
        if let Some(keys) = &mut self.keys.one_rtt {
            keys.force_update();
        }
    }

    /// Lowers the AEAD integrity limit to a number of packets that a test can reach.
    pub fn set_integrity_limit(&mut self, packets: u64) {
        if let Some(keys) = &mut self.keys.one_rtt {
            keys.set_integrity_limit(packets);
        }
    }
}

/// Changes the version and the type bits of a long header.
fn claim_version(packet: &mut [u8], kind: PacketKind, version: Version) -> Option<()> {
    let types = version.of_connection().long_types;
    let bits = match kind {
        PacketKind::Initial => types.initial,
        PacketKind::ZeroRtt => types.zero_rtt,
        PacketKind::Handshake => types.handshake,
        PacketKind::OneRtt => return None,
    };
    let (first, rest) = packet.split_first_mut()?;
    *first = *first & !LongTypes::MASK | bits;
    *rest.first_chunk_mut()? = version.0.to_be_bytes();
    Some(())
}
