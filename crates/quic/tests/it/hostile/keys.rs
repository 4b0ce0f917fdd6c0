//! Invalid key updates, and floods of forged packets (RFC 9001 §6).

use std::time::Duration;

use clearway_quic::Role;
use clearway_quic::connection::Forgery;
use clearway_quic::error::Code;
use clearway_quic::wire::PacketKind;
use clearway_quic::wire::frame::kind;

use crate::hostile::pair::{HostilePair, fields};

const PING: &[u8] = &[0x01];

#[test]
fn second_key_update_before_confirmation_closes_connection() {
    let mut pair = HostilePair::new(Role::Client);
    pair.hostile().force_key_update();
    pair.say(PING);
    assert_eq!(pair.victim().error(), None, "one update is fine");
    pair.hostile().force_key_update();
    pair.say(PING);
    pair.closed_with(
        Code::KEY_UPDATE_ERROR,
        None,
        "keys updated twice without confirmation",
    );
}

#[test]
fn late_packet_of_new_keys_below_old_keys_closes_connection() {
    let mut pair = HostilePair::new(Role::Client);
    let late = {
        pair.hostile().force_key_update();
        pair.forge(&Forgery::new(PacketKind::OneRtt, PING))
    };
    let newer = pair.forge(&Forgery::new(PacketKind::OneRtt, PING));
    // The newer packet first: the update. Then the older of the same keys: fine.
    pair.deliver(newer);
    pair.deliver(late);
    assert_eq!(pair.victim().error(), None);
    pair.still_serves();
}

/// Acknowledges with old keys what the victim has sent with new ones: the peer has received the update
/// and did not answer it (RFC 9001 §6.2).
#[test]
fn ack_of_key_update_under_old_keys_closes_connection() {
    let mut pair = HostilePair::new(Role::Client);
    // Made before the victim's update reaches the hostile end, which would
    // answer it; the number it acknowledges is the victim's next.
    let now = pair.world.now;
    let next = pair.victim().stats(now).counters.packets_sent;
    pair.victim().update_keys(now).expect("an update");
    pair.victim().ping();
    let acks: Vec<_> = (0..next)
        .map(|number| {
            let payload = fields(&[kind::ACK, number, 0, 0, 0]);
            pair.forge(&Forgery::new(PacketKind::OneRtt, &payload))
        })
        .collect();
    pair.world.flush();
    for ack in acks {
        pair.deliver(ack);
        if pair.victim().error().is_some() {
            break;
        }
    }
    pair.closed_with(
        Code::KEY_UPDATE_ERROR,
        kind::ACK,
        "acknowledgment of packets with new keys in a packet with old keys",
    );
}

#[test]
fn forged_packets_beyond_integrity_limit_close_connection() {
    let mut pair = HostilePair::new(Role::Client);
    pair.victim().set_integrity_limit(1000);
    let genuine = pair.forge(&Forgery::new(PacketKind::OneRtt, &[0x01; 40]));
    for i in 0..1000 {
        let mut forged = genuine.clone();
        *forged.last_mut().expect("a tag") ^= (i % 255 + 1) as u8;
        pair.deliver(forged);
        assert_eq!(pair.victim().error(), None, "after {i}");
    }
    let mut forged = genuine;
    *forged.last_mut().expect("a tag") ^= 1;
    pair.deliver(forged);
    pair.closed_with(
        Code::AEAD_LIMIT_REACHED,
        None,
        "integrity limit of the packet protection reached",
    );
}

/// The limit is the connection's, over all its keys (RFC 9001 §6.6).
#[test]
fn forged_handshake_packets_count_towards_integrity_limit() {
    for hostile in [Role::Client, Role::Server] {
        let mut pair = HostilePair::begun(hostile, |_| {});
        // The client is complete and the server is not: both have keys of both kinds.
        pair.world.run_for(Duration::from_millis(11));
        pair.victim().set_integrity_limit(20);
        for i in 0..=20 {
            assert_eq!(pair.victim().error(), None, "{hostile:?}, after {i}");
            let kind = [PacketKind::Handshake, PacketKind::OneRtt][i % 2];
            // The server opens no 1-RTT packet before the handshake is complete.
            let kind = match hostile {
                Role::Client => PacketKind::Handshake,
                Role::Server => kind,
            };
            let mut forged = pair.forge(&Forgery::new(kind, &[0x01; 40]));
            *forged.last_mut().expect("a tag") ^= 1;
            pair.deliver(forged);
        }
        pair.closed_with(
            Code::AEAD_LIMIT_REACHED,
            None,
            "integrity limit of the packet protection reached",
        );
    }
}

#[test]
fn repeated_packet_is_processed_once() {
    let mut pair = HostilePair::new(Role::Client);
    let packet = pair.forge(&Forgery::new(PacketKind::OneRtt, PING));
    let now = pair.world.now;
    let before = pair.victim().stats(now).counters.packets_received;
    for _ in 0..1000 {
        pair.deliver(packet.clone());
    }
    let after = pair.victim().stats(now).counters.packets_received;
    assert_eq!(after - before, 1);
    pair.still_serves();
}
