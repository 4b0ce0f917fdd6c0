//! Limits on what clients may use, as options.

use core::net::IpAddr;

use clearway::config::Limits;
use clearway::http::Timeouts;
use clearway::{ServerConfig, TransportConfig};
use clearway_links::{ByteSize, Span};
use ipnet::IpNet;

use super::limits::Memory;

/// Options that limit what clients may use.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// Maximum number of connections over all shards; further ones are refused. An idle
    /// connection uses about 10 KiB.
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().connections)]
    pub(super) max_connections: usize,
    /// Maximum number of connections per IPv4 address or IPv6 /56 prefix, over all shards.
    /// Less than a tenth of --max-connections leaves room for others.
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().connections_per_source)]
    max_connections_per_source: usize,
    /// Memory limit of the whole process. Of it, 16 MiB and 3 MiB per shard are fixed costs, a
    /// quarter of the rest is left to the allocator, and the remainder is for connections,
    /// requests and their data. When that runs short, flow-control windows shrink, then the
    /// idle connections that hold the most memory are closed. By default clients get a quarter
    /// of the machine's memory, at most 1 GiB, and the process uses somewhat more.
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// Load balancers and proxies in front of this server, such as 10.0.0.0/8 or 2001:db8::1:
    /// no limits per source apply to their addresses, tokens of earlier connections do not
    /// validate them, and another port counts as another path. May be given several times.
    #[arg(long, value_name = "ADDR[/BITS]", visible_alias = "behind", value_parser = network)]
    trust: Vec<IpNet>,
    /// Maximum duration of a handshake; under load at most 10 s.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    handshake_timeout: Span,
    /// Close connections on which nothing was received for this long; 0s disables.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    idle_timeout: Span,
    /// Maximum time for a request's headers to arrive, from their first byte; 0s disables.
    /// Like nginx's client_header_timeout.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    header_timeout: Span,
    /// Maximum pause in an upload; 0s disables. Like nginx's client_body_timeout.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    body_timeout: Span,
    /// Maximum time a client may read nothing of a pending response; 0s disables. Like
    /// nginx's send_timeout.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    response_timeout: Span,
    /// Minimum rate of uploads and responses in bytes per second, averaged over five times the
    /// timeout, so that a client cannot hold a request open with a byte now and then; 0
    /// disables. The default is that of IIS and Kestrel.
    #[arg(long, value_name = "BYTES", default_value_t = Timeouts::default().min_rate)]
    min_rate: u32,
    /// Close connections without a request in progress after this long, even if they send
    /// keep-alives; 0s disables. Like nginx's keepalive_timeout.
    #[arg(long, value_name = "TIME", default_value = "75s")]
    keepalive_timeout: Span,
    /// Maximum size of an upload; larger ones are rejected with 413. The default is more than
    /// most people upload by hand, and less than most disks have free.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "16GB",
        requires = "writable"
    )]
    pub(super) max_upload: ByteSize,
}

impl LimitOptions {
    /// How long a client may keep the server waiting.
    pub(super) fn timeouts(&self) -> Timeouts {
        let limit = |span: Span| Some(span.0).filter(|limit| !limit.is_zero());
        Timeouts {
            request_headers: limit(self.header_timeout),
            request_body: limit(self.body_timeout),
            response: limit(self.response_timeout),
            min_rate: self.min_rate,
            idle: limit(self.keepalive_timeout),
            // `--drain` sets the time for shutting down.
            drain: None,
        }
    }

    /// Applies these limits.
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

    /// The division of memory.
    ///
    /// # Errors
    /// If there is too little.
    pub(super) fn memory(&self, shards: u16) -> Result<Memory, String> {
        self.memory.map_or_else(
            || Ok(Memory::default()),
            |ByteSize(bytes)| Memory::divide(bytes, shards),
        )
    }
}

/// Parses a network or a single address.
fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(address).ok_or_else(|| {
        "expected an address or network such as 10.0.0.0/8 or 2001:db8::1".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_parse_with_and_without_prefix_length() {
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

    /// The defaults in the help text are those of the library, each option sets its own timeout,
    /// and zero disables.
    #[test]
    fn each_timeout_option_sets_its_own_timeout() {
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
