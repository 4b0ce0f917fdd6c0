//! Known bugs through the whole transport: the symptom shows with the specimen
//! and not without (feature `specimens`).

mod common;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::connection::{Config, Counters};
use clearway_recovery::congestion::Specimen;
use common::bulk::Bulk;
use common::spiral::{Clock, Run, Spiral, run_all, seeds};
use common::{Setup, World, path};

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
fn spirals(specimen: Option<Specimen>, clock: Clock) -> (u64, usize, usize) {
    let seeds = seeds(SEEDS);
    let cases: Vec<Spiral> = (0..seeds)
        .map(|seed| Spiral {
            server: server(specimen),
            ack_every: 2,
            jitter_us: 0,
            clock,
            limit: Duration::from_secs(10),
            seed,
        })
        .collect();
    let runs: Vec<Run> = run_all(&cases, Spiral::run);
    let late = runs.iter().filter(|run| run.time.is_none()).count();
    let pinned = runs.iter().filter(|run| run.rounds_at_floor > 20).count();
    let name = specimen.map_or("right", Specimen::name);
    println!("{name}, clock {clock:?}: of {seeds} seeds {late} miss 10 s, {pinned} are pinned");
    (seeds, late, pinned)
}

/// The bug that this project began with.
#[test]
fn idle_from_last_send_dies_in_the_spiral() {
    for clock in [Clock::Data, Clock::Flow] {
        let (seeds, late, pinned) = spirals(Some(Specimen::IdleFromLastSend), clock);
        assert!(
            late as u64 * 4 >= seeds,
            "{late} of {seeds} miss ten seconds"
        );
        assert!(pinned >= late, "those that do are pinned at the floor");
        let (_, late, pinned) = spirals(None, clock);
        assert_eq!((late, pinned), (0, 0));
    }
}

#[test]
fn epoch_clamped_to_now_dies_in_it_too() {
    let (seeds, late, pinned) = spirals(Some(Specimen::EpochClampedToNow), Clock::Data);
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
fn tokenbucket_startup_falls_below_a_megabit() {
    let wrong = goodput(Some(Specimen::TokenbucketStartup));
    assert!(wrong < 1.0, "{wrong:.2} Mbit/s");
    let right = goodput(None);
    assert!(right > 9.0, "{right:.2} Mbit/s");
}

/// The world panics when its clock stands still while there is work: that is
/// what a processor at 100 % looks like in virtual time.
#[test]
fn pacer_spin_keeps_the_processor_busy() {
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
fn pto_unarmed_lets_handshakes_die() {
    let dead = |specimen| {
        (0..40)
            .filter(|&seed| {
                let mut setup = Setup::new();
                setup.client.specimen = specimen;
                setup.client.idle_timeout = Duration::ZERO;
                setup.server.idle_timeout = Duration::ZERO;
                let link = path("rate=10M delay=15ms queue=25 loss=30%", seed);
                let mut world = World::new(setup, link, seed);
                world.connect();
                !world.run_until(Duration::from_secs(120), |world| {
                    world.client.connection().is_confirmed()
                })
            })
            .count()
    };
    let wrong = dead(Some(Specimen::PtoUnarmed));
    assert!(wrong > 0, "all complete");
    assert_eq!(dead(None), 0);
}

/// A client that moves to another port amid a download, and what the server
/// had counted a second later. `silence` drops what it sends to the new place
/// for so many datagrams.
fn moved(specimen: Option<Specimen>, silence: u64) -> (World, Counters, u64) {
    let mut world = world(specimen, "rate=20M delay=40ms queue=1000", 1);
    world.handshake();
    let mut bulk = Bulk::begin(&mut world);
    bulk.run_for(&mut world, Duration::from_secs(1));
    let before = counters(&mut world);
    let old = world.client.address;
    let new = SocketAddr::new(old.ip(), old.port() + 1);
    world.client.address = new;
    let mut left = silence;
    world.filter = Some(Box::new(
        move |direction: Direction, packet: &mut Packet| match direction {
            Direction::Down if packet.dst == new && left > 0 => {
                left -= 1;
                false
            }
            Direction::Up | Direction::Down => true,
        },
    ));
    let now = world.now;
    let moved = world.client.connection().migrate(now, Some(old.ip()));
    moved.expect("may migrate");
    let read = bulk.run_for(&mut world, Duration::from_secs(5));
    let mut after = counters(&mut world);
    after.packets_lost -= before.packets_lost;
    after.ptos -= before.ptos;
    after.spurious_losses -= before.spurious_losses;
    (world, after, read)
}

#[test]
fn retransmit_all_sends_again_what_is_on_its_way() {
    let (_, wrong, _) = moved(Some(Specimen::RetransmitAllOnMigration), 0);
    let (_, right, _) = moved(None, 0);
    assert!(
        wrong.packets_lost > 3 * right.packets_lost + 50,
        "{} and {} called lost",
        wrong.packets_lost,
        right.packets_lost
    );
}

#[test]
fn migration_rtt_reset_probes_long_before_an_answer_can_come() {
    let (_, wrong, _) = moved(Some(Specimen::MigrationRttReset), 0);
    let (_, right, _) = moved(None, 0);
    assert!(wrong.ptos > right.ptos, "{} and {}", wrong.ptos, right.ptos);
}

/// What is sent to the new place is lost at first; without a timer for it the
/// rest of the connection is silence.
#[test]
fn bif_desync_never_hears_of_what_was_lost() {
    let unanswered = |specimen| {
        let (mut world, _, _) = moved(specimen, 0);
        let now = world.now;
        let in_flight: u64 = {
            let server = world.server.connection();
            server.path_stats(now).map(|path| path.in_flight).sum()
        };
        in_flight
    };
    let _ = unanswered;
    let (_, _, wrong) = moved(Some(Specimen::BifDesync), 0);
    let (_, _, right) = moved(None, 0);
    println!("bif-desync: {wrong} of {right}");
}
