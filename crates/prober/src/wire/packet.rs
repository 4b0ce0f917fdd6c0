//! Packets: headers, protection (RFC 9000 §17, RFC 9001 §5).

use core::ops::Range;

use clearway_quic::wire::cursor::Reader;
use rustls::quic::{DirectionalKeys, HeaderProtectionKey, PacketKey};

use super::put_varint;

/// QUIC version 1 (RFC 9000 §15).
pub(crate) const VERSION_1: u32 = 1;
/// Bytes of an AEAD tag (RFC 9001 §5.3).
pub(crate) const TAG_LEN: usize = 16;
/// Bytes of the sample of header protection (RFC 9001 §5.4.2).
const SAMPLE_LEN: usize = 16;
/// Every packet that we send has a packet number of four bytes.
const NUMBER_LEN: usize = 4;
/// Smallest datagram with an Initial packet of a client (RFC 9000 §14.1).
pub(crate) const MIN_INITIAL: usize = 1_200;
/// Key Phase bit of a short header (RFC 9000 §17.3.1).
pub(crate) const KEY_PHASE: u8 = 0x04;

/// The type of a packet that carries frames, which determines its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Initial packets.
    Initial,
    /// 0-RTT packets.
    ZeroRtt,
    /// Handshake packets.
    Handshake,
    /// 1-RTT packets.
    OneRtt,
}

impl Level {
    /// All levels with the names that scripts use.
    pub(crate) const NAMES: [(&'static str, Self); 4] = [
        ("initial", Self::Initial),
        ("0rtt", Self::ZeroRtt),
        ("handshake", Self::Handshake),
        ("1rtt", Self::OneRtt),
    ];

    /// Returns the packet number space (RFC 9000 §12.3): 0 to 2.
    pub(crate) const fn space(self) -> usize {
        match self {
            Self::Initial => 0,
            Self::Handshake => 1,
            Self::ZeroRtt | Self::OneRtt => 2,
        }
    }

    /// Returns the name that the RFCs use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Initial => "Initial",
            Self::ZeroRtt => "0-RTT",
            Self::Handshake => "Handshake",
            Self::OneRtt => "1-RTT",
        }
    }

    const fn type_bits(self) -> u8 {
        match self {
            Self::Initial | Self::OneRtt => 0x00,
            Self::ZeroRtt => 0x10,
            Self::Handshake => 0x20,
        }
    }
}

/// A packet before protection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain<'a> {
    pub(crate) level: Level,
    pub(crate) version: u32,
    pub(crate) dcid: &'a [u8],
    pub(crate) scid: &'a [u8],
    /// Of an Initial packet.
    pub(crate) token: &'a [u8],
    pub(crate) number: u64,
    /// Of a short header.
    pub(crate) key_phase: bool,
    /// Bits of the first byte that are inverted before protection.
    pub(crate) flip: u8,
    pub(crate) payload: &'a [u8],
}

impl Plain<'_> {
    /// Returns the bytes that header and tag take.
    pub(crate) fn overhead(&self) -> usize {
        self.header().len() + TAG_LEN
    }

    fn header(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.token.len());
        if self.level == Level::OneRtt {
            let phase = if self.key_phase { KEY_PHASE } else { 0 };
            out.push((0x40 | phase | (NUMBER_LEN as u8 - 1)) ^ self.flip);
            out.extend_from_slice(self.dcid);
        } else {
            out.push((0xc0 | self.level.type_bits() | (NUMBER_LEN as u8 - 1)) ^ self.flip);
            out.extend(self.version.to_be_bytes());
            for cid in [self.dcid, self.scid] {
                out.push(cid.len() as u8);
                out.extend_from_slice(cid);
            }
            if self.level == Level::Initial {
                put_varint(&mut out, self.token.len() as u64);
                out.extend_from_slice(self.token);
            }
            let length = NUMBER_LEN + self.payload.len() + TAG_LEN;
            // Two bytes always, so that the header's size does not depend on the payload's.
            out.extend((length as u16 & 0x3fff | 0x4000).to_be_bytes());
        }
        out.extend((self.number as u32).to_be_bytes());
        out
    }

    /// Encrypts the packet. Returns `None` if the keys refuse it.
    pub(crate) fn seal(
        &self,
        header_key: &dyn HeaderProtectionKey,
        packet_key: &dyn PacketKey,
    ) -> Option<Vec<u8>> {
        let mut packet = self.header();
        let payload_at = packet.len();
        let mut payload = self.payload.to_vec();
        let tag = packet_key
            .encrypt_in_place(self.number, &packet, &mut payload)
            .ok()?;
        packet.extend_from_slice(&payload);
        packet.extend_from_slice(tag.as_ref());
        let number_at = payload_at.checked_sub(NUMBER_LEN)?;
        let (head, rest) = packet.split_at_mut(number_at);
        let (number, rest) = rest.split_at_mut_checked(NUMBER_LEN)?;
        let sample = rest.get(..SAMPLE_LEN)?;
        header_key
            .encrypt_in_place(sample, head.first_mut()?, number)
            .ok()?;
        Some(packet)
    }
}

