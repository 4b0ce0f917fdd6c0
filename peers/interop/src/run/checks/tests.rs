//! Each check accepts a recording that shows what the test wants, and rejects one that does not.

use std::net::SocketAddr;

use clearway_quic::wire::TransportParameters;
use clearway_trace::capture::DecryptedPacket;

use super::super::{
    capture::Datagram,
    decrypted::{SentPacket, TlsMessage},
};
use super::*;

const CLIENT: Sender = Sender::Client;
const SERVER: Sender = Sender::Server;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A 1-RTT packet with ECT(0) between the client's port `path.0` and the server's `path.1`.
fn packet(sender: Sender, path: (u16, u16), payload: &[u8]) -> SentPacket {
    SentPacket {
        connection: 0,
        sender,
        path: (address(path.0), address(path.1)),
        ecn: Ecn::Ect0,
        packet: DecryptedPacket {
            kind: PacketType::OneRtt,
            number: 0,
            dcid: vec![1; 8],
            key_updates: 0,
            payload: payload.to_vec(),
        },
    }
}

fn recording(packets: Vec<SentPacket>) -> Recording {
    Recording {
        headers: Capture::default(),
        decrypted: Decrypted {
            packets,
            ..Decrypted::default()
        },
    }
}

fn challenge(data: u8) -> Vec<u8> {
    [&[0x1a][..], &[data; 8]].concat()
}

fn response(data: u8) -> Vec<u8> {
    [&[0x1b][..], &[data; 8]].concat()
}

#[track_caller]
fn rejected(check: Check, recording: &Recording, why: &str) {
    let error = check(recording).expect_err(why);
    assert!(error.contains(why), "{error}");
}

#[test]
fn key_update_of_both_ends_is_expected() {
    let updated = |sender| {
        let mut packet = packet(sender, (1, 2), &[1]);
        packet.packet.key_updates = 1;
        packet
    };
    assert_eq!(
        key_update(&recording(vec![updated(CLIENT), updated(SERVER)])),
        Ok(())
    );
    let one = recording(vec![updated(CLIENT), packet(SERVER, (1, 2), &[1])]);
    rejected(
        key_update,
        &one,
        "expected a key update of the Server, found none",
    );
    rejected(key_update, &recording(vec![]), "could be decrypted");
}

#[test]
fn repetition_of_the_client_hello_is_expected() {
    let crypto = |offset: u8| {
        let mut packet = packet(CLIENT, (1, 2), &[0x06, offset, 1, 0xff]);
        packet.packet.kind = PacketType::Initial;
        packet
    };
    let repeated = vec![crypto(0), crypto(1), crypto(0)];
    assert_eq!(repeated_hello(&recording(repeated)), Ok(()));
    let in_two_packets = vec![crypto(0), crypto(1)];
    rejected(repeated_hello, &recording(in_two_packets), "found 1");
}

fn with_message(messages: Vec<TlsMessage>) -> Recording {
    let mut recording = recording(vec![]);
    recording.decrypted.messages = messages;
    recording
}

fn client_hello(suites: &[u8]) -> TlsMessage {
    let mut body = vec![3; 34];
    body.extend([2, 0xaa, 0xbb, 0, suites.len() as u8]);
    body.extend(suites);
    body.extend([1, 0]);
    TlsMessage {
        connection: 0,
        sender: CLIENT,
        kind: 1,
        body,
    }
}

#[test]
fn only_chacha20_may_be_offered() {
    let offers = |suites: &[u8]| with_message(vec![client_hello(suites)]);
    assert_eq!(only_chacha20(&offers(&[0x13, 3])), Ok(()));
    assert_eq!(only_chacha20(&offers(&[0x13, 3, 0, 0xff])), Ok(()));
    rejected(only_chacha20, &offers(&[0, 0xff]), "ff");
    rejected(only_chacha20, &offers(&[0x13, 3, 0x13, 1]), "1301");
    rejected(only_chacha20, &offers(&[0x13, 2]), "1302");
    rejected(only_chacha20, &with_message(vec![]), "no ClientHello");
}

