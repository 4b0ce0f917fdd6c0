//! Processor time for each datagram that a balancer forwards, in each of its modes, by the clocks of
//! its threads. Everything is on loopback, and the modes take turns, so that what disturbs the
//! machine disturbs all of them.
//!
//! ```sh
//! cargo run --release -p clearway-balancer --example forwarding_cost -- 7 400000
//! ```
//! The arguments are the number of turns, of datagrams in each, of datagrams on their way at most, and a
//! part of the names of the cases to measure (all without it).
//! The fewer datagrams wait when a shard wakes, the more of its time goes into waking. So that the
//! cases can be compared, they are sent in bursts of the same size for each shard, and the datagrams
//! a wake are printed too. In the last three cases each shard has a generator of its own on its core, with
//! the clients that the kernel gives to this shard, so that one shard has the same neighbours as each of
//! two, and no datagram crosses cores. What the machine itself takes when both cores are busy shows in
//! the last line.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on has failed"
)]

mod generator;
mod spread;
mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use clearway_balancer::config::Source;
use clearway_balancer::{BackendSettings, BackendState, Balancer, Mode, Settings, config};
use clearway_udp::Socket;

use crate::generator::{Generator, bind, count, encoding, server_id};
use crate::spread::clients_by_shard;
use crate::threads::{Used, forwarding, pin, thread_time};

/// Bytes of a datagram.
const SIZE: usize = 1_200;

/// Clients, each with its own port.
const CLIENTS: usize = 64;

/// Most datagrams on their way for each shard, fewer than the buffers hold.
const WINDOW: u64 = 512;

/// Servers, as many as there are shards at most: shards that write to one server's socket wait for
/// each other there.
const SERVERS: u8 = 2;

/// Datagrams of a train.
const TRAIN: usize = 50;

/// Time between two looks at how many are on their way.
const PAUSE: Duration = Duration::from_micros(50);

/// How long lost datagrams are waited for before more are sent.
const PATIENCE: Duration = Duration::from_millis(200);

/// A shard's generator: clients, a server, a thread that sends and one that counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lanes {
    /// One for all shards, on any core.
    One,
    /// One for each shard, all of it on the shard's core, with this shard's clients: each shard has the
    /// same neighbours, however many shards there are.
    OnCores,
}

struct Case {
    name: &'static str,
    mode: Mode,
    balancers: usize,
    shards: usize,
    train: usize,
    lanes: Lanes,
}

impl Case {
    /// The number of threads that forward.
    fn threads(&self) -> usize {
        let of_shard = if self.mode == Mode::Decoupled { 2 } else { 1 };
        self.balancers * self.shards * of_shard
    }
}

const CASES: [Case; 9] = [
    case("naive", Mode::Naive, 1, 1),
    case("batched", Mode::Batched, 1, 1),
    case("batched, trains", Mode::Batched, 1, TRAIN),
    case("batched, 2 shards", Mode::Batched, 2, 1),
    // What two threads cost that share nothing but the machine.
    Case {
        name: "two balancers",
        balancers: 2,
        ..case("", Mode::Batched, 1, 1)
    },
    case("decoupled", Mode::Decoupled, 1, 1),
    on_cores("1 shard on a core", 1, 1),
    on_cores("2 shards on cores", 1, 2),
    on_cores("2 balancers on cores", 2, 1),
];

/// Pairs of names whose costs are compared.
const RATIOS: [(&str, &str); 6] = [
    ("batched", "naive"),
    ("batched, trains", "naive"),
    ("batched, 2 shards", "batched"),
    ("batched, 2 shards", "two balancers"),
    ("2 shards on cores", "1 shard on a core"),
    ("2 shards on cores", "2 balancers on cores"),
];

const fn case(name: &'static str, mode: Mode, shards: usize, train: usize) -> Case {
    Case {
        name,
        mode,
        balancers: 1,
        shards,
        train,
        lanes: Lanes::One,
    }
}

