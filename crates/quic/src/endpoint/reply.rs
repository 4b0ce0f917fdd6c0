//! Packets that need no connection: Version Negotiation, Retry, refusal, stateless reset.

use crate::Role;
use crate::cid::{ConnectionId, ResetToken};
use crate::crypto::retry::retry_tag;
use crate::crypto::{TAG_LEN, initial_keys};
use crate::error::TransportError;
use crate::rng::Rng;
use crate::wire::header::{LongHeader, LongKind, PartialHeader};
use crate::wire::retry::Retry;
use crate::wire::{
    MIN_MTU, TruncatedNumber, Version, VersionPreference, Writer, frame, negotiation,
    reset as wire_reset,
};

/// Room for any of these packets without its tag. A Retry token is the longest part, and no
/// answer may be larger than the datagram that it answers.
const ROOM: usize = MIN_MTU as usize - TAG_LEN;

/// Writes the response; it is empty if it does not fit into [`ROOM`].
fn write(response: &mut Vec<u8>, encode: impl FnOnce(&mut Writer<'_>)) {
    response.clear();
    response.resize(ROOM, 0);
    let mut w = Writer::new(response);
    encode(&mut w);
    let len = if w.overflowed() { 0 } else { w.written() };
    response.truncate(len);
}

/// Writes Version Negotiation (RFC 9000 §17.2.1), with a reserved version among ours (§15).
pub(super) fn negotiation(
    rng: &mut Rng,
    versions: VersionPreference,
    header: &PartialHeader,
    datagram: &[u8],
    response: &mut Vec<u8>,
) {
    let random = rng.u64();
    let reserved = Version::reserved(random as u32);
    let versions: Vec<Version> = versions.iter().chain([reserved]).collect();
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

/// Writes Retry (RFC 9000 §17.2.5, RFC 9001 §5.8).
pub(super) fn retry(
    version: Version,
    client: ConnectionId,
    retry_scid: ConnectionId,
    original_dcid: &ConnectionId,
    token: &[u8],
    random: u8,
    response: &mut Vec<u8>,
) {
    write(response, |w| {
        Retry {
            version,
            dcid: client,
            scid: retry_scid,
            token,
        }
        .encode(w, random);
    });
    if response.is_empty() {
        return;
    }
    let tag = retry_tag(original_dcid, response);
    response.extend_from_slice(&tag);
}

/// Writes an Initial packet with CONNECTION_CLOSE (RFC 9000 §10.2.3), smaller than the
/// datagram that it answers.
pub(super) fn close(
    version: Version,
    dcid: &ConnectionId,
    client: &ConnectionId,
    error: &TransportError,
    response: &mut Vec<u8>,
) {
    let number = TruncatedNumber::with_len(0, TruncatedNumber::MAX_LEN);
    let mut positions = None;
    write(response, |w| {
        positions = LongHeader {
            kind: LongKind::Initial { token: &[] },
            version,
            dcid: *client,
            scid: *dcid,
            number,
            fixed_bit: true,
        }
        .encode(w);
        frame::close::encode_transport(w, error);
    });
    // `write` leaves room for the tag.
    let end = response.len().saturating_add(TAG_LEN);
    response.resize(end, 0);
    let sealed = positions.is_some_and(|at| {
        at.finish(response, end)
            && initial_keys(version, dcid, Role::Server)
                .local
                .seal(0, response, at.payload_at, number.size())
                .is_ok()
    });
    if !sealed {
        response.clear();
    }
}

/// Writes a stateless reset (RFC 9000 §10.3).
pub(super) fn reset(rng: &mut Rng, size: usize, token: ResetToken, response: &mut Vec<u8>) {
    write(response, |w| {
        wire_reset::encode(w, size, token, |bytes| rng.fill(bytes));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::wire::{Frame, Frames};

    fn cid(byte: u8, len: usize) -> ConnectionId {
        ConnectionId::new(&vec![byte; len]).expect("at most 20 bytes")
    }

    /// Returns the reason that a client reads in the packet.
    fn reason(mut packet: Vec<u8>, dcid: &ConnectionId) -> String {
        let header = PartialHeader::parse(&packet, 8).expect("a header");
        let keys = initial_keys(header.version, dcid, Role::Client).remote;
        assert_eq!(header.packet_len, packet.len());
        keys.unprotect_header(&mut packet, header.number_at)
            .expect("a sample");
        let start = header.number_at + 4;
        let len = keys.open(0, &mut packet, start).expect("authentic");
        let frames: Vec<_> = Frames::new(&packet[start..][..len]).collect();
        let [Ok(Frame::ConnectionClose { reason, .. })] = &frames[..] else {
            panic!("{frames:?}");
        };
        String::from_utf8(reason.to_vec()).expect("words")
    }

    #[test]
    fn close_with_reason_of_any_length_fits_the_datagram_it_answers() {
        for cid_len in [0, 8, 20] {
            let (dcid, client) = (cid(1, cid_len), cid(2, cid_len));
            for len in (0..=1300).chain([16_383, 16_384, 70_000]) {
                let words = "é".repeat(len / 2) + &"x".repeat(len % 2);
                let error = TransportError::new(Code::CONNECTION_REFUSED, words.clone());
                let mut response = vec![0xff; 7];
                let version = [Version::V1, Version::V2][len % 2];
                close(version, &dcid, &client, &error, &mut response);
                assert!((20..=1200).contains(&response.len()), "{}", response.len());
                let read = reason(response, &dcid);
                assert!(words.starts_with(&read));
                if len < 1000 {
                    assert_eq!(read, words);
                }
            }
        }
    }

    #[test]
    fn retry_with_token_that_does_not_fit_is_not_written() {
        let (client, ours, original) = (cid(1, 20), cid(2, 20), cid(3, 20));
        for len in 1..2000 {
            let mut response = Vec::new();
            let version = [Version::V1, Version::V2][len % 2];
            let token = vec![7; len];
            retry(version, client, ours, &original, &token, 0, &mut response);
            if len <= ROOM - 47 {
                assert_eq!(response.len(), len + 47 + TAG_LEN);
            } else {
                assert!(response.is_empty());
            }
        }
    }

    #[test]
    fn version_negotiation_for_longest_connection_ids_is_smaller_than_what_it_answers() {
        let mut rng = Rng::from_seed([1; 32]);
        for len in [0, 20, 21, 255] {
            let mut probe = vec![0xc0, 0x0a, 0x0a, 0x0a, 0x0a];
            for byte in [1, 2] {
                probe.push(len);
                probe.extend(vec![byte; usize::from(len)]);
            }
            probe.resize(1200, 0);
            let header = PartialHeader::parse(&probe, 8).expect("a header");
            let mut response = Vec::new();
            let versions = VersionPreference::default();
            negotiation(&mut rng, versions, &header, &probe, &mut response);
            assert_eq!(response.len(), 7 + 2 * usize::from(len) + 12);
        }
    }

    #[test]
    fn reset_of_any_size_fits() {
        let mut rng = Rng::from_seed([1; 32]);
        for received in 0..=1500 {
            let Some(size) = wire_reset::size(received) else {
                continue;
            };
            let mut response = Vec::new();
            reset(&mut rng, size, ResetToken([9; 16]), &mut response);
            assert!(response.len() == size && size < received);
        }
    }
}
