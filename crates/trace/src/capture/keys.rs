//! Packet protection as somebody sees it who has the secrets (RFC 9001 §5, §6).
//!
//! The keys of a connection come out of rustls, which makes none of a secret of others; these
//! are made of secrets, and can only open.

use aws_lc_rs::aead::quic::{AES_128, AES_256, Algorithm, CHACHA20, HeaderProtectionKey};
use aws_lc_rs::aead::{self, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use clearway_quic::Role;
use clearway_quic::wire::{PartialHeader, Version};

/// Salt of version 1 (RFC 9001 §5.2).
const SALT_1: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad,
    0xcc, 0xbb, 0x7f, 0x0a,
];
/// Salt of version 2 (RFC 9369 §3.3.1).
const SALT_2: [u8; 20] = [
    0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d, 0xcb,
    0xf9, 0xbd, 0x2e, 0xd9,
];
/// Offset of the sample from the packet number (RFC 9001 §5.4.2).
const SAMPLE_AT: usize = 4;
const SAMPLE_LEN: usize = 16;
/// Packet numbers are smaller (RFC 9000 §12.3).
const MAX_NUMBER: u64 = 1 << 62;

/// A cipher suite of TLS 1.3 that QUIC may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CipherSuite {
    Aes128,
    Aes256,
    ChaCha20,
}

impl CipherSuite {
    /// The suite with this number (RFC 8446 §B.4).
    pub(super) const fn of(number: u16) -> Option<Self> {
        match number {
            0x1301 => Some(Self::Aes128),
            0x1302 => Some(Self::Aes256),
            0x1303 => Some(Self::ChaCha20),
            _ => None,
        }
    }

    fn aead(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128 => &aead::AES_128_GCM,
            Self::Aes256 => &aead::AES_256_GCM,
            Self::ChaCha20 => &aead::CHACHA20_POLY1305,
        }
    }

    fn header(self) -> &'static Algorithm {
        match self {
            Self::Aes128 => &AES_128,
            Self::Aes256 => &AES_256,
            Self::ChaCha20 => &CHACHA20,
        }
    }

    fn hash(self) -> hkdf::Algorithm {
        match self {
            Self::Aes128 | Self::ChaCha20 => hkdf::HKDF_SHA256,
            Self::Aes256 => hkdf::HKDF_SHA384,
        }
    }

    const fn secret_len(self) -> usize {
        match self {
            Self::Aes128 | Self::ChaCha20 => 32,
            Self::Aes256 => 48,
        }
    }
}

/// The labels of a version (RFC 9001 §5.1, RFC 9369 §3.3.2).
struct Labels {
    key: &'static str,
    iv: &'static str,
    header: &'static str,
    update: &'static str,
}

const fn labels(version: Version) -> Labels {
    if version.0 == Version::V2.0 {
        return Labels {
            key: "quicv2 key",
            iv: "quicv2 iv",
            header: "quicv2 hp",
            update: "quicv2 ku",
        };
    }
    Labels {
        key: "quic key",
        iv: "quic iv",
        header: "quic hp",
        update: "quic ku",
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label with an empty context (RFC 8446 §7.1).
fn expand(secret: &hkdf::Prk, label: &str, len: usize) -> Option<Vec<u8>> {
    let mut info = Vec::new();
    info.extend(u16::try_from(len).ok()?.to_be_bytes());
    info.push(u8::try_from(label.len()).ok()?.checked_add(6)?);
    info.extend_from_slice(b"tls13 ");
    info.extend_from_slice(label.as_bytes());
    info.push(0);
    let mut out = vec![0; len];
    let info = [info.as_slice()];
    secret
        .expand(&info, Length(len))
        .ok()?
        .fill(&mut out)
        .ok()?;
    Some(out)
}

/// A packet that was opened, in the buffer that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) number: u64,
    /// Where the payload begins in the buffer, and its length.
    pub(super) payload: (usize, usize),
}

/// The AEAD key of one generation.
struct PacketKey {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
}

/// Opens the packets that one end sends at one level.
pub(super) struct OpeningKeys {
    suite: CipherSuite,
    version: Version,
    header: HeaderProtectionKey,
    /// The secret of the current generation, for the next one.
    secret: Vec<u8>,
    current: PacketKey,
    previous: Option<PacketKey>,
    phase: bool,
    updates: u64,
    largest: Option<u64>,
}

impl core::fmt::Debug for OpeningKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OpeningKeys")
            .field("suite", &self.suite)
            .field("updates", &self.updates)
            .finish_non_exhaustive()
    }
}

