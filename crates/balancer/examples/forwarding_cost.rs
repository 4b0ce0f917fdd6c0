//! Processor time for each datagram that a balancer forwards, in each of its modes, by the clocks of
//! its threads. Everything is on loopback, and the modes take turns, so that what disturbs the
//! machine disturbs all of them.
//!
//! ```sh
//! cargo run --release -p clearway-balancer --example forwarding_cost -- 7 400000
//! ```
//! The arguments are the number of turns, of datagrams in each, and of datagrams on their way at most.
//! The fewer datagrams wait when a shard wakes, the more of its time goes into waking. So that the
//! cases can be compared, they are sent in bursts of the same size for each shard, and the datagrams
//! a wake are printed too.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on has failed"
)]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clearway_balancer::config::Source;
use clearway_balancer::{BackendSettings, BackendState, Balancer, Mode, Settings, config};
use clearway_quic::cid::quic_lb::{Config, ServerId};
use clearway_udp::{Options, RecvBatch, Socket, Transmit};

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

struct Case {
    name: &'static str,
    mode: Mode,
    balancers: usize,
    shards: usize,
    train: usize,
}

const CASES: [Case; 6] = [
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
];

const fn case(name: &'static str, mode: Mode, shards: usize, train: usize) -> Case {
    Case {
        name,
        mode,
        balancers: 1,
        shards,
        train,
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
    let mut costs = [const { Vec::new() }; CASES.len()];
    for _ in 0..turns {
        for (case, costs) in CASES.iter().zip(&mut costs) {
            costs.push(measure(case, datagrams, window));
        }
    }
    let median = |costs: &mut Vec<Cost>| {
        costs.sort_by(|a, b| a.nanos.total_cmp(&b.nanos));
        costs[costs.len() / 2]
    };
    let medians = costs.each_mut().map(median);
    let naive = medians[0].nanos;
    println!("median of {turns} turns of {datagrams} datagrams of {SIZE} bytes");
    for (case, cost) in CASES.iter().zip(medians) {
        println!(
            "{:<18} {:>7.0} ns a datagram, {:.2} of naive, {:>5.1} datagrams a wake, {:.2} % lost",
            case.name,
            cost.nanos,
            cost.nanos / naive,
            1.0 / cost.wakes,
            cost.lost * 100.0
        );
    }
}

/// What was measured in one turn.
#[derive(Clone, Copy)]
struct Cost {
    /// Processor time for each datagram forwarded, in nanoseconds.
    nanos: f64,
    /// How often a thread woke for each datagram forwarded.
    wakes: f64,
    /// Share of those sent that were not forwarded.
    lost: f64,
}

fn measure(case: &Case, datagrams: u64, window: u64) -> Cost {
    let window = window * (case.shards * case.balancers) as u64;
    let options = Options::default();
    let bind = |_| Socket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let sinks: Vec<Socket> = (0..SERVERS).map(bind).collect();
    let mut settings = Settings::new("127.0.0.1:0".parse().unwrap());
    let encoding = Config::new(0, 1, 7).unwrap();
    let server = |n: usize| ServerId::new(&[n as u8 % SERVERS]).unwrap();
    let backend = |(n, sink): (usize, &Socket)| BackendSettings {
        name: format!("sink {n}"),
        address: sink.local_addr().unwrap(),
        weight: 1,
        state: BackendState::Active,
        server_ids: vec![(0, server(n))],
    };
    settings.backends = sinks.iter().enumerate().map(backend).collect();
    settings.quic_lb = vec![encoding.clone()];
    settings.health = None;
    (settings.mode, settings.shards) = (case.mode, case.shards);
    let balancers: Vec<Balancer> = (0..case.balancers)
        .map(|n| {
            let sources: Source = format!("127.1.{n}.0/24").parse().unwrap();
            settings.sources = config::sources(&[sources]).unwrap();
            Balancer::start(&settings).unwrap()
        })
        .collect();
    let arrived = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let counting = {
        let (arrived, stop) = (arrived.clone(), stop.clone());
        std::thread::spawn(move || count(&sinks, &arrived, &stop))
    };
    let trains: Vec<Vec<u8>> = (0..CLIENTS)
        .map(|n| {
            let cid = encoding.encode(&server(n), &[n as u8; 7], 0).unwrap();
            let mut datagram = [&[0x40], &cid[..]].concat();
            datagram.resize(SIZE, 0);
            datagram.repeat(case.train)
        })
        .collect();
    let clients: Vec<Socket> = (0..CLIENTS)
        .map(|_| Socket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap())
        .collect();
    let to: Vec<_> = balancers.iter().map(Balancer::local_addr).collect();
    let (time_before, wakes_before) = used();
    let (mut sent, mut given_up) = (0, 0);
    while sent < datagrams {
        for ((client, train), to) in clients.iter().zip(&trains).zip(to.iter().cycle()) {
            let mut transmit = Transmit::new(*to, train);
            transmit.segment_size = Some(SIZE);
            client.send(&mut transmit).unwrap();
            sent += case.train as u64;
            if sent - given_up - arrived.load(Relaxed) < window {
                continue;
            }
            // Until few are left, so that all shards have bursts to work on.
            let full = Instant::now();
            while sent - given_up - arrived.load(Relaxed) > window / 8 {
                if full.elapsed() > PATIENCE {
                    given_up = sent - arrived.load(Relaxed);
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
    std::thread::sleep(PATIENCE);
    let (time, wakes) = used();
    let mut forwarded = 0.0;
    for balancer in balancers {
        let status = balancer.stop().unwrap();
        assert!(status.up.is_conserved());
        forwarded += status.up.forwarded as f64;
    }
    stop.store(true, Relaxed);
    counting.join().unwrap();
    Cost {
        nanos: (time - time_before) as f64 / forwarded,
        wakes: (wakes - wakes_before) as f64 / forwarded,
        lost: 1.0 - forwarded / sent as f64,
    }
}

/// Counts what arrives at the servers.
fn count(sinks: &[Socket], arrived: &AtomicU64, stop: &AtomicBool) {
    let mut batch = RecvBatch::for_socket(&sinks[0], 32);
    while !stop.load(Relaxed) {
        let before = arrived.load(Relaxed);
        for sink in sinks {
            if sink.recv(&mut batch).is_ok() {
                let datagrams = batch.messages().map(|(meta, _)| meta.datagrams() as u64);
                arrived.fetch_add(datagrams.sum(), Relaxed);
            }
        }
        if arrived.load(Relaxed) == before {
            std::thread::yield_now();
        }
    }
}

/// Returns the processor time of this process's threads that forward, in nanoseconds, and how often
/// they slept (`/proc/PID/task/TID/schedstat` and `status`, see proc(5)).
fn used() -> (u64, u64) {
    let (mut total, mut sleeps) = (0, 0);
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let read = |name| fs::read_to_string(task.join(name)).unwrap_or_default();
        let name = read("comm");
        if name.starts_with("balance-") || name.starts_with("receive-") {
            let time = read("schedstat");
            total += time
                .split(' ')
                .next()
                .map_or(0, |nanoseconds| nanoseconds.parse().unwrap_or(0));
            let status = read("status");
            let switches = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sleeps += switches.map_or(0, |count| count.trim().parse::<u64>().unwrap_or(0));
        }
    }
    (total, sleeps)
}
