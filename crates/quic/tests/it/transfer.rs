//! Handshake and transfer between two endpoints of ours, in virtual time.

use std::time::Duration;

use clearway_quic::connection::Event;
use clearway_testing::{Setup, World, download, path};

#[test]
fn handshake_completes_on_clean_path() {
    let mut world = World::new(Setup::new(), path("rate=100M delay=5ms queue=250", 1), 1);
    world.handshake();
    let client = world.client.connection();
    assert_eq!(client.alpn(), Some(&b"test"[..]));
    assert!(!client.is_handshaking());
    assert!(
        world.now.as_nanos() < 40_000_000,
        "three one-way trips: {:?}",
        world.now
    );
}

#[test]
fn ten_megabytes_arrive_at_line_rate() {
    let mut world = World::new(Setup::new(), path("rate=100M delay=5ms queue=250", 1), 1);
    world.handshake();
    let begin = world.now;
    assert!(download(&mut world, 10_000_000, Duration::from_secs(5)));
    let seconds = (world.now - begin).as_secs_f64();
    let rate = 80.0 / seconds;
    assert!(rate > 85.0, "{rate:.1} Mbit/s of 100");
}

#[test]
fn ten_megabytes_arrive_under_loss_both_ways() {
    let mut world = World::new(
        Setup::new(),
        path("rate=100M delay=5ms queue=250 loss=2%", 1),
        3,
    );
    world.handshake();
    assert!(download(&mut world, 10_000_000, Duration::from_secs(60)));
    let server = world.server.connection();
    assert!(server.error().is_none());
    assert!(
        !world
            .client
            .app
            .events
            .values()
            .flatten()
            .any(|event| matches!(event, Event::Closed(_)))
    );
}
