//! The servers behind a balancer.

use std::fmt;
use std::net::SocketAddr;

use clearway_quic::cid::quic_lb::ServerId;

/// Identifies a backend. A number is used again after 65,536 others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId(pub u16);

/// What a backend is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendState {
    /// New connections and the datagrams of old ones.
    #[default]
    Active,
    /// The datagrams of old connections only.
    Draining,
    /// Nothing: its connections are sent to other backends, which can tell the clients with a
    /// stateless reset.
    Down,
}

impl BackendState {
    /// Returns whether datagrams of existing connections are sent to the backend.
    #[must_use]
    pub fn serves_connections(self) -> bool {
        match self {
            Self::Active | Self::Draining => true,
            Self::Down => false,
        }
    }

    /// Returns the state's name in configuration and status.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Down => "down",
        }
    }
}

impl fmt::Display for BackendState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A server behind the balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its number.
    pub id: BackendId,
    /// Its name in status and log.
    pub name: String,
    /// Where its datagrams go.
    pub address: SocketAddr,
    /// Its share of new connections, relative to the others; at least 1.
    pub weight: u32,
    /// What it is sent.
    pub state: BackendState,
    /// Its server ID in each QUIC-LB configuration, by config ID.
    pub server_ids: Vec<(u8, ServerId)>,
}
