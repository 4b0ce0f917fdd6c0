//! Flow control when the receiver's packets are lost: full speed needs no configuration, and credit is
//! lost no more often than acknowledgements.

use std::time::Duration;

use clearway_links::{Direction, LinkConfig, Path};
use clearway_recovery::limit::Limit;
use clearway_testing::Bulk;
use clearway_testing::{Setup, World};

/// 50 Mbit/s, 40 ms, one bandwidth-delay product of queue.
const LINK: &str = "rate=50M delay=20ms queue=250KB";

fn link() -> LinkConfig {
    LINK.parse().expect("a link")
}

/// What a download used of the link in ten seconds.
#[derive(Debug)]
struct Usage {
    /// Part of the rate.
    share: f64,
    /// Part of the time in which nothing but credit was missing.
    held: f64,
}

/// How long credit alone held the server up so far.
fn held(world: &mut World) -> Duration {
    let limits = world.server.connection().stats(world.now).limits;
    let credit = limits.iter().filter(|(limit, _)| {
        matches!(
            limit,
            Limit::StreamFlowControl | Limit::ConnectionFlowControl
        )
    });
    credit.map(|&(_, time)| time).sum()
}

/// `keeps` decides on the client's datagrams, by number and size.
fn download(keeps: impl FnMut(u64, usize) -> bool + 'static) -> Usage {
    download_seeded(1, keeps)
}

fn download_seeded(seed: u64, mut keeps: impl FnMut(u64, usize) -> bool + 'static) -> Usage {
    let mut world = World::new(Setup::new(), Path::new(link(), link(), seed), seed);
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
    let before = held(&mut world);
    let read = bulk.run_for(&mut world, Duration::from_secs(10));
    let server = world.server.connection();
    assert!(server.error().is_none());
    Usage {
        share: read as f64 * 8.0 / 10.0 / 50e6,
        held: (held(&mut world) - before).as_secs_f64() / 10.0,
    }
}

#[test]
fn transfer_without_loss_is_never_short_of_credit() {
    let used = download(|_, _| true);
    assert!(used.share > 0.9 && used.held == 0.0, "{used:?}");
}

#[test]
fn transfer_survives_loss_of_every_second_receiver_packet() {
    let mut state = 7_u32;
    let used = download(move |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 31 == 0
    });
    assert!(used.share > 0.86 && used.held < 0.01, "{used:?}");
}

/// Probes say again what was received, so that a sender does not stay with its first window because the
/// ACKs of it were lost; and both of a pair carry the credit, so that it is not always the one without it
/// that arrives. At random, because a fixed pattern keeps step with the packets that it takes.
#[test]
fn transfer_survives_loss_of_seven_in_ten_receiver_packets() {
    const SEEDS: u64 = 60;
    let mut undisturbed = 0;
    for seed in 1..=SEEDS {
        let mut state = seed;
        let used = download_seeded(seed, move |_, size| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            size > 150 || (state >> 33) % 10 < 3
        });
        assert!(used.share > 0.8, "{seed}: {used:?}");
        undisturbed += u32::from(used.share > 0.9 && used.held < 0.01);
    }
    assert!(undisturbed >= 55, "{undisturbed} of {SEEDS}");
}

/// 1 Gbit/s × 100 ms: 12.5 MB in flight, 24 times the first window.
#[test]
fn flow_control_windows_grow_ahead_of_congestion_window() {
    let link: LinkConfig = "rate=1G delay=50ms queue=12500KB".parse().expect("a link");
    let mut world = World::new(Setup::new(), Path::new(link.clone(), link, 1), 1);
    world.handshake();
    let mut bulk = Bulk::begin(&mut world);
    bulk.run_for(&mut world, Duration::from_secs(3));
    let held = held(&mut world);
    assert!(held < Duration::from_millis(60), "{held:?}");
}
