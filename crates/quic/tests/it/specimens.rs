//! Known bugs of other stacks in the whole transport (feature `specimens`): the symptom occurs with the
//! specimen and not without it.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::spiral::{DeathSpiral, LossTiming, SpiralResult, run_all, seeds};
use clearway_links::{Direction, Packet};
use clearway_quic::connection::{Config, Counters};
use clearway_quic::stream::Directionality;
use clearway_recovery::specimens::Specimen;
use clearway_testing::Bulk;
use clearway_testing::{Setup, World, path};

/// Seeds of each death-spiral case.
const SEEDS: u64 = if cfg!(debug_assertions) { 12 } else { 50 };

fn server(specimen: Option<Specimen>) -> Config {
    let mut config = Config::default();
    config.specimen = specimen;
    config
}

/// A world whose server has the bug.
fn world(specimen: Option<Specimen>, spec: &str, seed: u64) -> World {
    let mut setup = Setup::new();
    setup.server = server(specimen);
    World::new(setup, path(spec, seed), seed)
}

fn counters(world: &mut World) -> Counters {
    let now = world.now;
    world.server.connection().stats(now).counters
}

/// How many of the seeds miss ten seconds, and how many are more than 20 round
/// trips at the floor after the loss.
fn spirals(specimen: Option<Specimen>, clock: LossTiming) -> (u64, usize, usize) {
    let seeds = seeds(SEEDS);
    let cases: Vec<DeathSpiral> = (0..seeds)
        .map(|seed| DeathSpiral {
            server: server(specimen),
            ack_every: 2,
            jitter_us: 0,
            clock,
            ticks: true,
            limit: Duration::from_secs(10),
            seed,
        })
        .collect();
    let runs: Vec<SpiralResult> = run_all(&cases, DeathSpiral::run);
    let late = runs.iter().filter(|run| run.time.is_none()).count();
    let pinned = runs.iter().filter(|run| run.rounds_at_floor > 20).count();
    let name = specimen.map_or("right", Specimen::name);
    println!("{name}, clock {clock:?}: of {seeds} seeds {late} miss 10 s, {pinned} are pinned");
    (seeds, late, pinned)
}

/// The bug that this project began with.
#[test]
fn idle_from_last_send_specimen_stalls_in_death_spiral() {
    for clock in [LossTiming::Data, LossTiming::Flow] {
        let (seeds, late, pinned) = spirals(Some(Specimen::IdleFromLastSend), clock);
        assert!(
            late as u64 * 4 >= seeds,
            "{late} of {seeds} miss ten seconds"
        );
        // The others, up to half, sit a little above it, behind a boundary in the future.
        assert!(2 * pinned >= late, "{pinned} of {late} pinned at the floor");
        let (_, late, pinned) = spirals(None, clock);
        assert_eq!((late, pinned), (0, 0));
    }
}

#[test]
fn epoch_clamped_to_now_specimen_stalls_in_death_spiral() {
    let (seeds, late, pinned) = spirals(Some(Specimen::EpochClampedToNow), LossTiming::Data);
    assert!(
        late as u64 * 4 >= seeds,
        "{late} of {seeds} miss ten seconds"
    );
    assert!(pinned >= late);
}

/// 10 Mbit/s, 30 ms: Mbit/s over ten seconds.
fn goodput(specimen: Option<Specimen>) -> f64 {
    let mut world = world(specimen, "rate=10M delay=15ms queue=25", 1);
    world.handshake();
    let read = Bulk::begin(&mut world).run_for(&mut world, Duration::from_secs(10));
    read as f64 * 8.0 / 10e6
}

#[test]
fn tokenbucket_startup_specimen_falls_below_a_megabit() {
    let wrong = goodput(Some(Specimen::TokenbucketStartup));
    assert!(wrong < 1.0, "{wrong:.2} Mbit/s");
    let right = goodput(None);
    assert!(right > 9.0, "{right:.2} Mbit/s");
}

