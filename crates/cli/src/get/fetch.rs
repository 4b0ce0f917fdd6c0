//! All transfers, several at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway::http::Client;
use tokio::task::JoinSet;

use super::Args;
use super::destination::Destination;
use super::job::Job;
use super::progress::Progress;
use super::tally::Tally;
use super::transfer::{Done, Transfer};
use crate::failure::{Failure, Kind};

/// What is left to do and what was done, shared by the workers.
pub(super) struct Fetch {
    args: Arc<Args>,
    client: Client,
    progress: Progress,
    jobs: Mutex<VecDeque<Job>>,
    tally: Mutex<Tally>,
    /// With several, each failure is told as it happens.
    several: bool,
    workers: usize,
}

impl Fetch {
    pub(super) fn new(args: Arc<Args>, client: Client, jobs: Vec<Job>) -> Arc<Self> {
        // On stdout one comes after the other.
        let mixed = jobs.iter().any(|job| job.to == Destination::Stdout) || args.include;
        let workers = if mixed {
            1
        } else {
            usize::from(args.parallel).min(jobs.len())
        };
        Arc::new(Self {
            progress: Progress::of(&jobs, &args),
            args,
            client,
            several: jobs.len() > 1,
            jobs: Mutex::new(jobs.into()),
            tally: Mutex::default(),
            workers,
        })
    }

    /// Runs all transfers; how they went is in the [`tally`](Self::tally).
    ///
    /// # Errors
    /// Only if a worker panics.
    pub(super) async fn run(self: &Arc<Self>) -> Result<(), Failure> {
        let mut workers = JoinSet::new();
        for _ in 0..self.workers {
            workers.spawn(self.clone().work());
        }
        while let Some(ended) = workers.join_next().await {
            ended.map_err(|error| Failure::caused(Kind::Other, "a worker", &error))?;
        }
        Ok(())
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(self: Arc<Self>) {
        while let Some(job) = self.next() {
            let mut transfer = Transfer {
                args: &self.args,
                client: &self.client,
                progress: &self.progress,
                job: &job,
                uploaded: self.tally().uploaded.clone(),
                done: Done::default(),
            };
            let outcome = transfer.run().await;
            let done = transfer.done;
            self.count(done, outcome);
        }
    }

    fn next(&self) -> Option<Job> {
        self.queue().pop_front()
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, done: Done, outcome: Result<(), Failure>) {
        let mut tally = self.tally();
        tally.received += done.received;
        tally.kept += done.kept;
        tally.waits.add(&done.waits);
        tally.sender = done.sender.or(tally.sender.take());
        tally.connection = done.connection.or(tally.connection.take());
        match outcome {
            Ok(()) => tally.done += 1,
            Err(failure) => {
                if self.several {
                    self.progress.say(&format!("get: {failure}"));
                }
                tally.failed += 1;
                if stops_all(failure.kind) {
                    tally.failed += self.queue().drain(..).count() as u64;
                }
                tally.failure.get_or_insert(failure);
            }
        }
        self.progress.over(tally.done + tally.failed);
    }
}

/// Whether the next transfer would fail for the same reason: it is about a whole
/// server or this host rather than one URL.
fn stops_all(kind: Kind) -> bool {
    match kind {
        Kind::Address
        | Kind::Arguments
        | Kind::Connection
        | Kind::Certificate
        | Kind::Output
        | Kind::Timeout
        | Kind::Interrupted => true,
        Kind::Other | Kind::Content | Kind::Status | Kind::Incomplete => false,
    }
}
