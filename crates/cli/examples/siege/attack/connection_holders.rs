//! Established connections that send only PINGs.

use std::io;
use std::time::Duration;

use clearway_quic::connection::Config;

use super::sockets::{Sockets, Traffic};
use super::swarm::Swarm;
use super::{Attacker, Context};

/// Connections to keep open.
const CONNECTIONS: usize = 10_000;

/// Number of source addresses.
const SOURCES: usize = 250;

/// Interval between two PINGs of a connection.
const PING_EVERY: Duration = Duration::from_secs(15);

/// Keeps connections open with PINGs.
pub(crate) struct ConnectionHolders {
    swarm: Swarm<()>,
}

impl ConnectionHolders {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, SOURCES)?;
        let swarm = Swarm::new(context.server, sockets, Config::default())?;
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
        format!(
            "{} handshakes; {}",
            self.swarm.completed,
            self.swarm.closures()
        )
    }
}