const fn on_cores(name: &'static str, balancers: usize, shards: usize) -> Case {
    Case {
        balancers,
        lanes: Lanes::OnCores,
        ..case(name, Mode::Batched, shards, 1)
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| {
        arguments
            .next()
            .map_or(default, |text| text.parse().unwrap())
    };
    let (turns, datagrams, window) = (number(5), number(200_000), number(WINDOW));
    let named = arguments.next().unwrap_or_default();
    let cases: Vec<&Case> = CASES
        .iter()
        .filter(|case| case.name.contains(&named))
        .collect();
    let mut costs = vec![Vec::new(); cases.len()];
    let mut arithmetic = [const { Vec::new() }; 2];
    for _ in 0..turns {
        for (case, costs) in cases.iter().zip(&mut costs) {
            costs.push(measure(case, datagrams, window));
        }
        for (threads, times) in (1..).zip(&mut arithmetic) {
            times.push(calculate(threads));
        }
    }
    let medians: Vec<Cost> = costs.iter().map(|costs| median(costs)).collect();
    println!("median of {turns} turns of {datagrams} datagrams of {SIZE} bytes");
    for (case, cost) in cases.iter().zip(&medians) {
        println!(
            "{:<20} {:>7.0} ns a datagram, {:.2} of the first, {:>6.1} datagrams a wake, \
             {:>5.1} a switch, {:.2} % lost",
            case.name,
            cost.nanos,
            cost.nanos / medians[0].nanos,
            1.0 / cost.wakes,
            1.0 / (cost.wakes + cost.preemptions),
            cost.lost * 100.0
        );
    }
    for (of, to) in RATIOS {
        let find = |name| cases.iter().position(|case| case.name == name);
        if let (Some(of), Some(to)) = (find(of), find(to)) {
            print_ratios((cases[of], &costs[of]), (cases[to], &costs[to]));
        }
    }
    let [one, two] = arithmetic.each_mut().map(|times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let ratio = two as f64 / one as f64;
    println!("arithmetic on two cores at once: {ratio:.2} of the processor time on one");
}

/// Returns the turn of median cost.
fn median(costs: &[Cost]) -> Cost {
    let mut costs = costs.to_vec();
    costs.sort_by(|a, b| a.nanos.total_cmp(&b.nanos));
    costs[costs.len() / 2]
}

/// Compares two cases turn by turn: the machine changes its speed between turns.
fn print_ratios((of, costs): (&Case, &[Cost]), (to, others): (&Case, &[Cost])) {
    let turns = costs.iter().zip(others);
    let mut ratios: Vec<f64> = turns
        .map(|(cost, other)| cost.nanos / other.nanos)
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "{} \u{f7} {}: {:.2} ({:.2} to {:.2})",
        of.name,
        to.name,
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1]
    );
}

/// Returns the processor time in nanoseconds that a calculation takes a thread, without memory or system
/// calls, while as many threads do the same. It grows if cores share more than memory.
fn calculate(threads: usize) -> u64 {
    let calculation = |core| {
        pin(None, core);
        let before = thread_time();
        let mut numbers = [1_u64, 2, 3, 4];
        for round in 0..20_000_000_u64 {
            for number in &mut numbers {
                *number = number.rotate_left(7).wrapping_mul(5) ^ round;
            }
        }
        std::hint::black_box(numbers);
        thread_time() - before
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|core| scope.spawn(move || calculation(core)))
            .collect();
        let times = threads.into_iter().map(|thread| thread.join().unwrap());
        times.max().unwrap()
    })
}

/// What was measured in one turn.
#[derive(Clone, Copy)]
struct Cost {
    /// Processor time for each datagram forwarded, in nanoseconds.
    nanos: f64,
    /// How often a thread woke for each datagram forwarded.
    wakes: f64,
    /// How often another thread got its core for each datagram forwarded, while it had work to do.
    preemptions: f64,
    /// Share of those sent that were not forwarded.
    lost: f64,
}

