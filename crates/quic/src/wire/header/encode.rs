//! Writing unprotected headers.

use super::{KEY_PHASE, SPIN};
use crate::cid::ConnectionId;
use crate::wire::cursor::two_byte_varint;
use crate::wire::packet::{FIXED, LONG};
use crate::wire::version::LongTypes;
use crate::wire::{TruncatedNumber, Version, Writer};

/// A long-header packet that carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongKind<'a> {
    /// An Initial packet; a server's has an empty token (RFC 9000 §17.2.2).
    Initial {
        /// From a Retry or NEW_TOKEN.
        token: &'a [u8],
    },
    /// A 0-RTT packet.
    ZeroRtt,
    /// A Handshake packet.
    Handshake,
}

impl LongKind<'_> {
    const fn type_bits(self, types: &LongTypes) -> u8 {
        match self {
            Self::Initial { .. } => types.initial,
            Self::ZeroRtt => types.zero_rtt,
            Self::Handshake => types.handshake,
        }
    }
}

/// A long header (RFC 9000 §17.2).
#[derive(Clone, Copy, Debug)]
pub struct LongHeader<'a> {
    /// Packet type.
    pub kind: LongKind<'a>,
    /// QUIC version; a supported one.
    pub version: Version,
    /// Destination connection ID: chosen by the receiver, or random in a client's first Initials.
    pub dcid: ConnectionId,
    /// Source connection ID.
    pub scid: ConnectionId,
    /// The packet number.
    pub number: TruncatedNumber,
    /// The QUIC bit: false only if the peer accepts that (RFC 9287).
    pub fixed_bit: bool,
}

impl LongHeader<'_> {
    /// Writes the header, with a Length that [`HeaderPositions::finish`] fills in. Returns `None` if it
    /// does not fit into `w`.
    #[must_use]
    pub fn encode(&self, w: &mut Writer<'_>) -> Option<HeaderPositions> {
        let start = w.written();
        let types = &self.version.of_connection().long_types;
        encode_long_prefix(
            w,
            self.fixed_bit,
            self.kind.type_bits(types) | self.number.len_bits(),
            self.version,
            &self.dcid,
            &self.scid,
        );
        match self.kind {
            LongKind::Initial { token } => {
                w.varint(token.len() as u64);
                w.bytes(token);
            }
            LongKind::ZeroRtt | LongKind::Handshake => {}
        }
        let length_at = w.written();
        w.two_byte_varint(0);
        let number_at = w.written();
        self.number.encode(w);
        (!w.overflowed()).then(|| HeaderPositions {
            start,
            length_at: Some(length_at),
            number_at,
            payload_at: w.written(),
        })
    }
}

/// Writes a long header from the first byte to the source connection ID.
pub(in crate::wire) fn encode_long_prefix(
    w: &mut Writer<'_>,
    fixed_bit: bool,
    low_bits: u8,
    version: Version,
    dcid: &ConnectionId,
    scid: &ConnectionId,
) {
    w.u8(LONG | if fixed_bit { FIXED } else { 0 } | low_bits);
    w.u32(version.0);
    for cid in [dcid, scid] {
        w.u8(cid.len() as u8);
        w.bytes(cid);
    }
}

/// A short header (RFC 9000 §17.3.1).
#[derive(Clone, Copy, Debug)]
pub struct ShortHeader {
    /// Latency spin bit.
    pub spin: bool,
    /// The Key Phase bit.
    pub key_phase: bool,
    /// Destination connection ID.
    pub dcid: ConnectionId,
    /// The packet number.
    pub number: TruncatedNumber,
    /// The QUIC bit: false only if the peer accepts that (RFC 9287).
    pub fixed_bit: bool,
}

impl ShortHeader {
    /// Writes the header. Returns `None` if it does not fit into `w`.
    #[must_use]
    pub fn encode(&self, w: &mut Writer<'_>) -> Option<HeaderPositions> {
        let start = w.written();
        let flag = |set, bit| if set { bit } else { 0 };
        w.u8(flag(self.fixed_bit, FIXED)
            | flag(self.spin, SPIN)
            | flag(self.key_phase, KEY_PHASE)
            | self.number.len_bits());
        w.bytes(&self.dcid);
        let number_at = w.written();
        self.number.encode(w);
        (!w.overflowed()).then(|| HeaderPositions {
            start,
            length_at: None,
            number_at,
            payload_at: w.written(),
        })
    }
}

/// Offsets of the parts of a written header, from the start of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderPositions {
    /// First byte.
    pub start: usize,
    /// Length field, if the header has one.
    pub length_at: Option<usize>,
    /// Packet number.
    pub number_at: usize,
    /// End of the header, which is the end of the AEAD's associated data.
    pub payload_at: usize,
}

impl HeaderPositions {
    /// Fills in the Length field, if there is one, of the packet in `packets` (from
    /// the writer's start on) that ends at `end` with its AEAD tag, which need not have been written
    /// yet. Returns false, and changes nothing, if the packet is longer than the Length field can say or
    /// `packets` is not the buffer of the header.
    #[must_use]
    pub fn finish(&self, packets: &mut [u8], end: usize) -> bool {
        let Some(at) = self.length_at else {
            return true;
        };
        let length = end
            .checked_sub(self.number_at)
            .and_then(|length| u16::try_from(length).ok())
            .and_then(two_byte_varint);
        let field = packets.get_mut(at..).and_then(<[u8]>::first_chunk_mut);
        match (field, length) {
            (Some(field), Some(length)) => {
                *field = length;
                true
            }
            (None, _) | (_, None) => false,
        }
    }
}
