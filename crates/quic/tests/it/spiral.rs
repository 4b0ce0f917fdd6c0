//! The death spiral: ten megabytes with 30 % loss for the first two seconds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clearway_links::{LinkConfig, Path};
use clearway_quic::Instant;
use clearway_quic::connection::Config;

use clearway_testing::{Setup, World, download_watched};

const TOTAL: usize = 10_000_000;
const RTT: Duration = Duration::from_millis(10);
const LOSSY: Duration = Duration::from_secs(2);

/// When the two seconds begin, and which direction loses packets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LossTiming {
    /// With the first 1-RTT data, towards the client.
    Data,
    /// With the first datagram, both ways.
    Flow,
}

/// One world; what the server sends with is in `server`.
#[derive(Clone, Debug)]
pub(crate) struct DeathSpiral {
    pub(crate) server: Config,
    /// Packets for which the client sends an ACK: 1 or 2.
    pub(crate) ack_every: u64,
    pub(crate) jitter_us: u64,
    pub(crate) clock: LossTiming,
    /// The way to the client releases packets on ticks of 1 ms, so that one ACK
    /// answers both packets of a burst whatever else makes the client speak.
    pub(crate) ticks: bool,
    /// The whole download has to be done by then.
    pub(crate) limit: Duration,
    pub(crate) seed: u64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpiralResult {
    /// From the first datagram to the last byte; `None`: not within the limit.
    pub(crate) time: Option<Duration>,
    /// Round trips from the first packet heard after the loss to the last moment
    /// at which the window held no packet more than its floor.
    pub(crate) rounds_at_floor: u64,
}

impl DeathSpiral {
    fn setup(&self) -> Setup {
        let mut setup = Setup::new();
        setup.server = self.server.clone();
        // Else the server asks for another number of ACKs.
        setup.server.ack_frequency = false;
        setup.client.ack_frequency = false;
        if self.ack_every == 1 {
            // RFC 9000 §13.2.1: nothing may wait.
            setup.client.max_ack_delay = Duration::ZERO;
        }
        setup
    }

    fn path(&self) -> Path {
        let link = |loss: &str| -> LinkConfig {
            let jitter = self.jitter_us;
            let plain = format!("rate=100M delay=5ms queue=250 jitter={jitter}us");
            format!("{plain} {loss}").parse().expect("a link")
        };
        let tick = if self.ticks { "tick=1ms" } else { "" };
        match self.clock {
            LossTiming::Data => {
                let lossy = format!("loss=30%@0s-2s clock=explicit {tick}");
                Path::new(link(""), link(&lossy), self.seed)
            }
            LossTiming::Flow => {
                let lossy = "loss=30%@0s-2s clock=first-packet";
                let down = format!("{lossy} {tick}");
                Path::new(link(lossy), link(&down), self.seed)
            }
        }
    }

    /// Runs the download.
    pub(crate) fn run(&self) -> SpiralResult {
        let mut world = World::new(self.setup(), self.path(), self.seed);
        let clean_from = match self.clock {
            LossTiming::Data => {
                world.handshake();
                world
                    .path
                    .start_windows_at(clearway_links::Time(world.now.as_nanos()));
                world.now + LOSSY
            }
            LossTiming::Flow => {
                world.connect();
                let done = world.run_until(Duration::from_secs(20), |world| {
                    world.client.connection().is_confirmed()
                });
                assert!(done, "{self:?}: no handshake");
                Instant::ZERO + LOSSY
            }
        };
        let mut floor = FloorObserver::new(clean_from);
        let limit = self.limit.saturating_sub(world.now - Instant::ZERO);
        let done = download_watched(&mut world, TOTAL, limit, |world| floor.watch(world));
        SpiralResult {
            time: done.then(|| world.now - Instant::ZERO),
            rounds_at_floor: floor.rounds(),
        }
    }
}

/// Watches the server's window once the loss is over.
struct FloorObserver {
    clean_from: Instant,
    /// Packets the server had received when the loss ended.
    received: Option<u64>,
    heard: Option<Instant>,
    last_at_floor: Option<Instant>,
}

impl FloorObserver {
    fn new(clean_from: Instant) -> Self {
        Self {
            clean_from,
            received: None,
            heard: None,
            last_at_floor: None,
        }
    }

    fn watch(&mut self, world: &mut World) {
        if world.now < self.clean_from {
            return;
        }
        let now = world.now;
        let server = world.server.connection();
        let stats = server.stats(now);
        let received = stats.counters.packets_received;
        if received > *self.received.get_or_insert(received) {
            self.heard.get_or_insert(now);
        }
        let floor = server.path_stats(now).find(|path| path.active);
        let floor = floor.map_or(0, |path| path.min_window);
        if stats.window < floor + u64::from(stats.mtu) {
            self.last_at_floor = Some(now);
        }
    }

    fn rounds(&self) -> u64 {
        match (self.heard, self.last_at_floor) {
            (Some(heard), Some(last)) => {
                let rounds = (last - heard).as_nanos() / RTT.as_nanos();
                u64::try_from(rounds).expect("fits")
            }
            (None, _) | (_, None) => 0,
        }
    }
}

/// Seeds from the environment's `CLEARWAY_SEEDS`, or so many.
pub(crate) fn seeds(usual: u64) -> u64 {
    chosen("CLEARWAY_SEEDS", usual)
}

/// A number from the environment, or the usual one.
pub(crate) fn chosen(variable: &str, usual: u64) -> u64 {
    let chosen = std::env::var(variable).ok();
    chosen.and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// All cases, over all cores, answered in their order.
pub(crate) fn run_all<C: Sync, R: Send>(cases: &[C], run: impl Fn(&C) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores)
            .map(|_| {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(case) = cases.get(at) else {
                            return mine;
                        };
                        mine.push((at, run(case)));
                    }
                })
            })
            .collect();
        let joined = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .flat_map(|mine| mine.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    results.sort_by_key(|&(at, _)| at);
    results.into_iter().map(|(_, result)| result).collect()
}
