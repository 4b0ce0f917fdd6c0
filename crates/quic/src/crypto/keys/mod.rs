//! Packet protection, applied and removed in the buffer of the packet.

use rustls::quic::{DirectionalKeys, HeaderProtectionKey, PacketKey};

use crate::error::{Code, TransportError};

/// Bytes that sealing adds to a packet (RFC 9001 §5.3).
pub const TAG_LEN: usize = 16;
/// Bytes of ciphertext that the header mask is computed from (RFC 9001 §5.4.2).
pub(crate) const SAMPLE_LEN: usize = 16;
/// The sample starts where the payload would if the packet number took four
/// bytes, whatever it takes (RFC 9001 §5.4.2).
const SAMPLE_OFFSET: usize = 4;

/// The fields that header protection hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unprotected {
    /// The first byte in the clear; its reserved bits may only be judged once
    /// the packet has been opened (RFC 9000 §17.2).
    pub first: u8,
    /// The truncated packet number, to be decoded as in RFC 9000 §A.3.
    pub truncated: u32,
    /// Length of the packet number in bytes, 1 to 4.
    pub len: usize,
}

/// The keys of one direction at one encryption level.
pub struct Direction {
    header: Box<dyn HeaderProtectionKey>,
    packet: Box<dyn PacketKey>,
}

impl Direction {
    /// Encrypts, writes the tag and protects the header, all in `packet`,
    /// which holds header, payload and [`TAG_LEN`] spare bytes. The header is
    /// `header_len` bytes and ends in a packet number of `pn_len`.
    ///
    /// # Errors
    /// `AEAD_LIMIT_REACHED` once `pn` reaches the confidentiality limit (these
    /// keys serve their space from packet number 0 on, so the number bounds
    /// the count, RFC 9001 §6.6); `INTERNAL_ERROR` if packet number and
    /// payload are together shorter than four bytes.
    #[inline]
    pub fn seal(
        &self,
        pn: u64,
        packet: &mut [u8],
        header_len: usize,
        pn_len: usize,
    ) -> Result<(), TransportError> {
        if pn >= self.packet.confidentiality_limit() {
            return Err(confidentiality_exhausted());
        }
        seal(&*self.packet, &*self.header, pn, packet, header_len, pn_len)
    }

    /// Removes header protection in `packet`, whose packet number starts at
    /// `pn_offset`. `None` if the packet is too short to hold a sample; it is
    /// then unchanged.
    #[inline]
    pub fn unprotect_header(&self, packet: &mut [u8], pn_offset: usize) -> Option<Unprotected> {
        unprotect(&*self.header, packet, pn_offset)
    }

    /// Decrypts what follows the header in place and returns the length of the
    /// payload, which starts at `header_len`. `None` if it does not
    /// authenticate: the bytes after the header are then worthless.
    #[inline]
    pub fn open(&self, pn: u64, packet: &mut [u8], header_len: usize) -> Option<usize> {
        open(&*self.packet, pn, packet, header_len)
    }
}

impl From<(super::packet_key::PacketKey, super::header_key::HeaderKey)> for Direction {
    fn from(
        (packet, header): (super::packet_key::PacketKey, super::header_key::HeaderKey),
    ) -> Self {
        Self {
            header: Box::new(header),
            packet: Box::new(packet),
        }
    }
}

impl From<DirectionalKeys> for Direction {
    fn from(keys: DirectionalKeys) -> Self {
        Self {
            header: keys.header,
            packet: keys.packet,
        }
    }
}

/// The keys of one encryption level.
pub struct Keys {
    /// Keys for packets that we send.
    pub local: Direction,
    /// Keys for packets that we receive.
    pub remote: Direction,
}

/// The keys of Initial packets.
pub(crate) struct InitialKeys {
    /// Those of the connection's version.
    pub(crate) current: Keys,
    /// Those of another version: on a client of one with which the server may have answered, on a
    /// server of that with which the client began (RFC 9369 §4.1).
    pub(crate) other: Option<Keys>,
}

