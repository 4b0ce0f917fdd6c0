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
//! a wake are printed too. In the last three cases each shard has a generator of its own on its core, so that
//! one shard has the same neighbours as each of two. What the machine itself takes when both cores are busy
//! shows in the last line.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on has failed"
)]

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clearway_balancer::config::Source;
use clearway_balancer::{BackendSettings, BackendState, Balancer, Mode, Settings, config};
use clearway_quic::cid::quic_lb::{Config, ServerId};
use clearway_udp::{Options, RecvBatch, Socket, Transmit};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

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
    /// One for each shard, all of it on the shard's core: each shard has the same neighbours, however
    /// many shards there are.
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
    let mut costs = [const { Vec::new() }; CASES.len()];
    let mut arithmetic = [const { Vec::new() }; 2];
    for _ in 0..turns {
        for (case, costs) in CASES.iter().zip(&mut costs) {
            costs.push(measure(case, datagrams, window));
        }
        for (threads, times) in (1..).zip(&mut arithmetic) {
            times.push(calculate(threads));
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
            "{:<20} {:>7.0} ns a datagram, {:.2} of naive, {:>6.1} datagrams a wake, \
             {:>5.1} a switch, {:.2} % lost",
            case.name,
            cost.nanos,
            cost.nanos / naive,
            1.0 / cost.wakes,
            1.0 / (cost.wakes + cost.preemptions),
            cost.lost * 100.0
        );
    }
    let [one, two] = arithmetic.each_mut().map(|times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let ratio = two as f64 / one as f64;
    println!("arithmetic on two cores at once: {ratio:.2} of the processor time on one");
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

fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Keeps a thread on a core; `None` = this one.
fn pin(thread: Option<Pid>, core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(thread, &cores).unwrap();
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

fn encoding() -> Config {
    Config::new(0, 1, 7).unwrap()
}

fn server_id(n: usize) -> ServerId {
    ServerId::new(&[n as u8 % SERVERS]).unwrap()
}

fn bind() -> Socket {
    Socket::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap()
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
    let balancers = start(case, &sinks);
    if case.lanes == Lanes::OnCores {
        for (core, thread) in forwarding().into_iter().enumerate() {
            pin(Some(thread), core);
        }
    }
    let stop = AtomicBool::new(false);
    let before = used();
    let sent: u64 = std::thread::scope(|scope| {
        let lane = |lane: usize| {
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
        let senders: Vec<_> = (0..lanes).map(lane).collect();
        let sent = senders.into_iter().map(|sender| sender.join().unwrap());
        let sent = sent.sum();
        std::thread::sleep(PATIENCE);
        stop.store(true, Relaxed);
        sent
    });
    let after = used();
    let mut forwarded = 0.0;
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

/// Clients of one thread.
struct Generator {
    /// The servers whose connection IDs are used.
    servers: Vec<usize>,
    /// The balancers.
    to: Vec<SocketAddr>,
    train: usize,
    window: u64,
    /// How many datagrams have arrived at these servers.
    arrived: Arc<AtomicU64>,
}

impl Generator {
    /// Sends so many datagrams, with bursts on their way. Returns how many it was.
    fn send(&self, datagrams: u64) -> u64 {
        let encoding = encoding();
        let trains = self.servers.iter().cycle().take(CLIENTS).enumerate();
        let trains: Vec<Vec<u8>> = trains
            .map(|(n, server)| {
                let cid = encoding.encode(&server_id(*server), &[n as u8; 7], 0);
                let mut datagram = [&[0x40], &cid.unwrap()[..]].concat();
                datagram.resize(SIZE, 0);
                datagram.repeat(self.train)
            })
            .collect();
        let clients: Vec<Socket> = (0..CLIENTS).map(|_| bind()).collect();
        let (mut sent, mut given_up) = (0, 0);
        while sent < datagrams {
            let to = self.to.iter().cycle();
            for ((client, train), to) in clients.iter().zip(&trains).zip(to) {
                let mut transmit = Transmit::new(*to, train);
                transmit.segment_size = Some(SIZE);
                client.send(&mut transmit).unwrap();
                sent += self.train as u64;
                if sent - given_up - self.arrived.load(Relaxed) < self.window {
                    continue;
                }
                // Until few are left, so that all shards have bursts to work on.
                let full = Instant::now();
                while sent - given_up - self.arrived.load(Relaxed) > self.window / 8 {
                    if full.elapsed() > PATIENCE {
                        given_up = sent - self.arrived.load(Relaxed);
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
        sent
    }
}

/// Counts what arrives at the servers.
fn count(sinks: &[&Socket], arrived: &AtomicU64, stop: &AtomicBool) {
    let mut batch = RecvBatch::for_socket(sinks[0], 32);
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

/// The threads of this process that forward, in the order in which they began.
fn forwarding() -> Vec<Pid> {
    let mut threads: Vec<i32> = fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| task.unwrap().path())
        .filter(|task| {
            let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
            name.starts_with("balance-") || name.starts_with("receive-")
        })
        .filter_map(|task| task.file_name()?.to_str()?.parse().ok())
        .collect();
    threads.sort_unstable();
    threads.into_iter().filter_map(Pid::from_raw).collect()
}

/// What the threads that forward have used.
struct Used {
    /// Processor time in nanoseconds.
    nanos: u64,
    /// How often they slept.
    wakes: u64,
    preemptions: u64,
}

/// Reads `schedstat` and `status` of each (proc(5)).
fn used() -> Used {
    let mut used = Used {
        nanos: 0,
        wakes: 0,
        preemptions: 0,
    };
    for thread in forwarding() {
        let read = |name| {
            let path = format!("/proc/self/task/{}/{name}", thread.as_raw_nonzero());
            fs::read_to_string(path).unwrap_or_default()
        };
        let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok());
        let (time, status) = (read("schedstat"), read("status"));
        used.nanos += number(time.split(' ').next()).unwrap_or(0);
        let switches = |name: &str| number(status.lines().find_map(|line| line.strip_prefix(name)));
        used.wakes += switches("voluntary_ctxt_switches:").unwrap_or(0);
        used.preemptions += switches("nonvoluntary_ctxt_switches:").unwrap_or(0);
    }
    used
}
