use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::wire::cursor::{TWO_BYTE_VARINT_MAX, varint_len};
use crate::wire::{TruncatedNumber, Writer};

/// Largest Length field that is written: it is an integer of two bytes.
const MAX_LENGTH: usize = TWO_BYTE_VARINT_MAX as usize;

impl LongKind<'_> {
    fn packet(self) -> PacketKind {
        match self {
            Self::Initial { .. } => PacketKind::Initial,
            Self::ZeroRtt => PacketKind::ZeroRtt,
            Self::Handshake => PacketKind::Handshake,
        }
    }
}

impl LongHeader<'_> {
    /// Returns the number of bytes that `encode` has to write.
    fn size(&self) -> usize {
        let token = match self.kind {
            LongKind::Initial { token } => varint_len(token.len() as u64) + token.len(),
            LongKind::ZeroRtt | LongKind::Handshake => 0,
        };
        // The first byte, the version, the lengths of two connection IDs, and the Length field.
        let fixed = 1 + 4 + 2 + 2;
        fixed + self.dcid.len() + self.scid.len() + token + self.number.size()
    }
}

impl ShortHeader {
    /// Returns the number of bytes that `encode` has to write.
    fn size(&self) -> usize {
        1 + self.dcid.len() + self.number.size()
    }
}

fn cid(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).expect("at most 20 bytes")
}

fn long_packet(w: &mut Writer<'_>, kind: LongKind<'_>, dcid: &[u8], payload: usize) {
    let header = LongHeader {
        kind,
        version: Version::V1,
        dcid: cid(dcid),
        scid: cid(b"sender"),
        number: TruncatedNumber::with_len(2, 2),
        fixed_bit: true,
    };
    let before = w.written();
    let positions = header.encode(w).expect("room");
    assert_eq!(w.written(), before + header.size());
    w.zeros(payload);
    let end = w.written();
    assert!(positions.finish(w.filled_mut(), end));
}

/// A header of every size into every room: it fits exactly from its size on, and
/// is refused below.
#[test]
fn header_is_written_whole_or_not_at_all() {
    for cid_len in [0, 1, 20] {
        let id = cid(&[9; 20][..cid_len]);
        for token_len in [0, 1, 63, 64, 700] {
            let token = vec![7; token_len];
            let number = TruncatedNumber::with_len(2, 4);
            let long = LongHeader {
                kind: LongKind::Initial { token: &token },
                version: Version::V1,
                dcid: id,
                scid: id,
                number,
                fixed_bit: true,
            };
            let short = ShortHeader {
                spin: false,
                key_phase: false,
                dcid: id,
                number,
                fixed_bit: true,
            };
            for room in 0..=long.size() + 1 {
                let mut buffer = vec![0; room];
                let written = long.encode(&mut Writer::new(&mut buffer));
                assert_eq!(
                    written.map(|at| at.payload_at).is_some(),
                    room >= long.size()
                );
                let written = short.encode(&mut Writer::new(&mut buffer));
                let expected = (room >= short.size()).then(|| short.size());
                assert_eq!(written.map(|at| at.payload_at), expected);
            }
        }
    }
}

#[test]
fn length_without_encoding_is_rejected() {
    let mut buffer = vec![0; 70_000];
    let header = LongHeader {
        kind: LongKind::Handshake,
        version: Version::V1,
        dcid: cid(b"dest"),
        scid: cid(b"sender"),
        number: TruncatedNumber::with_len(2, 4),
        fixed_bit: true,
    };
    let at = header.encode(&mut Writer::new(&mut buffer)).expect("room");
    let before = buffer.clone();
    let longest = at.number_at + MAX_LENGTH;
    for end in [0, at.number_at - 1, longest + 1, 70_000, usize::MAX] {
        assert!(!at.finish(&mut buffer, end), "{end}");
        assert_eq!(buffer, before);
    }
    assert!(!at.finish(&mut [0; 5], longest), "another buffer");
    assert!(at.finish(&mut buffer, longest));
    let read = PartialHeader::parse(&buffer, 4).expect("a header");
    assert_eq!(read.packet_len, longest);
}

#[test]
fn coalesced_packets_are_parsed_in_order() {
    let mut buffer = [0; 400];
    let mut w = Writer::new(&mut buffer);
    long_packet(&mut w, LongKind::Initial { token: b"tok" }, b"dest", 40);
    long_packet(&mut w, LongKind::Handshake, b"dest", 50);
    long_packet(&mut w, LongKind::ZeroRtt, b"dest", 60);
    ShortHeader {
        spin: true,
        key_phase: false,
        dcid: cid(b"dest"),
        number: TruncatedNumber::with_len(2, 1),
        fixed_bit: true,
    }
    .encode(&mut w)
    .expect("room");
    w.zeros(30);
    let mut rest = w.filled();
    let mut kinds = Vec::new();
    while !rest.is_empty() {
        let header = PartialHeader::parse(rest, 4).unwrap();
        assert_eq!(header.dcid.of(rest), b"dest");
        kinds.extend(header.kind.packet());
        rest = &rest[header.packet_len..];
    }
    assert_eq!(
        kinds,
        [
            PacketKind::Initial,
            PacketKind::Handshake,
            PacketKind::ZeroRtt,
            PacketKind::OneRtt
        ]
    );
}

