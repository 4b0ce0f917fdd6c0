//! Initial packets without a connection behind them: their keys are public
//! (RFC 9001 §5.2).

use clearway_quic::Role;
use clearway_quic::cid::ConnectionId;
use clearway_quic::crypto::{TAG_LEN, initial_keys};
use clearway_quic::wire::header::{HeaderKind, OpenHeader, PartialHeader};
use clearway_quic::wire::{Frame, Frames};

use super::wire::put_varint;

/// The least that a client's Initial fills, bytes (RFC 9000 §14.1).
const LEAST: usize = 1200;

/// Bytes of the packet numbers written here.
const NUMBER: usize = 4;

/// Bytes of the connection IDs that clients of ours choose.
pub(crate) const CID: usize = 8;

/// A client's Initial packet to `dcid` with these frames, padded and sealed.
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
    let keys = initial_keys(dcid, Role::Client);
    // Long enough for a sample, and far from the limit of the keys.
    let sealed = keys.local.seal(number.into(), &mut packet, header, NUMBER);
    debug_assert!(sealed.is_ok());
    packet
}

/// The frames of the Initial packet that a datagram begins with, opened with the
/// keys of `original_dcid` by the end with this role.
pub(crate) fn open(original_dcid: &[u8], role: Role, datagram: &[u8]) -> Option<Vec<u8>> {
    let header = PartialHeader::parse(datagram, CID).ok()?;
    if !matches!(header.kind, HeaderKind::Initial { .. }) {
        return None;
    }
    let mut packet = datagram.get(..header.packet_len)?.to_vec();
    let keys = initial_keys(original_dcid, role);
    keys.remote
        .unprotect_header(&mut packet, header.number_at)?;
    let opened = OpenHeader::read(&packet, header.number_at)?;
    let number = opened.number.recover(None);
    let length = keys.remote.open(number, &mut packet, opened.header_len)?;
    Some(packet[opened.header_len..][..length].to_vec())
}

/// The connection IDs of a long header: destination, source.
pub(crate) fn connection_ids(datagram: &[u8]) -> Option<(ConnectionId, ConnectionId)> {
    let header = PartialHeader::parse(datagram, CID).ok()?;
    Some((header.dcid.cid(datagram)?, header.scid.cid(datagram)?))
}

/// What a Retry asks for: the new destination and the token.
pub(crate) fn read_retry(datagram: &[u8]) -> Option<(ConnectionId, Vec<u8>)> {
    let header = PartialHeader::parse(datagram, CID).ok()?;
    let HeaderKind::Retry { token, .. } = header.kind else {
        return None;
    };
    Some((header.scid.cid(datagram)?, token.of(datagram).to_vec()))
}

/// Whether a datagram begins with a client's Initial.
pub(crate) fn is_initial(datagram: &[u8]) -> bool {
    PartialHeader::parse(datagram, CID)
        .is_ok_and(|header| matches!(header.kind, HeaderKind::Initial { .. }))
}

/// The pieces of a ClientHello in a client's Initial packet: where, what.
pub(crate) fn hello_pieces(datagram: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
    let (dcid, _) = connection_ids(datagram)?;
    let payload = open(&dcid, Role::Server, datagram)?;
    let pieces = Frames::new(&payload).filter_map(|frame| match frame {
        Ok(Frame::Crypto { offset, data }) => Some((offset, data.to_vec())),
        _ => None,
    });
    Some(pieces.collect())
}
