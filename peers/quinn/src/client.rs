//! The client: connects, has a transfer done, and again if a second connection is wanted.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use quinn::{ClientConfig, Connecting, Connection, Endpoint, TransportConfig, VarInt};

use contract::pattern;
use peer_quinn::{
    tls,
    transport::Transport,
    witness::{Witness, Witnessed},
};

use crate::{
    report::{PEER, Run},
    transfer::{Moved, Plan, Transfer},
};

/// Application error code of a connection closed because all went well.
const DONE: VarInt = VarInt::from_u32(0);

/// Application error code of a connection closed because something did not.
const FAILED: VarInt = VarInt::from_u32(1);

/// How long to wait for a session ticket after the first transfer.
const TICKET_PATIENCE: Duration = Duration::from_secs(5);

/// Command-line options of a client.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The server's address
    server: SocketAddr,
    /// Name the server's certificate must be good for
    #[arg(long)]
    server_name: String,
    /// Authorities to trust, PEM
    #[arg(long)]
    ca: PathBuf,
    #[command(flatten)]
    plan: Plan,
    /// Connect a second time and say whether the session was resumed
    #[arg(long)]
    resume: bool,
    /// Connect a second time, send the requests as early data, say whether it was accepted
    #[arg(long)]
    zero_rtt: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    transport: Transport,
}

impl Options {
    /// Whether a second connection is wanted.
    fn second(&self) -> bool {
        self.resume || self.zero_rtt
    }
}

/// Runs once and prints what came of it.
pub(crate) async fn run(options: Options) -> Result<()> {
    pattern::prepare();
    options.plan.check()?;
    let client = Client::new(&options)?;
    let visits = client.visits().await;
    client.endpoint.wait_idle().await;
    let (moved, visit) = visits?;
    let seconds = moved.time.as_secs_f64();
    let run = Run {
        peer: PEER,
        bytes: moved.bytes,
        uploaded: moved.uploaded,
        seconds,
        gbps: moved.bytes as f64 * 8e-9 / seconds.max(f64::MIN_POSITIVE),
        requests: moved.requests,
        resumed: options.second().then_some(visit.resumed),
        zero_rtt_accepted: visit.zero_rtt_accepted,
        retried: visit.witness.retried(),
        key_updates: visit.witness.key_updates(),
    };
    if options.json {
        println!("{}", serde_json::to_string(&run)?);
    } else {
        println!("{}", run.sentence());
    }
    Ok(())
}

/// What all connections of a run share.
struct Client<'a> {
    options: &'a Options,
    endpoint: Endpoint,
    transport: Arc<TransportConfig>,
    tls: tls::Client,
}

/// What one connection showed.
struct Visit {
    witness: Arc<Witness>,
    moved: Moved,
    resumed: bool,
    zero_rtt_accepted: Option<bool>,
}

impl<'a> Client<'a> {
    fn new(options: &'a Options) -> Result<Self> {
        let any = match options.server.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Ok(Self {
            options,
            endpoint: options.transport.endpoint(SocketAddr::new(any, 0), None)?,
            transport: options.transport.config(),
            tls: tls::Client::new(pattern::ALPN, &options.ca, true)?,
        })
    }

    /// All connections wanted: what they moved together, and what the last one showed.
    async fn visits(&self) -> Result<(Moved, Visit)> {
        let first = self.full().await?;
        if !self.options.second() {
            return Ok((first.moved, first));
        }
        let arrived = self.tls.tickets.arrival(TICKET_PATIENCE).await;
        ensure!(arrived, "no session ticket arrived");
        let second = if self.options.zero_rtt {
            self.early().await?
        } else {
            self.full().await?
        };
        Ok((first.moved.plus(second.moved), second))
    }

    /// A connection whose transfer starts after the handshake.
    async fn full(&self) -> Result<Visit> {
        let witness = Arc::new(Witness::default());
        let certificates = self.tls.verifier.count();
        let connection = self.connect(&witness)?.await.context("connecting")?;
        let moved = settle(&connection, self.transfer(&connection, &witness).await)?;
        Ok(Visit {
            witness,
            moved,
            resumed: self.tls.verifier.count() == certificates,
            zero_rtt_accepted: None,
        })
    }

    /// A connection whose transfer starts in its first flight, if the ticket allows that. What
    /// a server rejects of it is sent again after the handshake (RFC 9001 §4.6.2).
    async fn early(&self) -> Result<Visit> {
        let witness = Arc::new(Witness::default());
        let certificates = self.tls.verifier.count();
        let (connection, outcome, accepted) = match self.connect(&witness)?.into_0rtt() {
            Ok((connection, accepted)) => {
                let mut outcome = self.transfer(&connection, &witness).await;
                let accepted = accepted.await;
                if !accepted {
                    outcome = self.transfer(&connection, &witness).await;
                }
                (connection, outcome, accepted)
            }
            Err(connecting) => {
                let connection = connecting.await.context("connecting")?;
                let outcome = self.transfer(&connection, &witness).await;
                (connection, outcome, false)
            }
        };
        let moved = settle(&connection, outcome)?;
        Ok(Visit {
            witness,
            moved,
            resumed: self.tls.verifier.count() == certificates,
            zero_rtt_accepted: Some(accepted),
        })
    }

    fn connect(&self, witness: &Arc<Witness>) -> Result<Connecting> {
        let tls: Arc<dyn quinn::crypto::ClientConfig> = Arc::clone(&self.tls.config) as _;
        let crypto = Witnessed::new(tls, Arc::clone(witness));
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::clone(&self.transport));
        let Options {
            server,
            server_name,
            ..
        } = self.options;
        Ok(self.endpoint.connect_with(config, *server, server_name)?)
    }

    async fn transfer(&self, connection: &Connection, witness: &Arc<Witness>) -> Result<Moved> {
        Transfer::new(
            self.options.plan.clone(),
            connection.clone(),
            Arc::clone(witness),
            self.endpoint.clone(),
            self.options.transport.clone(),
        )
        .run()
        .await
    }
}

/// Closes a connection in a way that tells the server how it went.
fn settle(connection: &Connection, outcome: Result<Moved>) -> Result<Moved> {
    match outcome {
        Ok(_) => connection.close(DONE, b"done"),
        Err(_) => connection.close(FAILED, b"failed"),
    }
    outcome
}
