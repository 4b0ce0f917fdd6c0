//! Where clients, balancer and servers are: on loopback, or each in a network namespace, with the
//! routes that transparent mode needs.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::fleet::{Balance, Rotation, balancer_file_of, quic_lb, site_at};
use super::quinn::Quinn;
use crate::common::namespace::Namespace;
use crate::web::{Site, TempDir, pattern};

/// The addresses in the namespaces.
struct Addresses {
    client: &'static str,
    service: &'static str,
    servers: &'static str,
    /// The balancer's address towards the servers, which is their gateway.
    gateway: &'static str,
    /// Everything.
    all: &'static str,
}

const V4: Addresses = Addresses {
    client: "10.88.0.2",
    service: "10.88.0.1",
    servers: "10.88.1.2",
    gateway: "10.88.1.1",
    all: "0.0.0.0/0",
};

const V6: Addresses = Addresses {
    client: "fd88::2",
    service: "fd88::1",
    servers: "fd88:0:0:1::2",
    gateway: "fd88:0:0:1::1",
    all: "::/0",
};

/// Three namespaces in a row.
struct Spaces {
    addresses: Addresses,
    client: Namespace,
    balancer: Namespace,
    servers: Namespace,
}

/// Where everything runs.
pub(super) struct World {
    /// `None` = all on loopback, and the balancer translates addresses.
    spaces: Option<Spaces>,
    /// `None` = the servers are `clearway serve`.
    quinn: Option<Quinn>,
    /// Of the balancer.
    shards: usize,
}

impl World {
    pub(super) fn loopback() -> Self {
        Self {
            spaces: None,
            quinn: None,
            shards: 1,
        }
    }

    /// With other servers.
    pub(super) fn served_by(self, quinn: Quinn) -> Self {
        Self {
            quinn: Some(quinn),
            ..self
        }
    }

    /// With a balancer of several shards.
    pub(super) fn with_shards(self, shards: usize) -> Self {
        Self { shards, ..self }
    }

    pub(super) fn shards(&self) -> usize {
        self.shards
    }

    /// With a balancer that keeps clients' addresses. `None`, with a word, where namespaces cannot
    /// be made.
    pub(super) fn transparent() -> Option<Self> {
        Self::transparent_with(V4)
    }

    /// The same over IPv6.
    pub(super) fn transparent_v6() -> Option<Self> {
        Self::transparent_with(V6)
    }

    fn transparent_with(addresses: Addresses) -> Option<Self> {
        let spaces = Spaces {
            addresses,
            client: Namespace::new()?,
            balancer: Namespace::new()?,
            servers: Namespace::new()?,
        };
        spaces.connect();
        Some(Self {
            spaces: Some(spaces),
            quinn: None,
            shards: 1,
        })
    }

    pub(super) fn balance(&self, dir: &TempDir, options: &[&str]) -> Balance {
        let shards = self.shards.to_string();
        let options = &[options, &["--shards", &shards]].concat();
        match &self.spaces {
            None => Balance::start(dir, "127.0.0.1:0", options),
            Some(spaces) => spaces.balancer.run(|| {
                let listen = with_port(spaces.addresses.service, 0);
                Balance::start(dir, &listen, &[&options[..], &["--transparent"]].concat())
            }),
        }
    }

    /// Replaces the one that was started with this directory.
    pub(super) fn take_over(&self, dir: &TempDir, options: &[&str]) -> Balance {
        match &self.spaces {
            None => Balance::take_over(dir, options),
            Some(spaces) => spaces
                .balancer
                .run(|| Balance::take_over(dir, &[options, &["--transparent"]].concat())),
        }
    }

    pub(super) fn site(&self, dir: &TempDir, content: &Path, number: u8) -> Site {
        let listen = with_port(self.server_ip(), 0);
        let start = || match &self.quinn {
            None => site_at(&listen, dir, content, number),
            Some(quinn) => quinn.site(&listen, dir, number),
        };
        match &self.spaces {
            None => start(),
            Some(spaces) => spaces.servers.run(start),
        }
    }

    pub(super) fn balancer_file(&self, sites: &[Site], rotation: Rotation) -> String {
        let port = |site: &Site| site.address().port();
        let addresses = sites
            .iter()
            .map(|site| with_port(self.server_ip(), port(site)));
        balancer_file_of(&addresses.collect::<Vec<_>>(), &self.quic_lb(rotation))
    }

    /// The encoding of connection IDs, as the servers can make them.
    pub(super) fn quic_lb(&self, rotation: Rotation) -> String {
        match &self.quinn {
            None => quic_lb(rotation),
            Some(_) => Quinn::quic_lb(rotation),
        }
    }

    /// The path and the content of a file of this length, whose name is `name` in the content of
    /// `clearway serve`.
    pub(super) fn file(&self, name: &str, length: usize) -> (String, Vec<u8>) {
        match &self.quinn {
            None => (format!("/{name}"), pattern(length)),
            Some(_) => Quinn::file(length),
        }
    }

    /// Runs what clients do, on a thread where they are.
    pub(super) fn run_clients<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        match &self.spaces {
            None => what(),
            Some(spaces) => spaces.client.run(what),
        }
    }

    /// The address that servers see clients at.
    pub(super) fn seen_client(&self) -> &'static str {
        match &self.spaces {
            None => "127.0.0.1",
            Some(spaces) => spaces.addresses.client,
        }
    }

    /// Runs something in the balancer's place.
    pub(super) fn run_balancer<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        match &self.spaces {
            None => what(),
            Some(spaces) => spaces.balancer.run(what),
        }
    }

    /// Runs something in the servers' place.
    pub(super) fn run_servers<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        match &self.spaces {
            None => what(),
            Some(spaces) => spaces.servers.run(what),
        }
    }

    /// The address that clients send to.
    pub(super) fn service_ip(&self) -> IpAddr {
        let address = match &self.spaces {
            None => "127.0.0.1",
            Some(spaces) => spaces.addresses.service,
        };
        address.parse().unwrap()
    }

    pub(super) fn server_ip(&self) -> &'static str {
        match &self.spaces {
            None => "127.0.0.1",
            Some(spaces) => spaces.addresses.servers,
        }
    }
}

fn with_port(address: &str, port: u16) -> String {
    SocketAddr::new(address.parse().unwrap(), port).to_string()
}

impl Spaces {
    /// Client and servers each have a cable to the balancer and a route by it, and what the
    /// servers send to clients is delivered there.
    fn connect(&self) {
        let (balancer, at) = (&self.balancer, &self.addresses);
        balancer.connect("clients", at.service, &self.client, at.client);
        balancer.connect("servers", at.gateway, &self.servers, at.servers);
        let family = if at.all.contains(':') { "-6" } else { "-4" };
        balancer.ip(&[family, "rule", "add", "iif", "servers", "lookup", "100"]);
        let deliver = ["route", "add", "local", at.all, "dev", "lo", "table", "100"];
        balancer.ip(&[&[family], &deliver[..]].concat());
    }
}
