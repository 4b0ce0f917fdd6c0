use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::wire::Version;
use crate::wire::cursor::VARINT_MAX;
use crate::wire::stream_id::MAX_STREAM_COUNT;

fn cid(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).expect("at most 20 bytes")
}

fn encoded(parameters: &TransportParameters) -> Vec<u8> {
    let mut out = Vec::new();
    parameters.encode(&mut out, None);
    out
}

/// Every parameter set to something that is not its default.
fn full() -> TransportParameters {
    TransportParameters {
        original_destination_connection_id: Some(cid(b"original")),
        max_idle_timeout: 30_000,
        stateless_reset_token: Some(ResetToken([9; 16])),
        max_udp_payload_size: 1472,
        initial_max_data: 10,
        initial_max_stream_data_bidi_local: 11,
        initial_max_stream_data_bidi_remote: 12,
        initial_max_stream_data_uni: 13,
        initial_max_streams_bidi: 14,
        initial_max_streams_uni: 15,
        ack_delay_exponent: 10,
        max_ack_delay: 5,
        disable_active_migration: true,
        preferred_address: Some(PreferredAddress {
            v4: Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 443)),
            v6: Some(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 444, 0, 0)),
            cid: cid(b"preferred"),
            reset_token: ResetToken([8; 16]),
        }),
        active_connection_id_limit: 8,
        initial_source_connection_id: Some(cid(b"source")),
        retry_source_connection_id: Some(cid(b"retry")),
        max_datagram_frame_size: 65_535,
        grease_quic_bit: true,
        reset_stream_at: true,
        min_ack_delay: Some(1000),
        version_information: Some(VersionInformation {
            chosen: Version::V1,
            available: vec![Version::V1, Version::V2],
        }),
    }
}

fn refused(bytes: &[u8], sender: Role) -> bool {
    match TransportParameters::decode(bytes, sender) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.code, Code::TRANSPORT_PARAMETER_ERROR);
            true
        }
    }
}

#[test]
fn empty_parameters_decode_to_defaults() {
    let defaults = TransportParameters::default();
    assert!(encoded(&defaults).is_empty());
    assert_eq!(TransportParameters::decode(&[], Role::Client), Ok(defaults));
}

#[test]
fn full_parameters_round_trip_and_truncations_differ() {
    let bytes = encoded(&full());
    assert_eq!(
        TransportParameters::decode(&bytes, Role::Server),
        Ok(full())
    );
    let complete = |cut: &usize| TransportParameters::decode(&bytes[..*cut], Role::Server).is_ok();
    // Only where a parameter ends: 12 integers, min_ack_delay, 3 connection IDs,
    // 3 flags of which one has two identifiers, a token, an address and the versions; and
    // nothing at all.
    assert_eq!((0..=bytes.len()).filter(complete).count(), 24);
}

/// One address family missing is all zeros on the wire (RFC 9000 §18.2).
#[test]
fn preferred_address_of_one_family_round_trips() {
    let mut parameters = full();
    let address = parameters.preferred_address.as_mut().unwrap();
    address.v6 = None;
    let read = TransportParameters::decode(&encoded(&parameters), Role::Server);
    assert_eq!(read, Ok(parameters));
}

/// The byte layout of RFC 9000 figure 22.
#[test]
fn preferred_address_is_encoded_as_in_rfc() {
    let mut value = vec![0x0d, 45];
    value.extend([192, 0, 2, 1, 0x01, 0xbb]);
    value.extend([0; 18]);
    value.extend([4, 1, 2, 3, 4]);
    value.extend([0x77; 16]);
    let read = TransportParameters::decode(&value, Role::Server).unwrap();
    let address = read.preferred_address.unwrap();
    assert_eq!(
        address.v4,
        Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 443))
    );
    assert_eq!(address.v6, None);
    assert_eq!(&address.cid[..], [1, 2, 3, 4]);
    for wrong_len in [0, 3, 5, 21] {
        value[26] = wrong_len;
        assert!(refused(&value, Role::Server), "{wrong_len}");
    }
}

