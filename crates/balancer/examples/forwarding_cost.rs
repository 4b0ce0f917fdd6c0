//! Processor time for each datagram that a balancer forwards, in each of its modes, by the clocks of
//! its threads. Everything is on loopback, and the modes take turns, so that what disturbs the
//! machine disturbs all of them.
//!
//! ```sh
//! cargo run --release -p clearway-balancer --example forwarding_cost -- 7 400000
//! ```
//! The arguments are the number of turns and of datagrams in each.
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

/// Most datagrams on their way, fewer than the buffers hold.
const WINDOW: u64 = 512;

/// Datagrams of a train.
const TRAIN: usize = 50;

/// How long lost datagrams are waited for before more are sent.
const PATIENCE: Duration = Duration::from_millis(200);

struct Case {
    name: &'static str,
    mode: Mode,
    shards: usize,
    train: usize,
}

const CASES: [Case; 5] = [
    case("naive", Mode::Naive, 1, 1),
    case("batched", Mode::Batched, 1, 1),
    case("batched, trains", Mode::Batched, 1, TRAIN),
    case("batched, 2 shards", Mode::Batched, 2, 1),
    case("decoupled", Mode::Decoupled, 1, 1),
];

const fn case(name: &'static str, mode: Mode, shards: usize, train: usize) -> Case {
    Case {
        name,
        mode,
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
    let (turns, datagrams) = (number(5), number(200_000));
    let mut costs = [const { Vec::new() }; CASES.len()];
    for _ in 0..turns {
        for (case, costs) in CASES.iter().zip(&mut costs) {
            costs.push(measure(case, datagrams));
        }
    }
    let median = |costs: &mut Vec<(f64, f64)>| {
        costs.sort_by(|a, b| a.0.total_cmp(&b.0));
        costs[costs.len() / 2]
    };
    let medians = costs.each_mut().map(median);
    let naive = medians[0].0;
    println!("median of {turns} turns of {datagrams} datagrams of {SIZE} bytes");
    for (case, (cost, lost)) in CASES.iter().zip(medians) {
        println!(
            "{:<18} {cost:>7.0} ns a datagram, {:.2} of naive, {:.2} % lost",
            case.name,
            cost / naive,
            lost * 100.0
        );
    }
}

/// Returns nanoseconds for each datagram forwarded, and the share of those sent that were not.
fn measure(case: &Case, datagrams: u64) -> (f64, f64) {
    let options = Options::default();
    let sink = Socket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let mut settings = Settings::new("127.0.0.1:0".parse().unwrap());
    let encoding = Config::new(0, 1, 7).unwrap();
    let server = ServerId::new(&[1]).unwrap();
    settings.backends = vec![BackendSettings {
        name: "sink".to_owned(),
        address: sink.local_addr().unwrap(),
        weight: 1,
        state: BackendState::Active,
        server_ids: vec![(0, server)],
    }];
    settings.quic_lb = vec![encoding.clone()];
    settings.health = None;
    (settings.mode, settings.shards) = (case.mode, case.shards);
    let sources: Source = "127.1.0.0/24".parse().unwrap();
    settings.sources = config::sources(&[sources]).unwrap();
    let balancer = Balancer::start(&settings).unwrap();
    let arrived = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let counting = {
        let (arrived, stop) = (arrived.clone(), stop.clone());
        std::thread::spawn(move || count(&sink, &arrived, &stop))
    };
    let trains: Vec<Vec<u8>> = (0..CLIENTS)
        .map(|n| {
            let cid = encoding.encode(&server, &[n as u8; 7], 0).unwrap();
            let mut datagram = [&[0x40], &cid[..]].concat();
            datagram.resize(SIZE, 0);
            datagram.repeat(case.train)
        })
        .collect();
    let clients: Vec<Socket> = (0..CLIENTS)
        .map(|_| Socket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap())
        .collect();
    let to = balancer.local_addr();
    let before = processor_time();
    let (mut sent, mut given_up) = (0, 0);
    while sent < datagrams {
        for (client, train) in clients.iter().zip(&trains) {
            let mut transmit = Transmit::new(to, train);
            transmit.segment_size = Some(SIZE);
            client.send(&mut transmit).unwrap();
            sent += case.train as u64;
            let full = Instant::now();
            while sent - given_up - arrived.load(Relaxed) > WINDOW {
                if full.elapsed() > PATIENCE {
                    given_up = sent - arrived.load(Relaxed);
                }
                std::thread::yield_now();
            }
        }
    }
    std::thread::sleep(PATIENCE);
    let used = processor_time() - before;
    let status = balancer.stop().unwrap();
    assert!(status.up.is_conserved());
    stop.store(true, Relaxed);
    counting.join().unwrap();
    let forwarded = status.up.forwarded;
    (
        used as f64 / forwarded as f64,
        1.0 - forwarded as f64 / sent as f64,
    )
}

/// Counts what arrives at a server.
fn count(sink: &Socket, arrived: &AtomicU64, stop: &AtomicBool) {
    let mut batch = RecvBatch::for_socket(sink, 32);
    while !stop.load(Relaxed) {
        match sink.recv(&mut batch) {
            Ok(_) => {
                let datagrams = batch.messages().map(|(meta, _)| meta.datagrams() as u64);
                arrived.fetch_add(datagrams.sum(), Relaxed);
            }
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// Returns the processor time of this process's threads that forward, in nanoseconds
/// (`/proc/PID/task/TID/schedstat`, see proc(5)).
fn processor_time() -> u64 {
    let mut total = 0;
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
        }
    }
    total
}
