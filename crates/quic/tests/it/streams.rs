//! Very many tiny streams: the cost of each does not depend on their number.

use std::time::Duration;

use clearway_quic::connection::{Connection, Event};
use clearway_quic::stream::{Directionality, ReadError, StreamEvent, StreamId};
use clearway_testing::{Setup, World, path};

/// Reads what there is; true at the end of the stream.
fn ends(connection: &mut Connection, id: StreamId) -> bool {
    loop {
        match connection.read(id, &mut [0; 8]) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(ReadError::Blocked) => return false,
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn say(connection: &mut Connection, id: StreamId) {
    connection.write(id, b"x").expect("room for a byte");
    connection.finish(id).expect("open");
}

/// What so many requests of a byte cost.
#[derive(Debug)]
struct Cost {
    datagrams: u64,
    steps: u64,
    took: Duration,
    /// Of both ends, while all streams are open, bytes.
    peak: usize,
    /// Of both ends, after the last has ended, bytes.
    left: usize,
}

/// `total` requests of a byte, answered by a byte, `parallel` at a time.
fn requests(total: u64, parallel: u64) -> Cost {
    let mut setup = Setup::new();
    setup.server.streams.max_bidi_streams = parallel;
    let mut world = World::new(setup, path("rate=1G delay=5ms", 1), 1);
    world.handshake();
    let (start, steps) = (world.now, world.steps);
    let (mut asked, mut answered, mut peak) = (0, 0, 0);
    let memory = |world: &World| world.client.memory() + world.server.memory();
    let done = world.run_until(Duration::from_secs(60), |world| {
        let client = world.client.connection();
        while asked < total && asked - answered < parallel {
            let openable = client.openable(Directionality::Bidirectional);
            let Some(id) = client.open(Directionality::Bidirectional) else {
                assert_eq!(openable, 0);
                break;
            };
            assert!(openable > 0);
            say(client, id);
            asked += 1;
        }
        for (_, events) in std::mem::take(&mut world.server.app.events) {
            let server = world.server.connection();
            for event in events {
                match event {
                    Event::Stream(StreamEvent::Readable(id)) if ends(server, id) => {
                        say(server, id);
                    }
                    Event::Stream(StreamEvent::Opened(directionality)) => {
                        while server.accept(directionality).is_some() {}
                    }
                    _ => {}
                }
            }
        }
        for (_, events) in std::mem::take(&mut world.client.app.events) {
            let client = world.client.connection();
            for event in events {
                if let Event::Stream(StreamEvent::Readable(id)) = event {
                    answered += u64::from(ends(client, id));
                }
            }
        }
        peak = peak.max(memory(world));
        answered == total
    });
    assert!(done, "{answered} of {total} after a minute");
    let took = world.now.saturating_since(start);
    world.run_for(Duration::from_secs(1));
    let now = world.now;
    let datagrams = [world.client.connection(), world.server.connection()]
        .map(|connection| connection.stats(now).counters.datagrams_sent);
    Cost {
        datagrams: datagrams.iter().sum(),
        steps: world.steps - steps,
        took,
        peak,
        left: memory(&world),
    }
}

#[test]
fn cost_per_stream_is_constant_up_to_100000_streams() {
    let (few, many) = (requests(1_000, 1_000), requests(100_000, 65_535));
    for (cost, total, parallel) in [(&few, 1_000, 1_000), (&many, 100_000, 65_535)] {
        // A hundred requests or answers a datagram are few: each takes a dozen bytes.
        assert!(cost.datagrams <= total * 2 / 50, "{cost:?}");
        assert!(cost.steps <= total * 2 / 50, "{cost:?}");
        assert!(cost.peak <= parallel * 3_000, "{cost:?}");
        assert!(cost.left <= 512 << 10, "{cost:?}");
    }
    assert!(many.took <= 20 * few.took, "{few:?} {many:?}");
}

/// What the client has to send now: of each train, its bytes and its datagrams' size.
fn trains(world: &mut World) -> Vec<(usize, Option<usize>)> {
    let mut buffer = vec![0; 65_536];
    let client = world.client.connection();
    let train = || client.transmit(world.now, &mut buffer, 64);
    std::iter::from_fn(train)
        .map(|train| (train.len, train.segment))
        .collect()
}

/// Requests that no datagram holds a whole number of leave in a train all the same: a
/// datagram that others follow is filled up, and the last of them is not.
#[test]
fn small_requests_leave_in_one_train() {
    const REQUESTS: usize = 35;
    // Whatever a datagram's room leaves of them: a part that may be split off, or none.
    for length in 48..64 {
        let mut world = World::new(Setup::new(), path("rate=1G delay=5ms", 1), 1);
        world.handshake();
        world.run_for(Duration::from_secs(1));
        let client = world.client.connection();
        for _ in 0..REQUESTS {
            let id = client.open(Directionality::Bidirectional).expect("room");
            client.write(id, &[7; 64][..length]).expect("room for it");
            client.finish(id).expect("open");
        }
        let trains = trains(&mut world);
        let [(len, Some(size))] = trains[..] else {
            panic!("{length} bytes each: not one train: {trains:?}");
        };
        assert!(size < len && len < 2 * size, "{trains:?}");
        // Data and at most 6 bytes of header each, two packets' headers and tags, and
        // what the first is filled up with.
        assert!(
            len <= REQUESTS * (length + 6) + 2 * 40 + 48,
            "{length}: {trains:?}"
        );
    }
}
