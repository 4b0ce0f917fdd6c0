//! The memory that a connection allocates and releases.

use super::harness::{Bench, Fixed, PATH, at};
use crate::{PathId, PathRecovery, Space};

fn memory(bench: &Bench) -> usize {
    bench.recovery.memory(|_| 0)
}

#[test]
fn memory_of_a_path_includes_controller_and_events() {
    let mut bench = Bench::new();
    let idle = memory(&bench);
    let path = size_of::<PathRecovery>() + size_of::<Fixed>();
    assert!((path..=2 * path).contains(&idle), "{idle} of {path}");
    let events = &mut bench.recovery.paths[0].events;
    events.on_lost(3, 10);
    let more = events.memory();
    assert!(more > 0);
    assert_eq!(memory(&bench), idle + more);
}

#[test]
fn memory_in_flight_includes_packet_contents() {
    let mut bench = Bench::sampled(100);
    let idle = memory(&bench);
    bench.send_many(100, 1000);
    let busy = memory(&bench);
    assert!(busy >= idle + 100 * size_of::<(Space, u64)>());
    assert_eq!(bench.recovery.memory(|_| 500), busy + 50_000);
}

#[test]
fn quiet_connection_releases_its_memory() {
    let mut bench = Bench::sampled(100);
    let idle = memory(&bench);
    bench.send_many(5_000, 1000);
    for _ in 0..100 {
        bench.send_ack_only(1000);
    }
    bench.ack(1..=5_000, 1100);
    assert!(memory(&bench) > idle);
    bench.recovery.release_memory();
    assert!(memory(&bench) <= idle, "{} of {idle}", memory(&bench));
    // Afterwards it works as before.
    bench.send(1200);
    bench.ack(5_101..=5_101, 1300);
    assert_eq!(bench.acked(), [5_101]);
}

#[test]
fn memory_of_lost_packets_is_released() {
    let mut bench = Bench::sampled(100);
    bench.send_many(1_000, 1000);
    bench.ack(1_000..=1_000, 1100);
    assert_eq!(bench.lost().len(), 997);
    let remembering = memory(&bench);
    bench.recovery.discard_space(Space::Handshake, at(1100));
    bench.ack(1..=999, 1101);
    bench.recovery.release_memory();
    assert!(memory(&bench) < remembering / 2);
    assert_eq!(bench.recovery.path(PATH).unwrap().in_flight(), 0);
}

#[test]
fn memory_grows_with_each_path() {
    let mut bench = Bench::new();
    let one = memory(&bench);
    for id in 1..=8 {
        let controller = Box::new(Fixed::new(1 << 20));
        bench.recovery.add_path(PathId(id), controller, 1200, at(0));
    }
    let path = size_of::<PathRecovery>() + size_of::<Fixed>();
    let grown = memory(&bench) - one;
    assert!((8 * path..=16 * path).contains(&grown), "{grown} of {path}");
}
