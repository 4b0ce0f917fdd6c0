//! Tokens of any size towards a client: in a forged Retry, whose integrity key
//! is public, and in NEW_TOKEN (RFC 9000 §8.1.3, §17.2.5, §19.7).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::cid::ConnectionId;
use clearway_quic::crypto::{Algorithms, ClientCrypto, RetryToken, Roots, TokenKey};
use clearway_quic::rng::Rng;
use clearway_quic::testing::{
    LongHeader, LongKind, MAX_STORED_TOKEN_LEN as NEW_TOKEN_LIMIT, MAX_TOKEN_LEN as RETRY_LIMIT,
    Retry, TruncatedNumber, UnprotectedHeader, initial_keys, retry_tag,
};
use clearway_quic::wire::header::HeaderKind;
use clearway_quic::wire::{Frame, Frames, PartialHeader, Version, Writer};

use crate::hostile::initials::{cid, crypto, initial};
use crate::hostile::pair::{HostilePair, LINK, bytes, first_flight, metered_world, sent_now};
use clearway_testing::{Setup, UNIX_ORIGIN, World, identity, server_id};

/// Largest UDP payload there is.
const MAX_DATAGRAM: usize = 65_527;

/// Bytes of a Retry beside its token, with two connection IDs of 20 bytes.
const RETRY_OVERHEAD: usize = 7 + 2 * 20 + 16;

/// A Retry connection ID of the largest size.
fn retry_cid() -> ConnectionId {
    ConnectionId::new(&[0x77; 20]).expect("twenty bytes")
}

/// The destination and source connection ID of a client's first datagram.
fn cids(datagram: &[u8]) -> (ConnectionId, ConnectionId) {
    let header = PartialHeader::parse(datagram, 20).expect("an Initial");
    (
        header.dcid.cid(datagram).expect("a connection ID"),
        header.scid.cid(datagram).expect("a connection ID"),
    )
}

/// A Retry that anybody who saw the client's first datagram can send.
fn retry(first: &[u8], token_len: usize) -> Vec<u8> {
    retry_from(retry_cid(), first, token_len)
}

/// The same with another source connection ID.
fn retry_from(scid: ConnectionId, first: &[u8], token_len: usize) -> Vec<u8> {
    let (original, client) = cids(first);
    let token = vec![0xa5; token_len];
    let mut packet = vec![0; MAX_DATAGRAM];
    let mut w = Writer::new(&mut packet);
    if token_len > 0 {
        Retry {
            version: Version::V1,
            dcid: client,
            scid,
            token: &token,
        }
        .encode(&mut w, 0);
    } else {
        w.bytes(&[0xf0, 0, 0, 0, 1]);
        for cid in [client, scid] {
            w.u8(cid.len() as u8);
            w.bytes(&cid);
        }
    }
    assert!(!w.overflowed());
    let len = w.written();
    packet.truncate(len);
    let tag = retry_tag(&original, &packet);
    packet.extend(tag);
    packet
}

fn to_client(world: &mut World, data: Vec<u8>) {
    let packet = Packet::new(world.server.address, world.client.address, data);
    world.deliver(Direction::Down, packet);
}

/// Both ends have connection IDs of 20 bytes; the first flight was caught.
fn caught(algorithms: Algorithms) -> (World, Vec<Packet>) {
    let mut setup = Setup::new();
    setup.cid_len = 20;
    let roots = Roots::from_pem(identity().0.as_bytes()).expect("roots");
    setup.client_crypto = ClientCrypto::new(roots)
        .alpn(["test"])
        .algorithms(algorithms)
        .build()
        .expect("client settings");
    let mut world = metered_world(setup, LINK, Role::Client);
    let flight = first_flight(&mut world);
    (world, flight)
}

/// The CRYPTO bytes of an Initial that was sent to `dcid`, by offset; its token.
fn opened(mut datagram: Vec<u8>, dcid: &ConnectionId) -> (Vec<u8>, BTreeMap<u64, usize>) {
    let keys = initial_keys(Version::V1, dcid, Role::Server).remote;
    let header = PartialHeader::parse(&datagram, 20).expect("a packet");
    let HeaderKind::Initial { token } = header.kind else {
        panic!("{header:?}");
    };
    let token = token.of(&datagram).to_vec();
    let packet = &mut datagram[..header.packet_len];
    keys.unprotect_header(packet, header.number_at)
        .expect("a sample");
    let open = UnprotectedHeader::read(packet, header.number_at).expect("a header");
    let number = open.number.recover(None);
    let len = keys
        .open(number, packet, open.header_len)
        .expect("authentic");
    let payload = &packet[open.header_len..][..len];
    let crypto = Frames::new(payload).filter_map(|frame| match frame.expect("a frame") {
        Frame::Crypto { offset, data } => Some((offset, data.len())),
        _ => None,
    });
    (token, crypto.collect())
}

