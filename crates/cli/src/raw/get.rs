//! The `clearway raw get` command.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::time::Instant;

use clearway::{
    ClientConfig, ConnectAnyError, ConnectError, Connection, Endpoint, QlogDir, TransportConfig,
};

use super::ALPN;
use super::args::Get;
use super::report::{Download, FailedRun};
use super::work::{RequestTotals, Requests};
use crate::failure::{Failure, Kind};
use crate::identity;
use crate::interrupt::unless_interrupted;
use crate::output::print_json;
use crate::qlog::with_traces;

/// How long to wait for the server to receive the close.
const GOODBYE: Duration = Duration::from_secs(1);

/// Connects, transfers and reports.
///
/// # Errors
/// See [`Kind`].
pub(super) async fn get(args: &Get, qlog: Option<&QlogDir>) -> Result<(), Failure> {
    let outcome = unless_interrupted(attempt(args, qlog))
        .await
        .and_then(|done| done);
    match &outcome {
        Ok(report) => {
            say!("raw: {}", report.text());
            if args.json {
                print_json(report)?;
            }
        }
        Err(failure) if args.json => print_json(&FailedRun::with(&failure.message))?,
        Err(_) => {}
    }
    outcome.map(drop)
}

async fn attempt(args: &Get, qlog: Option<&QlogDir>) -> Result<Download, Failure> {
    let deadline = tokio::time::Instant::now() + args.timeout.0;
    let late = |_| {
        let message = format!("{}: timed out after {}", args.server, args.timeout);
        Failure::new(Kind::Timeout, message)
    };
    let reaching = tokio::time::timeout_at(deadline, Client::reach(args, qlog));
    let (client, connected) = reaching.await.map_err(late)??;
    let outcome = tokio::time::timeout_at(deadline, client.run(args, connected)).await;
    client.endpoint.close(0, b"done");
    let report = outcome.map_err(late)??;
    let _ = tokio::time::timeout(GOODBYE, client.endpoint.wait_idle()).await;
    Ok(report)
}

/// The client's socket, and the server to connect to.
struct Client {
    endpoint: Endpoint,
    remote: SocketAddr,
    server_name: String,
}

/// A connection and how it was established.
struct EstablishedConnection {
    connection: Connection,
    /// When its first datagram was sent.
    begun: Instant,
}

impl Client {
    /// Connects to the first of the server's addresses that responds.
    async fn reach(
        args: &Get,
        qlog: Option<&QlogDir>,
    ) -> Result<(Self, EstablishedConnection), Failure> {
        let config = config(args)?;
        let (remotes, host) = resolve(&args.server).await?;
        let server_name = args.server_name.clone().unwrap_or(host);
        let endpoint = socket(&config, qlog)?;
        let begun = Instant::now();
        let connecting = endpoint.connect_any(remotes, &server_name);
        let connection = connecting.await.map_err(|error| {
            let kind = match &error {
                ConnectAnyError::Failed(failures) => failures.last().map(|(_, last)| kind(last)),
                _ => None,
            };
            let what = format!("cannot connect to {}", args.server);
            Failure::caused(kind.unwrap_or(Kind::Address), what, &error)
        })?;
        let client = Self {
            endpoint,
            remote: connection.remote_address(),
            server_name,
        };
        Ok((client, EstablishedConnection { connection, begun }))
    }

    async fn run(&self, args: &Get, connected: EstablishedConnection) -> Result<Download, Failure> {
        let (first, connected) = if args.resume || args.zero_rtt {
            let first = self.first_visit(args, connected.connection).await?;
            (Some(first), self.connect(args.zero_rtt).await?)
        } else {
            (None, connected)
        };
        let EstablishedConnection { connection, begun } = connected;
        let handshake = tokio::spawn({
            let connection = connection.clone();
            async move {
                connection
                    .handshake_complete()
                    .await
                    .map(|()| begun.elapsed())
            }
        });
        let started = Instant::now();
        let work = Requests::new(args, self.endpoint.clone(), connection.clone());
        let done = match args.seconds {
            Some(time) => work.bulk(time).await?,
            None => work.requests(args.parallel).await?,
        };
        let seconds = started.elapsed().as_secs_f64();
        let handshake = handshake
            .await
            .map_err(|error| Failure::caused(Kind::Other, "a task", &error))?
            .map_err(|error| Failure::caused(Kind::Connection, "the handshake", &error))?;
        let stats = connection.stats();
        Ok(Download {
            peer: "clearway",
            completed: true,
            bytes: done.received + first.as_ref().map_or(0, |first| first.received),
            uploaded: done.uploaded + first.as_ref().map_or(0, |first| first.uploaded),
            seconds,
            gbps: done.received as f64 * 8.0 / 1e9 / seconds.max(1e-9),
            requests: done.answered + first.as_ref().map_or(0, |first| first.answered),
            handshake_ms: handshake.as_micros() as f64 / 1e3,
            resumed: connection.resumed(),
            // A server that issued no ticket for 0-RTT did not accept it either.
            zero_rtt_accepted: args
                .zero_rtt
                .then(|| connection.zero_rtt_accepted().unwrap_or(false)),
            key_updates: stats.counters.key_updates,
            rebinds: done.rebinds,
            losses: stats.counters.packets_lost,
            ptos: stats.counters.ptos,
            rtt_ms: stats.smoothed_rtt.as_micros() as f64 / 1e3,
            mtu: stats.mtu,
        })
    }

