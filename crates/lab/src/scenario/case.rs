//! Cases: scenarios with all variables replaced, ready to run.

use core::time::Duration;

use clearway_quic::connection::Config;
use clearway_recovery::controller::SavedPath;

use super::bars::{Bar, KnownMiss};
use crate::app::Workload;
use crate::measure::Bulk;
use crate::stack::{Certificates, Protocol};
use crate::world::{AddressChanges, Network};

/// One flow: a client, a server, and what they transfer.
#[derive(Clone, Debug)]
pub struct Flow {
    /// When and from which addresses its client acts.
    pub moves: AddressChanges,
    /// Its workload.
    pub workload: Workload,
    /// Its protocol.
    pub protocol: Protocol,
    /// The direction of its bulk data.
    pub bulk: Bulk,
    /// Whether it carries bulk data, rather than requests that only measure.
    pub counts: bool,
    /// Its controller, if it is not the one under test.
    pub controller: Option<String>,
}

/// One grid point of a scenario, for one controller.
#[derive(Clone, Debug)]
pub struct Case {
    /// The scenario's name.
    pub scenario: String,
    /// The name of the grid point; empty without a grid.
    pub variant: String,
    /// The controller under test.
    pub controller: String,
    /// The network between the hosts.
    pub network: Network,
    /// The flows.
    pub flows: Vec<Flow>,
    /// Maximum virtual time.
    pub duration: Duration,
    /// When the warm-up ends.
    pub warmup: Duration,
    /// When each disturbance ends.
    pub recovery_from: Vec<Duration>,
    /// The rate to recover to, bit/s, if it is not that of the shared link.
    pub recovery_rate: Option<f64>,
    /// The bars.
    pub bars: Vec<Bar>,
    /// Bars known to be missed, with the reason.
    pub missed: Vec<KnownMiss>,
    /// Findings that the scenario declares.
    pub expected_findings: Vec<String>,
    /// Transport settings of both ends, except the controller.
    pub transport: Config,
    /// What an earlier connection measured of the path, which senders resume (RFC 9959).
    pub resumed: Option<SavedPath>,
    /// The servers' certificates.
    pub certificates: Certificates,
    /// Disables the post-quantum key exchange.
    pub x25519_only: bool,
}
