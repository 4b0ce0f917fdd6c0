//! Version Negotiation packets (RFC 8999 §6, RFC 9000 §17.2.1).

use super::packet::{FIXED, LONG};
use super::{Version, Writer};

/// The versions a server offers in a Version Negotiation packet.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Debug)]
pub struct Versions<'a>(super::Reader<'a>);

#[cfg(any(test, feature = "testing"))]
impl<'a> Versions<'a> {
    /// Creates an iterator over the list after the connection IDs.
    #[must_use]
    pub fn new(list: &'a [u8]) -> Self {
        Self(super::Reader::new(list))
    }
}

#[cfg(any(test, feature = "testing"))]
impl Iterator for Versions<'_> {
    type Item = Version;

    fn next(&mut self) -> Option<Version> {
        self.0.u32().map(Version)
    }
}

/// Returns the number of bytes that [`encode`] writes.
#[cfg(test)]
#[must_use]
pub(crate) fn size(dcid: &[u8], scid: &[u8], versions: usize) -> usize {
    versions
        .saturating_mul(4)
        .saturating_add(dcid.len())
        .saturating_add(scid.len())
        .saturating_add(7)
}

/// Writes the answer to a packet of an unsupported version: `dcid` is that
/// packet's source connection ID and `scid` its destination connection ID, each
/// up to 255 bytes. `random` fills the unused bits; the QUIC bit stays set so
/// that demultiplexing with other protocols still works. A longer connection ID,
/// whose length has no encoding, counts as not fitting into `w`.
pub fn encode(w: &mut Writer<'_>, random: u8, dcid: &[u8], scid: &[u8], versions: &[Version]) {
    w.u8(LONG | FIXED | random & 0x3f);
    w.u32(Version::NEGOTIATION.0);
    for cid in [dcid, scid] {
        match u8::try_from(cid.len()) {
            Ok(len) => w.u8(len),
            Err(_) => w.overflow(),
        }
        w.bytes(cid);
    }
    for version in versions {
        w.u32(version.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::{HeaderKind, PartialHeader};

    #[test]
    fn version_negotiation_echoes_255_byte_connection_ids() {
        let offered = [Version::reserved(7), Version::V1];
        let (client, server) = ([0xcc; 255], [0x55; 255]);
        let mut buffer = [0; 1200];
        let mut w = Writer::new(&mut buffer);
        encode(&mut w, 0xff, &client, &server, &offered);
        assert_eq!(w.written(), size(&client, &server, 2));
        let packet = w.filled();
        let header = PartialHeader::parse(packet, 8).unwrap();
        assert_eq!(header.dcid.of(packet), client);
        assert_eq!(header.scid.of(packet), server);
        assert_eq!(header.packet_len, packet.len());
        let HeaderKind::VersionNegotiation { versions } = header.kind else {
            panic!("{header:?}");
        };
        let read: Vec<_> = Versions::new(versions.of(packet)).collect();
        assert_eq!(read, offered);
    }

    #[test]
    fn empty_or_truncated_version_list_is_rejected() {
        let mut buffer = [0; 100];
        let mut w = Writer::new(&mut buffer);
        encode(&mut w, 0, b"client", b"", &[]);
        assert!(PartialHeader::parse(w.filled(), 8).is_err());
        w.u32(1);
        assert!(PartialHeader::parse(w.filled(), 8).is_ok());
        for _ in 1..4 {
            w.u8(0);
            assert!(PartialHeader::parse(w.filled(), 8).is_err());
        }
    }
}
