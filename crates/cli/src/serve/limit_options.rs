//! What clients may take of the server, as the command line says.

use core::net::IpAddr;

use clearway::config::Limits;
use clearway::http::Timeouts;
use clearway::{ServerConfig, TransportConfig};
use clearway_links::Span;
use ipnet::IpNet;

use super::limits::Memory;
use crate::size::Size;

/// Options that bound what clients may take.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Bounds {
    /// Connections at a time, over all shards; the next are refused. A quiet one holds
    /// some 10 KiB.
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().connections)]
    pub(super) max_connections: usize,
    /// Connections of one IPv4 address or IPv6 prefix of 56 bits at a time, over all
    /// shards. Fewer than a tenth of --max-connections leave room for others.
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
    /// How long a request's headers may take to arrive, from their first byte on; 0s does
    /// not limit it. As nginx's client_header_timeout.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    header_timeout: Span,
    /// How long an upload may send nothing; 0s does not limit it. As nginx's
    /// client_body_timeout.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    body_timeout: Span,
    /// How long a client may take nothing of a response that waits for it; 0s does not
    /// limit it. As nginx's send_timeout.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    response_timeout: Span,
    /// Bytes a second that uploads have to send and clients to take of a response, on
    /// average over five times the timeout: one byte now and then would hold a request
    /// for ever. 0 asks for none. The default is that of IIS and Kestrel.
    #[arg(long, value_name = "BYTES", default_value_t = Timeouts::default().min_rate)]
    min_rate: u32,
    /// Close connections without a request under way for so long, even if they show that
    /// they are there; 0s never does. As nginx's keepalive_timeout.
    #[arg(long, value_name = "TIME", default_value = "75s")]
    keepalive_timeout: Span,
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
    /// How long a client may keep the server waiting.
    pub(super) fn timeouts(&self) -> Timeouts {
        let limit = |span: Span| Some(span.0).filter(|limit| !limit.is_zero());
        Timeouts {
            request_headers: limit(self.header_timeout),
            request_body: limit(self.body_timeout),
            response: limit(self.response_timeout),
            min_rate: self.min_rate,
            idle: limit(self.keepalive_timeout),
            // `--drain` says how long the end may take.
            drain: None,
        }
    }

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

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        serve: crate::serve::Args,
    }

    fn timeouts(options: &[&str]) -> Timeouts {
        let words = ["serve", "."].iter().chain(options);
        let line = <Line as clap::Parser>::try_parse_from(words).unwrap();
        line.serve.bounds.timeouts()
    }

    /// The defaults of the help are those of the library, each option sets its own
    /// timeout, and zero is none.
    #[test]
    fn each_option_sets_its_timeout() {
        assert_eq!(timeouts(&[]), Timeouts::default());
        let second = Some(core::time::Duration::from_secs(1));
        for (time, expected) in [("1s", second), ("0s", None)] {
            let default = Timeouts::default;
            for (option, changed) in [
                (
                    "--header-timeout",
                    Timeouts {
                        request_headers: expected,
                        ..default()
                    },
                ),
                (
                    "--body-timeout",
                    Timeouts {
                        request_body: expected,
                        ..default()
                    },
                ),
                (
                    "--response-timeout",
                    Timeouts {
                        response: expected,
                        ..default()
                    },
                ),
                (
                    "--keepalive-timeout",
                    Timeouts {
                        idle: expected,
                        ..default()
                    },
                ),
            ] {
                assert_eq!(timeouts(&[option, time]), changed, "{option}");
            }
        }
        assert_eq!(timeouts(&["--min-rate", "7"]).min_rate, 7);
    }
}
