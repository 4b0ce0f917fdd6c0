//! Loads of connections: handshakes per second, and thousands of idle connections.

use std::{
    io::stdin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Result;
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep},
};

use crate::{Session, Stack, Start, report::say};

/// How many connections are made first, so that one-time allocations are not measured.
const WARM_UP: u64 = 20;

/// How many idle connections are started at once.
const ABREAST: u64 = 64;

/// Time for handshakes to be confirmed, tickets to arrive and buffers to be released.
const SETTLE: Duration = Duration::from_secs(3);

/// Makes connections for a while, `lanes` at a time. Returns how many, and how long it took.
pub(crate) async fn handshakes<S: Stack>(
    stack: &Arc<S>,
    lanes: u64,
    time: Duration,
) -> Result<(u64, Duration)> {
    let begun = Instant::now();
    let made = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..lanes {
        let (stack, made) = (Arc::clone(stack), Arc::clone(&made));
        tasks.spawn(async move {
            while begun.elapsed() < time {
                stack.connect(Start::Complete).await?.close(true);
                made.fetch_add(1, Relaxed);
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok((made.load(Relaxed), begun.elapsed()))
}

/// Makes connections and keeps them open until standard input says that they were measured.
pub(crate) async fn idle<S: Stack>(stack: &Arc<S>, count: u64) -> Result<()> {
    let warm = connections(stack, WARM_UP).await?;
    sleep(SETTLE).await;
    say(r#"{"event":"ready"}"#)?;
    line().await?;
    let held = connections(stack, count).await?;
    sleep(SETTLE).await;
    say(&format!(
        r#"{{"event":"idle","connections":{}}}"#,
        held.len()
    ))?;
    line().await?;
    for session in warm.iter().chain(&held) {
        session.close(true);
    }
    Ok(())
}

async fn connections<S: Stack>(stack: &Arc<S>, count: u64) -> Result<Vec<S::Session>> {
    let mut held = Vec::new();
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        if tasks.len() as u64 >= ABREAST
            && let Some(made) = tasks.join_next().await
        {
            held.push(made??);
        }
        let stack = Arc::clone(stack);
        tasks.spawn(async move { stack.connect(Start::Complete).await });
    }
    while let Some(made) = tasks.join_next().await {
        held.push(made??);
    }
    Ok(held)
}

/// Waits for a line or the end of standard input.
async fn line() -> Result<()> {
    spawn_blocking(|| stdin().read_line(&mut String::new())).await??;
    Ok(())
}