/// A packet that is too short for its sample, or has a connection ID that
/// version 1 forbids, does not take the ones behind it along.
#[test]
fn invalid_packet_is_skipped_within_datagram() {
    for bad in [
        [&[0xe0, 0, 0, 0, 1, 0, 0, 5][..], &[0; 5]].concat(),
        [&[0xe0, 0, 0, 0, 1, 21][..], &[1; 21], &[0, 30], &[0; 30]].concat(),
    ] {
        let mut buffer = [0; 400];
        let mut w = Writer::new(&mut buffer);
        w.bytes(&bad);
        long_packet(&mut w, LongKind::Handshake, b"", 50);
        let error = PartialHeader::parse(w.filled(), 8).unwrap_err();
        let skip = error.packet_len().expect("the length is known");
        assert_eq!(skip, bad.len(), "{error}");
        let next = PartialHeader::parse(&w.filled()[skip..], 8).unwrap();
        assert_eq!(next.kind, HeaderKind::Handshake);
    }
}

#[test]
fn length_beyond_datagram_ends_iteration() {
    let mut buffer = [0; 400];
    let mut w = Writer::new(&mut buffer);
    long_packet(&mut w, LongKind::Handshake, b"abcd", 50);
    let short_by_one = &w.filled()[..w.written() - 1];
    assert_eq!(
        PartialHeader::parse(short_by_one, 8),
        Err(HeaderError::Truncated)
    );
}

/// An unknown version is read as far as RFC 8999 goes, however long its
/// connection IDs and however little follows.
#[test]
fn connection_ids_of_unknown_version_are_parsed() {
    for (dcid_len, scid_len) in [(0, 0), (21, 255), (255, 21), (8, 0)] {
        let mut packet = vec![0x80, 0x0a, 0x1a, 0x2a, 0x3a, dcid_len];
        packet.extend(vec![0xd; usize::from(dcid_len)]);
        packet.push(scid_len);
        packet.extend(vec![0x5; usize::from(scid_len)]);
        let header = PartialHeader::parse(&packet, 8).unwrap();
        assert_eq!(header.kind, HeaderKind::UnsupportedVersion);
        assert!(header.version.is_reserved());
        assert_eq!(header.dcid.of(&packet), vec![0xd; usize::from(dcid_len)]);
        assert_eq!(header.scid.of(&packet), vec![0x5; usize::from(scid_len)]);
        assert_eq!(header.packet_len, packet.len());
    }
}

/// The header of the client Initial of RFC 9001 §A.2.
#[test]
fn client_initial_header_matches_rfc9001_appendix_a() {
    let mut packet = vec![0xc3, 0, 0, 0, 1, 8];
    packet.extend([0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]);
    packet.extend([0, 0, 0x44, 0x9e, 0, 0, 0, 2]);
    packet.resize(1200, 0);
    let header = PartialHeader::parse(&packet, 0).unwrap();
    assert_eq!(header.packet_len, 1200);
    assert_eq!(header.number_at, 18);
    assert!(matches!(header.kind, HeaderKind::Initial { token } if token.is_empty()));
    let open = UnprotectedHeader::read(&packet, header.number_at).unwrap();
    assert_eq!(open.number, TruncatedNumber::with_len(2, 4));
    assert_eq!(open.header_len, 22);
    assert_eq!(open.check_reserved(), Ok(()));
}

#[test]
fn reserved_bits_and_key_phase_are_read_per_header_form() {
    let mut packet = [0; 40];
    for (first, key_phase, clear) in [
        (0b0100_0000, false, true),
        (0b0100_0100, true, true),
        (0b0100_1000, false, false),
        (0b0101_0000, false, false),
        (0b1110_0000, false, true),
        (0b1111_0000, false, true),
        (0b1110_0100, false, false),
        (0b1110_1000, false, false),
    ] {
        packet[0] = first;
        let open = UnprotectedHeader::read(&packet, 9).unwrap();
        assert_eq!(open.key_phase, key_phase, "{first:#010b}");
        assert_eq!(open.check_reserved().is_ok(), clear, "{first:#010b}");
    }
    assert_eq!(UnprotectedHeader::read(&packet[..9], 9), None);
    assert_eq!(UnprotectedHeader::read(&packet[..9], 10), None);
}

#[test]
fn short_header_without_sample_is_an_error() {
    let datagram = [0x40; 1 + 8 + MIN_PROTECTED_LEN];
    assert!(PartialHeader::parse(&datagram, 8).is_ok());
    assert_eq!(
        PartialHeader::parse(&datagram[1..], 8),
        Err(HeaderError::NoSample {
            packet_len: datagram.len() - 1
        })
    );
}

