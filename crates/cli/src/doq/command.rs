//! The `clearway doq` command.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io::Write as _;

use clearway::doq::{self, Client, Server};
use clearway::{Endpoint, QlogDir, ServerConfig};
use serde::Serialize;
use tokio::net::{TcpListener, UdpSocket};

use super::Args;
use super::args::ServerName;
use super::stub::Stub;
use super::upstream::Upstream;
use crate::failure::{Failure, Kind};
use crate::identity;
use crate::interrupt::unless_interrupted;
use crate::output::{print, print_json};
use crate::qlog::{self, with_traces};

/// Forwards queries until a signal arrives, which ends it with success.
///
/// # Errors
/// If an address cannot be bound, or the server's name has no address.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let qlog = args.qlog.open("doq")?;
    let outcome = runtime.block_on(async {
        match unless_interrupted(forward(args, qlog.as_ref())).await {
            Ok(result) => result,
            // A signal is how it is meant to end.
            Err(failure) if failure.kind == Kind::Interrupted => Ok(()),
            Err(failure) => Err(failure),
        }
    });
    qlog::finish(qlog);
    outcome
}

async fn forward(args: &Args, qlog: Option<&QlogDir>) -> Result<(), Failure> {
    match (args.listen, &args.server, args.serve, args.upstream) {
        (Some(listen), Some(server), _, _) => stub(args, listen, server, qlog).await,
        (_, _, Some(serve), Some(upstream)) => server(args, serve, upstream, qlog).await,
        _ => Err(Failure::new(
            Kind::Arguments,
            "expected --listen with --server, or --serve with --upstream",
        )),
    }
}

async fn stub(
    args: &Args,
    listen: SocketAddr,
    server: &ServerName,
    qlog: Option<&QlogDir>,
) -> Result<(), Failure> {
    let config = args.trust.client_config()?;
    let address = resolve(server).await?;
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let endpoint = with_traces(Endpoint::builder(any), qlog)
        .client(config.alpn([doq::ALPN]))
        .build();
    let endpoint = endpoint
        .map_err(|error| Failure::caused(Kind::Address, "cannot create the client", &error))?;
    let name = args.name.as_ref().unwrap_or(&server.host);
    let stub = Stub::new(Client::new(endpoint, address, name), args.timeout.0);
    let cannot = |error: std::io::Error| {
        let what = format!("cannot answer DNS queries on {listen}");
        Failure::caused(Kind::Address, what, &error)
    };
    let udp = UdpSocket::bind(listen).await.map_err(cannot)?;
    let own = udp.local_addr().map_err(cannot)?;
    let tcp = TcpListener::bind(own).await.map_err(cannot)?;
    announce(args, own, None)?;
    say!("doq: queries to {own} go to {address} by DNS over QUIC");
    tokio::select! {
        ended = stub.serve_udp(udp) => ended.map_err(cannot),
        () = stub.serve_tcp(tcp) => Ok(()),
    }
}

/// The first address of the server.
async fn resolve(server: &ServerName) -> Result<SocketAddr, Failure> {
    let ServerName { host, port } = server;
    let found = tokio::net::lookup_host((host.as_str(), *port)).await;
    let found = found.map_err(|error| {
        Failure::caused(Kind::Address, format!("cannot resolve {host}"), &error)
    })?;
    let first = found.into_iter().next();
    first.ok_or_else(|| Failure::new(Kind::Address, format!("{host} has no address")))
}

async fn server(
    args: &Args,
    serve: SocketAddr,
    upstream: SocketAddr,
    qlog: Option<&QlogDir>,
) -> Result<(), Failure> {
    let invalid = |error| Failure::caused(Kind::Arguments, "the certificate", &error);
    let (config, fingerprint) = match (&args.cert, &args.key) {
        (Some(chain), Some(key)) => {
            let (chain, key) = (identity::read(chain)?, identity::read(key)?);
            (
                ServerConfig::with_identity(chain, key).map_err(invalid)?,
                None,
            )
        }
        _ => {
            let made = identity::development()?;
            let config = ServerConfig::with_identity(made.certificate_pem(), made.key_pem());
            (
                config.map_err(invalid)?,
                Some(made.fingerprint().to_string()),
            )
        }
    };
    // What may be replayed waits for nothing, and the rest for the handshake (RFC 9250 §4.5).
    let config = config.alpn([doq::ALPN]).early_data(true);
    let endpoint = with_traces(Endpoint::builder(serve), qlog)
        .server(config)
        .build();
    let endpoint = endpoint.map_err(|error| {
        Failure::caused(Kind::Address, format!("cannot listen on {serve}"), &error)
    })?;
    announce(args, endpoint.local_addr(), fingerprint)?;
    let resolver = Upstream::new(upstream, args.timeout.0);
    let served = endpoint.serve(Server::new(resolver)).await;
    served.map_err(|error| Failure::caused(Kind::Endpoint, "server failed", &error))
}

/// The listening address, for scripts.
#[derive(Serialize)]
struct Listening {
    event: &'static str,
    address: SocketAddr,
    /// The SHA-256 fingerprint of a generated certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
}

fn announce(args: &Args, address: SocketAddr, fingerprint: Option<String>) -> Result<(), Failure> {
    if let Some(fingerprint) = &fingerprint {
        say!("doq: development certificate, SHA-256 {fingerprint}");
    }
    if args.json {
        return print_json(&Listening {
            event: "listening",
            address,
            fingerprint,
        });
    }
    print(|out| writeln!(out, "listening on {address}"))
}
