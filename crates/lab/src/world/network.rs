//! The network between the hosts.

use core::str::FromStr;
use core::time::Duration;

use clearway_links::{LinkConfig, SpecError};

/// When the clocks of links with `clock=explicit` start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockStart {
    /// With the first datagram of any host.
    #[default]
    FirstDatagram,
    /// With the first client that can send a request: the first 1-RTT data.
    FirstRequest,
    /// Never: they have started, or are started elsewhere.
    Explicit,
}

/// A link between one client and the shared path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLink {
    /// From the client.
    pub up: LinkConfig,
    /// To the client.
    pub down: LinkConfig,
}

/// The path that all hosts share: clients on one side, servers on the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// From clients to servers.
    pub up: LinkConfig,
    /// From servers to clients.
    pub down: LinkConfig,
    /// When explicit clocks start.
    pub clock: ClockStart,
}

/// A network description that is invalid.
pub type NetworkError = SpecError;

impl Network {
    /// A network with the same link in both directions, as [`LinkConfig`] text.
    ///
    /// # Errors
    /// Names the setting that is invalid.
    pub fn symmetric(settings: &str) -> Result<Self, NetworkError> {
        settings.parse()
    }

    /// The two-way propagation delay at the start, without queueing.
    #[must_use]
    pub fn base_rtt(&self) -> Duration {
        self.up.delay.at(None).0 + self.down.delay.at(None).0
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(settings: &str) -> Result<Self, NetworkError> {
        let link: LinkConfig = settings.parse()?;
        Ok(Self {
            up: link.clone(),
            down: link,
            ..Self::default()
        })
    }
}
