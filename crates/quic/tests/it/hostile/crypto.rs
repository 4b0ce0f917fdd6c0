//! Abuse of CRYPTO frames, which have no flow control (RFC 9000 §7.5).

use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::connection::Forgery;
use clearway_quic::error::Code;
use clearway_quic::wire::frame::kind;
use clearway_quic::wire::{Frame, PacketKind};

use crate::hostile::initials::{cid, crypto, initial};
use crate::hostile::pair::{HostilePair, IDLE_MEMORY, LINK, bytes, metered_world};
use clearway_testing::Setup;

/// Twice what is buffered beyond the read position.
const BUFFERED: usize = 128 << 10;

fn during_the_handshake() -> HostilePair {
    let mut pair = HostilePair::begun(Role::Client, |_| {});
    pair.world.run_for(Duration::from_millis(11));
    assert!(pair.victim().is_handshaking());
    pair
}

#[test]
fn crypto_data_too_far_ahead_is_crypto_buffer_exceeded() {
    let mut pair = during_the_handshake();
    let frame = bytes(&Frame::Crypto {
        offset: 1 << 20,
        data: b"x",
    });
    pair.strike(&Forgery::new(PacketKind::Handshake, &frame));
    pair.closed_with(
        Code::CRYPTO_BUFFER_EXCEEDED,
        kind::CRYPTO,
        "CRYPTO data more than 64 KiB ahead of what TLS has read",
    );
}

/// Anyone can send Initial packets, so little of their data is kept.
#[test]
fn initial_crypto_data_far_ahead_closes_the_connection() {
    for (ahead, refused) in [((16 << 10) - 1, false), (16 << 10, true)] {
        let mut world = metered_world(Setup::new(), LINK, Role::Server);
        let frame = crypto(ahead, b"x");
        let packet = initial(cid(1), &[], 0, &frame);
        let from = world.client.address;
        let to = world.server.address;
        world.deliver(Direction::Up, Packet::new(from, to, packet));
        let connection = world.server.connections.values().next().expect("accepted");
        let error = connection.error().map(ToString::to_string);
        assert_eq!(error.is_some(), refused, "{ahead}: {error:?}");
        if let Some(error) = error {
            assert!(error.contains("more than 16 KiB ahead"), "{error}");
        }
    }
}

/// Sends up to a thousand pieces, by offset and data, until the victim closes the connection.
fn flood(piece: impl Fn(u64) -> (u64, &'static [u8]), reason: &str) {
    let mut pair = during_the_handshake();
    pair.bound(BUFFERED + IDLE_MEMORY);
    for i in 0..1000 {
        let (offset, data) = piece(i);
        let frame = bytes(&Frame::Crypto { offset, data });
        pair.strike(&Forgery::new(PacketKind::Handshake, &frame));
        if pair.victim().error().is_some() {
            break;
        }
    }
    pair.closed_with(Code::CRYPTO_BUFFER_EXCEEDED, kind::CRYPTO, reason);
}

#[test]
fn flood_of_crypto_fragments_keeps_memory_bounded() {
    flood(
        |i| (2 * i + 1, b"x"),
        "CRYPTO data in more than 256 separate pieces",
    );
}

#[test]
fn flood_of_overlapping_crypto_data_keeps_memory_bounded() {
    flood(
        |i| (i + 1, &[0; 1100]),
        "overlapping CRYPTO data beyond 128 KiB",
    );
}

#[test]
fn malformed_tls_message_closes_with_decode_error_alert() {
    let mut pair = during_the_handshake();
    let frame = bytes(&Frame::Crypto {
        offset: 0,
        data: &[0xff; 64],
    });
    pair.strike(&Forgery::new(PacketKind::Handshake, &frame));
    pair.closed_with(
        Code::crypto(50),
        kind::CRYPTO,
        "received corrupt message of type HandshakePayloadTooLarge",
    );
}

/// A server accepts no TLS message after the handshake; KeyUpdate in particular is forbidden
/// (RFC 9001 §6).
#[test]
fn tls_key_update_closes_with_unexpected_message_alert() {
    let mut pair = HostilePair::new(Role::Client);
    let key_update = [24, 0, 0, 1, 0];
    pair.say(&bytes(&Frame::Crypto {
        offset: 0,
        data: &key_update,
    }));
    pair.closed_with(
        Code::crypto(10),
        kind::CRYPTO,
        "TLS message after the handshake",
    );

    let mut pair = HostilePair::new(Role::Server);
    let sent = 64 << 10;
    // Wherever the server's tickets end, this is no ticket.
    for offset in 0..sent {
        pair.say(&bytes(&Frame::Crypto {
            offset,
            data: &key_update,
        }));
        if pair.victim().error().is_some() {
            break;
        }
    }
    pair.closed_with(
        Code::crypto(10),
        kind::CRYPTO,
        "unexpected TLS message HelloRequest, expected [NewSessionTicket]",
    );
}
