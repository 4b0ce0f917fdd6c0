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
#[derive(Debug, Clone, Default)]
pub struct Moved {
    /// Bytes downloaded and verified.
    pub bytes: u64,
    /// Requests answered, or cut short by the clock.
    pub requests: u64,
    /// Answers with the right trailers.
    pub trailers: u64,
    /// From the first request to the last answer.
    pub time: Duration,
    /// How long each completed request took, in nanoseconds (at most 4.2 s), in a timed run.
    pub took: Vec<u32>,
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
            took: [self.took, other.took].concat(),
        }
    }

    /// Both transfers, at the same time.
    #[must_use]
    pub fn beside(self, other: Self) -> Self {
        let time = self.time.max(other.time);
        Self {
            time,
            ..self.plus(other)
        }
    }

    /// The time within which this share of the requests was completed, in microseconds.
    #[must_use]
    pub fn percentile(&mut self, share: f64) -> Option<f64> {
        let last = self.took.len().checked_sub(1)?;
        let (_, nanos, _) = self
            .took
            .select_nth_unstable((last as f64 * share) as usize);
        Some(f64::from(*nanos) / 1e3)
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
    /// The requests of one of `options.connections` connections.
    pub(crate) fn new(options: &Get, session: S) -> Self {
        let time = options.seconds.map(Duration::from_secs_f64);
        Self {
            session,
            ask: options.ask(),
            most: options.most(),
            lanes: options.lanes() / options.connections,
            key_update: options.key_update,
            deadline: time.map(|time| Instant::now() + time),
            progress: Arc::new(Progress::new(options.ask(), options.most())),
        }
    }

    /// A download without end until the time of the run is up.
    pub(crate) fn endless(options: &Get, session: S) -> Self {
        let ask = Get::endless();
        Self {
            ask,
            lanes: 1,
            progress: Arc::new(Progress::new(ask, options.most())),
            ..Self::new(options, session)
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
            lanes.spawn(async move { transfer.update_keys().await.map(|()| Vec::new()) });
        }
        let mut took = Vec::new();
        while let Some(lane) = lanes.join_next().await {
            took.append(&mut lane??);
        }
        let progress = &transfer.progress;
        Ok(Moved {
            bytes: progress.received.load(Relaxed),
            requests: progress.started.load(Relaxed).min(transfer.most),
            trailers: progress.trailers.load(Relaxed),
            time: begun.elapsed(),
            took,
        })
    }

    /// One request after another, until there are none left or the time is up. Returns how long
    /// each took, in a timed run.
    async fn lane(&self) -> Result<Vec<u32>> {
        let mut took = Vec::new();
        let mut begun = Instant::now();
        while self.progress.started.fetch_add(1, Relaxed) < self.most {
            match self.deadline {
                None => self.request().await?,
                // Dropping the request cancels it.
                Some(deadline) => match timeout_at(deadline, self.request()).await {
                    Ok(outcome) => outcome?,
                    Err(_) => break,
                },
            }
            if let Some(deadline) = self.deadline {
                let now = Instant::now();
                let nanos = now.duration_since(begun).as_nanos();
                took.push(u32::try_from(nanos).unwrap_or(u32::MAX));
                begun = now;
                if now >= deadline {
                    break;
                }
            }
        }
        Ok(took)
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

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, atomic::AtomicBool};

    use clap::Parser;

    use super::*;
    use crate::report::Facts;

    /// What a stand-in for a connection does to every answer.
    #[derive(Clone, Copy, PartialEq)]
    enum Twist {
        None,
        Flip,
        Short,
        Long,
        WrongSum,
        NoSum,
    }

    /// A connection that answers by itself.
    #[derive(Clone)]
    struct Fake {
        twist: Twist,
        under_way: Arc<Mutex<(u64, u64)>>,
        updated: Arc<AtomicBool>,
    }

    impl Fake {
        fn new(twist: Twist) -> Self {
            Self {
                twist,
                under_way: Arc::default(),
                updated: Arc::default(),
            }
        }
    }

    impl Session for Fake {
        async fn exchange(&self, ask: Ask, answer: &mut Answer) -> Result<()> {
            {
                let mut under_way = self.under_way.lock().unwrap();
                under_way.0 += 1;
                under_way.1 = under_way.1.max(under_way.0);
            }
            tokio::task::yield_now().await;
            let mut bytes = pattern::pattern(0, ask.wanted).to_vec();
            match self.twist {
                Twist::Flip => bytes[700] ^= 1,
                Twist::Short => _ = bytes.pop(),
                Twist::Long => bytes.push(0),
                Twist::None | Twist::WrongSum | Twist::NoSum => {}
            }
            for part in bytes.chunks(600) {
                answer.take(part)?;
                tokio::task::yield_now().await;
            }
            self.under_way.lock().unwrap().0 -= 1;
            let sum = pattern::sum(ask.upload) + u64::from(self.twist == Twist::WrongSum);
            if ask.upload > 0 && self.twist != Twist::NoSum {
                answer.trailer(sum.to_string().as_bytes())?;
            }
            Ok(())
        }

        async fn update_keys(&self) -> Result<()> {
            self.updated.store(true, Relaxed);
            Ok(())
        }

        async fn facts(&self) -> Facts {
            Facts::default()
        }

        fn close(&self, _: bool) {}
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        get: Get,
    }

    fn options(words: &str) -> Get {
        let line = "get 127.0.0.1:1 --server-name x --ca y".split(' ');
        Line::parse_from(line.chain(words.split(' '))).get
    }

    async fn run(fake: &Fake, words: &str) -> Result<Moved> {
        Transfer::new(&options(words), fake.clone()).run().await
    }

    #[tokio::test]
    async fn correct_responses_are_counted() {
        let fake = Fake::new(Twist::None);
        let moved = run(&fake, "--bytes 1000 --requests 30 --parallel 4")
            .await
            .unwrap();
        assert_eq!(
            (moved.bytes, moved.requests, moved.trailers),
            (30_000, 30, 0)
        );
        assert_eq!(fake.under_way.lock().unwrap().1, 4);
    }

    #[tokio::test]
    async fn wrong_short_and_long_responses_are_errors() {
        for (twist, word) in [
            (Twist::Flip, "offset 700"),
            (Twist::Short, "expected 1000"),
            (Twist::Long, "more than the expected 1000"),
        ] {
            let error = run(&Fake::new(twist), "--bytes 1000").await.unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[tokio::test]
    async fn trailers_are_compared_and_counted() {
        let moved = run(&Fake::new(Twist::None), "--post 1000 --requests 3")
            .await
            .unwrap();
        assert_eq!((moved.bytes, moved.trailers), (3_000, 3));
        let moved = run(&Fake::new(Twist::NoSum), "--post 1000").await.unwrap();
        assert_eq!(moved.trailers, 0);
        let error = run(&Fake::new(Twist::WrongSum), "--post 1000").await;
        assert!(error.unwrap_err().to_string().contains("x-sum"));
    }

    #[tokio::test]
    async fn keys_are_updated_if_wanted() {
        for (words, updated) in [("--bytes 9000", false), ("--bytes 9000 --key-update", true)] {
            let fake = Fake::new(Twist::None);
            let moved = run(&fake, words).await.unwrap();
            // The request that proves the new keys is not one of those asked for.
            assert_eq!((moved.bytes, moved.requests), (9_000, 1));
            assert_eq!(fake.updated.load(Relaxed), updated);
        }
    }

    #[tokio::test]
    async fn timed_run_ends_without_the_last_responses() {
        let moved = run(
            &Fake::new(Twist::None),
            "--seconds 0.05 --bytes 1000 --parallel 2",
        )
        .await;
        let moved = moved.unwrap();
        assert!(moved.requests > 0 && moved.bytes <= moved.requests * 1000);
    }

    #[tokio::test]
    async fn download_without_end_runs_until_the_time_is_up() {
        /// A connection whose answers never end.
        #[derive(Clone)]
        struct Endless;

        impl Session for Endless {
            async fn exchange(&self, ask: Ask, answer: &mut Answer) -> Result<()> {
                assert_eq!(ask, Get::endless());
                let mut offset = 0;
                loop {
                    answer.take(&pattern::pattern(offset, 1000))?;
                    offset += 1000;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }

            async fn update_keys(&self) -> Result<()> {
                Ok(())
            }

            async fn facts(&self) -> Facts {
                Facts::default()
            }

            fn close(&self, _: bool) {}
        }

        let options = options("--seconds 0.05 --bytes 10 --beside-bulk same");
        options.check().unwrap();
        let moved = Transfer::endless(&options, Endless).run().await.unwrap();
        assert!(moved.bytes > 0 && moved.took.is_empty());
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for words in [
            "--bytes 0 --key-update",
            "--seconds -1",
            "--bytes 5 --post 5",
        ] {
            let words = words.replace("--seconds -1", "--seconds=-1");
            assert!(options(&words).check().is_err(), "{words}");
        }
        assert!(options("--post 5").check().is_ok());
    }
}
