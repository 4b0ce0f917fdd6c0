//! Counters of a relay.

use clearway_links::LinkStats;
use clearway_udp::Counters;

use super::lateness::Lateness;

/// Totals of a relay, over all clients and their links.
#[derive(Clone, Debug, Default)]
pub(crate) struct RelayStats {
    /// Links from clients to the server.
    pub(crate) up: LinkStats,
    /// Links from the server to clients.
    pub(crate) down: LinkStats,
    /// Client addresses seen so far.
    pub(crate) flows: u64,
    /// Current client addresses.
    pub(crate) live_flows: u64,
    /// Rebinds visible to the server.
    pub(crate) rebinds: u64,
    /// Datagrams lost by the relay itself.
    pub(crate) own_losses: RelayLosses,
    /// Datagrams from the server to a port that a rebind had replaced.
    pub(crate) stale: u64,
    /// Datagrams to a client's port from an address other than the server's.
    pub(crate) strays: u64,
    /// How late datagrams were released.
    pub(crate) lateness: Lateness,
}

/// Datagrams lost by the relay and not by its links. Must be zero for meaningful results.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct RelayLosses {
    /// Dropped by the kernel before the relay could read them.
    pub(crate) receive: u64,
    /// Not accepted by the kernel, or sent to a closed port.
    pub(crate) send: u64,
    /// Larger than the local link's MTU or the relay's buffers.
    pub(crate) too_large: u64,
    /// Beyond the relay's memory limit.
    pub(crate) memory: u64,
    /// From clients beyond the limit, or without a socket.
    pub(crate) refused: u64,
}

impl RelayLosses {
    /// All of them.
    pub(crate) const fn total(&self) -> u64 {
        self.receive + self.send + self.too_large + self.memory + self.refused
    }

    /// Adds what a socket lost.
    pub(crate) const fn absorb(&mut self, counters: &Counters) {
        self.receive += counters.receive_drops;
        self.too_large += counters.truncated;
    }
}
