//! Packet headers (RFC 9000 §17): the fields that can be read under header protection, and those
//! after its removal.

pub(crate) mod encode;
#[cfg(test)]
mod tests;
pub(crate) mod unprotected;

use core::fmt;

pub(super) use encode::encode_long_prefix;
pub(crate) use encode::{HeaderPositions, LongHeader, LongKind, ShortHeader};
pub(crate) use unprotected::UnprotectedHeader;

use super::packet::{FIXED, LONG};
use super::retry::TAG_LEN;
use super::version::LongTypes;
use super::{PacketKind, Reader, Version};
use crate::cid::id::MAX_CID_LEN;
use crate::cid::{CidLengths, ConnectionId};

/// Smallest number of bytes from the packet number to the end of a protected packet: 4 before the
/// sample and 16 of the sample (RFC 9001 §5.4.2).
pub const MIN_PROTECTED_LEN: usize = 20;

const SPIN: u8 = 0x20;
const KEY_PHASE: u8 = 0x04;
const LONG_RESERVED: u8 = 0x0c;
const SHORT_RESERVED: u8 = 0x18;
const NUMBER_LEN: u8 = 0x03;

/// A range of bytes in a packet, which stays valid when the packet is decrypted in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSpan {
    start: u32,
    len: u32,
}

impl ByteSpan {
    fn new(start: usize, len: usize) -> Self {
        Self {
            start: start as u32,
            len: len as u32,
        }
    }

    /// Returns the bytes in the packet it was parsed from; empty in a shorter one.
    #[must_use]
    pub fn of(self, packet: &[u8]) -> &[u8] {
        packet
            .get(self.start as usize..)
            .and_then(|rest| rest.get(..self.len as usize))
            .unwrap_or_default()
    }

    /// Returns the bytes as a connection ID; `None` if there are more than 20.
    #[must_use]
    pub fn cid(self, packet: &[u8]) -> Option<ConnectionId> {
        ConnectionId::new(self.of(packet))
    }

    /// Returns the number of bytes in it.
    #[must_use]
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// What kind of packet a header starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderKind {
    /// An Initial packet and its address-validation token, often empty.
    Initial {
        /// From a Retry or NEW_TOKEN.
        token: ByteSpan,
    },
    /// A 0-RTT packet.
    ZeroRtt,
    /// A Handshake packet.
    Handshake,
    /// A 1-RTT packet.
    Short {
        /// The latency spin bit (RFC 9000 §17.4).
        spin: bool,
    },
    /// A Retry packet.
    Retry {
        /// The token for the next Initial; a client discards a Retry with an empty one.
        token: ByteSpan,
        /// The integrity tag (RFC 9001 §5.8).
        tag: ByteSpan,
    },
    /// A Version Negotiation packet.
    VersionNegotiation {
        /// At least one, a list of 32-bit numbers.
        versions: ByteSpan,
    },
    /// A long header of an unsupported version. The connection IDs may be up to 255 bytes long; nothing
    /// after them is parsed.
    UnsupportedVersion,
}

impl HeaderKind {
    /// Returns the frame-carrying packet type, if it is one.
    #[must_use]
    pub const fn packet(self) -> Option<PacketKind> {
        match self {
            Self::Initial { .. } => Some(PacketKind::Initial),
            Self::ZeroRtt => Some(PacketKind::ZeroRtt),
            Self::Handshake => Some(PacketKind::Handshake),
            Self::Short { .. } => Some(PacketKind::OneRtt),
            Self::Retry { .. } | Self::VersionNegotiation { .. } | Self::UnsupportedVersion => None,
        }
    }
}

/// Why a packet cannot be parsed. It is dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The datagram ends within the header or the payload; no packet can follow.
    Truncated,
    /// A connection ID of more than 20 bytes in a supported version (RFC 9000 §17.2).
    ConnectionIdTooLong {
        /// Bytes to skip to the next packet of the datagram.
        packet_len: usize,
    },
    /// The packet is too short for a header-protection sample (RFC 9001 §5.4.2).
    NoSample {
        /// Bytes to skip to the next packet of the datagram.
        packet_len: usize,
    },
}

impl HeaderError {
    /// Bytes to skip to the next packet of the datagram, where known.
    #[must_use]
    pub const fn packet_len(self) -> Option<usize> {
        match self {
            Self::Truncated => None,
            Self::ConnectionIdTooLong { packet_len } | Self::NoSample { packet_len } => {
                Some(packet_len)
            }
        }
    }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "packet truncated",
            Self::ConnectionIdTooLong { .. } => "connection ID longer than 20 bytes",
            Self::NoSample { .. } => "packet too short for a header-protection sample",
        })
    }
}

impl std::error::Error for HeaderError {}

/// The fields that an endpoint needs to route a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<'a> {
    /// The destination connection ID.
    pub dcid: &'a [u8],
    /// The version in a long header; `None` for a short header.
    pub version: Option<Version>,
}

/// Reads the destination connection ID of a datagram's first packet (RFC 8999
/// §5); `local_cids` are the lengths of those we issue. `None` if it is too
/// short to have one.
#[inline]
#[must_use]
pub fn route(datagram: &[u8], local_cids: impl Into<CidLengths>) -> Option<Route<'_>> {
    let (first, rest) = datagram.split_first()?;
    if first & LONG == 0 {
        return Some(Route {
            dcid: rest.get(..local_cids.into().at(rest))?,
            version: None,
        });
    }
    let mut reader = Reader::new(rest);
    let version = Version(reader.u32()?);
    let len = reader.u8()?;
    Some(Route {
        dcid: reader.bytes(usize::from(len))?,
        version: Some(version),
    })
}