/// Whether the pieces cover `0..len`.
fn is_whole(pieces: &BTreeMap<u64, usize>, len: u64) -> bool {
    let end = pieces.iter().fold(0, |end, (&offset, &len)| {
        if offset <= end {
            end.max(offset + len as u64)
        } else {
            end
        }
    });
    end == len
}

fn crypto_len(flight: &[Packet], dcid: &ConnectionId) -> u64 {
    let ends = flight.iter().flat_map(|packet| {
        let (_, crypto) = opened(packet.data.clone(), dcid);
        crypto.into_iter().map(|(offset, len)| offset + len as u64)
    });
    ends.max().expect("a ClientHello")
}

/// Every size that is accepted: the whole ClientHello leaves with the token,
/// in full datagrams, in one burst.
#[test]
fn retry_with_token_up_to_limit_restarts_handshake() {
    for (algorithms, most_datagrams) in [
        (Algorithms::default(), 5),
        (Algorithms::default().x25519_only(), 1),
    ] {
        for token_len in 1..=RETRY_LIMIT {
            let (mut world, flight) = caught(algorithms.clone());
            let (dcid, _) = cids(&flight[0].data);
            let hello = crypto_len(&flight, &dcid);
            to_client(&mut world, retry(&flight[0].data, token_len));
            let mut pieces = BTreeMap::new();
            let sent = sent_now(&mut world);
            assert!(sent.len() <= most_datagrams, "{token_len}: {}", sent.len());
            for packet in sent {
                assert_eq!(packet.data.len(), 1200, "token of {token_len} bytes");
                let (token, crypto) = opened(packet.data, &retry_cid());
                assert_eq!(token, vec![0xa5; token_len]);
                pieces.extend(crypto);
            }
            assert!(
                is_whole(&pieces, hello),
                "token of {token_len} bytes: {pieces:?} of {hello}"
            );
            assert_eq!(world.client.connection().error(), None);
        }
    }
}

/// Every size above the limit, and none: the client goes on with the server's
/// answer to its first Initial.
#[test]
fn retry_with_oversized_token_is_discarded() {
    let (mut world, flight) = caught(Algorithms::default());
    let sizes = core::iter::once(0).chain(RETRY_LIMIT + 1..=MAX_DATAGRAM - RETRY_OVERHEAD);
    for (before, token_len) in sizes.enumerate() {
        to_client(&mut world, retry(&flight[0].data, token_len));
        assert_eq!(sent_now(&mut world).len(), 0, "token of {token_len} bytes");
        let now = world.now;
        let client = world.client.connection();
        assert!(!client.retried(), "token of {token_len} bytes");
        let counters = client.stats(now).counters;
        assert_eq!(counters.packets_dropped, before as u64 + 1);
        assert_eq!(counters.oversized_tokens, before as u64);
    }
    for packet in flight {
        world.deliver(Direction::Up, packet);
    }
    world.run_for(Duration::from_secs(1));
    assert!(world.client.connection().is_confirmed());
    assert!(!world.client.connection().retried());
}

/// A usable Retry after one that was not is still taken.
#[test]
fn retry_after_discarded_retry_is_accepted() {
    let (mut world, flight) = caught(Algorithms::default());
    to_client(&mut world, retry(&flight[0].data, RETRY_LIMIT + 1));
    assert!(!world.client.connection().retried());
    to_client(&mut world, retry(&flight[0].data, RETRY_LIMIT));
    assert!(world.client.connection().retried());
    assert!(!sent_now(&mut world).is_empty());
}

/// RFC 9000 §17.2.5.1: the source connection ID of a Retry differs from the destination connection
/// ID of the Initial that it answers.
#[test]
fn retry_that_repeats_the_clients_dcid_is_discarded() {
    let (mut world, flight) = caught(Algorithms::default());
    let (original, _) = cids(&flight[0].data);
    to_client(&mut world, retry_from(original, &flight[0].data, 20));
    assert!(!world.client.connection().retried());
    assert_eq!(sent_now(&mut world).len(), 0);
    to_client(&mut world, retry(&flight[0].data, 20));
    assert!(world.client.connection().retried());
}

/// RFC 9000 §17.2.2: a server's Initial packets have no token. Anybody who saw the client's first
/// datagram can send one with a token.
#[test]
fn server_initial_with_token_is_discarded() {
    for (token, accepted) in [(&[][..], true), (&[1; 16][..], false)] {
        let (mut world, flight) = caught(Algorithms::default());
        let (original, client) = cids(&flight[0].data);
        let mut packet = vec![0; 1200];
        let mut w = Writer::new(&mut packet);
        let at = LongHeader {
            kind: LongKind::Initial { token },
            version: Version::V1,
            dcid: client,
            scid: retry_cid(),
            number: TruncatedNumber::with_len(0, 4),
            fixed_bit: true,
        }
        .encode(&mut w)
        .expect("room for a header");
        w.bytes(&bytes(&Frame::Ping));
        assert!(at.finish(&mut packet, 1200));
        let keys = initial_keys(Version::V1, &original, Role::Server).local;
        let sealed = keys.seal(0, &mut packet, at.payload_at, 4);
        sealed.expect("seals");
        to_client(&mut world, packet);
        let now = world.now;
        let counters = world.client.connection().stats(now).counters;
        let expected = if accepted { (1, 0) } else { (0, 1) };
        let counted = (counters.packets_received, counters.packets_dropped);
        assert_eq!(counted, expected);
    }
}