prop_compose! {
    fn any_cid()(bytes in vec(any::<u8>(), 0..=20)) -> ConnectionId {
        cid(&bytes)
    }
}

proptest! {
    #[test]
    fn long_headers_round_trip(
        kind in 0..3, token in vec(any::<u8>(), 0..200), dcid in any_cid(), scid in any_cid(),
        number: u32, number_len in 1_usize..=4, fixed_bit: bool,
        payload in MIN_PROTECTED_LEN..600, trailer in 0_usize..40,
    ) {
        let kind = match kind {
            0 => LongKind::Initial { token: &token },
            1 => LongKind::ZeroRtt,
            _ => LongKind::Handshake,
        };
        let number = TruncatedNumber::with_len(u64::from(number), number_len);
        let header = LongHeader { kind, version: Version::V1, dcid, scid, number, fixed_bit };
        let mut buffer = [0; 1500];
        let mut w = Writer::new(&mut buffer);
        let positions = header.encode(&mut w).expect("room");
        w.zeros(payload);
        let end = w.written();
        assert!(positions.finish(w.filled_mut(), end));
        w.zeros(trailer);
        let packet = w.filled();

        let read = PartialHeader::parse(packet, 8).unwrap();
        prop_assert_eq!(read.kind.packet(), Some(kind.packet()));
        if let HeaderKind::Initial { token: read } = read.kind {
            prop_assert_eq!(read.of(packet), &token[..]);
        }
        prop_assert_eq!(read.dcid.cid(packet), Some(dcid));
        prop_assert_eq!(read.scid.cid(packet), Some(scid));
        prop_assert_eq!(read.fixed_bit, fixed_bit);
        prop_assert_eq!(read.packet_len, end);
        prop_assert_eq!(read.number_at, positions.number_at);
        let open = UnprotectedHeader::read(packet, read.number_at).unwrap();
        prop_assert_eq!(open.number, number);
        prop_assert_eq!(open.header_len, positions.payload_at);
        prop_assert_eq!(open.check_reserved(), Ok(()));
        let route = route(packet, 8).unwrap();
        prop_assert_eq!(route, Route { dcid: &dcid[..], version: Some(Version::V1) });
    }

    #[test]
    fn short_headers_round_trip(
        spin: bool, key_phase: bool, fixed_bit: bool, dcid in any_cid(),
        number: u32, number_len in 1_usize..=4,
    ) {
        let number = TruncatedNumber::with_len(u64::from(number), number_len);
        let header = ShortHeader { spin, key_phase, dcid, number, fixed_bit };
        let mut buffer = [0; 100];
        let mut w = Writer::new(&mut buffer);
        let positions = header.encode(&mut w).expect("room");
        prop_assert_eq!(w.written(), header.size());
        w.zeros(MIN_PROTECTED_LEN);
        let packet = w.filled();
        let read = PartialHeader::parse(packet, dcid.len()).unwrap();
        prop_assert_eq!(read.kind, HeaderKind::Short { spin });
        prop_assert_eq!(read.fixed_bit, fixed_bit);
        prop_assert_eq!(read.dcid.cid(packet), Some(dcid));
        let open = UnprotectedHeader::read(packet, read.number_at).unwrap();
        prop_assert_eq!(open.number, number);
        prop_assert_eq!(open.key_phase, key_phase);
        prop_assert_eq!(open.header_len, positions.payload_at);
        prop_assert_eq!(route(packet, dcid.len()), Some(Route { dcid: &dcid[..], version: None }));
    }

    /// Arbitrary bytes never panic, and what is accepted lies in the datagram
    /// and agrees with the endpoint's shortcut.
    #[test]
    fn arbitrary_datagrams_never_panic(
        mut datagram in vec(any::<u8>(), 0..120), version in 0_u32..3, cid_len in 0_usize..=20,
    ) {
        if let Some(field) = datagram.get_mut(1..5) {
            field.copy_from_slice(&version.to_be_bytes());
        }
        let mut rest = &datagram[..];
        loop {
            let parsed = PartialHeader::parse(rest, cid_len);
            if let Ok(header) = parsed {
                prop_assert_eq!(route(rest, cid_len).unwrap().dcid, header.dcid.of(rest));
                prop_assert!(header.number_at <= header.packet_len);
                if header.kind.packet().is_some() {
                    prop_assert!(UnprotectedHeader::read(rest, header.number_at).is_some());
                }
            }
            let skip = parsed.map_or_else(HeaderError::packet_len, |header| Some(header.packet_len));
            let Some(skip) = skip else { break };
            prop_assert!(skip > 0 && skip <= rest.len());
            rest = &rest[skip..];
            if rest.is_empty() {
                break;
            }
        }
    }
}
