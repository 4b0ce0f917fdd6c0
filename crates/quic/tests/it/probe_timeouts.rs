//! What a probe timeout sends (RFC 9002 §6.2.4).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use clearway_links::Direction;
use clearway_testing::{Bulk, Setup, World, path};

const CLEAN: &str = "rate=20M delay=10ms queue=1000";

/// Returns how many datagrams the server sends at each time at which it sends, until `time` is over,
/// to a client that is silent from now on.
fn sent_in_silence(world: &mut World, time: Duration) -> Vec<usize> {
    let down = Rc::new(RefCell::new(0));
    let counted = down.clone();
    world.filter = Some(Box::new(move |direction, _| {
        *counted.borrow_mut() += usize::from(direction == Direction::Down);
        false
    }));
    let end = world.now + time;
    let mut bursts = Vec::new();
    while world.now < end {
        world.run_for(Duration::from_millis(1));
        let sent = std::mem::take(&mut *down.borrow_mut());
        if sent > 0 {
            bursts.push(sent);
        }
    }
    bursts
}

/// It costs the server one packet each time, not two: in a flood of handshakes there are thousands.
#[test]
fn client_that_abandons_its_handshake_is_probed_with_one_packet() {
    let mut world = World::new(Setup::new(), path(CLEAN, 1), 1);
    world.connect();
    let connected = world.run_until(Duration::from_secs(1), |world| {
        let connection = world.server.first();
        connection.is_some_and(|connection| connection.is_confirmed())
    });
    assert!(connected);
    let bursts = sent_in_silence(&mut world, Duration::from_secs(5));
    // What its confirmation had it send, then the probes.
    let probes = bursts.get(1..).expect("probes");
    assert!(probes.len() > 3, "{bursts:?}");
    assert!(probes.iter().all(|&sent| sent == 1), "{bursts:?}");
}

/// The loss of one probe does not cost another timeout.
#[test]
fn client_that_was_heard_is_probed_with_two_packets() {
    let mut world = World::new(Setup::new(), path(CLEAN, 1), 1);
    world.handshake();
    let mut transfer = Bulk::begin(&mut world);
    assert!(transfer.run_for(&mut world, Duration::from_millis(200)) > 0);
    let bursts = sent_in_silence(&mut world, Duration::from_secs(5));
    let probes = bursts.last_chunk::<3>().expect("probes");
    assert_eq!(probes, &[2; 3], "{bursts:?}");
}