/// RFC 9000 §7.2 asks for eight bytes of the client's first connection ID. After a Retry the ID is the
/// server's own choice.
#[test]
fn retry_with_short_connection_id_completes() {
    for cid_len in 1..8 {
        let mut setup = Setup::new();
        setup.cid_len = cid_len;
        setup.always_retry = true;
        let mut world = metered_world(setup, LINK, Role::Server);
        world.handshake();
        assert!(world.client.connection().retried(), "{cid_len}");
    }
}

/// Without a Retry token for it, an ID of less than eight bytes begins nothing.
#[test]
fn initial_with_short_connection_id_needs_a_retry_token_for_it() {
    let from: SocketAddr = ([10, 9, 0, 1], 4000).into();
    let short = |byte| ConnectionId::new(&[byte; 7]).expect("seven bytes");
    let accepted = |token_for: Option<ConnectionId>| {
        let mut world = metered_world(Setup::new(), LINK, Role::Server);
        let mut token = Vec::new();
        if let Some(retry_scid) = token_for {
            TokenKey::new(&[7; 32]).seal_retry(
                &RetryToken {
                    version: Version::V1,
                    issued: UNIX_ORIGIN,
                    client: from,
                    original_dcid: cid(1),
                    retry_scid,
                },
                &mut Rng::from_seed([1; 32]),
                &mut token,
            );
        }
        let packet = initial(short(1), &token, 0, &crypto(0, &[1; 64]));
        let to = world.server.address;
        world.deliver(Direction::Up, Packet::new(from, to, packet));
        world.server.endpoint.counters().accepted
    };
    assert_eq!(accepted(None), 0);
    assert_eq!(accepted(Some(short(2))), 0);
    assert_eq!(accepted(Some(short(1))), 1);
}

/// A server hands out tokens of any size; the next connection, which resumes,
/// carries those that leave room for its ClientHello and none of the others.
#[test]
fn new_token_too_large_for_initial_is_not_remembered() {
    let around = NEW_TOKEN_LIMIT - 2..=NEW_TOKEN_LIMIT + 2;
    for token_len in around.chain([1, 1000, 1100, 1170, 1200, 16_383, 16_384, 60_000]) {
        let mut pair = HostilePair::with(Role::Server, |setup| setup.cid_len = 20);
        let sessions = pair.world.setup.sessions.clone();
        let name = server_id();
        while sessions.take_token(&name, Version::V1).is_some() {}
        let token = vec![0xa5; token_len];
        pair.say(&bytes(&Frame::NewToken(&token)));
        let now = pair.world.now;
        let usable = token_len <= NEW_TOKEN_LIMIT;
        let counters = pair.victim().stats(now).counters;
        assert_eq!(counters.oversized_tokens, u64::from(!usable), "{token_len}");
        pair.victim().close(now, 0, b"");
        pair.world.run_for(Duration::from_secs(10));
        pair.world.client.connections.clear();
        pair.world.server.connections.clear();

        let flight = first_flight(&mut pair.world);
        let (dcid, _) = cids(&flight[0].data);
        let (sent, crypto) = opened(flight[0].data.clone(), &dcid);
        assert_eq!(sent, if usable { token } else { Vec::new() });
        assert!(!crypto.is_empty(), "room for the ClientHello");
        for packet in flight {
            pair.world.deliver(Direction::Up, packet);
        }
        pair.world.run_for(Duration::from_secs(1));
        assert!(pair.world.client.connection().is_confirmed());
        assert!(pair.world.client.connection().resumed(), "{token_len}");
    }
}

/// The store is the application's way in: it keeps no token that is too large.
#[test]
fn token_put_by_application_obeys_the_same_limit() {
    for (token_len, usable) in [(NEW_TOKEN_LIMIT, true), (NEW_TOKEN_LIMIT + 1, false)] {
        let mut setup = Setup::new();
        setup.cid_len = 20;
        let name = server_id();
        let kept = setup
            .sessions
            .put_token(&name, Version::V1, vec![0xa5; token_len]);
        assert_eq!(kept, usable);
        let mut world = metered_world(setup, LINK, Role::Client);
        let flight = first_flight(&mut world);
        let (dcid, _) = cids(&flight[0].data);
        let (sent, _) = opened(flight[0].data.clone(), &dcid);
        assert_eq!(!sent.is_empty(), usable);
        for packet in flight {
            world.deliver(Direction::Up, packet);
        }
        world.run_for(Duration::from_secs(1));
        assert!(world.client.connection().is_confirmed());
    }
}
