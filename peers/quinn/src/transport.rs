//! Transport settings: quinn's defaults, but for what the command line names.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
};

use anyhow::{Context, Result};
use clap::Args;
use contract::options::STREAMS;
use quinn::{
    Endpoint, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TokioRuntime, TransportConfig,
    VarInt,
};
use socket2::{Domain, Protocol, Socket, Type};

/// Largest UDP payload, in bytes: of Ethernet and IPv6, with room for an option.
const PAYLOAD: u16 = 1452;

/// Seconds without a packet after which a connection is given up.
const IDLE: u32 = 30;

/// What both roles can set.
#[derive(Debug, Clone, Args)]
pub struct Transport {
    /// Largest UDP payload to send or receive, in bytes
    #[arg(long, default_value_t = PAYLOAD, value_parser = clap::value_parser!(u16).range(1200..=65527))]
    payload: u16,
    /// Send window and both receive windows, in bytes, instead of quinn's defaults
    #[arg(long)]
    window: Option<u32>,
    /// Send and receive buffer of the socket, in bytes, instead of the system's default
    #[arg(long)]
    socket_buffer: Option<usize>,
    /// Seconds without a packet after which a connection is given up
    #[arg(long, default_value_t = IDLE, value_parser = clap::value_parser!(u32).range(1..=3600))]
    idle: u32,
}

impl Transport {
    /// What the command line is without options, but for windows and socket buffers, in bytes.
    #[must_use]
    pub fn new(window: Option<u32>, socket_buffer: Option<usize>) -> Self {
        Self {
            payload: PAYLOAD,
            window,
            socket_buffer,
            idle: IDLE,
        }
    }

    /// As quinn wants it for a connection.
    pub fn config(&self) -> Arc<TransportConfig> {
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(self.payload);
        let mut config = TransportConfig::default();
        config.mtu_discovery_config(Some(discovery));
        config.max_concurrent_bidi_streams(STREAMS.into());
        let idle = VarInt::from_u32(self.idle * 1000);
        config.max_idle_timeout(Some(IdleTimeout::from(idle)));
        if let Some(window) = self.window {
            config
                .stream_receive_window(VarInt::from_u32(window))
                .receive_window(VarInt::from_u32(window))
                .send_window(u64::from(window));
        }
        Arc::new(config)
    }

    /// An endpoint on a fresh socket, a server's if `server` is given.
    pub fn endpoint(
        &self,
        local: SocketAddr,
        server: Option<quinn::ServerConfig>,
    ) -> Result<Endpoint> {
        self.endpoint_with(EndpointConfig::default(), local, server)
    }

    /// The same, with its own connection IDs and secret for stateless resets.
    pub fn endpoint_with(
        &self,
        mut config: EndpointConfig,
        local: SocketAddr,
        server: Option<quinn::ServerConfig>,
    ) -> Result<Endpoint> {
        config.max_udp_payload_size(self.payload)?;
        let runtime = Arc::new(TokioRuntime);
        Ok(Endpoint::new(config, server, self.socket(local)?, runtime)?)
    }

    /// A socket of the wanted buffer sizes.
    pub fn socket(&self, local: SocketAddr) -> Result<UdpSocket> {
        let bind = || {
            let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
            if let Some(size) = self.socket_buffer {
                socket.set_send_buffer_size(size)?;
                socket.set_recv_buffer_size(size)?;
            }
            socket.bind(&local.into())?;
            Ok::<_, std::io::Error>(socket.into())
        };
        bind().with_context(|| format!("binding {local}"))
    }
}