#[test]
fn values_at_bounds_are_accepted_and_beyond_rejected() {
    let integer = |id: u8, value: u64| {
        let mut bytes = vec![id, 8];
        bytes.extend((value | 0xc0 << 56).to_be_bytes());
        bytes
    };
    for (id, fine, beyond) in [
        (0x03, 1200, 1199),
        (0x08, MAX_STREAM_COUNT, MAX_STREAM_COUNT + 1),
        (0x09, MAX_STREAM_COUNT, MAX_STREAM_COUNT + 1),
        (0x0a, 20, 21),
        (0x0b, (1 << 14) - 1, 1 << 14),
        (0x0e, 2, 1),
    ] {
        assert!(!refused(&integer(id, fine), Role::Client), "{id:#x}");
        assert!(refused(&integer(id, beyond), Role::Client), "{id:#x}");
    }
}

#[test]
fn malformed_values_are_rejected() {
    for (what, bytes) in [
        ("no length", &[0x01][..]),
        ("length beyond the end", &[0x01, 2, 0]),
        ("integer too short", &[0x01, 1, 0x40]),
        ("integer too long", &[0x01, 2, 0, 0]),
        ("flag with a value", &[0x0c, 1, 0]),
        ("QUIC bit with a value", &[0x6a, 0xb2, 1, 0]),
        ("twice", &[0x01, 1, 5, 0x04, 1, 5, 0x01, 1, 5]),
        ("unknown, twice", &[0x3f, 0, 0x3e, 0, 0x3f, 0]),
        ("chosen version missing", &[0x11, 0]),
        ("torn version", &[0x11, 5, 0, 0, 0, 1, 0]),
        ("chosen version 0", &[0x11, 4, 0, 0, 0, 0]),
        ("available version 0", &[0x11, 8, 0, 0, 0, 1, 0, 0, 0, 0]),
    ] {
        assert!(refused(bytes, Role::Server), "{what}");
    }
    let long_cid = [&[0x0f, 21][..], &[0; 21]].concat();
    assert!(refused(&long_cid, Role::Client));
    let short_token = [&[0x02, 15][..], &[0; 15]].concat();
    assert!(refused(&short_token, Role::Server));
}

/// A client has to speak the version it chose; a server may have switched
/// (RFC 9368 §4).
#[test]
fn chosen_version_missing_from_available_is_rejected() {
    let bytes = [0x11, 8, 0, 0, 0, 1, 0x6b, 0x33, 0x43, 0xcf];
    assert!(refused(&bytes, Role::Client));
    assert!(!refused(&bytes, Role::Server));
}

#[test]
fn server_only_parameters_from_client_are_rejected() {
    let full = full();
    let none = TransportParameters::default();
    for server_only in [
        TransportParameters {
            original_destination_connection_id: full.original_destination_connection_id,
            ..none.clone()
        },
        TransportParameters {
            stateless_reset_token: full.stateless_reset_token,
            ..none.clone()
        },
        TransportParameters {
            preferred_address: full.preferred_address,
            ..none.clone()
        },
        TransportParameters {
            retry_source_connection_id: full.retry_source_connection_id,
            ..none.clone()
        },
    ] {
        let bytes = encoded(&server_only);
        assert!(refused(&bytes, Role::Client), "{server_only:?}");
        assert!(!refused(&bytes, Role::Server), "{server_only:?}");
    }
}

#[test]
fn contradicting_parameters_are_rejected() {
    let mut parameters = full();
    parameters.min_ack_delay = Some(5000);
    assert!(!refused(&encoded(&parameters), Role::Server));
    parameters.min_ack_delay = Some(5001);
    assert!(refused(&encoded(&parameters), Role::Server));

    let mut parameters = full();
    parameters.initial_source_connection_id = Some(ConnectionId::EMPTY);
    assert!(refused(&encoded(&parameters), Role::Server));
    parameters.preferred_address = None;
    assert!(!refused(&encoded(&parameters), Role::Server));
}

