//! Credit where the receiver's packets get lost: no window has to be set for full
//! speed, and acknowledgements that suffice for recovery suffice for credit.

mod common;

use std::time::Duration;

use clearway_links::{Direction, LinkConfig, Path};
use clearway_recovery::limit::Limit;
use common::bulk::Bulk;
use common::{Setup, World};

/// 50 Mbit/s, 40 ms, one bandwidth-delay product of queue.
const LINK: &str = "rate=50M delay=20ms queue=250KB";

fn link() -> LinkConfig {
    LINK.parse().expect("a link")
}

/// Part of the link that a download uses in ten seconds when `keeps` decides on
/// the client's datagrams, by number and size.
fn utilisation(mut keeps: impl FnMut(u64, usize) -> bool + 'static) -> f64 {
    let path = Path::new(link(), link(), 1);
    let mut world = World::new(Setup::new(), path, 1);
    world.handshake();
    let mut count = 0;
    world.filter = Some(Box::new(move |direction, packet| {
        if direction == Direction::Down {
            return true;
        }
        count += 1;
        keeps(count, packet.data.len())
    }));
    let mut bulk = Bulk::begin(&mut world);
    bulk.run_for(&mut world, Duration::from_secs(2));
    let read = bulk.run_for(&mut world, Duration::from_secs(10));
    let server = world.server.connection();
    assert!(server.error().is_none());
    read as f64 * 8.0 / 10.0 / 50e6
}

#[test]
fn a_path_that_loses_nothing() {
    let share = utilisation(|_, _| true);
    assert!(share > 0.9, "{share:.3}");
}

#[test]
fn every_second_packet_of_the_receiver_is_lost() {
    let mut state = 7_u32;
    let share = utilisation(move |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 31 == 0
    });
    assert!(share > 0.86, "{share:.3}");
}

#[test]
fn one_small_packet_of_the_receiver_in_ten_arrives() {
    let mut small = 0;
    let share = utilisation(move |_, size| {
        small += u64::from(size <= 150);
        size > 150 || small % 10 == 1
    });
    assert!(share > 0.85, "{share:.3}");
}

/// Everything the receiver says in 100 ms of each second is lost.
#[test]
fn the_receiver_falls_silent_for_a_while() {
    let share = utilisation(|count, _| count % 1_000 >= 100);
    assert!(share > 0.8, "{share:.3}");
}

/// 1 Gbit/s × 100 ms: 12.5 MB in flight, 24 times the first window.
#[test]
fn windows_grow_ahead_of_the_congestion_window() {
    let link: LinkConfig = "rate=1G delay=50ms queue=12500KB".parse().expect("a link");
    let path = Path::new(link.clone(), link, 1);
    let mut world = World::new(Setup::new(), path, 1);
    world.handshake();
    let mut bulk = Bulk::begin(&mut world);
    bulk.run_for(&mut world, Duration::from_secs(3));
    let held: Duration = world
        .server
        .connection()
        .stats(world.now)
        .limits
        .iter()
        .filter(|(limit, _)| {
            matches!(
                limit,
                Limit::StreamFlowControl | Limit::ConnectionFlowControl
            )
        })
        .map(|&(_, time)| time)
        .sum();
    assert_eq!(held, Duration::ZERO, "credit held the sender up");
}