impl OpeningKeys {
    /// The keys of Initial packets that `sender` sends (RFC 9001 §5.2).
    pub(super) fn initial(version: Version, dcid: &[u8], sender: Role) -> Option<Self> {
        let salt = if version == Version::V2 {
            SALT_2
        } else {
            SALT_1
        };
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt).extract(dcid);
        let label = match sender {
            Role::Client => "client in",
            Role::Server => "server in",
        };
        let secret = expand(&secret, label, 32)?;
        Self::new(version, CipherSuite::Aes128, secret)
    }

    /// Keys of a secret; `None` if its length is not that of the suite's hash.
    pub(super) fn new(version: Version, suite: CipherSuite, secret: Vec<u8>) -> Option<Self> {
        if secret.len() != suite.secret_len() {
            return None;
        }
        let labels = labels(version);
        let source = hkdf::Prk::new_less_safe(suite.hash(), &secret);
        let header = expand(&source, labels.header, suite.header().key_len())?;
        Some(Self {
            suite,
            version,
            header: HeaderProtectionKey::new(suite.header(), &header).ok()?,
            current: packet_key(suite, &source, &labels)?,
            secret,
            previous: None,
            phase: false,
            updates: 0,
            largest: None,
        })
    }

    /// Number of key updates so far.
    pub(super) const fn updates(&self) -> u64 {
        self.updates
    }

    /// Opens a packet; `buffer` receives it, decrypted. `None` if it cannot be opened, and then
    /// nothing has changed.
    pub(super) fn open(
        &mut self,
        header: &PartialHeader,
        packet: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Option<Opened> {
        let packet = packet.get(..header.packet_len)?;
        let at = header.number_at;
        let sample = packet
            .get(at.checked_add(SAMPLE_AT)?..)?
            .get(..SAMPLE_LEN)?;
        let mask = self.header.new_mask(sample).ok()?;
        buffer.clear();
        buffer.extend_from_slice(packet);
        let (first_mask, number_mask) = mask.split_first()?;
        let first = buffer.first_mut()?;
        let long = *first & 0x80 != 0;
        *first ^= first_mask & if long { 0x0f } else { 0x1f };
        let (len, phase) = (usize::from(*first & 3).checked_add(1)?, *first & 4 != 0);
        let mut truncated = 0_u64;
        for (byte, mask) in buffer.get_mut(at..)?.iter_mut().zip(number_mask).take(len) {
            *byte ^= mask;
            truncated = truncated << 8 | u64::from(*byte);
        }
        let number = recover(truncated, len, self.largest);
        let start = at.checked_add(len)?;
        let payload = self.open_payload(number, start, !long && phase != self.phase, buffer)?;
        self.largest = self.largest.max(Some(number));
        Some(Opened {
            number,
            payload: (start, payload),
        })
    }

    /// Opens the payload with the generation of keys that its phase bit means.
    fn open_payload(
        &mut self,
        number: u64,
        start: usize,
        other_phase: bool,
        buffer: &mut Vec<u8>,
    ) -> Option<usize> {
        if !other_phase {
            return self.current.open(number, start, buffer);
        }
        let sealed = buffer.clone();
        if let Some(previous) = &self.previous {
            if let Some(len) = previous.open(number, start, buffer) {
                return Some(len);
            }
            buffer.clone_from(&sealed);
        }
        let labels = labels(self.version);
        let source = hkdf::Prk::new_less_safe(self.suite.hash(), &self.secret);
        let secret = expand(&source, labels.update, self.suite.secret_len())?;
        let source = hkdf::Prk::new_less_safe(self.suite.hash(), &secret);
        let next = packet_key(self.suite, &source, &labels)?;
        let len = next.open(number, start, buffer)?;
        self.previous = Some(core::mem::replace(&mut self.current, next));
        self.secret = secret;
        self.phase = !self.phase;
        self.updates = self.updates.saturating_add(1);
        Some(len)
    }
}

fn packet_key(suite: CipherSuite, source: &hkdf::Prk, labels: &Labels) -> Option<PacketKey> {
    let key = expand(source, labels.key, suite.aead().key_len())?;
    let iv = expand(source, labels.iv, NONCE_LEN)?;
    Some(PacketKey {
        key: LessSafeKey::new(UnboundKey::new(suite.aead(), &key).ok()?),
        iv: iv.try_into().ok()?,
    })
}

