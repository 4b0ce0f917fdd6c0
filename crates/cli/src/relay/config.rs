//! The configuration of a relay.

use core::net::SocketAddr;
use core::time::Duration;

use clearway_lab::scenario::Case;
use clearway_links::{Clock, LinkConfig, Overhead, QueueLimit};

/// How long a client address is remembered without traffic.
pub(crate) const DEFAULT_IDLE: Duration = Duration::from_secs(60);

/// Maximum number of client addresses at the same time. Each costs a socket, and common limits on
/// open files are 1,024.
pub(crate) const DEFAULT_MAX_FLOWS: usize = 256;

/// Default queue limit before a serialiser, in packets: that of a Linux interface.
const DEFAULT_QUEUE: QueueLimit = QueueLimit::Packets(1000);

/// The configuration of a relay.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The address to listen on; port 0 for any free port.
    pub(crate) listen: SocketAddr,
    /// The server.
    pub(crate) to: SocketAddr,
    /// The link from each client to the server.
    pub(crate) up: LinkConfig,
    /// The link from the server to each client.
    pub(crate) down: LinkConfig,
    /// The seed of random decisions. The n-th client of two runs with the same seed meets the same
    /// decisions.
    pub(crate) seed: u64,
    /// When the server sees each client move to a new port, counted from the
    /// client's first datagram, in order.
    pub(crate) rebind: Vec<Duration>,
    /// A client address is forgotten after this long without traffic.
    pub(crate) idle: Duration,
    /// Maximum number of client addresses at the same time; datagrams from others are dropped.
    pub(crate) max_flows: usize,
}

impl Config {
    /// A relay that forwards at once and loses nothing.
    pub(crate) fn new(listen: SocketAddr, to: SocketAddr) -> Self {
        let link = base_link(listen);
        Self {
            listen,
            to,
            up: link.clone(),
            down: link,
            seed: 1,
            rebind: Vec::new(),
            idle: DEFAULT_IDLE,
            max_flows: DEFAULT_MAX_FLOWS,
        }
    }
}

impl Config {
    /// Uses the links of a scenario. Its explicit clocks start with a client's first datagram,
    /// because the relay cannot see requests. A queue without a limit gets the relay's default.
    pub(crate) fn take_scenario(&mut self, case: &Case) {
        let links = [
            (&mut self.up, &case.network.up),
            (&mut self.down, &case.network.down),
        ];
        for (own, scenario) in links {
            let base = core::mem::replace(own, scenario.clone());
            own.overhead = base.overhead;
            own.clock = Clock::FirstPacket;
            if own.queue == LinkConfig::default().queue {
                own.queue = base.queue;
            }
        }
    }
}

/// The default links of a relay: windows count from a client's first datagram, and queues are
/// limited.
fn base_link(listen: SocketAddr) -> LinkConfig {
    LinkConfig {
        clock: Clock::FirstPacket,
        queue: DEFAULT_QUEUE.into(),
        overhead: if listen.is_ipv6() {
            Overhead::V6
        } else {
            Overhead::V4
        },
        ..LinkConfig::default()
    }
}