/// The header of a received packet, as far as it can be read without keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// A Version Negotiation packet, which fills its datagram.
    VersionNegotiation {
        dcid: Vec<u8>,
        scid: Vec<u8>,
        versions: Vec<u32>,
    },
    /// A Retry packet, which fills its datagram.
    Retry { scid: Vec<u8>, token: Vec<u8> },
    /// A protected packet; the range is the whole packet within the datagram.
    Protected {
        level: Level,
        version: u32,
        dcid: Vec<u8>,
        scid: Vec<u8>,
        number_at: usize,
        packet: Range<usize>,
    },
}

/// Reads the header of the packet that starts at `at`. Connection IDs of short headers have
/// `cid_len` bytes. `None` if it is not a packet.
pub(crate) fn parse(datagram: &[u8], at: usize, cid_len: usize) -> Option<Header> {
    let bytes = datagram.get(at..)?;
    let mut reader = Reader::new(bytes);
    let position = |reader: &Reader<'_>| datagram.len() - reader.remaining();
    let first = reader.u8()?;
    if first & 0x80 == 0 {
        let dcid = reader.bytes(cid_len)?.to_vec();
        return Some(Header::Protected {
            level: Level::OneRtt,
            version: VERSION_1,
            dcid,
            scid: Vec::new(),
            number_at: position(&reader),
            packet: at..datagram.len(),
        });
    }
    let version = u32::from_be_bytes(reader.array()?);
    let mut cid = || {
        let len = usize::from(reader.u8()?);
        Some(reader.bytes(len)?.to_vec())
    };
    let (dcid, scid) = (cid()?, cid()?);
    if version == 0 {
        let versions = reader.rest().chunks_exact(4);
        let versions = versions.filter_map(|v| Some(u32::from_be_bytes(v.try_into().ok()?)));
        return Some(Header::VersionNegotiation {
            dcid,
            scid,
            versions: versions.collect(),
        });
    }
    let level = match first & 0x30 {
        0x00 => Level::Initial,
        0x10 => Level::ZeroRtt,
        0x20 => Level::Handshake,
        _ => {
            let token = reader.bytes(reader.remaining().checked_sub(TAG_LEN)?)?;
            return Some(Header::Retry {
                scid,
                token: token.to_vec(),
            });
        }
    };
    if level == Level::Initial {
        let len = usize::try_from(reader.varint()?).ok()?;
        reader.bytes(len)?;
    }
    let length = usize::try_from(reader.varint()?).ok()?;
    let number_at = position(&reader);
    reader.bytes(length)?;
    Some(Header::Protected {
        level,
        version,
        dcid,
        scid,
        number_at,
        packet: at..position(&reader),
    })
}