impl InitialKeys {
    /// Makes the other version the current one.
    pub(crate) fn switch(&mut self) {
        if let Some(other) = &mut self.other {
            core::mem::swap(&mut self.current, other);
        }
    }
}

impl From<Keys> for InitialKeys {
    fn from(current: Keys) -> Self {
        Self {
            current,
            other: None,
        }
    }
}

impl core::fmt::Debug for InitialKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("InitialKeys(..)")
    }
}

impl From<rustls::quic::Keys> for Keys {
    fn from(keys: rustls::quic::Keys) -> Self {
        Self {
            local: keys.local.into(),
            remote: keys.remote.into(),
        }
    }
}

impl core::fmt::Debug for Direction {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Direction(..)")
    }
}

impl core::fmt::Debug for Keys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Keys(..)")
    }
}

pub(super) fn confidentiality_exhausted() -> TransportError {
    TransportError::new(
        Code::AEAD_LIMIT_REACHED,
        "confidentiality limit of the packet protection key reached",
    )
}

#[inline]
pub(super) fn seal<P: PacketKey + ?Sized, H: HeaderProtectionKey + ?Sized>(
    key: &P,
    header_key: &H,
    pn: u64,
    packet: &mut [u8],
    header_len: usize,
    pn_len: usize,
) -> Result<(), TransportError> {
    let too_short = || TransportError::new(Code::INTERNAL_ERROR, "packet too short to protect");
    let (header, rest) = packet
        .split_at_mut_checked(header_len)
        .ok_or_else(too_short)?;
    let (payload, tag_place) = rest
        .split_last_chunk_mut::<TAG_LEN>()
        .ok_or_else(too_short)?;
    if pn_len.saturating_add(payload.len()) < SAMPLE_OFFSET {
        return Err(too_short());
    }
    let tag = key
        .encrypt_in_place(pn, header, payload)
        .map_err(|_| TransportError::new(Code::INTERNAL_ERROR, "packet too long to protect"))?;
    *tag_place = *tag.as_ref().first_chunk().ok_or_else(too_short)?;
    let pn_offset = header_len.checked_sub(pn_len).ok_or_else(too_short)?;
    let (first, number, sample) = protected(packet, pn_offset).ok_or_else(too_short)?;
    let number = number.get_mut(..pn_len).ok_or_else(too_short)?;
    header_key
        .encrypt_in_place(sample, first, number)
        .map_err(|_| too_short())
}

/// Returns what header protection is about: the first byte, the four bytes in which the
/// packet number is, and the sample behind them. `None` if the packet is shorter
/// or its number starts in the first byte.
#[inline]
fn protected(
    packet: &mut [u8],
    pn_offset: usize,
) -> Option<(&mut u8, &mut [u8; SAMPLE_OFFSET], &[u8; SAMPLE_LEN])> {
    let (head, rest) = packet.split_at_mut_checked(pn_offset)?;
    let (number, rest) = rest.split_first_chunk_mut()?;
    Some((head.first_mut()?, number, rest.first_chunk()?))
}

#[inline]
pub(super) fn unprotect<H: HeaderProtectionKey + ?Sized>(
    key: &H,
    packet: &mut [u8],
    pn_offset: usize,
) -> Option<Unprotected> {
    let (first, number, sample) = protected(packet, pn_offset)?;
    key.decrypt_in_place(sample, first, number).ok()?;
    let all = u32::from_be_bytes(*number);
    let (len, truncated) = match *first & 0x03 {
        0 => (1, all >> 24),
        1 => (2, all >> 16),
        2 => (3, all >> 8),
        _ => (4, all),
    };
    Some(Unprotected {
        first: *first,
        truncated,
        len,
    })
}

#[inline]
pub(super) fn open<P: PacketKey + ?Sized>(
    key: &P,
    pn: u64,
    packet: &mut [u8],
    header_len: usize,
) -> Option<usize> {
    let (header, rest) = packet.split_at_mut_checked(header_len)?;
    key.decrypt_in_place(pn, header, rest).ok().map(<[u8]>::len)
}

#[cfg(test)]
mod tests;