impl PacketKey {
    /// Opens what follows the header in `buffer`; returns the length of the plaintext.
    fn open(&self, number: u64, start: usize, buffer: &mut [u8]) -> Option<usize> {
        let mut nonce = self.iv;
        for (byte, number) in nonce.iter_mut().skip(4).zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        let (header, sealed) = buffer.split_at_mut_checked(start)?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let plain = self.key.open_in_place(nonce, Aad::from(&*header), sealed);
        plain.ok().map(|plain| plain.len())
    }
}

/// The full packet number (RFC 9000 §A.3).
fn recover(truncated: u64, len: usize, largest: Option<u64>) -> u64 {
    let expected = largest.map_or(0, |largest| largest.saturating_add(1));
    let bits = u32::try_from(len).unwrap_or(4).saturating_mul(8);
    let window = 1_u64.checked_shl(bits).unwrap_or(1 << 32);
    let half = window / 2;
    let candidate = expected & !window.saturating_sub(1) | truncated;
    if candidate.saturating_add(half) <= expected && candidate < MAX_NUMBER.saturating_sub(window) {
        candidate.saturating_add(window)
    } else if candidate > expected.saturating_add(half) && candidate >= window {
        candidate.saturating_sub(window)
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        let text: String = text.split_whitespace().collect();
        let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
        (0..text.len()).step_by(2).map(byte).collect()
    }

    /// RFC 9001 §A.5: a packet protected with ChaCha20-Poly1305.
    #[test]
    fn short_header_packet_of_the_rfc_is_opened() {
        let secret = unhex("9ac312a7f877468ebe69422748ad00a1 5443f18203a07d6060f688f30f21632b");
        let packet = unhex("4cfe4189655e5cd55c41f69080575d7999c25a5bfb");
        let header = PartialHeader::parse(&packet, 0).expect("a header");
        for largest in [None, Some(654_360_563)] {
            let mut keys = OpeningKeys::new(Version::V1, CipherSuite::ChaCha20, secret.clone())
                .expect("a secret of that length");
            keys.largest = largest;
            let mut buffer = Vec::new();
            let opened = keys.open(&header, &packet, &mut buffer);
            // The nonce needs the full number: without context the packet cannot be opened.
            let expected = largest.map(|_| Opened {
                number: 654_360_564,
                payload: (4, 1),
            });
            assert_eq!(opened, expected);
        }
    }

    /// RFC 9001 §A.3: the server's Initial.
    #[test]
    fn initial_of_the_rfc_is_opened() {
        let packet = unhex(
            "cf000000010008f067a5502a4262b500 4075c0d95a482cd0991cd25b0aac406a \
             5816b6394100f37a1c69797554780bb3 8cc5a99f5ede4cf73c3ec2493a1839b3 \
             dbcba3f6ea46c5b7684df3548e7ddeb9 c3bf9c73cc3f3bded74b562bfb19fb84 \
             022f8ef4cdd93795d77d06edbb7aaf2f 58891850abbdca3d20398c276456cbc4 \
             2158407dd074ee",
        );
        let header = PartialHeader::parse(&packet, 0).expect("a header");
        let dcid = unhex("8394c8f03e515708");
        let mut keys = OpeningKeys::initial(Version::V1, &dcid, Role::Server).expect("keys");
        let mut buffer = Vec::new();
        let opened = keys.open(&header, &packet, &mut buffer).expect("opens");
        assert_eq!(opened.number, 1);
        let (start, _) = opened.payload;
        assert_eq!(buffer[start..start + 6], [0x02, 0, 0, 0, 0, 0x06]);
        let mut client = OpeningKeys::initial(Version::V1, &dcid, Role::Client).expect("keys");
        assert_eq!(client.open(&header, &packet, &mut buffer), None);
    }

    #[test]
    fn packet_numbers_are_recovered_as_in_the_rfc() {
        assert_eq!(recover(0x9b32, 2, Some(0xa82f_30ea)), 0xa82f_9b32);
        assert_eq!(recover(0, 1, None), 0);
        assert_eq!(recover(0, 1, Some(255)), 256);
        assert_eq!(recover(255, 1, Some(256)), 255);
    }

    #[test]
    fn secret_of_another_length_makes_no_keys() {
        for suite in [
            CipherSuite::Aes128,
            CipherSuite::Aes256,
            CipherSuite::ChaCha20,
        ] {
            for len in [0, 31, 32, 48, 64] {
                let keys = OpeningKeys::new(Version::V1, suite, vec![1; len]);
                assert_eq!(keys.is_some(), len == suite.secret_len());
            }
        }
    }
}
