//! Blocking disk operations, away from the event loop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use super::Client;
use super::fair::{FairSemaphore, Permit};

/// Number of threads for disk operations: enough to keep several disks busy, and few enough that
/// thousands of small files do not cause thousands of thread switches.
pub(crate) const THREADS: usize = 16;

/// Maximum number of threads that one connection may use: some are left for the others even if all
/// its operations take long.
const SHARE: usize = THREADS - 4;

/// Runs blocking operations: connections take turns, there are never more than the threads allow,
/// and an operation whose client has gone is skipped.
#[derive(Debug)]
pub(crate) struct Disk {
    turns: FairSemaphore<Client>,
}

/// Whether the result of an operation is no longer needed.
#[derive(Debug, Default)]
pub(crate) struct CancelFlag(AtomicBool);

impl CancelFlag {
    /// To be checked now and then by operations that take long.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Sets the flag when dropped.
struct CancelOnDrop(Arc<CancelFlag>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Relaxed);
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            turns: FairSemaphore::new(THREADS, SHARE),
        }
    }
}

impl Disk {
    /// Runs `work` on a thread when it is `client`'s turn. Dropping the future cancels it, or sets
    /// its flag. Once started, the future has to be polled until it is done: it holds a turn that
    /// others wait for.
    ///
    /// # Errors
    /// If the work panics or the program ends.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        client: Client,
        work: impl FnOnce(&CancelFlag) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let permit = self.turns.acquire(client).await;
        BlockingTask::begin(permit, work).result().await
    }

    /// Starts `work` if it need not wait. Its result may be awaited at any time, or never.
    pub(crate) fn try_begin<T: Send + 'static>(
        &self,
        client: Client,
        work: impl FnOnce(&CancelFlag) -> T + Send + 'static,
    ) -> Option<BlockingTask<T>> {
        let permit = self.turns.try_acquire(client)?;
        Some(BlockingTask::begin(permit, work))
    }

    /// The same for work that can fail.
    ///
    /// # Errors
    /// Like [`run`](Self::run), or the error of the work.
    pub(crate) async fn try_run<T: Send + 'static>(
        &self,
        client: Client,
        work: impl FnOnce(&CancelFlag) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let done = self.run(client, work).await;
        done.map_err(io::Error::other).and_then(|done| done)
    }
}

/// Work on a thread, cancelled when this is dropped.
pub(crate) struct BlockingTask<T> {
    thread: JoinHandle<T>,
    _waiting: CancelOnDrop,
}

impl<T: Send + 'static> BlockingTask<T> {
    /// The thread returns the permit, whether or not anybody waits for it.
    fn begin(permit: Permit<Client>, work: impl FnOnce(&CancelFlag) -> T + Send + 'static) -> Self {
        let abandoned = Arc::new(CancelFlag::default());
        let waiting = CancelOnDrop(abandoned.clone());
        let thread = spawn_blocking(move || {
            let _permit = permit;
            work(&abandoned)
        });
        Self {
            thread,
            _waiting: waiting,
        }
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// If the work panics or the program ends.
    pub(crate) async fn result(mut self) -> Result<T, JoinError> {
        (&mut self.thread).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const OTHER: Client = (1, None);
    const CLIENT: Client = (2, None);

    /// Abandoned work sees its flag; work whose turn never came is not started.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn abandoned_work_stops_and_queued_work_never_starts() {
        let disk = Arc::new(Disk::default());
        let (begun, has_begun) = channel();
        let (over, is_over) = channel();
        let running: Vec<_> = (0..SHARE)
            .map(|_| {
                let (disk, begun, over) = (disk.clone(), begun.clone(), over.clone());
                tokio::spawn(async move {
                    let work = move |abandoned: &CancelFlag| {
                        begun.send(()).unwrap();
                        while !abandoned.get() {
                            std::thread::yield_now();
                        }
                        over.send(()).unwrap();
                    };
                    disk.run(CLIENT, work).await
                })
            })
            .collect();
        for _ in 0..SHARE {
            has_begun.recv().unwrap();
        }
        let late = {
            let begun = begun.clone();
            disk.run(CLIENT, move |_| begun.send(()).unwrap())
        };
        let late = tokio::time::timeout(std::time::Duration::ZERO, late).await;
        assert!(late.is_err(), "its client has its share");
        // Somebody else does not wait for them.
        assert_eq!(disk.run(OTHER, |_| 7).await.unwrap(), 7);
        for task in running {
            task.abort();
        }
        for _ in 0..SHARE {
            is_over.recv().unwrap();
        }
        assert_eq!(disk.run(CLIENT, |_| 8).await.unwrap(), 8);
        assert!(has_begun.try_recv().is_err(), "nobody waited for it");
    }
}
