//! A scenario with every variable in its place: what can be run.

use core::time::Duration;

use clearway_quic::connection::Config;

use super::bars::{Bar, Missed};
use crate::app::Workload;
use crate::measure::Bulk;
use crate::stack::{Certificates, Protocol};
use crate::world::{Moves, Network};

/// One flow: a client, a server, and what they do.
#[derive(Clone, Debug)]
pub struct Flow {
    /// When and from where its client acts.
    pub moves: Moves,
    /// What it carries.
    pub workload: Workload,
    /// What carries it.
    pub protocol: Protocol,
    /// Which way its bulk goes.
    pub bulk: Bulk,
    /// Whether it carries bulk, rather than requests that only measure.
    pub counts: bool,
    /// Its controller, if it is not the one under test.
    pub controller: Option<String>,
}

/// One point of a scenario's grid, for one controller.
#[derive(Clone, Debug)]
pub struct Case {
    /// The scenario's name.
    pub scenario: String,
    /// The point of the grid, for people; empty without a grid.
    pub variant: String,
    /// The controller under test.
    pub controller: String,
    /// What lies between the hosts.
    pub network: Network,
    /// What they do.
    pub flows: Vec<Flow>,
    /// Virtual time at most.
    pub duration: Duration,
    /// Measurement begins here.
    pub warmup: Duration,
    /// From where on each disturbance is over.
    pub recovery_from: Vec<Duration>,
    /// The rate to come back to, bit/s, if it is not the shared link's.
    pub recovery_rate: Option<f64>,
    /// What has to come of it.
    pub bars: Vec<Bar>,
    /// Bars known to be missed, with the reason.
    pub missed: Vec<Missed>,
    /// Findings that are part of the scenario.
    pub expected_findings: Vec<String>,
    /// Transport settings of both ends, controller aside.
    pub transport: Config,
    /// What servers show.
    pub certificates: Certificates,
    /// No post-quantum key exchange.
    pub x25519_only: bool,
}
