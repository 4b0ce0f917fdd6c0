//! The client: connects and transfers, and repeats that if a second connection is requested.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::{
    Session, Stack, Start, load,
    options::{Beside, Get},
    pattern,
    report::{Facts, Run},
    transfer::{Moved, Transfer},
};

/// Runs the client and prints the result.
///
/// # Errors
/// The first thing that went wrong.
pub async fn run<S: Stack>(options: Get) -> Result<()> {
    options.check()?;
    pattern::prepare();
    let stack = Arc::new(S::new(&options)?);
    if let Some(count) = options.idle {
        return load::idle(&stack, count).await;
    }
    let mut run = match options.seconds {
        Some(seconds) if options.handshakes => {
            let time = Duration::from_secs_f64(seconds);
            let (made, took) = load::handshakes(&stack, options.lanes(), time).await?;
            Run {
                handshakes: made,
                seconds: took.as_secs_f64(),
                ..Run::default()
            }
        }
        _ => visits(&stack, &options).await?,
    };
    stack.quiet().await;
    run.peer = S::PEER;
    run.gbps = run.bytes as f64 * 8e-9 / run.seconds.max(f64::MIN_POSITIVE);
    run.print(options.json)
}

/// Makes all requested connections.
async fn visits<S: Stack>(stack: &Arc<S>, options: &Get) -> Result<Run> {
    if options.connections > 1 {
        return side_by_side(stack, options).await;
    }
    if let Some(place) = options.beside_bulk {
        return beside_bulk(stack, options, place).await;
    }
    let stack = &**stack;
    let (first, facts) = visit(stack, options, Start::Complete).await?;
    if !options.remembers() {
        return Ok(report(first, facts, options));
    }
    let start = if options.zero_rtt {
        Start::Early
    } else {
        Start::Complete
    };
    let (second, facts) = visit(stack, options, start).await?;
    Ok(report(first.plus(second), facts, options))
}

/// Makes many connections that transfer at the same time, for as long as is requested.
async fn side_by_side<S: Stack>(stack: &Arc<S>, options: &Get) -> Result<Run> {
    let mut sessions = Vec::new();
    for _ in 0..options.connections {
        sessions.push(stack.connect(Start::Complete).await.context("connecting")?);
    }
    let mut transfers = JoinSet::new();
    for session in sessions.clone() {
        let transfer = Transfer::new(options, session);
        transfers.spawn(async move { transfer.run().await });
    }
    let mut all = Moved::default();
    while let Some(moved) = transfers.join_next().await {
        all = all.beside(moved??);
    }
    for session in sessions {
        session.close(true);
    }
    Ok(report(all, Facts::default(), options))
}

/// Makes requests while a download without end goes on.
async fn beside_bulk<S: Stack>(stack: &Arc<S>, options: &Get, place: Beside) -> Result<Run> {
    let connect = || async { stack.connect(Start::Complete).await.context("connecting") };
    let session = connect().await?;
    let bulk_session = match place {
        Beside::Same => session.clone(),
        Beside::Other => connect().await?,
    };
    let bulk = Transfer::endless(options, bulk_session.clone());
    let bulk = tokio::spawn(async move { bulk.run().await });
    let requests = Transfer::new(options, session.clone());
    // In a task, as the download is.
    let moved = tokio::spawn(async move { requests.run().await }).await??;
    let bulk = bulk.await??;
    let well = bulk.bytes > 0;
    session.close(well);
    if place == Beside::Other {
        bulk_session.close(well);
    }
    let mut run = report(moved, Facts::default(), options);
    run.bulk_gbps = Some(bulk.bytes as f64 * 8e-9 / bulk.time.as_secs_f64());
    Ok(run)
}

/// Makes a connection and its transfer. Requests in rejected early data are repeated on another
/// connection.
async fn visit<S: Stack>(stack: &S, options: &Get, start: Start) -> Result<(Moved, Facts)> {
    let session = stack.connect(start).await.context("connecting")?;
    let moved = Transfer::new(options, session.clone()).run().await;
    let facts = session.facts().await;
    if options.remembers() && moved.is_ok() {
        // A closed connection takes no tickets any more.
        stack.ticket().await?;
    }
    session.close(moved.is_ok());
    if start == Start::Early && facts.zero_rtt_accepted == Some(false) {
        let session = stack.connect(Start::Complete).await?;
        let moved = Transfer::new(options, session.clone()).run().await;
        session.close(moved.is_ok());
        return Ok((moved?, facts));
    }
    Ok((moved?, facts))
}

fn report(mut moved: Moved, facts: Facts, options: &Get) -> Run {
    Run {
        bytes: moved.bytes,
        requests: moved.requests,
        seconds: moved.time.as_secs_f64(),
        resumed: facts.resumed.filter(|_| options.remembers()),
        zero_rtt_accepted: facts.zero_rtt_accepted.filter(|_| options.zero_rtt),
        retried: facts.retried,
        key_updates: facts.key_updates,
        trailers_seen: moved.trailers,
        p50_us: moved.percentile(0.5),
        p99_us: moved.percentile(0.99),
        ..Run::default()
    }
}