fn start(case: &Case, sinks: &[Socket]) -> Vec<Balancer> {
    let mut settings = Settings::new("127.0.0.1:0".parse().unwrap());
    let backend = |(n, sink): (usize, &Socket)| BackendSettings {
        name: format!("sink {n}"),
        address: sink.local_addr().unwrap(),
        weight: 1,
        state: BackendState::Active,
        server_ids: vec![(0, server_id(n))],
    };
    settings.backends = sinks.iter().enumerate().map(backend).collect();
    settings.quic_lb = vec![encoding()];
    settings.health = None;
    (settings.mode, settings.shards) = (case.mode, case.shards);
    (0..case.balancers)
        .map(|n| {
            let sources: Source = format!("127.1.{n}.0/24").parse().unwrap();
            settings.sources = config::sources(&[sources]).unwrap();
            Balancer::start(&settings).unwrap()
        })
        .collect()
}

fn measure(case: &Case, datagrams: u64, window: u64) -> Cost {
    let shards = case.shards * case.balancers;
    let lanes = match case.lanes {
        Lanes::One => 1,
        Lanes::OnCores => shards,
    };
    let sinks: Vec<Socket> = (0..SERVERS).map(|_| bind()).collect();
    let (balancers, threads) = forwarding(case.threads(), || start(case, &sinks));
    let (clients, asked) = match (case.lanes, &balancers[..]) {
        (Lanes::OnCores, [balancer]) => {
            clients_by_shard(balancer.local_addr(), &sinks[0], &threads)
        }
        _ => {
            let clients = |_| (0..CLIENTS).map(|_| bind()).collect();
            ((0..lanes).map(clients).collect(), 0)
        }
    };
    if case.lanes == Lanes::OnCores {
        for (core, thread) in threads.iter().enumerate() {
            pin(Some(*thread), core);
        }
    }
    let stop = AtomicBool::new(false);
    let before = Used::by_all(&threads);
    let sent: u64 = std::thread::scope(|scope| {
        let lane = |(lane, clients): (usize, Vec<Socket>)| {
            // All servers, or its own.
            let servers: Vec<usize> = (0..sinks.len())
                .filter(|n| lanes == 1 || *n == lane)
                .collect();
            let sinks: Vec<&Socket> = servers.iter().map(|n| &sinks[*n]).collect();
            let core = (case.lanes == Lanes::OnCores).then_some(lane);
            let (arrived, stop) = (Arc::new(AtomicU64::new(0)), &stop);
            let counted = arrived.clone();
            scope.spawn(move || {
                core.into_iter().for_each(|core| pin(None, core));
                count(&sinks, &counted, stop);
            });
            let to = balancers.iter().map(Balancer::local_addr);
            // A balancer on another core is another lane's.
            let to: Vec<_> = match (core, case.balancers) {
                (Some(core), 2..) => to.skip(core).take(1).collect(),
                _ => to.collect(),
            };
            let generator = Generator {
                clients,
                servers,
                to,
                train: case.train,
                window: window * (shards / lanes) as u64,
                arrived,
            };
            let datagrams = datagrams / lanes as u64;
            scope.spawn(move || {
                core.into_iter().for_each(|core| pin(None, core));
                generator.send(datagrams)
            })
        };
        let senders: Vec<_> = clients.into_iter().enumerate().map(lane).collect();
        let sent = senders.into_iter().map(|sender| sender.join().unwrap());
        let sent = sent.sum();
        std::thread::sleep(PATIENCE);
        stop.store(true, Relaxed);
        sent
    });
    let after = Used::by_all(&threads);
    let mut forwarded = -f64::from(asked);
    for balancer in balancers {
        let status = balancer.stop().unwrap();
        assert!(status.up.is_conserved());
        forwarded += status.up.forwarded as f64;
    }
    let each = |of: fn(&Used) -> u64| (of(&after) - of(&before)) as f64 / forwarded;
    Cost {
        nanos: each(|used| used.nanos),
        wakes: each(|used| used.wakes),
        preemptions: each(|used| used.preemptions),
        lost: 1.0 - forwarded / sent as f64,
    }
}
