//! What a relay counted.

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
    /// Client addresses ever seen.
    pub(crate) flows: u64,
    /// Client addresses known now.
    pub(crate) live_flows: u64,
    /// Changes of port that the server could see.
    pub(crate) rebinds: u64,
    /// What the relay itself lost, which no link was asked to lose.
    pub(crate) own_losses: OwnLosses,
    /// Datagrams from the server to a port that a rebind had given up.
    pub(crate) stale: u64,
    /// Datagrams to a client's port from somebody other than the server.
    pub(crate) strays: u64,
    /// How late datagrams left.
    pub(crate) lateness: Lateness,
}

/// Datagrams lost by the relay and not by its links. All zero in a run whose
/// results mean anything.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct OwnLosses {
    /// The kernel dropped them before the relay could read them.
    pub(crate) receive: u64,
    /// The kernel did not take them, or nobody listened.
    pub(crate) send: u64,
    /// They outgrew the path's first hop or the relay's buffers.
    pub(crate) too_large: u64,
    /// The relay held as many bytes as it may.
    pub(crate) memory: u64,
    /// There was no place or no socket for another client.
    pub(crate) refused: u64,
}

impl OwnLosses {
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
