//! One client: its links, and the socket the server sees.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::io;

use clearway_links::{Path, Time};
use clearway_udp::{Options, Socket};

use super::Config;

/// One client address with its links and sockets.
#[derive(Debug)]
pub(super) struct Flow {
    /// The client.
    pub(super) client: SocketAddr,
    /// The relay's address that the client sends to.
    pub(super) local_ip: Option<IpAddr>,
    /// The network between client and server.
    pub(super) path: Path,
    /// Sockets towards the server. The last is in use; earlier ones were replaced by rebinds and
    /// stay open, as a port that a NAT has reassigned would: what arrives there is read and
    /// dropped.
    pub(super) upstream: Vec<Socket>,
    /// Rebinds still to come, the next one last.
    rebinds: Vec<Time>,
    /// When a datagram last came from either side.
    pub(super) active: Time,
    idle: Duration,
}

impl Flow {
    /// Creates a flow that starts at `now`.
    pub(super) fn new(
        config: &Config,
        client: SocketAddr,
        local_ip: Option<IpAddr>,
        seed: u64,
        now: Time,
    ) -> io::Result<Self> {
        Ok(Self {
            client,
            local_ip,
            path: Path::new(config.up.clone(), config.down.clone(), seed),
            upstream: vec![open_upstream(config.to)?],
            rebinds: config.rebind.iter().rev().map(|&at| now + at).collect(),
            active: now,
            idle: config.idle,
        })
    }

    /// When this flow has to be processed next.
    pub(super) fn next_event(&self) -> Time {
        let mut next = self.expires();
        if let Some(release) = self.path.next_event() {
            next = next.min(release);
        }
        if let Some(&rebind) = self.rebinds.last() {
            next = next.min(rebind);
        }
        next
    }

    /// When the flow is to be forgotten unless traffic comes.
    pub(super) fn expires(&self) -> Time {
        self.active + self.idle
    }

    /// Switches to a new port towards the server if it is time; true if it did.
    ///
    /// If no socket can be created the flow keeps its port.
    pub(super) fn rebind_if_due(&mut self, now: Time, to: SocketAddr) -> io::Result<bool> {
        let due = self.rebinds.pop_if(|at| *at <= now).is_some();
        if due {
            self.upstream.push(open_upstream(to)?);
        }
        Ok(due)
    }

    /// The socket the server sees.
    pub(super) fn current(&self) -> Option<&Socket> {
        self.upstream.last()
    }
}

fn open_upstream(to: SocketAddr) -> io::Result<Socket> {
    let ip: IpAddr = if to.is_ipv6() {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    Socket::bind(SocketAddr::new(ip, 0), &Options::default())
}
