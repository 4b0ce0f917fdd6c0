//! The server: answers clearway-raw requests until it is killed.

use std::{
    io::{Write, stdout},
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use anyhow::Result;
use clap::Args;
use quinn::{
    Connection, Incoming, RecvStream, SendStream, ServerConfig, VarInt, WriteError, crypto,
};

use contract::pattern::{self, HEADER};
use peer_quinn::{
    tls,
    transport::Transport,
    witness::{Witness, Witnessed},
};

use crate::report::{Closed, PEER};

/// Application error code of a request shorter than its header.
const MALFORMED: VarInt = VarInt::from_u32(1);

/// Command-line options of a server.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Address to listen on; port 0 takes a free one
    #[arg(long)]
    listen: SocketAddr,
    /// Certificate chain, PEM
    #[arg(long)]
    cert: PathBuf,
    /// Private key, PEM
    #[arg(long)]
    key: PathBuf,
    /// Make every client prove its address by a Retry
    #[arg(long)]
    retry: bool,
    /// Accept early data, and answer it before the handshake is done
    #[arg(long)]
    zero_rtt: bool,
    /// Threads of the runtime
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
    /// Print one JSON object per closed connection
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    transport: Transport,
}

/// Serves until killed.
pub(crate) async fn run(options: Options) -> Result<()> {
    pattern::prepare();
    let tls = tls::server(pattern::ALPN, &options.cert, &options.key, options.zero_rtt)?;
    let tls: Arc<dyn crypto::ServerConfig> = Arc::new(tls);
    let mut config = ServerConfig::with_crypto(Arc::clone(&tls));
    config.transport_config(options.transport.config());
    let endpoint = options
        .transport
        .endpoint(options.listen, Some(config.clone()))?;
    announce(endpoint.local_addr()?)?;
    while let Some(incoming) = endpoint.accept().await {
        if options.retry && !incoming.remote_address_validated() {
            if let Err(error) = incoming.retry() {
                eprintln!("peer-quinn: {error}");
            }
            continue;
        }
        let mut config = config.clone();
        let witness = Arc::new(Witness::default());
        // A server that need not report is measured as quinn is.
        if options.json {
            config.crypto = Arc::new(Witnessed::new(Arc::clone(&tls), Arc::clone(&witness)));
        }
        tokio::spawn(visit(
            incoming,
            config,
            witness,
            options.zero_rtt,
            options.json,
        ));
    }
    Ok(())
}

/// Tells whoever started this server that it is ready, and where.
fn announce(local: SocketAddr) -> Result<()> {
    let mut stdout = stdout().lock();
    writeln!(stdout, "listening on {local}")?;
    Ok(stdout.flush()?)
}

/// One client, from its first packet to the report.
async fn visit(
    incoming: Incoming,
    config: ServerConfig,
    witness: Arc<Witness>,
    early: bool,
    json: bool,
) {
    let first = incoming.remote_address();
    // Of validated clients, those with a Retry token may not be sent another one.
    let retried = !incoming.may_retry();
    let tally = Arc::new(Tally::default());
    let (last, cause) = match accept(incoming, config, early).await {
        Ok(connection) => {
            let cause = answer_all(&connection, &tally).await;
            (connection.remote_address(), cause)
        }
        Err(error) => (first, error),
    };
    if !json {
        return;
    }
    let closed = Closed {
        peer: PEER,
        event: "closed",
        remote: last.to_string(),
        sent: tally.sent.load(Relaxed),
        received: tally.received.load(Relaxed),
        requests: tally.requests.load(Relaxed),
        retried,
        zero_rtt_accepted: witness.early_keys(),
        migrated: last != first,
        key_updates: witness.key_updates(),
        peer_key_updates: witness.peer_key_updates(),
        cause: cause.to_string(),
    };
    if let Ok(line) = serde_json::to_string(&closed) {
        println!("{line}");
    }
}

/// The connection: once its handshake is done, or at once if early data is to be answered.
async fn accept(
    incoming: Incoming,
    config: ServerConfig,
    early: bool,
) -> Result<Connection, quinn::ConnectionError> {
    let connecting = incoming.accept_with(Arc::new(config))?;
    if !early {
        return connecting.await;
    }
    match connecting.into_0rtt() {
        Ok((connection, _)) => Ok(connection),
        Err(connecting) => connecting.await,
    }
}

/// What one connection moved.
#[derive(Debug, Default)]
struct Tally {
    sent: AtomicU64,
    received: AtomicU64,
    requests: AtomicU64,
}

/// Answers every stream until the connection ends; returns why it did.
async fn answer_all(connection: &Connection, tally: &Arc<Tally>) -> quinn::ConnectionError {
    loop {
        match connection.accept_bi().await {
            Ok((send, receive)) => {
                let tally = Arc::clone(tally);
                // A stream's end concerns that stream alone; the connection's shows above.
                tokio::spawn(async move { answer(send, receive, &tally).await });
            }
            Err(cause) => return cause,
        }
    }
}

/// One request, read to its FIN, then answered.
async fn answer(mut send: SendStream, mut receive: RecvStream, tally: &Tally) -> Result<()> {
    let mut header = [0; HEADER];
    if receive.read_exact(&mut header).await.is_err() {
        send.reset(MALFORMED)?;
        return Ok(());
    }
    while let Some(chunk) = receive.read_chunk(usize::MAX, false).await? {
        tally.received.fetch_add(chunk.bytes.len() as u64, Relaxed);
    }
    tally.requests.fetch_add(1, Relaxed);
    let wanted = u64::from_be_bytes(header);
    let mut offset = 0;
    while offset < wanted {
        let piece = pattern::pattern(offset, wanted - offset);
        let length = piece.len() as u64;
        match send.write_chunk(piece).await {
            Ok(()) => offset += length,
            // The client has seen enough, as a timed run does.
            Err(WriteError::Stopped(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        tally.sent.fetch_add(length, Relaxed);
    }
    send.finish()?;
    Ok(())
}
