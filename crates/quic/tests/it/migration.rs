//! A client that moves, in virtual time.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{Setup, World, path};
use clearway_links::{Direction, Packet};
use clearway_quic::stream::{ReadError, StreamId, WriteError};

/// Round trips at a new address until content flows again: one for the
/// validation of both directions, one for what was lost, and time to send.
const PATIENCE: Duration = Duration::from_millis(100);

/// Lets the server write and the client read until it has `total` bytes.
fn download(world: &mut World, id: StreamId, read: &mut usize, total: usize, limit: Duration) {
    let done = world.run_until(limit, |world| {
        let server = world.server.connection();
        loop {
            match server.write(id, &[7; 16_384]) {
                Ok(_) => {}
                Err(WriteError::Blocked | WriteError::Unknown) => break,
                Err(error) => panic!("write: {error:?}"),
            }
        }
        loop {
            match world.client.connection().read_chunk(id, usize::MAX) {
                Ok(Some(chunk)) => *read += chunk.len(),
                Ok(None) => panic!("the stream has no end"),
                Err(ReadError::Blocked) => return *read >= total,
                Err(error) => panic!("read: {error:?}"),
            }
        }
    });
    assert!(done, "{read} of {total} bytes after {limit:?}");
}

/// Its host and therefore its own address, as far as it can see, stay the same:
/// only what the server sees tells the paths apart.
#[test]
fn another_port_of_the_same_host_costs_two_round_trips_and_no_probe_timeout() {
    let mut world = World::new(Setup::new(), path("rate=100M delay=5ms queue=250", 1), 1);
    world.handshake();
    let id = world.ask();
    let mut read = 0;
    download(&mut world, id, &mut read, 200_000, Duration::from_secs(1));

    let old = world.client.address;
    let new = SocketAddr::new(old.ip(), old.port() + 1);
    world.client.address = new;
    world.filter = Some(Box::new(
        move |direction: Direction, packet: &mut Packet| {
            direction == Direction::Up || packet.dst == new
        },
    ));
    let now = world.now;
    let moved = world.client.connection().migrate(now, Some(old.ip()));
    moved.expect("may migrate");
    let goal = read + 400_000;
    download(&mut world, id, &mut read, goal, PATIENCE);
    assert_eq!(world.server.connection().remote_address(), new);
}