/// The world panics when its clock stands still while there is work: that is
/// what a processor at 100 % looks like in virtual time.
#[test]
fn pacer_spin_specimen_wakes_without_end() {
    let run = |specimen| {
        let run = move || {
            let mut world = world(specimen, "rate=10M delay=15ms queue=25", 1);
            world.handshake();
            Bulk::begin(&mut world).run_for(&mut world, Duration::from_secs(2))
        };
        catch_unwind(AssertUnwindSafe(run))
    };
    let panic = run(Some(Specimen::PacerSpin)).expect_err("a busy loop");
    let words = panic.downcast_ref::<String>().expect("words");
    assert!(words.starts_with("busy:"), "{words}");
    assert!(run(None).is_ok());
}

/// The server's flight is lost and its credit used up, the client has nothing
/// in flight: only its timer can go on (RFC 9002 §6.2.2.1).
#[test]
fn pto_unarmed_specimen_fails_handshakes() {
    let completes = |specimen| {
        let mut setup = Setup::new();
        setup.client.specimen = specimen;
        setup.client.idle_timeout = Duration::ZERO;
        setup.server.idle_timeout = Duration::ZERO;
        let mut world = World::new(setup, path("rate=10M delay=15ms queue=25", 1), 1);
        // The first datagram with handshake in it arrives, the next ten do not.
        let mut full = 0;
        world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
            if direction == Direction::Up {
                return true;
            }
            let arrives = full == 0 || full > 10;
            full += u64::from(packet.data.len() >= 1_200);
            arrives
        }));
        world.connect();
        world.run_until(Duration::from_secs(120), |world| {
            world.client.connection().is_confirmed()
        })
    };
    assert!(!completes(Some(Specimen::PtoUnarmed)));
    assert!(completes(None));
}

/// A client that moves to another port of its host amid a transfer.
fn moved(mut world: World, bulk: impl FnOnce(&mut World)) -> World {
    world.handshake();
    bulk(&mut world);
    let old = world.client.address;
    world.client.address = SocketAddr::new(old.ip(), old.port() + 1);
    let now = world.now;
    let moved = world.client.connection().migrate(now, Some(old.ip()));
    moved.expect("may migrate");
    world
}

/// Packets the server calls lost within two round trips of the client's move,
/// of the 137 on their way.
#[test]
fn retransmit_all_specimen_resends_data_in_flight() {
    let lost = |specimen| {
        let world = world(specimen, "rate=20M delay=40ms queue=1000", 1);
        let mut bulk = None;
        let mut world = moved(world, |world| {
            let mut download = Bulk::begin(world);
            download.run_for(world, Duration::from_secs(1));
            bulk = Some(download);
        });
        let before = counters(&mut world).packets_lost;
        let mut bulk = bulk.expect("a download");
        bulk.run_for(&mut world, Duration::from_millis(160));
        counters(&mut world).packets_lost - before
    };
    let wrong = lost(Some(Specimen::RetransmitAllOnMigration));
    assert!(wrong > 100, "{wrong}");
    assert_eq!(lost(None), 0);
}

/// A client uploads, and moves: its probes go out before an answer can come.
#[test]
fn migration_rtt_reset_specimen_sends_probe_at_once() {
    let probes = |specimen| {
        let mut setup = Setup::new();
        setup.client.specimen = specimen;
        let link = path("rate=20M delay=40ms queue=1000", 1);
        let mut world = moved(World::new(setup, link, 1), |world| {
            let client = world.client.connection();
            let id = client
                .open(Directionality::Unidirectional)
                .expect("a stream");
            let written = client.write(id, &[7; 1 << 20]).expect("writes");
            assert!(written > 1 << 18);
            world.run_for(Duration::from_millis(250));
        });
        world.run_for(Duration::from_millis(70));
        let now = world.now;
        world.client.connection().stats(now).counters.ptos
    };
    assert!(probes(Some(Specimen::MigrationRttReset)) > 0);
    assert_eq!(probes(None), 0);
}

/// The bytes in the ledger differ from those that the paths count, and no timer is armed for them.
#[test]
fn bif_desync_specimen_breaks_bytes_in_flight() {
    let balances = |specimen| {
        let world = world(specimen, "rate=20M delay=40ms queue=1000", 1);
        let mut world = moved(world, |world| {
            Bulk::begin(world).run_for(world, Duration::from_secs(1));
        });
        // Until the server has heard of it.
        world.run_for(Duration::from_millis(45));
        catch_unwind(AssertUnwindSafe(|| world.check())).is_ok()
    };
    assert!(!balances(Some(Specimen::BifDesync)));
    assert!(balances(None));
}