type Change = fn(&mut TransportParameters, Option<ConnectionId>);

#[test]
fn connection_ids_are_authenticated() {
    let seen = HandshakeCids {
        initial_source: cid(b"source"),
        original_destination: cid(b"original"),
        retry_source: Some(cid(b"retry")),
    };
    assert_eq!(full().authenticate(Role::Server, &seen), Ok(()));
    let changes: [(Change, bool); 3] = [
        (|p, cid| p.initial_source_connection_id = cid, true),
        (|p, cid| p.original_destination_connection_id = cid, false),
        (|p, cid| p.retry_source_connection_id = cid, false),
    ];
    for (change, in_clients) in changes {
        for value in [None, Some(cid(b"other"))] {
            let mut parameters = full();
            change(&mut parameters, value);
            let error = parameters.authenticate(Role::Server, &seen).unwrap_err();
            assert_eq!(error.code, Code::TRANSPORT_PARAMETER_ERROR);
            let from_client = parameters.authenticate(Role::Client, &seen);
            assert_eq!(from_client.is_err(), in_clients);
        }
    }
    // A server that claims a Retry nobody saw.
    let no_retry = HandshakeCids {
        retry_source: None,
        ..seen
    };
    assert!(full().authenticate(Role::Server, &no_retry).is_err());
}

#[test]
fn parameters_remembered_for_0rtt() {
    let remembered = full().remembered_for_0rtt();
    let forgotten = TransportParameters::default();
    // RFC 9000 §7.4.1 and the ACK frequency draft, §3.
    assert_eq!(remembered.ack_delay_exponent, forgotten.ack_delay_exponent);
    assert_eq!(remembered.max_ack_delay, forgotten.max_ack_delay);
    assert_eq!(remembered.initial_source_connection_id, None);
    assert_eq!(remembered.original_destination_connection_id, None);
    assert_eq!(remembered.preferred_address, None);
    assert_eq!(remembered.retry_source_connection_id, None);
    assert_eq!(remembered.stateless_reset_token, None);
    assert_eq!(remembered.min_ack_delay, None);
    assert_eq!(remembered.max_idle_timeout, 30_000);
    assert_eq!(remembered.max_udp_payload_size, 1472);
    assert!(remembered.disable_active_migration);
    assert_eq!(full().check_not_reduced(&remembered), Ok(()));

    let reductions: [fn(&mut TransportParameters); 8] = [
        |p| p.active_connection_id_limit -= 1,
        |p| p.initial_max_data -= 1,
        |p| p.initial_max_stream_data_bidi_local -= 1,
        |p| p.initial_max_stream_data_bidi_remote -= 1,
        |p| p.initial_max_stream_data_uni -= 1,
        |p| p.initial_max_streams_bidi -= 1,
        |p| p.initial_max_streams_uni -= 1,
        |p| p.max_datagram_frame_size -= 1,
    ];
    for (at, reduce) in reductions.into_iter().enumerate() {
        let mut parameters = full();
        reduce(&mut parameters);
        let error = parameters.check_not_reduced(&remembered).unwrap_err();
        assert_eq!(error.code, Code::PROTOCOL_VIOLATION, "{at}");
        assert_eq!(full().check_not_reduced(&parameters), Ok(()), "{at}");
    }
}

fn any_varint() -> impl Strategy<Value = u64> {
    (0..=VARINT_MAX, 0..62_u32).prop_map(|(value, shift)| value >> shift)
}

prop_compose! {
    fn any_cid()(bytes in vec(any::<u8>(), 1..=20)) -> ConnectionId {
        cid(&bytes)
    }
}

prop_compose! {
    fn any_address()(
        v4 in prop::option::of((any::<u32>(), 1..=u16::MAX)),
        v6 in prop::option::of((any::<u128>(), 1..=u16::MAX)),
        cid in any_cid(),
        token: [u8; 16],
    ) -> PreferredAddress {
        PreferredAddress {
            v4: v4.map(|(ip, port)| SocketAddrV4::new(ip.into(), port)),
            v6: v6.map(|(ip, port)| SocketAddrV6::new(ip.into(), port, 0, 0)),
            cid,
            reset_token: ResetToken(token),
        }
    }
}