/// The fields of a header that are not under header protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialHeader {
    /// Which packet this is.
    pub kind: HeaderKind,
    /// The version of a long header; 1 for short headers, which do not have one.
    pub version: Version,
    /// The QUIC bit. A packet without it is dropped unless we offered to accept that (RFC 9000 §17.2, RFC 9287 §3).
    pub fixed_bit: bool,
    /// The destination connection ID.
    pub dcid: ByteSpan,
    /// The source connection ID; empty in short headers.
    pub scid: ByteSpan,
    /// Offset of the packet number; for packets without one, the end of the connection IDs.
    pub number_at: usize,
    /// Bytes of the datagram that belong to this packet: the next one starts
    /// there.
    pub packet_len: usize,
}

impl PartialHeader {
    /// Reads the header at the start of `datagram`, or of what is left of it
    /// after earlier packets. `local_cids` are the lengths of the connection
    /// IDs we issue, which short headers do not tell.
    ///
    /// # Errors
    /// If it cannot be parsed; [`HeaderError::packet_len`] says whether other packets may follow.
    pub fn parse(datagram: &[u8], local_cids: impl Into<CidLengths>) -> Result<Self, HeaderError> {
        match datagram.split_first() {
            None => Err(HeaderError::Truncated),
            Some((first, rest)) if first & LONG == 0 => {
                Self::short(datagram, *first, local_cids.into().at(rest))
            }
            Some((first, _)) => Self::long(datagram, *first).unwrap_or(Err(HeaderError::Truncated)),
        }
    }

    fn short(datagram: &[u8], first: u8, local_cid_len: usize) -> Result<Self, HeaderError> {
        let header = Self {
            kind: HeaderKind::Short {
                spin: first & SPIN != 0,
            },
            version: Version::V1,
            fixed_bit: first & FIXED != 0,
            dcid: ByteSpan::new(1, local_cid_len),
            scid: ByteSpan::new(1, 0),
            number_at: local_cid_len.saturating_add(1),
            packet_len: datagram.len(),
        };
        header.check_sample()
    }

    /// Reads a long header; `None` if there are too few bytes.
    fn long(datagram: &[u8], first: u8) -> Option<Result<Self, HeaderError>> {
        let mut reader = Reader::new(datagram.get(1..)?);
        let at = |reader: &Reader<'_>| datagram.len().saturating_sub(reader.remaining());
        let version = Version(reader.u32()?);
        let mut cid = || {
            let len = usize::from(reader.u8()?);
            let start = at(&reader);
            reader.bytes(len)?;
            Some(ByteSpan::new(start, len))
        };
        let dcid = cid()?;
        let scid = cid()?;
        let header = Self {
            kind: HeaderKind::UnsupportedVersion,
            version,
            fixed_bit: first & FIXED != 0,
            dcid,
            scid,
            number_at: at(&reader),
            packet_len: datagram.len(),
        };
        if version == Version::NEGOTIATION {
            return header.negotiation(&reader);
        }
        match version.properties() {
            Some(properties) => header.supported(first, reader, &properties.long_types),
            None => Some(Ok(header)),
        }
    }

    /// Lists that are empty or end within a version are ignored (RFC 8999 §6).
    fn negotiation(mut self, list: &Reader<'_>) -> Option<Result<Self, HeaderError>> {
        let len = list.remaining();
        if len == 0 || !len.is_multiple_of(4) {
            return None;
        }
        self.kind = HeaderKind::VersionNegotiation {
            versions: ByteSpan::new(self.number_at, len),
        };
        Some(Ok(self))
    }

    fn supported(
        mut self,
        first: u8,
        mut reader: Reader<'_>,
        types: &LongTypes,
    ) -> Option<Result<Self, HeaderError>> {
        let end = self.packet_len;
        let bits = first & LongTypes::MASK;
        self.kind = if bits == types.initial {
            let token = reader.prefixed()?;
            let after = reader.remaining().saturating_add(token.len());
            HeaderKind::Initial {
                token: ByteSpan::new(end.saturating_sub(after), token.len()),
            }
        } else if bits == types.zero_rtt {
            HeaderKind::ZeroRtt
        } else if bits == types.handshake {
            HeaderKind::Handshake
        } else {
            return self.retry();
        };
        let length = usize::try_from(reader.varint()?).ok()?;
        self.number_at = end.saturating_sub(reader.remaining());
        reader.bytes(length)?;
        self.packet_len = end.saturating_sub(reader.remaining());
        Some(self.check_cids().and_then(Self::check_sample))
    }

    fn retry(mut self) -> Option<Result<Self, HeaderError>> {
        let start = self.number_at;
        let tag = self.packet_len.checked_sub(TAG_LEN)?;
        self.kind = HeaderKind::Retry {
            token: ByteSpan::new(start, tag.checked_sub(start)?),
            tag: ByteSpan::new(tag, TAG_LEN),
        };
        Some(self.check_cids())
    }

    fn check_cids(self) -> Result<Self, HeaderError> {
        if self.dcid.len() > MAX_CID_LEN || self.scid.len() > MAX_CID_LEN {
            return Err(HeaderError::ConnectionIdTooLong {
                packet_len: self.packet_len,
            });
        }
        Ok(self)
    }

    fn check_sample(self) -> Result<Self, HeaderError> {
        if self.packet_len < self.number_at.saturating_add(MIN_PROTECTED_LEN) {
            return Err(HeaderError::NoSample {
                packet_len: self.packet_len,
            });
        }
        Ok(self)
    }
}