#[test]
fn resumed_connection_has_no_certificate() {
    let certificate = |connection| TlsMessage {
        connection,
        sender: SERVER,
        kind: 11,
        body: vec![],
    };
    assert_eq!(
        certificate_once(&with_message(vec![certificate(0)])),
        Ok(())
    );
    let twice = with_message(vec![certificate(0), certificate(1)]);
    rejected(certificate_once, &twice, "found them in [0, 1]");
    rejected(certificate_once, &with_message(vec![]), "found them in []");
}

#[test]
fn stream_limit_above_1000_is_rejected() {
    let permits = |limit| {
        let mut recording = recording(vec![]);
        recording.decrypted.server_parameters = vec![TransportParameters {
            initial_max_streams_bidi: limit,
            ..TransportParameters::default()
        }];
        recording
    };
    assert_eq!(stream_limit(&permits(1000)), Ok(()));
    rejected(stream_limit, &permits(1001), "found 1001");
    rejected(stream_limit, &recording(vec![]), "could not be decrypted");
}

#[test]
fn new_path_begins_with_a_challenge_that_is_answered() {
    let old = || packet(SERVER, (1, 9), &[1]);
    let moved = recording(vec![
        old(),
        packet(CLIENT, (2, 9), &[1]),
        packet(SERVER, (2, 9), &challenge(7)),
        packet(CLIENT, (2, 9), &response(7)),
    ]);
    assert_eq!(challenged_by_server(&moved), Ok(()));
    rejected(challenged_by_server, &recording(vec![old()]), "found none");
    let late = recording(vec![
        old(),
        packet(SERVER, (2, 9), &[1]),
        packet(SERVER, (2, 9), &challenge(7)),
        packet(CLIENT, (2, 9), &response(7)),
    ]);
    rejected(challenged_by_server, &late, "in the server's first packet");
    let unanswered = recording(vec![
        old(),
        packet(SERVER, (2, 9), &challenge(7)),
        packet(CLIENT, (2, 9), &response(8)),
    ]);
    rejected(challenged_by_server, &unanswered, "expected an answer");
}

#[test]
fn challenge_to_a_client_that_closes_needs_no_answer_unless_it_is_repeated() {
    let close = || packet(CLIENT, (2, 9), &[0x1c, 0, 0, 0]);
    let challenged = |data| packet(SERVER, (2, 9), &challenge(data));
    let old = || packet(SERVER, (1, 9), &[1]);
    let done = recording(vec![old(), challenged(7), close()]);
    assert_eq!(challenged_by_server(&done), Ok(()));
    let twice = recording(vec![old(), challenged(7), challenged(8), close()]);
    rejected(challenged_by_server, &twice, "expected an answer");
}

#[test]
fn client_moves_to_the_preferred_address_with_a_new_connection_id() {
    let begin = || packet(CLIENT, (1, 8), &[1]);
    let on_new_path = |sender, payload: &[u8]| {
        let mut packet = packet(sender, (1, 9), payload);
        packet.packet.dcid = vec![2; 8];
        packet
    };
    let data = [0x08, 0, 1, 2, 3];
    let good = || {
        vec![
            begin(),
            on_new_path(CLIENT, &challenge(7)),
            on_new_path(SERVER, &response(7)),
            on_new_path(SERVER, &data),
        ]
    };
    assert_eq!(moved_by_client(&recording(good())), Ok(()));
    rejected(
        moved_by_client,
        &recording(vec![begin()]),
        "to another address",
    );
    let mut same_id = good();
    same_id[1].packet.dcid = vec![1; 8];
    rejected(
        moved_by_client,
        &recording(same_id),
        "expected a new connection ID",
    );
    let mut unanswered = good();
    unanswered.remove(2);
    rejected(
        moved_by_client,
        &recording(unanswered),
        "expected an answer",
    );
    let mut only_probed = good();
    only_probed.pop();
    rejected(
        moved_by_client,
        &recording(only_probed),
        "the download to go on",
    );
}

/// An ACK frame with counts of ECT(0), ECT(1) and CE.
fn ack(ect0: u8, ce: u8) -> Vec<u8> {
    vec![3, 5, 0, 0, 5, ect0, 0, ce]
}

