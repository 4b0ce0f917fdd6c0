//! Packets that need no connection: Version Negotiation, Retry, a refusal,
//! stateless reset.

use crate::Role;
use crate::cid::{ConnectionId, ResetToken};
use crate::crypto::retry::retry_tag;
use crate::crypto::{TAG_LEN, initial_keys};
use crate::error::TransportError;
use crate::rng::Rng;
use crate::wire::header::{LongHeader, LongKind, PartialHeader};
use crate::wire::retry::Retry;
use crate::wire::{TruncatedNumber, Version, Writer, frame, negotiation, reset as wire_reset};

/// Room for any of these packets: a Retry token is the longest part.
const ROOM: usize = 1200;

fn write(response: &mut Vec<u8>, encode: impl FnOnce(&mut Writer<'_>)) {
    response.resize(ROOM, 0);
    let mut w = Writer::new(response);
    encode(&mut w);
    let len = w.written();
    response.truncate(len);
}

/// RFC 9000 §17.2.1, with a reserved version among ours (§15).
pub(super) fn negotiation(
    rng: &mut Rng,
    header: &PartialHeader,
    datagram: &[u8],
    response: &mut Vec<u8>,
) {
    let random = rng.u64();
    let versions = [Version::V1, Version::reserved(random as u32)];
    write(response, |w| {
        negotiation::encode(
            w,
            (random >> 32) as u8,
            header.scid.of(datagram),
            header.dcid.of(datagram),
            &versions,
        );
    });
}

/// RFC 9000 §17.2.5, RFC 9001 §5.8.
pub(super) fn retry(
    client: ConnectionId,
    retry_scid: ConnectionId,
    original_dcid: &ConnectionId,
    token: &[u8],
    random: u8,
    response: &mut Vec<u8>,
) {
    write(response, |w| {
        Retry {
            version: Version::V1,
            dcid: client,
            scid: retry_scid,
            token,
        }
        .encode(w, random);
    });
    let tag = retry_tag(original_dcid, response);
    response.extend_from_slice(&tag);
}

/// An Initial with CONNECTION_CLOSE (RFC 9000 §10.2.3), smaller than what it
/// answers.
pub(super) fn close(
    dcid: &ConnectionId,
    client: &ConnectionId,
    error: &TransportError,
    response: &mut Vec<u8>,
) {
    let mut sizes = None;
    write(response, |w| {
        let at = LongHeader {
            kind: LongKind::Initial { token: &[] },
            version: Version::V1,
            dcid: *client,
            scid: *dcid,
            number: TruncatedNumber::with_len(0, 4),
            fixed_bit: true,
        }
        .encode(w);
        frame::close::encode_transport(w, error);
        w.zeros(TAG_LEN);
        let end = w.written();
        at.finish(w, end);
        sizes = Some((at.payload_at, 4));
    });
    if let Some((header_len, number_len)) = sizes
        && initial_keys(dcid, Role::Server)
            .local
            .seal(0, response, header_len, number_len)
            .is_err()
    {
        response.clear();
    }
}

/// RFC 9000 §10.3.
pub(super) fn reset(rng: &mut Rng, size: usize, token: ResetToken, response: &mut Vec<u8>) {
    write(response, |w| {
        wire_reset::encode(w, size, token, |bytes| rng.fill(bytes));
    });
}
