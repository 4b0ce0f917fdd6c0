//! Headers of datagrams, before and after the removal of header protection.
#![no_main]

use clearway_quic::cid::ConnectionId;
use clearway_quic::testing::negotiation::Versions;
use clearway_quic::testing::{UnprotectedHeader, retry_is_genuine};
use clearway_quic::wire::header::{HeaderKind, PartialHeader, route};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&selector, datagram)) = data.split_first() else {
        return;
    };
    let cid_len = usize::from(selector % 21);
    let route = route(datagram, cid_len);
    let mut rest = datagram;
    while !rest.is_empty() {
        let header = match PartialHeader::parse(rest, cid_len) {
            Ok(header) => header,
            Err(error) => match error.packet_len() {
                Some(skip) => {
                    assert!(skip > 0 && skip <= rest.len(), "no progress, or too much");
                    rest = &rest[skip..];
                    continue;
                }
                None => return,
            },
        };
        assert!(header.packet_len > 0 && header.packet_len <= rest.len());
        let (packet, tail) = rest.split_at(header.packet_len);
        if rest.len() == datagram.len() {
            let route = route.as_ref().expect("what parses can be routed");
            assert_eq!(route.dcid, header.dcid.of(packet));
        }
        match header.kind {
            HeaderKind::Initial { token } => {
                let _ = token.of(packet);
                numbered(&header, packet);
            }
            HeaderKind::ZeroRtt | HeaderKind::Handshake | HeaderKind::Short { .. } => {
                numbered(&header, packet);
            }
            HeaderKind::Retry { token, .. } => {
                let _ = token.of(packet);
                let cid = ConnectionId::new(&[7; 8]).expect("eight bytes");
                assert!(!retry_is_genuine(&cid, packet), "a forged Retry");
            }
            HeaderKind::VersionNegotiation { versions } => {
                assert!(Versions::new(versions.of(packet)).count() <= packet.len() / 4);
            }
            HeaderKind::UnsupportedVersion => {}
        }
        rest = tail;
    }
});

/// Checks that the packet has room for its number and the header-protection sample.
fn numbered(header: &PartialHeader, packet: &[u8]) {
    assert!(header.number_at + 4 + 16 <= packet.len());
    if let Some(open) = UnprotectedHeader::read(packet, header.number_at) {
        assert!(open.header_len <= header.number_at + 4);
        let _ = open.check_reserved();
        for largest in [
            None,
            Some(0),
            Some(u64::from(u32::MAX)),
            Some((1 << 62) - 1),
        ] {
            assert!(open.number.recover(largest) < 1 << 62);
        }
    }
}