#[test]
fn both_ends_mark_and_report_ecn() {
    let both = |payload: &[u8]| {
        let packets = vec![
            packet(CLIENT, (1, 2), payload),
            packet(SERVER, (1, 2), payload),
        ];
        recording(packets)
    };
    assert_eq!(ecn(&both(&ack(5, 0))), Ok(()));
    rejected(ecn, &both(&[1]), "expected ACK frames with ECN counts");
    rejected(ecn, &both(&ack(0, 0)), "found counts of 0");
    rejected(ecn, &both(&ack(5, 1)), "expected no CE reported");
    let mut unmarked = both(&ack(5, 0));
    unmarked.decrypted.packets[1].ecn = Ecn::NotEct;
    rejected(ecn, &unmarked, "expected ECT in packets of the Server");
    let mut congested = both(&ack(5, 0));
    congested
        .decrypted
        .packets
        .push(packet(CLIENT, (1, 2), &[1]));
    congested.decrypted.packets[2].ecn = Ecn::Ce;
    rejected(ecn, &congested, "expected no CE in packets of the Client");
}

fn datagram(sender: Sender, bytes: Vec<u8>) -> Datagram {
    Datagram {
        sender,
        client_inside: address(1),
        client: address(1),
        server: address(2),
        ecn: Ecn::NotEct,
        bytes,
    }
}

/// A packet with a long header of version 1 and 8-byte connection IDs.
fn long_header(first: u8, len: usize) -> Vec<u8> {
    let mut packet = vec![first, 0, 0, 0, 1, 8];
    packet.extend([1; 8]);
    packet.push(8);
    packet.extend([2; 8]);
    if first & 0x30 == 0 {
        // No token.
        packet.push(0);
    }
    let rest = len - packet.len() - 2;
    packet.extend((0x4000 | rest as u16).to_be_bytes());
    packet.resize(len, 0);
    packet
}

#[test]
fn more_than_three_times_before_validation_is_rejected() {
    let initial = || long_header(0xc0, 1200);
    let handshake = || long_header(0xe0, 100);
    let sent = |capture: &mut Capture, len: usize| {
        capture.record(datagram(SERVER, vec![0; len]));
    };
    let mut capture = Capture::default();
    capture.record_arrival_at_server(address(1), &initial());
    sent(&mut capture, 3600);
    assert_eq!(capture.amplified(), None);
    capture.record_arrival_at_server(address(1), &handshake());
    sent(&mut capture, 100_000);
    assert_eq!(capture.amplified(), None, "validated by a Handshake packet");
    let mut capture = Capture::default();
    capture.record_arrival_at_server(address(1), &initial());
    sent(&mut capture, 3601);
    let recording = Recording {
        headers: capture,
        decrypted: Decrypted::default(),
    };
    rejected(amplification, &recording, "found 3601");
}

#[test]
fn initial_packet_numbers_that_begin_anew_after_retry_are_rejected() {
    let numbers = |numbers: &[u64]| {
        let packets = numbers.iter().map(|number| {
            let mut sent = packet(CLIENT, (1, 2), &[1]);
            sent.packet.kind = PacketType::Initial;
            sent.packet.number = *number;
            sent
        });
        recording(packets.collect())
    };
    assert_eq!(increasing_numbers(&numbers(&[0, 1, 5])), Ok(()));
    rejected(increasing_numbers, &numbers(&[0, 0]), "found [0, 0]");
    rejected(increasing_numbers, &numbers(&[3]), "found [3]");
    rejected(retry, &numbers(&[0, 1]), "expected a Retry, found none");
}

#[test]
fn early_data_that_is_sent_again_is_rejected() {
    let early = |late: usize| {
        let mut recording = recording(vec![packet(CLIENT, (1, 2), &vec![0; late])]);
        let early = datagram(CLIENT, long_header(0xd0, 1200));
        recording.headers.record(early);
        recording
    };
    assert_eq!(early_data(&early(5000)), Ok(()));
    rejected(early_data, &early(5001), "found 5001");
    rejected(early_data, &recording(vec![]), "expected 0-RTT packets");
}

#[test]
fn datagram_over_ipv4_is_rejected_in_ipv6() {
    let mut recording = recording(vec![]);
    recording.headers.record(datagram(CLIENT, vec![0x40]));
    rejected(only_ipv6, &recording, "found IPv4");
    let v6 = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 1));
    let mut capture = Capture::default();
    let datagram = Datagram {
        client_inside: v6,
        client: v6,
        server: v6,
        ..datagram(CLIENT, vec![0x40])
    };
    capture.record(datagram);
    recording.headers = capture;
    assert_eq!(only_ipv6(&recording), Ok(()));
}
