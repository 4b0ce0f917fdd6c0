//! Key updates out of turn, and forged packets without end (RFC 9001 §6).

use std::time::Duration;

use clearway_quic::Role;
use clearway_quic::connection::Forgery;
use clearway_quic::error::Code;
use clearway_quic::wire::PacketKind;
use clearway_quic::wire::frame::kind;

use crate::hostile::duel::{Duel, fields};

const PING: &[u8] = &[0x01];

#[test]
fn a_second_update_before_the_first_is_confirmed() {
    let mut duel = Duel::new(Role::Client);
    duel.hostile().force_key_update();
    duel.say(PING);
    assert_eq!(duel.victim().error(), None, "one update is fine");
    duel.hostile().force_key_update();
    duel.say(PING);
    duel.closed_with(
        Code::KEY_UPDATE_ERROR,
        None,
        "keys updated twice without confirmation",
    );
}

#[test]
fn new_keys_with_a_lower_number_than_old_ones() {
    let mut duel = Duel::new(Role::Client);
    let late = {
        duel.hostile().force_key_update();
        duel.forge(&Forgery::new(PacketKind::OneRtt, PING))
    };
    let newer = duel.forge(&Forgery::new(PacketKind::OneRtt, PING));
    // The newer packet first: the update. Then the older of the same keys: fine.
    duel.deliver(newer);
    duel.deliver(late);
    assert_eq!(duel.victim().error(), None);
    duel.still_serves();
}

/// Acknowledging, with old keys, what the victim sent with new ones: the peer
/// has them and did not move up (RFC 9001 §6.2).
#[test]
fn acknowledging_an_update_without_answering_it() {
    let mut duel = Duel::new(Role::Client);
    // Made before the victim's update reaches the hostile end, which would
    // answer it; the number it acknowledges is the victim's next.
    let now = duel.world.now;
    let next = duel.victim().stats(now).counters.packets_sent;
    duel.victim().update_keys(now).expect("an update");
    duel.victim().ping();
    let acks: Vec<_> = (0..next)
        .map(|number| {
            let payload = fields(&[kind::ACK, number, 0, 0, 0]);
            duel.forge(&Forgery::new(PacketKind::OneRtt, &payload))
        })
        .collect();
    duel.world.flush();
    for ack in acks {
        duel.deliver(ack);
        if duel.victim().error().is_some() {
            break;
        }
    }
    duel.closed_with(
        Code::KEY_UPDATE_ERROR,
        kind::ACK,
        "acknowledged packets with new keys in a packet with old keys",
    );
}

#[test]
fn forged_packets_beyond_the_integrity_limit() {
    let mut duel = Duel::new(Role::Client);
    duel.victim().set_integrity_limit(1000);
    let genuine = duel.forge(&Forgery::new(PacketKind::OneRtt, &[0x01; 40]));
    for i in 0..1000 {
        let mut forged = genuine.clone();
        *forged.last_mut().expect("a tag") ^= (i % 255 + 1) as u8;
        duel.deliver(forged);
        assert_eq!(duel.victim().error(), None, "after {i}");
    }
    let mut forged = genuine;
    *forged.last_mut().expect("a tag") ^= 1;
    duel.deliver(forged);
    duel.closed_with(
        Code::AEAD_LIMIT_REACHED,
        None,
        "integrity limit of the packet protection reached",
    );
}

/// The limit is the connection's, over all its keys (RFC 9001 §6.6).
#[test]
fn forged_handshake_packets_count_towards_the_integrity_limit() {
    for hostile in [Role::Client, Role::Server] {
        let mut duel = Duel::begun(hostile, |_| {});
        // The client is complete and the server is not: both have keys of both kinds.
        duel.world.run_for(Duration::from_millis(11));
        duel.victim().set_integrity_limit(20);
        for i in 0..=20 {
            assert_eq!(duel.victim().error(), None, "{hostile:?}, after {i}");
            let kind = [PacketKind::Handshake, PacketKind::OneRtt][i % 2];
            // The server opens no 1-RTT packet before the handshake is complete.
            let kind = match hostile {
                Role::Client => PacketKind::Handshake,
                Role::Server => kind,
            };
            let mut forged = duel.forge(&Forgery::new(kind, &[0x01; 40]));
            *forged.last_mut().expect("a tag") ^= 1;
            duel.deliver(forged);
        }
        duel.closed_with(
            Code::AEAD_LIMIT_REACHED,
            None,
            "integrity limit of the packet protection reached",
        );
    }
}

#[test]
fn the_same_packet_again_and_again_counts_once() {
    let mut duel = Duel::new(Role::Client);
    let packet = duel.forge(&Forgery::new(PacketKind::OneRtt, PING));
    let now = duel.world.now;
    let before = duel.victim().stats(now).counters.packets_received;
    for _ in 0..1000 {
        duel.deliver(packet.clone());
    }
    let after = duel.victim().stats(now).counters.packets_received;
    assert_eq!(after - before, 1);
    duel.still_serves();
}
