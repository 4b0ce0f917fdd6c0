//! Established connections that ask for nothing and stay.

use std::io;
use std::time::Duration;

use clearway_quic::connection::Config;

use super::sockets::{Sockets, Traffic};
use super::swarm::Swarm;
use super::{Attacker, Field};

/// Connections that one attacker wants to hold.
const CONNECTIONS: usize = 10_000;

/// Source addresses they come from.
const SOURCES: usize = 250;

/// Between two PINGs of a connection.
const PING_EVERY: Duration = Duration::from_secs(15);

/// Holds connections open with PINGs.
pub(crate) struct ConnectionHolders {
    swarm: Swarm<()>,
}

impl ConnectionHolders {
    pub(crate) fn new(field: &Field) -> io::Result<Self> {
        let sockets = Sockets::bind(field.number, 0, SOURCES)?;
        let swarm = Swarm::new(field.server, sockets, Config::default())?;
        Ok(Self { swarm })
    }
}

impl Attacker for ConnectionHolders {
    fn turn(&mut self, packets: u64) {
        self.swarm.keep(CONNECTIONS);
        self.swarm.step();
        self.swarm.refresh(PING_EVERY, packets);
    }

    fn traffic(&self) -> Traffic {
        self.swarm.traffic()
    }

    fn held(&self) -> usize {
        self.swarm.established()
    }

    fn has_gathered(&self) -> bool {
        self.held() == CONNECTIONS
    }

    fn note(&self) -> String {
        format!("{} handshakes; {}", self.swarm.completed, self.swarm.fate())
    }
}