    /// Makes the same requests on a first connection, to obtain the ticket that the measured one
    /// resumes.
    async fn first_visit(
        &self,
        args: &Get,
        connection: Connection,
    ) -> Result<RequestTotals, Failure> {
        let work = Requests::new(args, self.endpoint.clone(), connection.clone());
        let done = work.requests(args.parallel).await?;
        connection.close(0, b"got a ticket");
        Ok(done)
    }

    /// With `early`, does not wait for the handshake if 0-RTT can be sent.
    async fn connect(&self, early: bool) -> Result<EstablishedConnection, Failure> {
        let begun = Instant::now();
        let mut connecting = self.endpoint.connect(self.remote, &self.server_name);
        if early {
            connecting = match connecting.into_zero_rtt() {
                Ok((connection, _)) => return Ok(EstablishedConnection { connection, begun }),
                Err(connecting) => connecting,
            };
        }
        let connection = connecting.await.map_err(|error| {
            let what = format!("cannot connect to {}", self.remote);
            Failure::caused(kind(&error), what, &error)
        })?;
        Ok(EstablishedConnection { connection, begun })
    }
}

fn config(args: &Get) -> Result<ClientConfig, Failure> {
    let mut transport = TransportConfig::default();
    transport.controller = args.controller.into();
    transport.versions = args.versions;
    let config = match &args.ca {
        Some(file) => ClientConfig::with_roots(identity::read(file)?)
            .map_err(|error| Failure::caused(Kind::Arguments, file.display(), &error))?,
        None => ClientConfig::dangerous_accept_any_certificate(),
    };
    Ok(config
        .alpn([ALPN])
        .transport(transport)
        .early_data(args.zero_rtt))
}

/// A socket for IPv6 and IPv4, or for IPv4 on hosts without the other.
fn socket(config: &ClientConfig, qlog: Option<&QlogDir>) -> Result<Endpoint, Failure> {
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    let [dual, v4] = any.map(|ip| SocketAddr::new(ip, 0));
    let client = |address| {
        let endpoint = Endpoint::builder(address).client(config.clone());
        with_traces(endpoint, qlog).build()
    };
    client(dual)
        .or_else(|_| client(v4))
        .map_err(|error| Failure::caused(Kind::Address, "cannot open a socket", &error))
}

/// The addresses of HOST:PORT, at least one, and HOST.
async fn resolve(server: &str) -> Result<(Vec<SocketAddr>, String), Failure> {
    let Some((host, _)) = server.rsplit_once(':') else {
        return Err(Failure::new(
            Kind::Arguments,
            format!("missing port in {server:?}; expected HOST:PORT such as localhost:4433"),
        ));
    };
    let what = || format!("cannot resolve {server:?}");
    let addresses: Vec<_> = tokio::net::lookup_host(server)
        .await
        .map_err(|error| Failure::caused(Kind::Address, what(), &error))?
        .collect();
    if addresses.is_empty() {
        let message = format!("{}: no addresses found", what());
        return Err(Failure::new(Kind::Address, message));
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((addresses, host.to_owned()))
}

fn kind(error: &ConnectError) -> Kind {
    match error {
        ConnectError::ServerName(_) | ConnectError::Config(_) => Kind::Arguments,
        ConnectError::Unreachable(_) => Kind::Address,
        _ => Kind::Connection,
    }
}
