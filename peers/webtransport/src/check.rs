//! What a client checks at a server's echo.

use std::collections::BTreeMap;
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

/// The outcome of each check: `pass`, or what was wrong.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Report(BTreeMap<&'static str, String>);

impl Report {
    pub(crate) fn passed(&self) -> bool {
        self.0.values().all(|outcome| outcome == "pass")
    }

    async fn run(&mut self, name: &'static str, check: impl Future<Output = Result<()>>) {
        let checked = tokio::time::timeout(PATIENCE, check).await;
        let outcome = match checked.unwrap_or_else(|_| Err(anyhow!("not done after {PATIENCE:?}")))
        {
            Ok(()) => "pass".to_owned(),
            Err(error) => format!("FAIL: {error:#}"),
        };
        self.0.insert(name, outcome);
    }
}

/// Checks everything, or `only` this, each in a session of its own.
pub(crate) async fn check<S: Session>(
    open: impl AsyncFn() -> Result<S>,
    only: Option<&str>,
) -> Report {
    let mut report = Report(BTreeMap::new());
    macro_rules! run {
        ($check:ident, $session:ident => $argument:expr) => {
            if only.is_none_or(|only| only == stringify!($check)) {
                let check = async {
                    let $session = open().await?;
                    $check($argument).await
                };
                report.run(stringify!($check), check).await;
            }
        };
    }
    run!(bidirectional, session => &session);
    run!(unidirectional, session => &session);
    run!(opened_by_server, session => &session);
    run!(datagrams, session => &session);
    run!(reset_by_server, session => &session);
    run!(reset_by_client, session => &session);
    run!(close_by_server, session => &session);
    run!(close_by_client, session => session);
    report
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
