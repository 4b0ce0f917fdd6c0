//! The server.

use std::{
    fs,
    net::{Ipv6Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result};
use clearway::{
    Connection, Endpoint, EndpointBuilder, Identity, ServerConfig, ServerCrypto, TransportConfig,
    Version, VersionPreference, http as http3,
};
use contract::runner::Environment;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    client::{HQ, algorithms},
    pages::Pages,
    test_case::TestCase,
};

/// Streams that a client may open at once. The runner wants 1,000 at most.
const STREAMS: u64 = 1000;

/// How long a handshake may take: with 30 % loss, some need more than the default of a minute.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(120);

/// Serves until SIGTERM. What the connections have written of their qlog files is in them then: a
/// connection that hangs is the one whose file matters.
pub(crate) async fn run(environment: &Environment, test: TestCase) -> Result<()> {
    let mut terminated = signal(SignalKind::terminate()).context("handling SIGTERM")?;
    tokio::select! {
        served = serve(environment, test) => served,
        _ = terminated.recv() => Ok(()),
    }
}

async fn serve(environment: &Environment, test: TestCase) -> Result<()> {
    let address = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), environment.port);
    let config = config(environment, test)?;
    let pages = Pages::new(&environment.www);
    let traced = |endpoint: EndpointBuilder| endpoint.qlog_from_env();
    if test.http3 {
        let mut traces = Ok(());
        let server = http3::Server::builder(address, config)
            .endpoint(|endpoint| match traced(endpoint.on_caller_runtime()) {
                Ok(endpoint) => endpoint,
                Err(error) => {
                    traces = Err(error);
                    Endpoint::builder(address)
                }
            })
            .build()?;
        traces.context("QLOGDIR")?;
        announce(server.local_addr());
        server.serve(pages).await?;
        return Ok(());
    }
    let endpoint = Endpoint::builder(address)
        .server(config.alpn([HQ]))
        .on_caller_runtime();
    let endpoint = traced(endpoint).context("QLOGDIR")?.build()?;
    announce(endpoint.local_addr());
    endpoint
        .serve(move |connection: Connection| pages.clone().serve_hq(connection))
        .await?;
    Ok(())
}

fn announce(address: SocketAddr) {
    println!("listening on {address}");
}

fn config(environment: &Environment, test: TestCase) -> Result<ServerConfig> {
    let read = |name: &str| {
        let file = environment.certs.join(name);
        read(&file)
    };
    let identity = Identity::from_pem(&read("cert.pem")?, &read("priv.key")?)?;
    let crypto = ServerCrypto::new(identity)
        .algorithms(algorithms(test))
        .key_log_from_env();
    let mut transport = TransportConfig::default();
    transport.streams.max_bidi_streams = STREAMS;
    transport.handshake_timeout = HANDSHAKE_TIMEOUT;
    transport.idle_timeout = HANDSHAKE_TIMEOUT;
    if let Some(congestion) = &environment.congestion {
        transport.controller = congestion.parse().context("CONGESTION")?;
    }
    let mut config = ServerConfig::with_crypto(crypto)
        .transport(transport)
        .always_retry(test.retry)
        .early_data(true);
    if test.version_2 {
        config = config.versions(VersionPreference::new(&[Version::V2, Version::V1])?);
    }
    if let Some(preferred) = environment.preferred.filter(|_| test.migration) {
        config = match preferred {
            SocketAddr::V4(address) => config.preferred_address(Some(address), None),
            SocketAddr::V6(address) => config.preferred_address(None, Some(address)),
        };
    }
    Ok(config)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("reading {}", file.display()))
}
