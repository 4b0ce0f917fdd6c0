//! The idle timeout (RFC 9000 §10.1).

use std::time::Duration;

use clearway_quic::connection::ConnectionError;
use clearway_testing::{Setup, World, download, path};

const AGREED: Duration = Duration::from_secs(1);

/// Creates a world after a handshake over a path whose PTO is longer than the negotiated idle timeout.
fn far_apart() -> World {
    let mut setup = Setup::new();
    setup.client.idle_timeout = AGREED;
    setup.server.idle_timeout = Duration::from_secs(20);
    let mut world = World::new(setup, path("rate=20M delay=400ms", 1), 1);
    world.handshake();
    world
}

/// Returns how long the client lives when it receives nothing more.
fn silence_until_the_end(world: &mut World) -> Duration {
    world.filter = Some(Box::new(|_, _| false));
    // What is on its way arrives, and is the last that does.
    while world.path.next_event().is_some() {
        world.step();
    }
    let cut = world.now;
    let ended = world.run_until(Duration::from_secs(60), |world| {
        world.client.connection().error().is_some()
    });
    assert!(ended, "alive after a minute of silence");
    assert!(
        matches!(
            world.client.connection().error(),
            Some(ConnectionError::IdleTimeout)
        ),
        "{:?}",
        world.client.connection().error()
    );
    world.now - cut
}

/// A timeout shorter than three PTOs would leave no time for a probe.
#[test]
fn idle_timeout_is_at_least_three_ptos() {
    let mut world = far_apart();
    let now = world.now;
    let rtt = world.client.connection().stats(now).min_rtt;
    let rtt = rtt.expect("a handshake was seen");
    assert!(rtt >= Duration::from_millis(800), "{rtt:?}");
    let lived = silence_until_the_end(&mut world);
    assert!(lived >= 3 * rtt, "{lived:?} at {rtt:?}");
    assert!(lived < Duration::from_secs(20), "{lived:?}");
}

/// The extension to three PTOs is for one period of silence. On a better path the negotiated timeout
/// applies again.
#[test]
fn extended_idle_timeout_shrinks_again_on_a_better_path() {
    let mut world = far_apart();
    // Longer than agreed, shorter than three PTOs.
    world.filter = Some(Box::new(|_, _| false));
    world.run_for(Duration::from_secs(2));
    assert!(world.client.connection().error().is_none());
    world.filter = None;
    world.path = path("rate=20M delay=5ms", 2);
    assert!(download(&mut world, 4_000_000, Duration::from_secs(30)));
    let lived = silence_until_the_end(&mut world);
    assert!(lived <= AGREED + Duration::from_millis(200), "{lived:?}");
}