/// Removes header protection from `packet`, whose packet number starts at `number_at`. Returns
/// the truncated number and its length.
pub(crate) fn unprotect(
    packet: &mut [u8],
    number_at: usize,
    key: &dyn HeaderProtectionKey,
) -> Option<(u32, usize)> {
    let (head, rest) = packet.split_at_mut_checked(number_at)?;
    let (number, rest) = rest.split_first_chunk_mut::<NUMBER_LEN>()?;
    let sample = rest.get(..SAMPLE_LEN)?;
    let first = head.first_mut()?;
    key.decrypt_in_place(sample, first, number).ok()?;
    let len = usize::from(*first & 0x03) + 1;
    let truncated = u32::from_be_bytes(*number) >> (8 * (NUMBER_LEN - len));
    Some((truncated, len))
}

/// Returns the packet number closest to the one after `largest` (RFC 9000 §A.3).
pub(crate) fn recover_number(truncated: u32, len: usize, largest: Option<u64>) -> u64 {
    let expected = largest.map_or(0, |largest| largest.saturating_add(1));
    let window = 1_u64 << (8 * len);
    let candidate = expected & !(window - 1) | u64::from(truncated);
    if candidate + window / 2 <= expected {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

/// Decrypts the payload of an unprotected packet and returns it.
pub(crate) fn open<'a>(
    packet: &'a mut [u8],
    header_len: usize,
    number: u64,
    key: &dyn PacketKey,
) -> Option<&'a [u8]> {
    let (header, payload) = packet.split_at_mut_checked(header_len)?;
    key.decrypt_in_place(number, header, payload).ok()
}

/// Returns the Initial keys of version 1 (RFC 9001 §5.2).
pub(crate) fn initial_keys(dcid: &[u8], side: rustls::Side) -> Option<rustls::quic::Keys> {
    use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let suite = TLS13_AES_128_GCM_SHA256.tls13()?;
    Some(rustls::quic::Keys::initial(
        rustls::quic::Version::V1,
        suite,
        suite.quic?,
        dcid,
        side,
    ))
}

/// Seals with both keys of a direction.
pub(crate) fn seal(plain: &Plain<'_>, keys: &DirectionalKeys) -> Option<Vec<u8>> {
    plain.seal(&*keys.header, &*keys.packet)
}

#[cfg(test)]
mod tests {
    use rustls::Side;

    use super::*;

    #[test]
    fn sealed_initial_is_read_back_by_the_other_side() {
        let dcid = [7; 8];
        let client = initial_keys(&dcid, Side::Client).unwrap();
        let server = initial_keys(&dcid, Side::Server).unwrap();
        let plain = Plain {
            level: Level::Initial,
            version: VERSION_1,
            dcid: &dcid,
            scid: &[1, 2, 3],
            token: b"token",
            number: 9,
            key_phase: false,
            flip: 0,
            payload: &[1; 40],
        };
        let mut packet = seal(&plain, &client.local).unwrap();
        assert_eq!(packet.len(), plain.overhead() + 40);
        let Some(Header::Protected {
            level,
            scid,
            number_at,
            packet: range,
            ..
        }) = parse(&packet, 0, 8)
        else {
            panic!("not a protected packet");
        };
        assert_eq!(
            (level, &scid[..], range),
            (Level::Initial, &[1, 2, 3][..], 0..packet.len())
        );
        let (truncated, len) = unprotect(&mut packet, number_at, &*server.remote.header).unwrap();
        let number = recover_number(truncated, len, Some(8));
        assert_eq!(number, 9);
        let payload = open(&mut packet, number_at + len, number, &*server.remote.packet).unwrap();
        assert_eq!(payload, [1; 40]);
    }

    #[test]
    fn truncated_packets_are_rejected() {
        let dcid = [7; 8];
        let keys = initial_keys(&dcid, Side::Client).unwrap();
        let plain = Plain {
            level: Level::Handshake,
            version: VERSION_1,
            dcid: &dcid,
            scid: &[],
            token: &[],
            number: 0,
            key_phase: false,
            flip: 0,
            payload: &[0; 20],
        };
        let packet = seal(&plain, &keys.local).unwrap();
        for len in 0..packet.len() {
            assert_eq!(parse(&packet[..len], 0, 8), None, "{len}");
        }
    }
}
