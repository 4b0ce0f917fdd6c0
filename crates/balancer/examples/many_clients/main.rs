//! Many QUIC connections through a balancer, and what becomes of every datagram.
//!
//! Starts servers and a balancer as processes of their own, connects clients, each from an address
//! of its own (127.64.0.0 and up), and has each make a round trip every five seconds. At the end it
//! accounts for every datagram at every hop, and fails if the balancer has lost any.
//!
//! ```sh
//! cargo run --release -p clearway-balancer --example many_clients -- --clients 150000 --seconds 600
//! cargo run --release -p clearway-balancer --example many_clients -- --clients 150000 --seconds 60 \
//!     --mode naive --work 30 --least-loss 10
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement that cannot go on has failed"
)]

mod arguments;
mod backend;
mod clients;
mod front;
mod host;
mod process;

use std::collections::HashMap;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use self::arguments::{Arguments, Role};
use self::clients::{Clients, light};
use self::host::Counts;
use self::process::{Process, memory, processor_time, seed, setup};

/// The system's allocator takes a sixth of the time of clients and servers, which have little of it:
/// each connection frees its keys while it is idle, among 150,000 others.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long there must be no traffic for everything to have arrived.
const SETTLE: Duration = Duration::from_secs(3);

/// How often that is waited for: connections that have lost a packet send on for a while.
const MOST_SETTLES: u32 = 10;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let done = match &arguments.role {
        Role::Clients => run(&arguments),
        Role::Backend(number) => backend::run(&arguments, *number).map(|()| true),
        Role::Balancer(to) => front::run(&arguments, to).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The counts of all hops at one time.
struct Snapshot {
    clients: Counts,
    balancer: HashMap<String, u64>,
    backends: HashMap<String, u64>,
    memory: [u64; 3],
    time: [Duration; 3],
}

/// The other processes.
struct Fleet {
    backends: Vec<Process>,
    balancer: Process,
}

impl Fleet {
    fn start(arguments: &Arguments) -> Self {
        let backends: Vec<Process> = (1..=arguments.backends)
            .map(|number| Process::start(&["--backend", &number.to_string()]))
            .collect();
        let addresses: Vec<&str> = backends.iter().map(|each| &*each.address).collect();
        let balancer = Process::start(&["--balancer", &addresses.join(",")]);
        Self { backends, balancer }
    }

    fn snapshot(&mut self, clients: &Clients) -> Snapshot {
        let mut backends = HashMap::new();
        for process in &mut self.backends {
            for (name, value) in process.report() {
                *backends.entry(name).or_default() += value;
            }
        }
        let of_backends = |of: fn(&Process) -> u64| self.backends.iter().map(of).sum();
        Snapshot {
            clients: clients.counts(),
            memory: [
                memory("self"),
                self.balancer.memory(),
                of_backends(Process::memory),
            ],
            time: [
                processor_time("self"),
                self.balancer.processor_time(),
                self.backends.iter().map(Process::processor_time).sum(),
            ],
            balancer: self.balancer.report(),
            backends,
        }
    }

    /// Waits until nothing is under way, and takes a snapshot.
    fn settled(&mut self, clients: &mut Clients) -> io::Result<Snapshot> {
        let mut last = self.snapshot(clients);
        for _ in 0..MOST_SETTLES {
            clients.rest(SETTLE)?;
            let next = self.snapshot(clients);
            let is_still = next.clients == last.clients && next.backends == last.backends;
            last = next;
            if is_still {
                break;
            }
        }
        Ok(last)
    }

    /// Ends all of them.
    fn stop(self) {
        self.balancer.stop();
        for backend in self.backends {
            backend.stop();
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<bool> {
    let mut fleet = Fleet::start(arguments);
    let to = fleet.balancer.address.parse().unwrap();
    let setup = light(setup(arguments));
    let mut clients = Clients::new(setup, to, arguments.interval, seed())?;
    let idle = fleet.snapshot(&clients);
    let begin = Instant::now();
    clients.connect(arguments.clients, arguments.handshakes)?;
    let connecting = begin.elapsed();
    let connected = fleet.settled(&mut clients)?;
    println!(
        "{} connections from {} addresses, {} failed; connected in {:.0} s",
        clients.tally().confirmed,
        clients.addresses(),
        clients.tally().failed,
        connecting.as_secs_f64()
    );
    println!(
        "servers: {} confirmed, {} refused, {} sent Retry; {} upstream sockets, {} flows",
        connected.backends["confirmed"],
        connected.backends["refused"],
        connected.backends["retries"],
        connected.balancer["sockets"] - arguments.shards as u64,
        connected.balancer["flows"]
    );
    let (before, started) = (fleet.settled(&mut clients)?, Instant::now());
    clients.ask(Duration::from_secs(arguments.seconds), |clients| {
        let tally = clients.tally();
        let open = clients.open();
        eprintln!(
            "{} asked, {} answered, {open} open",
            tally.asked, tally.answered
        );
    })?;
    let (loaded, lasted) = (fleet.snapshot(&clients), started.elapsed());
    let after = fleet.settled(&mut clients)?;
    let passed = judge(
        arguments,
        &clients,
        [&idle, &before, &loaded, &after],
        lasted,
    );
    fleet.stop();
    Ok(passed)
}

/// What was sent to a hop, and what came out of it.
struct Hop {
    name: &'static str,
    sent: u64,
    arrived: u64,
    /// Of those that did not, how many a full socket buffer is said to have dropped.
    overflowed: u64,
}

impl Hop {
    fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.arrived)
    }
}

/// Every hop since the clients began.
fn hops(at: &Snapshot) -> [Hop; 6] {
    let hop = |name, sent, arrived, overflowed| Hop {
        name,
        sent,
        arrived,
        overflowed,
    };
    let (balancer, backends) = (&at.balancer, &at.backends);
    [
        hop(
            "clients to balancer",
            at.clients.sent,
            balancer["up_received"],
            balancer["up_overflowed"],
        ),
        hop(
            "through balancer, up",
            balancer["up_received"],
            balancer["up_forwarded"],
            0,
        ),
        hop(
            "balancer to servers",
            balancer["up_forwarded"],
            backends["received"],
            backends["overflowed"],
        ),
        hop(
            "servers to balancer",
            backends["sent"],
            balancer["down_received"],
            balancer["down_overflowed"],
        ),
        hop(
            "through balancer, down",
            balancer["down_received"],
            balancer["down_forwarded"],
            0,
        ),
        hop(
            "balancer to clients",
            balancer["down_forwarded"],
            at.clients.received,
            at.clients.overflowed,
        ),
    ]
}

fn judge(
    arguments: &Arguments,
    clients: &Clients,
    [idle, before, loaded, after]: [&Snapshot; 4],
    lasted: Duration,
) -> bool {
    let tally = clients.tally();
    let seconds = lasted.as_secs_f64();
    let share =
        |time: usize| (loaded.time[time] - before.time[time]).as_secs_f64() / seconds * 100.0;
    println!(
        "{seconds:.0} s of load: {} round trips, {} of them not answered; {:.1} ms in the median, \
         {:.1} ms for 99 %; {} connections ended",
        tally.asked,
        tally.asked - tally.answered,
        tally.latency(0.5).as_secs_f64() * 1e3,
        tally.latency(0.99).as_secs_f64() * 1e3,
        tally.closed
    );
    let received = |at: &Snapshot| at.balancer["up_received"] + at.balancer["down_received"];
    let offered = |at: &Snapshot| at.clients.sent + at.backends["sent"];
    println!(
        "datagrams a second: {:.0} to the balancer, {:.0} received by it",
        (offered(loaded) - offered(before)) as f64 / seconds,
        (received(loaded) - received(before)) as f64 / seconds
    );
    println!(
        "processors: clients {:.0} %, balancer {:.0} %, servers {:.0} %; at most {:.0} ms behind",
        share(0),
        share(1),
        share(2),
        tally.behind.as_secs_f64() * 1e3
    );
    let each = |of: usize| {
        after.memory[of].saturating_sub(idle.memory[of]) / tally.confirmed.max(1) as u64
    };
    println!(
        "memory a connection: {} bytes in the balancer, {} in its client, {} in its server",
        each(1),
        each(0),
        each(2)
    );
    println!("{:<24} {:>12} {:>12} {:>10}", "", "sent", "arrived", "lost");
    let mut unexplained = 0;
    for (hop, former) in hops(after).iter().zip(hops(before)) {
        let (sent, arrived) = (hop.sent - former.sent, hop.arrived - former.arrived);
        println!(
            "{:<24} {sent:>12} {arrived:>12} {:>10}   ({} by full buffers since the start)",
            hop.name,
            sent.saturating_sub(arrived),
            hop.overflowed
        );
        // Where much is lost, clients never rest, and the counts are of different moments.
        let at_rest = arguments.least_loss == 0.0;
        unexplained += u64::from(at_rest && hop.arrived > hop.sent);
    }
    // What did not get through the balancer, or not even into it.
    let lost = |at: &Snapshot| -> u64 {
        let of = hops(at);
        [0, 1, 3, 4].iter().map(|&hop: &usize| of[hop].lost()).sum()
    };
    let ever = lost(after);
    let lost = ever.saturating_sub(lost(before));
    let offered = offered(after) - offered(before);
    let percent = lost as f64 / offered.max(1) as f64 * 100.0;
    println!(
        "lost at the balancer: {lost} of {offered} datagrams, {percent:.2} %; \
         {ever} since the first connection"
    );
    let complete = tally.confirmed == arguments.clients && tally.failed == 0;
    let passed = if arguments.least_loss > 0.0 {
        percent >= arguments.least_loss
    } else {
        ever == 0 && complete && tally.closed == 0
    };
    println!(
        "{}",
        if passed && unexplained == 0 {
            "passed"
        } else {
            "FAILED"
        }
    );
    passed && unexplained == 0
}
