//! Retry packets (RFC 9000 §17.2.5). Their integrity tag (RFC 9001 §5.8) is
//! computed elsewhere.

use super::header::encode_long_prefix;
use super::{Version, Writer};
use crate::cid::ConnectionId;

/// Bytes of the integrity tag at the end (RFC 9001 §5.8).
pub(crate) const TAG_LEN: usize = 16;

/// Longest token that a client accepts in a Retry, in bytes; a Retry with a longer one is discarded. Every Initial repeats the token, so its size has to be
/// bounded (RFC 9000 §17.2.5 names no limit, and the integrity key is public).
/// 800 bytes leave 320 for the ClientHello in a datagram of 1,200 with two
/// connection IDs of 20 bytes: one datagram for X25519, five, which are within
/// the initial burst, for X25519MLKEM768. Tokens in use are below 300 bytes.
pub const MAX_TOKEN_LEN: usize = 800;

/// A Retry packet before its integrity tag.
#[derive(Clone, Copy, Debug)]
pub struct Retry<'a> {
    /// The version of the Initial it answers; a supported one.
    pub version: Version,
    /// The source connection ID of the Initial.
    pub dcid: ConnectionId,
    /// The connection ID that the server chooses, different from the Initial's destination.
    pub scid: ConnectionId,
    /// The token that the client repeats in its next Initial; not empty.
    pub token: &'a [u8],
}

impl Retry<'_> {
    /// Returns the number of bytes of the whole packet with its tag.
    #[cfg(test)]
    #[must_use]
    pub fn size(&self) -> usize {
        self.token
            .len()
            .saturating_add(7 + TAG_LEN)
            .saturating_add(self.dcid.len())
            .saturating_add(self.scid.len())
    }

    /// Writes the packet without its tag. `random` fills the unused bits.
    pub fn encode(&self, w: &mut Writer<'_>, random: u8) {
        debug_assert!(!self.token.is_empty(), "clients discard an empty token");
        encode_long_prefix(
            w,
            true,
            self.version.of_connection().long_types.retry | random & 0x0f,
            self.version,
            &self.dcid,
            &self.scid,
        );
        w.bytes(self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::{HeaderError, HeaderKind, PartialHeader};

    #[test]
    fn retry_splits_token_and_tag() {
        let retry = Retry {
            version: Version::V1,
            dcid: ConnectionId::new(b"client").unwrap(),
            scid: ConnectionId::new(b"server").unwrap(),
            token: b"token",
        };
        let mut buffer = [0; 100];
        let mut w = Writer::new(&mut buffer);
        retry.encode(&mut w, 0xff);
        w.bytes(&[0x77; TAG_LEN]);
        assert_eq!(w.written(), retry.size());
        let packet = w.filled();
        let header = PartialHeader::parse(packet, 0).unwrap();
        let HeaderKind::Retry { token, tag } = header.kind else {
            panic!("{header:?}");
        };
        assert_eq!(token.of(packet), b"token");
        assert_eq!(tag.of(packet), [0x77; TAG_LEN]);
        assert_eq!(header.dcid.of(packet), b"client");
        assert_eq!(header.scid.of(packet), b"server");
        assert_eq!(header.packet_len, packet.len());
    }

    #[test]
    fn retry_too_short_for_tag_is_rejected() {
        let packet = [&[0xf0, 0, 0, 0, 1, 0, 0][..], &[0; TAG_LEN - 1]].concat();
        assert_eq!(
            PartialHeader::parse(&packet, 0).unwrap_err(),
            HeaderError::Truncated
        );
    }
}
