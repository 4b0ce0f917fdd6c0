//! Initial packets without a connection: everybody can derive their keys
//! (RFC 9001 §5.2).

use clearway_quic::Role;
use clearway_quic::cid::ConnectionId;
use clearway_quic::testing::{TAG_LEN, UnprotectedHeader, initial_keys};
use clearway_quic::wire::Version;
use clearway_quic::wire::header::{HeaderKind, PartialHeader};
use clearway_quic::wire::{Frame, Frames};

use super::wire::put_varint;

/// Smallest datagram with a client's Initial, bytes (RFC 9000 §14.1).
const LEAST: usize = 1200;

/// Size of packet numbers, bytes.
const NUMBER: usize = 4;

/// Size of connection IDs, bytes.
pub(crate) const CID: usize = 8;

/// Seals a client's Initial packet with these frames, padded.
pub(crate) fn initial(
    dcid: &[u8],
    scid: &[u8],
    token: &[u8],
    number: u32,
    frames: &[u8],
) -> Vec<u8> {
    // Long header, fixed bit, Initial, four bytes of packet number.
    let mut packet = vec![0xc3, 0, 0, 0, 1];
    for cid in [dcid, scid] {
        packet.push(cid.len() as u8);
        packet.extend_from_slice(cid);
    }
    put_varint(&mut packet, token.len() as u64);
    packet.extend_from_slice(token);
    // The Length takes two bytes.
    let whole = LEAST.max(packet.len() + 2 + NUMBER + frames.len() + TAG_LEN);
    let length = whole - packet.len() - 2;
    packet.extend_from_slice(&(0x4000 | length as u16).to_be_bytes());
    packet.extend_from_slice(&number.to_be_bytes());
    let header = packet.len();
    packet.extend_from_slice(frames);
    packet.resize(whole, 0);
    let keys = initial_keys(Version::V1, dcid, Role::Client);
    // It cannot fail: the packet is long enough for a sample.
    let sealed = keys.local.seal(number.into(), &mut packet, header, NUMBER);
    debug_assert!(sealed.is_ok());
    packet
}

/// Opens the Initial packet at the start of a datagram as the end with this role and
/// returns its frames.
pub(crate) fn open(original_dcid: &[u8], role: Role, datagram: &[u8]) -> Option<Vec<u8>> {
    let header = PartialHeader::parse(datagram, CID).ok()?;
    if !matches!(header.kind, HeaderKind::Initial { .. }) {
        return None;
    }
    let mut packet = datagram.get(..header.packet_len)?.to_vec();
    let keys = initial_keys(Version::V1, original_dcid, role);
    keys.remote
        .unprotect_header(&mut packet, header.number_at)?;
    let opened = UnprotectedHeader::read(&packet, header.number_at)?;
    let number = opened.number.recover(None);
    let length = keys.remote.open(number, &mut packet, opened.header_len)?;
    Some(packet[opened.header_len..][..length].to_vec())
}

/// The destination and source connection IDs of a long header.
pub(crate) fn connection_ids(datagram: &[u8]) -> Option<(ConnectionId, ConnectionId)> {
    let header = PartialHeader::parse(datagram, CID).ok()?;
    Some((header.dcid.cid(datagram)?, header.scid.cid(datagram)?))
}

/// The new Destination Connection ID and the token of a Retry.
pub(crate) fn read_retry(datagram: &[u8]) -> Option<(ConnectionId, Vec<u8>)> {
    let header = PartialHeader::parse(datagram, CID).ok()?;
    let HeaderKind::Retry { token, .. } = header.kind else {
        return None;
    };
    Some((header.scid.cid(datagram)?, token.of(datagram).to_vec()))
}

/// Whether a datagram begins with an Initial.
pub(crate) fn is_initial(datagram: &[u8]) -> bool {
    PartialHeader::parse(datagram, CID)
        .is_ok_and(|header| matches!(header.kind, HeaderKind::Initial { .. }))
}

/// Offsets and content of the CRYPTO frames in a client's Initial.
pub(crate) fn hello_pieces(datagram: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
    let (dcid, _) = connection_ids(datagram)?;
    let payload = open(&dcid, Role::Server, datagram)?;
    let pieces = Frames::new(&payload).filter_map(|frame| match frame {
        Ok(Frame::Crypto { offset, data }) => Some((offset, data.to_vec())),
        _ => None,
    });
    Some(pieces.collect())
}
