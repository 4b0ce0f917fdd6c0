//! The `clearway raw serve` command.

use core::time::Duration;
use std::io::Write as _;

use clearway::{
    BuildError, Connection, ConnectionError, Endpoint, QlogDir, ServerConfig, TransportConfig,
};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::answer::ServedRequest;
use super::args::Serve;
use super::report::{ConnectionClosed, Listening, ServeSummary};
use super::{ALPN, answer};
use crate::failure::{Failure, Kind};
use crate::identity;
use crate::interrupt::Interrupts;
use crate::output::{print, print_json};
use crate::qlog::with_traces;

/// How long to wait for clients to receive the close.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves until a signal arrives.
///
/// # Errors
/// If the certificate cannot be used, the address cannot be bound, or stdout cannot be written to.
pub(super) async fn serve(args: &Serve, qlog: Option<&QlogDir>) -> Result<(), Failure> {
    let server = bind(args, qlog)?;
    let mut interrupts = Interrupts::new()?;
    announce(&server, args.json)?;
    let (reports, mut closed) = mpsc::unbounded_channel();
    let serving = server.serve(move |connection| on_connection(connection, reports.clone()));
    let mut served = ServeSummary::default();
    let mut serving = Box::pin(serving);
    loop {
        tokio::select! {
            Some(report) = closed.recv() => tell(&mut served, &report, args.json)?,
            ended = &mut serving => {
                ended.map_err(|e| Failure::caused(Kind::Endpoint, "server failed", &e))?;
                break;
            }
            _ = interrupts.next() => break,
        }
    }
    drop(serving);
    server.close(0, b"the server is shutting down");
    server.wait_idle().await;
    // The last reports come from tasks that have not noticed the end yet.
    while let Ok(Some(report)) = tokio::time::timeout(GOODBYE, closed.recv()).await {
        tell(&mut served, &report, args.json)?;
    }
    say!(
        "raw: {} connection(s), {} request(s), {} failed, {} bytes",
        served.connections,
        served.requests,
        served.failed,
        served.sent
    );
    if args.json {
        print_json(&served)?;
    }
    Ok(())
}

/// Adds a closed connection to the totals and prints it.
fn tell(served: &mut ServeSummary, report: &ConnectionClosed, json: bool) -> Result<(), Failure> {
    served.add(report);
    if json {
        print_json(report)?;
    }
    Ok(())
}

fn bind(args: &Serve, qlog: Option<&QlogDir>) -> Result<Endpoint, Failure> {
    let mut transport = TransportConfig::default();
    transport.controller = args.controller.into();
    transport.versions = args.versions;
    let config = certificate(args)?
        .alpn([ALPN])
        .transport(transport)
        .always_retry(args.retry)
        .early_data(args.zero_rtt);
    let endpoint = Endpoint::builder(args.listen)
        .server(config)
        .shards(usize::from(args.shards));
    with_traces(endpoint, qlog).build().map_err(|error| {
        let kind = match &error {
            BuildError::Config(_) | BuildError::Shards(_) => Kind::Arguments,
            _ => Kind::Address,
        };
        Failure::caused(kind, format!("cannot listen on {}", args.listen), &error)
    })
}

/// The configuration, with the certificate of the command line or a generated one.
fn certificate(args: &Serve) -> Result<ServerConfig, Failure> {
    if let (Some(certificate), Some(key)) = (&args.cert, &args.key) {
        return ServerConfig::with_identity(identity::read(certificate)?, identity::read(key)?)
            .map_err(|error| identity::unusable(certificate, key, &error));
    }
    let identity = identity::development()?;
    say!(
        "raw: development certificate, SHA-256 {}",
        identity.fingerprint()
    );
    ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())
        .map_err(|error| Failure::caused(Kind::Other, "development certificate", &error))
}

/// Prints the address, so that a script can continue as soon as it reads it.
fn announce(server: &Endpoint, json: bool) -> Result<(), Failure> {
    let address = server.local_addr();
    if json {
        return print_json(&Listening::on(address));
    }
    print(|out| writeln!(out, "listening on {address}"))
}

/// Serves a connection's requests until it ends, then reports it.
async fn on_connection(connection: Connection, reports: mpsc::UnboundedSender<ConnectionClosed>) {
    let first = connection.remote_address();
    let mut report = ConnectionClosed::of(first);
    let mut answers = JoinSet::new();
    let cause = loop {
        tokio::select! {
            accepted = connection.accept_bi() => match accepted {
                Ok((send, recv)) => {
                    answers.spawn(answer(send, recv));
                }
                Err(cause) => break cause,
            },
            Some(answered) = answers.join_next() => count(&mut report, &ended(answered)),
        }
    };
    while let Some(answered) = answers.join_next().await {
        count(&mut report, &ended(answered));
    }
    conclude(&mut report, &connection, &cause);
    // Nobody receives it once the process is ending.
    let _ = reports.send(report);
}

/// Counts the result of a request; a task that panicked failed too.
fn ended(
    answered: Result<Result<ServedRequest, Failure>, JoinError>,
) -> Result<ServedRequest, Failure> {
    answered.unwrap_or_else(|error| Err(Failure::caused(Kind::Other, "a request", &error)))
}

/// Counts a finished request.
fn count(report: &mut ConnectionClosed, answered: &Result<ServedRequest, Failure>) {
    let Ok(answered) = answered else {
        report.failed += 1;
        return;
    };
    if answered.stopped {
        report.stopped += 1;
    } else {
        report.requests += 1;
    }
    report.sent += answered.bytes;
    report.received += answered.uploaded;
}

/// Fills in what is known when a connection has ended.
fn conclude(report: &mut ConnectionClosed, connection: &Connection, cause: &ConnectionError) {
    let counters = connection.stats().counters;
    report.migrated = connection.remote_address() != report.remote;
    report.retried = connection.retried();
    report.version = connection.version().to_string();
    report.resumed = connection.resumed();
    report.zero_rtt_accepted = connection.zero_rtt_accepted();
    report.key_updates = counters.key_updates;
    report.peer_key_updates = counters.peer_key_updates;
    report.cause = cause.to_string();
}
