//! The settings of a balancer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clearway_quic::cid::quic_lb::{Config, ServerId};

use crate::backend::BackendState;
use crate::health::HealthSettings;
use crate::router::RouterLimits;
use crate::sample::SampleLog;

/// A backend in the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSettings {
    /// Its name in status and log.
    pub name: String,
    /// Where its datagrams go.
    pub address: SocketAddr,
    /// Its share of new connections, relative to the others; at least 1.
    pub weight: u32,
    /// What it is sent while it answers.
    pub state: BackendState,
    /// Its server ID in each QUIC-LB configuration, by config ID.
    pub server_ids: Vec<(u8, ServerId)>,
}

/// How datagrams are read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Many a system call, trains in one piece.
    #[default]
    Batched,
    /// One a system call, received and forwarded in turn, without offload: for comparison.
    Naive,
    /// As `Batched`, but each shard has a second thread that only receives, and a bounded queue
    /// between the two.
    Decoupled,
}

/// Default of [`Settings::upstream_sockets`] in transparent mode, below the usual hard limit of 20,000
/// descriptors or more. Clients behind few addresses have few port numbers in common, so that each may
/// take a socket.
const TRANSPARENT_SOCKETS: u32 = 16_384;

/// The settings of a balancer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The address that clients send to; port 0 picks a free port.
    pub listen: SocketAddr,
    /// Number of threads, each with a socket of its own. The kernel spreads clients over them by
    /// their addresses, so that a client whose connection ID changes stays with its thread, and
    /// so with its upstream port.
    pub shards: usize,
    /// The backends.
    pub backends: Vec<BackendSettings>,
    /// The QUIC-LB configurations whose connection IDs are routed.
    pub quic_lb: Vec<Config>,
    /// Addresses of this host that datagrams to backends are sent from; if there are none, the
    /// system chooses one.
    pub sources: Vec<IpAddr>,
    /// Most upstream sockets of a shard; in [transparent](Self::transparent) mode of all shards
    /// together. With `sources`, one socket serves as many flows to each backend as there are addresses.
    pub upstream_sockets: u32,
    /// Most flows of a shard: clients' addresses, each with a backend.
    pub flows: usize,
    /// Bounds of a shard's tables and rates.
    pub limits: RouterLimits,
    /// Sends to backends from the clients' own addresses, so that backends see them. `listen` must
    /// have the service's address, and the network must bring what backends send to clients back
    /// to this host. Needs the capability `CAP_NET_ADMIN`, and takes one socket for each port
    /// number that clients have; the port also decides on the shard. `sources` must be empty.
    pub transparent: bool,
    /// When a backend counts as down; `None` = never.
    pub health: Option<HealthSettings>,
    /// How datagrams are read and written.
    pub mode: Mode,
    /// Processor time to waste on each datagram, for comparison with slower programs.
    pub work: Duration,
    /// Where datagrams of sampled connections are counted: what passes the service sockets as hop
    /// `balancer`, what passes the upstream sockets as hop `balancer-out`.
    pub samples: Option<Arc<SampleLog>>,
}

impl Settings {
    /// Creates the default settings, without backends.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            shards: 1,
            backends: Vec::new(),
            quic_lb: Vec::new(),
            sources: Vec::new(),
            // Below the usual limit of 1,024 descriptors for all.
            upstream_sockets: 512,
            flows: 1 << 18,
            limits: RouterLimits::default(),
            transparent: false,
            health: Some(HealthSettings::default()),
            mode: Mode::Batched,
            work: Duration::ZERO,
            samples: None,
        }
    }

    /// Chooses [transparent](Self::transparent) mode, with its default number of sockets.
    pub fn keep_client_addresses(&mut self) {
        self.transparent = true;
        self.upstream_sockets = TRANSPARENT_SOCKETS;
    }
}
