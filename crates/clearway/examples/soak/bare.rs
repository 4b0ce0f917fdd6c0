//! QUIC without HTTP: datagrams and streams that the server echoes.

use clearway::http::BoxError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clearway::{ClientConfig, Connection, Endpoint};
use clearway_links::Dice;
use tokio::time::Instant;

use crate::pattern::{Check, piece};
use crate::server::ALPN;
use crate::tally::{Outcome, Tally};
use crate::visitor::PATIENCE;

const DATAGRAM: &str = "datagram sent";
const ECHO: &str = "datagram back";
const STREAM: &str = "stream echo";

/// Keeps one connection busy until the end of the run.
pub(crate) async fn keep_busy(
    remote: SocketAddr,
    config: ClientConfig,
    tally: Arc<Tally>,
    seed: u64,
    until: Instant,
) -> Result<(), BoxError> {
    let client = Endpoint::client("127.0.0.1:0".parse()?, config.alpn([ALPN]))?;
    let connection = client.connect(remote, "localhost").await?;
    tally.counts().connections += 1;
    let reading = tokio::spawn(check_datagrams(connection.clone(), tally.clone()));
    let updating = tokio::spawn(update_keys(connection.clone()));
    tokio::join!(
        send_datagrams(&connection, &tally, seed, until),
        echo_streams(&connection, &tally, seed, until)
    );
    updating.abort();
    if let Some(error) = connection.close_reason() {
        tally.lost(format!("bare connection: {error}"));
    }
    connection.close(0, b"done");
    reading.await?;
    client.wait_idle().await;
    Ok(())
}

/// Datagrams may be lost: only what comes back can be wrong.
async fn send_datagrams(connection: &Connection, tally: &Tally, seed: u64, until: Instant) {
    let mut dice = Dice::new(seed, 100);
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let seed = dice.below(u64::MAX);
        let content = piece(seed, 0, dice.below(1_000) as usize);
        let datagram = [&seed.to_le_bytes()[..], &content].concat();
        let len = datagram.len() as u64;
        tally.asked(DATAGRAM);
        let sent = connection.send_datagram_wait(datagram.into()).await;
        let result = sent.map(|()| Outcome::Whole(len));
        tally.ended(DATAGRAM, result.map_err(|error| error.to_string()));
    }
}

async fn check_datagrams(connection: Connection, tally: Arc<Tally>) {
    while let Ok(datagram) = connection.read_datagram().await {
        tally.asked(ECHO);
        tally.ended(ECHO, check_datagram(&datagram));
    }
}

fn check_datagram(datagram: &Bytes) -> Result<Outcome, String> {
    let (seed, content) = datagram
        .split_first_chunk()
        .ok_or("a datagram without its number")?;
    Check::new(u64::from_le_bytes(*seed)).take(content)?;
    Ok(Outcome::Whole(datagram.len() as u64))
}

async fn echo_streams(connection: &Connection, tally: &Tally, seed: u64, until: Instant) {
    let mut dice = Dice::new(seed, 101);
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (seed, len) = (dice.below(u64::MAX), 1 + dice.below(100_000));
        tally.asked(STREAM);
        let echoed = tokio::time::timeout(PATIENCE, echo(connection, seed, len)).await;
        let result = echoed.unwrap_or_else(|_| Err("no end".into()));
        tally.ended(STREAM, result.map_err(|error| error.to_string()));
    }
}

async fn echo(connection: &Connection, seed: u64, len: u64) -> Result<Outcome, BoxError> {
    let (mut send, mut recv) = connection.open_bi().await?;
    let content = piece(seed, 0, len as usize);
    let write = async {
        send.write_chunk(content).await?;
        send.finish()
    };
    let mut check = Check::new(seed);
    let read = async {
        while let Some(chunk) = recv.read_chunk(16 * 1024).await? {
            check.take(&chunk)?;
        }
        Ok::<_, BoxError>(())
    };
    let (written, read) = tokio::join!(write, read);
    written?;
    read?;
    if check.at != len {
        return Err(format!("{} of {len} bytes", check.at).into());
    }
    Ok(Outcome::Whole(len))
}

async fn update_keys(connection: Connection) {
    loop {
        tokio::time::sleep(Duration::from_secs(7)).await;
        // Too early: the server has just updated its keys.
        let _ = connection.update_keys();
    }
}
