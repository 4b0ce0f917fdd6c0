//! All transfers, several at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway::http::Client;
use http::Uri;
use tokio::task::JoinSet;

use super::Args;
use super::cause::{FailureScope, TransferError};
use super::destination::Destination;
use super::job::Job;
use super::progress::Progress;
use super::tally::Tally;
use super::transfer::{Transfer, TransferResult};
use super::upload::UploadReadStatus;
use crate::failure::{Failure, Kind};

/// The remaining jobs and the results, shared by the workers.
pub(super) struct Fetch {
    args: Arc<Args>,
    client: Client,
    progress: Progress,
    jobs: Mutex<VecDeque<Job>>,
    tally: Mutex<Tally>,
    /// Whether there are several jobs, so that each failure is reported as it happens.
    several: bool,
    workers: usize,
}

impl Fetch {
    pub(super) fn new(args: Arc<Args>, client: Client, jobs: Vec<Job>) -> Arc<Self> {
        // On stdout they follow one after the other.
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

    /// Runs all transfers; the results are in the [`tally`](Self::tally).
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
                reading: UploadReadStatus::new(self.tally().uploaded.clone()),
                done: TransferResult::default(),
            };
            let outcome = transfer.run().await;
            let done = transfer.done;
            self.count(&job, done, outcome);
        }
    }

    fn next(&self) -> Option<Job> {
        self.queue().pop_front()
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the jobs that have not been started.
    pub(super) fn give_up(&self) {
        let left = self.queue().drain(..).count();
        self.tally().not_tried += left as u64;
    }

    /// Drops the jobs that the failure of `failed` affects.
    fn withdraw(&self, failed: &Job, reach: FailureScope) -> VecDeque<Job> {
        let there = origin(&failed.url);
        let mut queue = self.queue();
        match reach {
            FailureScope::One => VecDeque::new(),
            FailureScope::Origin => {
                let all = queue.drain(..);
                let (gone, left) = all.partition(|job| origin(&job.url) == there);
                *queue = left;
                gone
            }
            FailureScope::Everything => std::mem::take(&mut *queue),
        }
    }

    fn count(&self, job: &Job, done: TransferResult, outcome: Result<(), TransferError>) {
        let mut tally = self.tally();
        tally.received += done.received;
        tally.kept += done.kept;
        tally.waits.add(&done.waits);
        tally.sender = done.sender.or(tally.sender.take());
        tally.connection = done.connection.or(tally.connection.take());
        match outcome {
            Ok(()) => tally.done += 1,
            Err(TransferError { failure, reach }) => {
                if self.several {
                    self.progress.say(&format!("get: {failure}"));
                }
                tally.failed += 1;
                let left = self.withdraw(job, reach);
                tally.not_tried += left.len() as u64;
                if reach == FailureScope::Origin {
                    let about = format!("{}: ", job.url);
                    let why = failure.message.strip_prefix(&about);
                    let why = why.unwrap_or(&failure.message);
                    for Job { url, .. } in &left {
                        self.progress.say(&format!("get: {url}: not tried: {why}"));
                    }
                }
                tally.failure.get_or_insert(failure);
            }
        }
        self.progress
            .over(tally.done + tally.failed + tally.not_tried);
    }
}

/// The server of a URL. All are https.
fn origin(url: &Uri) -> (String, u16) {
    let host = url.host().unwrap_or_default().to_ascii_lowercase();
    (host, url.port_u16().unwrap_or(443))
}
