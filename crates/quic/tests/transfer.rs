//! Handshake and transfer between two endpoints of ours, in virtual time.

mod common;

use std::time::Duration;

use clearway_quic::connection::Event;
use clearway_quic::stream::{Directionality, ReadError, WriteError};
use common::{Setup, World, path};

#[test]
fn handshake_over_a_clean_path() {
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

/// Downloads `total` bytes on one stream and checks every one of them.
fn download(world: &mut World, total: usize, limit: Duration) -> bool {
    let id = world
        .client
        .connection()
        .open(Directionality::Bidirectional)
        .expect("a stream");
    world.client.connection().write(id, b"go").expect("writes");
    world.client.connection().finish(id).expect("finishes");
    let (mut written, mut read, mut accepted) = (0, 0, None);
    world.run_until(limit, |world| {
        let server = world.server.connection();
        accepted = accepted.or_else(|| server.accept(Directionality::Bidirectional));
        if let Some(id) = accepted {
            while written < total {
                let piece: Vec<u8> = (written..total.min(written + 65_536))
                    .map(|i| i as u8)
                    .collect();
                match server.write(id, &piece) {
                    Ok(n) => written += n,
                    Err(WriteError::Blocked) => break,
                    Err(error) => panic!("write: {error:?}"),
                }
                if written == total {
                    server.finish(id).expect("finishes");
                }
            }
        }
        let client = world.client.connection();
        loop {
            match client.read_chunk(id, usize::MAX) {
                Ok(Some(chunk)) => {
                    for byte in chunk {
                        assert_eq!(byte, read as u8, "at {read}");
                        read += 1;
                    }
                }
                Ok(None) => return true,
                Err(ReadError::Blocked) => return false,
                Err(error) => panic!("read: {error:?}"),
            }
        }
    }) && read == total
}

#[test]
fn ten_megabytes_at_line_rate() {
    let mut world = World::new(Setup::new(), path("rate=100M delay=5ms queue=250", 1), 1);
    world.handshake();
    let begin = world.now;
    assert!(download(&mut world, 10_000_000, Duration::from_secs(5)));
    let seconds = (world.now - begin).as_secs_f64();
    let rate = 80.0 / seconds;
    assert!(rate > 85.0, "{rate:.1} Mbit/s of 100");
}

#[test]
fn ten_megabytes_under_loss_both_ways() {
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
            .events
            .values()
            .flatten()
            .any(|event| matches!(event, Event::Closed(_)))
    );
}
