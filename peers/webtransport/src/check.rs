//! What a client checks at a server's echo.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use serde::Serialize;

use crate::session::{Closed, Read, Session};

/// How long a check may take.
const PATIENCE: Duration = Duration::from_secs(20);
const STREAMS: usize = 10;
const BIDI_BYTES: usize = 200_000;
const UNI_BYTES: usize = 50_000;
const DATAGRAMS: usize = 100;
const DATAGRAM_BYTES: usize = 1_000;
/// Datagrams may be lost, but hardly on loopback.
const DATAGRAMS_NEEDED: usize = 90;

/// The outcome: `pass`, or what was wrong.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    bidirectional: String,
    unidirectional: String,
    opened_by_server: String,
    datagrams: String,
    reset_by_server: String,
    reset_by_client: String,
    close_by_server: String,
    close_by_client: String,
}

impl Report {
    pub(crate) fn passed(&self) -> bool {
        [
            &self.bidirectional,
            &self.unidirectional,
            &self.opened_by_server,
            &self.datagrams,
            &self.reset_by_server,
            &self.reset_by_client,
            &self.close_by_server,
            &self.close_by_client,
        ]
        .iter()
        .all(|outcome| outcome.starts_with("pass"))
    }
}

/// Checks everything, each in a session of its own.
pub(crate) async fn check<S: Session>(open: impl AsyncFn() -> Result<S>) -> Report {
    Report {
        bidirectional: outcome(async { bidirectional(&open().await?).await }).await,
        unidirectional: outcome(async { unidirectional(&open().await?).await }).await,
        opened_by_server: outcome(async { opened_by_server(&open().await?).await }).await,
        datagrams: outcome(async { datagrams(&open().await?).await }).await,
        reset_by_server: outcome(async { reset_by_server(&open().await?).await }).await,
        reset_by_client: outcome(async { reset_by_client(&open().await?).await }).await,
        close_by_server: outcome(async { close_by_server(&open().await?).await }).await,
        close_by_client: outcome(async { close_by_client(open().await?).await }).await,
    }
}

async fn outcome(check: impl Future<Output = Result<()>>) -> String {
    let checked = tokio::time::timeout(PATIENCE, check).await;
    match checked.unwrap_or_else(|_| Err(anyhow!("not done after {PATIENCE:?}"))) {
        Ok(()) => "pass".to_owned(),
        Err(error) => format!("FAIL: {error:#}"),
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 31 + seed + (at >> 8)) as u8)
        .collect()
}

async fn bidirectional<S: Session>(session: &S) -> Result<()> {
    for round in 0..STREAMS {
        let data = pattern(BIDI_BYTES, round);
        let (mut send, mut recv) = session.open_bi().await?;
        let write = async {
            S::write(&mut send, &data).await?;
            S::finish(&mut send).await
        };
        let (written, read) = tokio::join!(write, S::read(&mut recv));
        written?;
        ensure!(
            read? == Read::Whole(data),
            "stream {round} came back different"
        );
    }
    Ok(())
}

async fn unidirectional<S: Session>(session: &S) -> Result<()> {
    for round in 0..STREAMS {
        let data = pattern(UNI_BYTES, round);
        let mut send = session.open_uni().await?;
        let write = async {
            S::write(&mut send, &data).await?;
            S::finish(&mut send).await
        };
        let read = async { S::read(&mut session.accept_uni().await?).await };
        let (written, read) = tokio::join!(write, read);
        written?;
        ensure!(
            read? == Read::Whole(data),
            "stream {round} came back different"
        );
    }
    Ok(())
}

/// `open` makes the server open a bidirectional stream, on which it sends back what it receives.
async fn opened_by_server<S: Session>(session: &S) -> Result<()> {
    let (mut ask, _answer) = session.open_bi().await?;
    S::write(&mut ask, b"open").await?;
    let (mut send, mut recv) = session.accept_bi().await?;
    let data = pattern(UNI_BYTES, 1);
    let write = async {
        S::write(&mut send, &data).await?;
        S::finish(&mut send).await
    };
    let (written, read) = tokio::join!(write, S::read(&mut recv));
    written?;
    ensure!(read? == Read::Whole(data), "the stream came back different");
    Ok(())
}

async fn datagrams<S: Session>(session: &S) -> Result<()> {
    let mut echoed = 0;
    for round in 0..DATAGRAMS {
        let data = pattern(DATAGRAM_BYTES, round);
        session.send_datagram(&data)?;
        let received = tokio::time::timeout(Duration::from_secs(1), session.recv_datagram());
        match received.await {
            Ok(received) => echoed += usize::from(received? == data),
            Err(_) => continue,
        }
    }
    ensure!(
        echoed >= DATAGRAMS_NEEDED,
        "{echoed} of {DATAGRAMS} came back"
    );
    Ok(())
}

async fn reset_by_server<S: Session>(session: &S) -> Result<()> {
    let (mut ask, mut answer) = session.open_bi().await?;
    S::write(&mut ask, b"reset 4711").await?;
    let read = S::read(&mut answer).await?;
    ensure!(
        read == Read::Reset(4_711),
        "expected a reset with code 4711, found {read:?}"
    );
    Ok(())
}

/// The echo passes resets on.
async fn reset_by_client<S: Session>(session: &S) -> Result<()> {
    let (mut send, mut recv) = session.open_bi().await?;
    S::write(&mut send, b"hello").await?;
    // The largest code, for the conversion of codes.
    S::reset(&mut send, u32::MAX)?;
    let read = S::read(&mut recv).await?;
    ensure!(
        read == Read::Reset(u32::MAX),
        "expected a reset with code 2^32 - 1, found {read:?}"
    );
    Ok(())
}

async fn close_by_server<S: Session>(session: &S) -> Result<()> {
    let (mut ask, _answer) = session.open_bi().await?;
    S::write(&mut ask, b"close 42 done here").await?;
    let closed = session.closed().await?;
    let expected = Closed {
        code: 42,
        reason: "done here".to_owned(),
    };
    ensure!(
        closed == expected,
        "expected {expected:?}, found {closed:?}"
    );
    Ok(())
}

/// What the server saw is for the script to check.
async fn close_by_client<S: Session>(session: S) -> Result<()> {
    session.close(7, "from the client").await
}
