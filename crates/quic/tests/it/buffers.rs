//! Limits on what a connection buffers for the peer and for the application, changes of these limits, and
//! aborted connections.

use std::time::Duration;

use bytes::Bytes;
use clearway_links::Direction;
use clearway_quic::connection::ConnectionError;
use clearway_quic::error::{Code, TransportError};
use clearway_quic::stream::{Directionality, ReadError, StreamId, WriteError};

use clearway_testing::{Setup, World, path};

const LINK: &str = "rate=100M delay=5ms queue=1000";
const BIDI: Directionality = Directionality::Bidirectional;

fn world(change: impl FnOnce(&mut Setup)) -> World {
    let mut setup = Setup::new();
    change(&mut setup);
    let mut world = World::new(setup, path(LINK, 1), 1);
    world.handshake();
    world.run_for(Duration::from_secs(1));
    world
}

/// Writes to `id` until the connection takes no more; answers how much it took.
fn fill(world: &mut World, id: StreamId) -> usize {
    let server = world.server.connection();
    let mut taken = 0;
    loop {
        match server.write(id, &[7; 32 << 10]) {
            Ok(len) => taken += len,
            Err(WriteError::Blocked) => return taken,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The client asks on as many streams as it may; answers those the server accepted.
fn requests(world: &mut World) -> Vec<StreamId> {
    while let Some(id) = world.client.connection().open(BIDI) {
        world.client.connection().write(id, b"?").expect("writes");
    }
    world.run_for(Duration::from_secs(1));
    let server = world.server.connection();
    core::iter::from_fn(|| server.accept(BIDI)).collect()
}

#[test]
fn writers_block_soon_while_max_data_is_zero() {
    let mut world = world(|setup| {
        setup.client.streams.connection_window = 0;
        setup.client.streams.stream_window = 16 << 20;
    });
    let ids = requests(&mut world);
    assert_eq!(ids.len(), 100);
    let taken: usize = ids.iter().map(|&id| fill(&mut world, id)).sum();
    assert!(taken > 0);
    // 64 KiB for all, and 4 KiB of its own for each.
    assert!(taken <= (64 << 10) + 100 * (4 << 10), "{taken} bytes");
    world.run_for(Duration::from_secs(1));
    let buffered = world.server.connection().buffered();
    assert!(buffered <= 2 * taken + (64 << 10), "{buffered} bytes");
}

#[test]
fn writers_resume_when_max_data_arrives() {
    let mut world = world(|setup| {
        // Less than what waits beyond it, so that every grant finds data ready.
        setup.client.streams.connection_window = 20_000;
        setup.client.streams.receive_budget = 20_000;
        setup.client.streams.stream_window = 20_000;
    });
    assert!(clearway_testing::download(
        &mut world,
        1_000_000,
        Duration::from_secs(30)
    ));
}

#[test]
fn send_limit_bounds_unacknowledged_data() {
    const LIMIT: usize = 300_000;
    let mut world = world(|setup| {
        setup.server.streams.send_limit = LIMIT as u64;
        setup.client.streams.connection_window = 32 << 20;
        setup.client.streams.stream_window = 32 << 20;
    });
    let ids = requests(&mut world);
    // Nothing comes back any more.
    world.filter = Some(Box::new(|direction, _| direction == Direction::Down));
    let mut taken: usize = ids.iter().map(|&id| fill(&mut world, id)).sum();
    for _ in 0..10 {
        world.run_for(Duration::from_millis(200));
        taken += ids.iter().map(|&id| fill(&mut world, id)).sum::<usize>();
    }
    assert_eq!(taken, LIMIT);
}

#[test]
fn small_send_limit_still_delivers_everything() {
    for limit in [1, 1_000, 16 << 10, 100_000] {
        let mut world = world(|setup| setup.server.streams.send_limit = limit);
        let total = (limit as usize * 40).min(1_000_000);
        assert!(
            clearway_testing::download(&mut world, total, Duration::from_secs(60)),
            "{limit} bytes"
        );
    }
}

#[test]
fn limit_buffers_bounds_and_releases_writers_of_live_connection() {
    let mut world = world(|_| {});
    let ids = requests(&mut world);
    world.server.connection().limit_buffers(usize::MAX, 50_000);
    world.filter = Some(Box::new(|direction, _| direction == Direction::Down));
    let taken: usize = ids.iter().map(|&id| fill(&mut world, id)).sum();
    assert_eq!(taken, 50_000);
    world.server.app.events.clear();
    world
        .server
        .connection()
        .limit_buffers(usize::MAX, usize::MAX);
    world.flush();
    let told = world.server.app.events.values().flatten().count();
    assert!(told > 0, "writers are told that there is room");
    let more: usize = ids.iter().map(|&id| fill(&mut world, id)).sum();
    assert!(more >= 500_000, "{more} bytes more");
    world.filter = None;
}

/// The client writes as much as it may; answers the bytes that it ever sent.
fn push(world: &mut World, id: StreamId) -> u64 {
    for _ in 0..20 {
        let client = world.client.connection();
        while matches!(client.write(id, &[1; 32 << 10]), Ok(1..)) {}
        world.run_for(Duration::from_millis(50));
    }
    world.server.connection().buffered() as u64
}

#[test]
fn limit_buffers_stops_new_credit_and_revokes_none() {
    let mut world = world(|_| {});
    let granted = Setup::new().server.streams.stream_window;
    let id = world.ask();
    world.server.connection().limit_buffers(0, usize::MAX);
    // All that was granted may still be sent, and the connection lives.
    assert!(push(&mut world, id) >= granted);
    assert_eq!(world.server.connection().error(), None);
    // Reading it grants nothing more …
    let server = world.server.connection();
    let mut read = 0;
    while let Ok(Some(chunk)) = server.read_chunk(id, usize::MAX) {
        read += chunk.len() as u64;
    }
    assert_eq!(read, granted);
    assert!(push(&mut world, id) < 1_000);
    // … until the bound is lifted.
    world
        .server
        .connection()
        .limit_buffers(usize::MAX, usize::MAX);
    world.run_for(Duration::from_secs(1));
    assert!(push(&mut world, id) >= granted / 2);
    world.check();
}

#[test]
fn limit_buffers_keeps_grown_window_small() {
    const BOUND: u64 = 100_000;
    let mut world = world(|_| {});
    let id = world.ask();
    // Read along until windows have grown.
    for _ in 0..200 {
        let client = world.client.connection();
        while matches!(client.write(id, &[1; 32 << 10]), Ok(1..)) {}
        world.run_for(Duration::from_millis(10));
        let server = world.server.connection();
        while let Ok(Some(_)) = server.read_chunk(id, usize::MAX) {}
    }
    world
        .server
        .connection()
        .limit_buffers(BOUND as usize, usize::MAX);
    // What was granted before is used up first.
    for _ in 0..100 {
        push(&mut world, id);
        let server = world.server.connection();
        while let Ok(Some(_)) = server.read_chunk(id, usize::MAX) {}
    }
    let held = push(&mut world, id);
    assert!((BOUND / 2..=2 * BOUND).contains(&held), "{held} bytes");
}

#[test]
fn last_activity_counts_stream_data_and_datagrams_but_not_pings() {
    let mut world = world(|_| {});
    let began = world.server.connection().last_activity();
    world.client.connection().ping();
    world.run_for(Duration::from_secs(1));
    world.server.connection().ping();
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.server.connection().last_activity(), began);

    let before = world.now;
    let id = world.ask();
    world.run_for(Duration::from_secs(1));
    let received = world.server.connection().last_activity();
    assert!(received > before);
    // The acknowledgement counts at the other end.
    assert!(world.client.connection().last_activity() > before);

    let server = world.server.connection();
    server.accept(BIDI);
    server.write(id, b"answer").expect("writes");
    world.run_for(Duration::from_secs(1));
    let answered = world.server.connection().last_activity();
    assert!(answered > received);

    world
        .client
        .connection()
        .send_datagram(Bytes::from_static(b"hello"))
        .expect("room");
    world.run_for(Duration::from_secs(1));
    assert!(world.server.connection().last_activity() > answered);
}

#[test]
fn client_has_acknowledged_something_once_it_answers_the_end_of_the_handshake() {
    let mut world = World::new(Setup::new(), path("rate=20M delay=10ms queue=1000", 1), 1);
    world.connect();
    let connected = world.run_until(Duration::from_secs(1), |world| {
        let connection = world.server.first();
        connection.is_some_and(|connection| connection.is_confirmed())
    });
    assert!(connected);
    assert!(!world.server.connection().has_been_acknowledged());
    world.run_for(Duration::from_millis(100));
    assert!(world.server.connection().has_been_acknowledged());
}

#[test]
fn abort_sends_close_and_keeps_only_closing_state() {
    let mut world = world(|_| {});
    let ids = requests(&mut world);
    for &id in &ids {
        fill(&mut world, id);
    }
    world
        .client
        .connection()
        .send_datagram(Bytes::from(vec![0; 1_000]))
        .expect("room");
    world.run_for(Duration::from_millis(20));
    assert!(world.server.connection().buffered() > 500_000);

    let now = world.now;
    let error = TransportError::new(Code::INTERNAL_ERROR, "out of memory: try again later");
    world.server.connection().abort(now, error.clone());
    let server = world.server.connection();
    assert_eq!(server.buffered(), 0);
    let memory = server.memory_usage();
    assert!(memory.total() < memory.fixed + 4_096, "{memory:?}");
    assert_eq!(
        server.error(),
        Some(&ConnectionError::Transport(error.clone()))
    );
    assert_eq!(server.write(ids[0], b"x"), Err(WriteError::Unknown));
    assert_eq!(server.read(ids[0], &mut [0]), Err(ReadError::Unknown));
    assert_eq!(server.open(BIDI), None);

    world.run_for(Duration::from_millis(50));
    assert_eq!(
        world.client.connection().error(),
        Some(&ConnectionError::PeerTransport(error))
    );
    world.run_for(Duration::from_secs(5));
    assert!(world.server.connection().is_drained());
    assert!(world.server.endpoint.is_empty());
}

#[test]
fn ended_connection_without_an_application_keeps_little() {
    for peer_closes in [false, true] {
        let mut world = world(|_| {});
        let ids = requests(&mut world);
        for &id in &ids {
            fill(&mut world, id);
        }
        world.run_for(Duration::from_millis(20));
        world.server.connection().release_ended();
        let server = world.server.connection();
        assert!(server.buffered() > 500_000, "it is open");

        let now = world.now;
        let closing = if peer_closes {
            &mut world.client
        } else {
            &mut world.server
        };
        closing.connection().close(now, 7, b"enough");
        world.run_for(Duration::from_millis(15));
        world.server.connection().release_ended();
        let server = world.server.connection();
        assert!(server.error().is_some());
        let memory = server.memory_usage();
        assert!(memory.total() < memory.fixed + 4_096, "{memory:?}");
        assert_eq!(server.read(ids[0], &mut [0]), Err(ReadError::Unknown));

        world.run_for(Duration::from_millis(50));
        assert!(world.client.connection().error().is_some());
        world.run_for(Duration::from_secs(5));
        assert!(world.server.endpoint.is_empty() && world.client.endpoint.is_empty());
    }
}

/// In every phase of the handshake, and when it has ended already.
#[test]
fn abort_works_in_any_state() {
    for micros in (0..40_000).step_by(1_000) {
        let mut world = World::new(Setup::new(), path(LINK, 1), 1);
        world.connect();
        world.run_for(Duration::from_micros(micros));
        let now = world.now;
        for host in [&mut world.client, &mut world.server] {
            for connection in host.connections.values_mut() {
                for _ in 0..2 {
                    let error = TransportError::new(Code::INTERNAL_ERROR, "aborted");
                    connection.abort(now, error);
                    assert_eq!(connection.buffered(), 0);
                }
            }
        }
        world.run_for(Duration::from_secs(60));
        for host in [&world.client, &world.server] {
            assert!(host.endpoint.is_empty(), "after {micros} µs");
        }
    }
}
