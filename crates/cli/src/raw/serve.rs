//! `clearway raw serve` from start to end.

use core::sync::atomic::{AtomicU64, Ordering};
use std::io::{self, Write as _};
use std::sync::Arc;

use clearway::{BuildError, Connection, Endpoint, ServerConfig, TransportConfig};
use tokio::signal::unix::{SignalKind, signal};

use super::args::Serve;
use super::report::Served;
use super::{ALPN, answer, print_json};
use crate::failure::{Failure, Kind};
use crate::identity;

/// Totals while serving.
#[derive(Debug, Default)]
struct Totals {
    connections: AtomicU64,
    requests: AtomicU64,
    stopped: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    uploaded: AtomicU64,
}

/// Serves until a signal comes.
///
/// # Errors
/// If the certificate cannot be used or the address not be bound.
pub(super) async fn serve(args: &Serve) -> Result<(), Failure> {
    let server = bind(args)?;
    announce(&server)?;
    let totals = Arc::new(Totals::default());
    let counting = totals.clone();
    let serving = server.serve(move |connection| on_connection(connection, counting.clone()));
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        () = serving => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    server.close(0, b"the server is going away");
    server.wait_idle().await;
    let served = totals.read();
    say!(
        "raw: {} connection(s), {} request(s), {} failed, {} bytes",
        served.connections,
        served.requests,
        served.failed,
        served.bytes
    );
    if args.json {
        print_json(&served)?;
    }
    Ok(())
}

fn bind(args: &Serve) -> Result<Endpoint, Failure> {
    let mut transport = TransportConfig::default();
    transport.controller = args.controller;
    let config = certificate(args)?
        .alpn([ALPN])
        .transport(transport)
        .always_retry(args.retry)
        .early_data(args.zero_rtt);
    Endpoint::builder(args.listen)
        .server(config)
        .shards(usize::from(args.shards))
        .build()
        .map_err(|error| {
            let kind = match &error {
                BuildError::Config(_) | BuildError::Shards(_) => Kind::Arguments,
                _ => Kind::Address,
            };
            Failure::caused(kind, format!("cannot listen on {}", args.listen), &error)
        })
}

/// Settings with the certificate of the command line or a new one.
fn certificate(args: &Serve) -> Result<ServerConfig, Failure> {
    if let (Some(certificate), Some(key)) = (&args.cert, &args.key) {
        return ServerConfig::with_identity(identity::read(certificate)?, identity::read(key)?)
            .map_err(|error| {
                let files = format!("{} and {}", certificate.display(), key.display());
                Failure::caused(Kind::Arguments, files, &error)
            });
    }
    let identity = identity::development()?;
    say!(
        "raw: development certificate, SHA-256 {}",
        identity.fingerprint()
    );
    ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())
        .map_err(|error| Failure::caused(Kind::Other, "development certificate", &error))
}

/// Says where, so that a script can go on as soon as it reads it.
fn announce(server: &Endpoint) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "listening on {}", server.local_addr())
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::caused(Kind::Other, "cannot write to stdout", &error))
}

async fn on_connection(connection: Connection, totals: Arc<Totals>) {
    count(&totals.connections, 1);
    while let Ok((send, recv)) = connection.accept_bi().await {
        let totals = totals.clone();
        tokio::spawn(async move {
            match answer(send, recv).await {
                Ok(answered) => {
                    let ended = match answered.stopped {
                        false => &totals.requests,
                        true => &totals.stopped,
                    };
                    count(ended, 1);
                    count(&totals.bytes, answered.bytes);
                    count(&totals.uploaded, answered.uploaded);
                }
                Err(_) => count(&totals.failed, 1),
            }
        });
    }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Totals {
    fn read(&self) -> Served {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Served {
            connections: read(&self.connections),
            requests: read(&self.requests),
            stopped: read(&self.stopped),
            failed: read(&self.failed),
            bytes: read(&self.bytes),
            uploaded: read(&self.uploaded),
        }
    }
}
