//! The server: answers clearway-raw requests until it is killed.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::Result;
use clap::Args;
use contract::{
    pattern,
    report::{announce, say},
};
use peer_quinn::{
    host::{Guest, Host, Terms},
    raw::{Tally, answer_all},
    transport::Transport,
};

use crate::report::{Closed, PEER};

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
    let terms = Terms {
        alpn: pattern::ALPN,
        cert: &options.cert,
        key: &options.key,
        retry: options.retry,
        early: options.zero_rtt,
        witnessed: options.json,
    };
    let host = Host::new(terms, &options.transport, options.listen)?;
    announce(host.local_addr()?)?;
    host.serve(|guest| visit(guest, options.json)).await;
    Ok(())
}

/// One client, from its first packet to the report.
async fn visit(guest: Guest, json: bool) {
    let (first, retried, witness) = (guest.remote_address(), guest.retried(), guest.witness());
    let tally = Arc::new(Tally::default());
    let (last, cause) = match guest.accept().await {
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
        sent: tally.sent(),
        received: tally.received(),
        requests: tally.requests(),
        retried,
        zero_rtt_accepted: witness.early_keys(),
        migrated: last != first,
        key_updates: witness.key_updates(),
        peer_key_updates: witness.peer_key_updates(),
        cause: cause.to_string(),
    };
    if let Ok(line) = serde_json::to_string(&closed) {
        // A reader that is gone is no reason to end.
        let _ = say(&line);
    }
}
