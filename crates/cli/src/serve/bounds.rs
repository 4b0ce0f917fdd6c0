//! What clients may take of the server, as the command line says.

use core::net::IpAddr;

use clearway::config::Limits;
use clearway::{ServerConfig, TransportConfig};
use clearway_links::Span;
use ipnet::IpNet;

use super::limits::Memory;
use crate::size::Size;

/// Options that bound what clients may take.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Bounds {
    /// Connections at a time, of each shard; the next are refused. A quiet one holds
    /// some 10 KiB.
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().connections)]
    max_connections: usize,
    /// Connections of one IPv4 address or IPv6 prefix of 56 bits at a time, of each
    /// shard. Fewer than a tenth of what there are leave room for others.
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().connections_per_source)]
    max_connections_per_source: usize,
    /// Memory that the whole process may take: 16 MiB, 3 MiB for each shard, a quarter of
    /// the rest for the allocator, and what remains for connections, requests and what is
    /// read for them. As that runs short, windows narrow, then the connections that hold
    /// most for longest without use are closed. By default clients get a quarter of the
    /// machine's memory, at most 1 GiB, and the process takes some more.
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Addresses that no limit per source is for, such as a balancer's: 10.0.0.0/8,
    /// 2001:db8::1. May be given several times.
    #[arg(long, value_name = "ADDR[/BITS]", value_parser = network)]
    trust: Vec<IpNet>,
    /// How long a handshake may take, whatever the client sends meanwhile; under load
    /// it is 10 s at most.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    handshake_timeout: Span,
    /// Close connections on which nothing was heard for so long; 0s never does.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    idle_timeout: Span,
    /// Largest upload taken; larger ones are answered with 413. The default is more
    /// than most people send by hand, and less than most disks have free.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "16GB",
        requires = "writable"
    )]
    pub(super) max_upload: Size,
}

impl Bounds {
    /// With these limits.
    pub(super) fn apply(
        &self,
        config: ServerConfig,
        mut transport: TransportConfig,
        memory: &Memory,
    ) -> ServerConfig {
        let mut limits = Limits::default();
        limits.connections = self.max_connections;
        limits.connections_per_source = self.max_connections_per_source;
        limits.trusted.clone_from(&self.trust);
        transport.handshake_timeout = self.handshake_timeout.0;
        transport.idle_timeout = self.idle_timeout.0;
        let config = config.transport(transport).limits(limits);
        match memory.counted {
            Some(bytes) => config.memory_budget(bytes),
            None => config,
        }
    }

    /// How memory is divided.
    ///
    /// # Errors
    /// If there is too little.
    pub(super) fn memory(&self, shards: u16) -> Result<Memory, String> {
        self.memory.map_or_else(
            || Ok(Memory::default()),
            |Size(bytes)| Memory::divide(bytes, shards),
        )
    }
}

/// A network, or one address.
fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(address).ok_or_else(|| {
        "not an address or network; write one such as 10.0.0.0/8 or 2001:db8::1".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_with_and_without_their_length() {
        for (text, network_shown) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("10.1.2.3", Some("10.1.2.3/32")),
            ("2001:db8::/56", Some("2001:db8::/56")),
            ("::1", Some("::1/128")),
            ("10.0.0.0/33", None),
            ("example.org", None),
            ("", None),
        ] {
            let read = network(text).ok().map(|network| network.to_string());
            assert_eq!(read.as_deref(), network_shown, "{text}");
        }
    }
}
