//! Careful Resume (RFC 9959): what a client's token says of the path, and who may use it.

use std::time::Duration;

use clearway_quic::connection::CarefulResume;
use clearway_testing::{Setup, World, download, path, server_id};

/// 625 kB in a round trip of 50 ms.
const PATH: &str = "rate=100M delay=25ms queue=400";

fn setup(resume: Option<CarefulResume>) -> Setup {
    let mut setup = Setup::new();
    setup.server.careful_resume = resume;
    setup
}

/// A world after a first connection, which downloaded ten megabytes.
fn visited(setup: Setup, seed: u64) -> World {
    let mut world = World::new(setup, path(PATH, seed), seed);
    world.handshake();
    assert!(download(&mut world, 10_000_000, Duration::from_secs(30)));
    leave(&mut world);
    world
}

fn leave(world: &mut World) {
    let now = world.now;
    world.client.connection().close(now, 0, b"");
    world.run_for(Duration::from_secs(2));
}

/// How long a megabyte takes on another connection.
fn next_visit(world: &mut World) -> Duration {
    world.handshake();
    let begin = world.now;
    assert!(download(world, 1_000_000, Duration::from_secs(10)));
    let took = world.now - begin;
    leave(world);
    took
}

/// The same without Careful Resume.
fn ordinary(seed: u64) -> Duration {
    next_visit(&mut visited(setup(None), seed))
}

#[test]
fn second_connection_begins_with_what_the_first_one_measured() {
    let mut world = visited(setup(Some(CarefulResume::default())), 1);
    let (resumed, ordinary) = (next_visit(&mut world), ordinary(1));
    let saved = ordinary.saturating_sub(resumed);
    assert!(
        saved > Duration::from_millis(100),
        "{resumed:?} instead of {ordinary:?}, two round trips less at least"
    );
    // What the second connection measured serves the third.
    let third = next_visit(&mut world);
    assert!(third <= resumed + Duration::from_millis(50), "{third:?}");
}

#[test]
fn path_is_resumed_by_another_server_with_the_same_key() {
    let mut world = visited(setup(Some(CarefulResume::default())), 2);
    world.restart_server(99);
    let resumed = next_visit(&mut world);
    assert!(resumed + Duration::from_millis(100) < ordinary(2));
}

#[test]
fn path_to_another_address_is_not_resumed() {
    let mut world = visited(setup(Some(CarefulResume::default())), 3);
    world.client.address = "10.9.9.9:5000".parse().expect("an address");
    let took = next_visit(&mut world);
    assert!(took + Duration::from_millis(20) > ordinary(3), "{took:?}");
}

/// Behind a trusted address are many clients.
#[test]
fn path_to_a_trusted_source_is_not_resumed() {
    let mut setup = setup(Some(CarefulResume::default()));
    setup.limits.trusted = vec!["10.0.0.0/8".parse().expect("a network")];
    let took = next_visit(&mut visited(setup, 4));
    assert!(took + Duration::from_millis(20) > ordinary(4), "{took:?}");
}

#[test]
fn path_is_resumed_within_the_lifetime_only() {
    let ordinary = ordinary(5);
    for (age, resumes) in [(40, true), (70, false)] {
        let resume = CarefulResume {
            lifetime: Duration::from_secs(60),
            ..CarefulResume::default()
        };
        let mut world = visited(setup(Some(resume)), 5);
        world.run_for(Duration::from_secs(age));
        // The clock stands still where nothing happens.
        let missing =
            Duration::from_secs(age + 2).saturating_sub(world.now - clearway_quic::Instant::ZERO);
        world.now += missing;
        let took = next_visit(&mut world);
        let faster = took + Duration::from_millis(100) < ordinary;
        assert_eq!(faster, resumes, "after {age} s: {took:?} of {ordinary:?}");
    }
}

#[test]
fn largest_jump_bounds_what_is_resumed() {
    let resume = CarefulResume {
        max_jump: 20_000,
        ..CarefulResume::default()
    };
    let took = next_visit(&mut visited(setup(Some(resume)), 6));
    assert!(took + Duration::from_millis(20) > ordinary(6), "{took:?}");
}

/// RFC 9959 §3.2: the first connection sent several tokens, each with a newer measurement.
#[test]
fn one_measurement_is_resumed_once() {
    let world = &mut visited(setup(Some(CarefulResume::default())), 8);
    let stored = world.setup.sessions.stored(&server_id()).tokens;
    assert!(stored > 2, "{stored} tokens");
    // Both connections take their tokens before there is a newer one.
    world.connect();
    world.connect();
    world.run_for(Duration::from_secs(1));
    // The newest connection has the older token.
    let begin = world.now;
    assert!(download(world, 1_000_000, Duration::from_secs(10)));
    let took = world.now - begin;
    assert!(took + Duration::from_millis(20) > ordinary(8), "{took:?}");
}

/// A path that lost nine tenths of its rate: the jump fails, and the third connection begins with
/// what the second one measured.
#[test]
fn failed_resumption_is_not_repeated() {
    let mut world = visited(setup(Some(CarefulResume::default())), 7);
    world.path = path("rate=10M delay=25ms queue=60", 7);
    let lost = |world: &mut World| {
        world.handshake();
        assert!(download(world, 2_000_000, Duration::from_secs(30)));
        let stats = world.server.connection().stats(world.now);
        leave(world);
        stats.counters.packets_lost
    };
    let (second, third) = (lost(&mut world), lost(&mut world));
    assert!(second > 60, "the jump overflows the queue: {second} lost");
    assert!(third < second, "{third} lost, after {second}");
}