prop_compose! {
    fn any_parameters()(
        free in vec(any_varint(), 7),
        bidi in 0..=MAX_STREAM_COUNT, uni in 0..=MAX_STREAM_COUNT,
        udp in 1200..=VARINT_MAX, cid_limit in 2..=VARINT_MAX,
        exponent in 0..=20_u8, delay in 0..1_u64 << 14,
        min_delay in prop::option::of(0..1_u64 << 24),
        flags: [bool; 3],
        cids in vec(prop::option::of(any_cid()), 3),
        token in prop::option::of(any::<[u8; 16]>()),
        preferred_address in prop::option::of(any_address()),
        versions in prop::option::of(vec(1..=u32::MAX, 1..6)),
    ) -> TransportParameters {
        TransportParameters {
            original_destination_connection_id: cids[0],
            max_idle_timeout: free[0],
            stateless_reset_token: token.map(ResetToken),
            max_udp_payload_size: udp,
            initial_max_data: free[1],
            initial_max_stream_data_bidi_local: free[2],
            initial_max_stream_data_bidi_remote: free[3],
            initial_max_stream_data_uni: free[4],
            initial_max_streams_bidi: bidi,
            initial_max_streams_uni: uni,
            ack_delay_exponent: exponent,
            max_ack_delay: delay,
            disable_active_migration: flags[0],
            preferred_address,
            active_connection_id_limit: cid_limit,
            initial_source_connection_id: cids[1],
            retry_source_connection_id: cids[2],
            max_datagram_frame_size: free[5],
            grease_quic_bit: flags[1],
            reset_stream_at: flags[2],
            min_ack_delay: min_delay.map(|micros| micros.min(delay * 1000)),
            version_information: versions.map(|versions| VersionInformation {
                chosen: Version(versions[0]),
                available: versions.into_iter().map(Version).collect(),
            }),
        }
    }
}

proptest! {
    /// Grease changes the bytes and nothing else.
    #[test]
    fn parameters_round_trip(parameters in any_parameters(), grease: [u64; 2]) {
        let mut bytes = vec![];
        parameters.encode(&mut bytes, Some(grease));
        prop_assert!(bytes.len() > encoded(&parameters).len());
        prop_assert_eq!(TransportParameters::decode(&bytes, Role::Server), Ok(parameters));
    }

    #[test]
    fn arbitrary_parameters_never_panic(bytes in vec(prop_oneof![any::<u8>(), 0..0x12_u8], 0..80)) {
        for role in [Role::Client, Role::Server] {
            if let Ok(parameters) = TransportParameters::decode(&bytes, role) {
                let again = TransportParameters::decode(&encoded(&parameters), role);
                prop_assert_eq!(again, Ok(parameters));
            }
        }
    }

    #[test]
    fn mutated_parameters_never_panic(
        parameters in any_parameters(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encoded(&parameters);
        let len = bytes.len();
        for (at, byte) in changes {
            bytes[at.index(len)] = byte;
        }
        if let Ok(parameters) = TransportParameters::decode(&bytes, Role::Server) {
            let again = TransportParameters::decode(&encoded(&parameters), Role::Server);
            prop_assert_eq!(again, Ok(parameters));
        }
    }
}

#[test]
fn reserved_parameter_has_up_to_eight_bytes() {
    let defaults = TransportParameters::default();
    let plain = encoded(&defaults).len();
    for (first, len) in [(0, 0), (8, 8), (9, 0), (17, 8), (18, 0), (255, 3)] {
        let mut out = Vec::new();
        defaults.encode(&mut out, Some([0, u64::from_be_bytes([first; 8])]));
        // The smallest reserved identifier, 27, and the length take a byte each.
        assert_eq!(out.len(), plain + 2 + len, "{first}");
    }
}
