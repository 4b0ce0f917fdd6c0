//! Abuse of closing and draining connections (RFC 9000 §10).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_links::Direction;
use clearway_quic::Role;
use clearway_quic::connection::{ConnectionError, Forgery};
use clearway_quic::crypto::ResetKey;
use clearway_quic::wire::PacketKind;

use crate::hostile::pair::{HostilePair, LINK, first_flight, metered_world};
use clearway_testing::Setup;

/// CONNECTION_CLOSE of type 0x1c, without an error.
const CLOSE: &[u8] = &[0x1c, 0, 0, 0];

#[test]
fn closing_connection_answers_at_decreasing_rate() {
    let mut pair = HostilePair::new(Role::Client);
    let flood: Vec<_> = (0..1000)
        .map(|_| pair.forge(&Forgery::new(PacketKind::OneRtt, &[0x01])))
        .collect();
    let now = pair.world.now;
    pair.victim().close(now, 1, b"enough");
    pair.world.flush();
    let before = pair.victim().stats(now).counters.datagrams_sent;
    for packet in flood {
        pair.deliver(packet);
        pair.world.flush();
    }
    let answers = pair.victim().stats(now).counters.datagrams_sent - before;
    assert!((1..=10).contains(&answers), "{answers} answers to 1000");
}

/// An address that is not validated leaves so little credit that no close fits
/// into it: 64 to 69 bytes, with the longest connection IDs and their headers.
/// Whoever sends a few bytes more to a server that has used up its credit makes
/// it so; then the server's application closes.
#[test]
fn close_within_any_amplification_credit() {
    for extra in 0..40 {
        let mut setup = Setup::new();
        setup.cid_len = 20;
        let mut world = metered_world(setup, LINK, Role::Server);
        let flight = first_flight(&mut world);
        let sums = Arc::new(Mutex::new((0, 0)));
        let seen = sums.clone();
        world.filter = Some(Box::new(move |direction, packet| {
            if direction == Direction::Down {
                seen.lock().expect("one thread").1 += packet.data.len();
            }
            false
        }));
        let mut stray = flight[0].clone();
        for packet in flight {
            sums.lock().expect("one thread").0 += packet.data.len();
            world.deliver(Direction::Up, packet);
        }
        // Probes use up what the handshake leaves of the credit.
        world.run_for(Duration::from_secs(20));
        let server = world.server.connection();
        let mut short = vec![0x40];
        short.extend_from_slice(&server.local_cid());
        short.resize(21 + extra, 0);
        sums.lock().expect("one thread").0 += short.len();
        stray.data = short;
        world.deliver(Direction::Up, stray);
        world.flush();
        let now = world.now;
        world.server.connection().close(now, 7, &[b'x'; 2000]);
        world.flush();
        assert!(world.server.connection().error().is_some());
        let (received, sent) = *sums.lock().expect("one thread");
        assert!(sent <= 3 * received, "{sent} for {received}");
        assert!(
            sent > 2 * received,
            "the credit is not used up: {sent} of {received}"
        );
    }
}

#[test]
fn draining_connection_answers_nothing() {
    let mut pair = HostilePair::new(Role::Client);
    let flood: Vec<_> = (0..100)
        .map(|_| pair.forge(&Forgery::new(PacketKind::OneRtt, CLOSE)))
        .collect();
    let now = pair.world.now;
    let before = pair.victim().stats(now).counters.datagrams_sent;
    for packet in flood {
        pair.deliver(packet);
        pair.world.flush();
    }
    let after = pair.victim().stats(now).counters.datagrams_sent;
    assert_eq!(after, before, "draining is silent");
    pair.world.run_for(Duration::from_secs(3));
    assert!(pair.victim().is_drained());
    assert!(pair.world.server.endpoint.is_empty(), "routes remain");
}

/// Frames after a CONNECTION_CLOSE in the same packet have no effect.
#[test]
fn frames_after_connection_close_are_ignored() {
    let mut pair = HostilePair::new(Role::Client);
    let mut payload = CLOSE.to_vec();
    payload.extend([0x20; 10]);
    pair.say(&payload);
    assert!(matches!(
        pair.victim().error(),
        Some(ConnectionError::PeerTransport(_))
    ));
}

#[test]
fn forged_stateless_reset_is_ignored() {
    let mut pair = HostilePair::new(Role::Server);
    let cid = pair.victim().local_cid();
    let token = ResetKey::new(&[8; 32]).token(&cid);
    for last in [token.0, [0; 16], [0xff; 16]] {
        let mut reset = vec![0x40; 40];
        reset[1..=cid.len()].copy_from_slice(&cid);
        reset[24..].copy_from_slice(&last);
        pair.deliver(reset);
        assert_eq!(pair.victim().error(), None);
    }
    pair.still_serves();
}

/// The same datagram with the genuine token ends the connection, so the reset in the test above is well
/// formed.
#[test]
fn genuine_stateless_reset_ends_connection() {
    let mut pair = HostilePair::new(Role::Server);
    let (ours, servers) = (pair.victim().local_cid(), pair.hostile().local_cid());
    let token = ResetKey::new(&[9; 32]).token(&servers);
    let mut reset = vec![0x40; 40];
    reset[1..=ours.len()].copy_from_slice(&ours);
    reset[24..].copy_from_slice(&token.0);
    pair.deliver(reset);
    assert_eq!(
        pair.victim().error(),
        Some(&ConnectionError::StatelessReset)
    );
}
