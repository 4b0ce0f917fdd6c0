//! The requests of one connection: how many, how many at once, and what happens halfway.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use crate::{Ask, Session, answer::Answer, options::Get, pattern};

/// How long a key update may be put off; three PTO on a slow path are less.
const KEY_UPDATE_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of the request that proves the new keys: it crosses in both directions.
const PROOF: u64 = 1000;

/// What a connection's requests have come to so far.
#[derive(Debug)]
pub struct Progress {
    /// Byte sum of an upload.
    pub(crate) sum: u64,
    middle: u64,
    halfway: Notify,
    received: AtomicU64,
    trailers: AtomicU64,
    started: AtomicU64,
}

impl Progress {
    /// Nothing has come yet.
    pub(crate) fn new(ask: Ask, requests: u64) -> Self {
        Self {
            sum: pattern::sum(ask.upload),
            middle: ask.wanted.saturating_mul(requests).div_ceil(2),
            halfway: Notify::new(),
            received: AtomicU64::new(0),
            trailers: AtomicU64::new(0),
            started: AtomicU64::new(0),
        }
    }

    pub(crate) fn credit(&self, length: u64) {
        let before = self.received.fetch_add(length, Relaxed);
        if before < self.middle && self.middle <= before + length {
            self.halfway.notify_one();
        }
    }

    pub(crate) fn credit_trailer(&self) {
        self.trailers.fetch_add(1, Relaxed);
    }
}

/// What a transfer came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moved {
    /// Bytes downloaded and verified.
    pub bytes: u64,
    /// Requests answered, or cut short by the clock.
    pub requests: u64,
    /// Answers with the right trailers.
    pub trailers: u64,
    /// From the first request to the last answer.
    pub time: Duration,
}

impl Moved {
    /// Both transfers, one after the other.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            requests: self.requests + other.requests,
            trailers: self.trailers + other.trailers,
            time: self.time + other.time,
        }
    }
}

/// One connection's requests under way.
#[derive(Debug)]
pub(crate) struct Transfer<S> {
    session: S,
    ask: Ask,
    most: u64,
    lanes: u64,
    key_update: bool,
    deadline: Option<Instant>,
    progress: Arc<Progress>,
}

impl<S: Session> Transfer<S> {
    pub(crate) fn new(options: &Get, session: S) -> Self {
        let time = options.seconds.map(Duration::from_secs_f64);
        Self {
            session,
            ask: options.ask(),
            most: options.most(),
            lanes: options.lanes(),
            key_update: options.key_update,
            deadline: time.map(|time| Instant::now() + time),
            progress: Arc::new(Progress::new(options.ask(), options.most())),
        }
    }

    /// Makes all requests and verifies all answers.
    pub(crate) async fn run(self) -> Result<Moved> {
        let begun = Instant::now();
        let transfer = Arc::new(self);
        let mut lanes = JoinSet::new();
        for _ in 0..transfer.lanes {
            let transfer = Arc::clone(&transfer);
            lanes.spawn(async move { transfer.lane().await });
        }
        if transfer.key_update {
            let transfer = Arc::clone(&transfer);
            lanes.spawn(async move { transfer.update_keys().await });
        }
        while let Some(lane) = lanes.join_next().await {
            lane??;
        }
        let progress = &transfer.progress;
        Ok(Moved {
            bytes: progress.received.load(Relaxed),
            requests: progress.started.load(Relaxed).min(transfer.most),
            trailers: progress.trailers.load(Relaxed),
            time: begun.elapsed(),
        })
    }

    /// One request after another, until there are none left or the time is up.
    async fn lane(&self) -> Result<()> {
        while self.progress.started.fetch_add(1, Relaxed) < self.most {
            match self.deadline {
                None => self.request().await?,
                // Dropping the request cancels it.
                Some(deadline) => match timeout_at(deadline, self.request()).await {
                    Ok(outcome) => outcome?,
                    Err(_) => break,
                },
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
        }
        Ok(())
    }

    async fn request(&self) -> Result<()> {
        let mut answer = Answer::new(Arc::clone(&self.progress), self.ask);
        self.session.exchange(self.ask, &mut answer).await?;
        answer.whole()
    }

    /// A key update when half of the bytes have come, and a request after it.
    async fn update_keys(&self) -> Result<()> {
        self.progress.halfway.notified().await;
        timeout(KEY_UPDATE_PATIENCE, self.session.update_keys())
            .await
            .context("waiting for a key update to be possible")??;
        let ask = Ask {
            wanted: PROOF,
            upload: 0,
        };
        let mut answer = Answer::new(Arc::new(Progress::new(ask, 1)), ask);
        self.session.exchange(ask, &mut answer).await?;
        answer.whole()
    }
}
