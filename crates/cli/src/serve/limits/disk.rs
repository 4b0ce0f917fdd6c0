//! Work that waits for a disk, away from the event loop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use super::Client;
use super::fair::{FairSemaphore, Permit};
use crate::serve::priority;

/// Threads that wait for disks: enough to keep several busy, and few enough that
/// thousands of small files do not become thousands of changes of threads.
pub(crate) const THREADS: usize = 16;

/// How many of them one connection may keep busy: some are left for the others
/// even if every piece of its work takes long.
const SHARE: usize = THREADS - 4;

/// Runs what blocks: in turns by connection, never more than there are threads for,
/// and not at all for who does not wait any more.
#[derive(Debug)]
pub(crate) struct Disk {
    turns: FairSemaphore<Client>,
}

/// Whether nobody waits for the result of some work any more.
#[derive(Debug, Default)]
pub(crate) struct Abandoned(AtomicBool);

impl Abandoned {
    /// To be asked every now and then by work that takes long.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Marks work as abandoned when it is dropped.
struct Waiting(Arc<Abandoned>);

impl Drop for Waiting {
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
    /// Runs `work` on a thread when it is `client`'s turn. Dropping the future
    /// takes it back, or tells it that it is abandoned. Once begun, the future has
    /// to be polled until it is done: it holds a turn that others wait for.
    ///
    /// # Errors
    /// If the work panics or the program ends.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        client: Client,
        work: impl FnOnce(&Abandoned) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let permit = self.turns.acquire(client).await;
        Running::begin(permit, work).result().await
    }

    /// Begins `work` if nobody has to wait for it. Its result may be waited for at
    /// any time, or never.
    pub(crate) fn try_begin<T: Send + 'static>(
        &self,
        client: Client,
        work: impl FnOnce(&Abandoned) -> T + Send + 'static,
    ) -> Option<Running<T>> {
        let permit = self.turns.try_acquire(client)?;
        Some(Running::begin(permit, work))
    }

    /// The same for work that may fail by itself.
    ///
    /// # Errors
    /// As [`run`](Self::run), and whatever the work answers.
    pub(crate) async fn try_run<T: Send + 'static>(
        &self,
        client: Client,
        work: impl FnOnce(&Abandoned) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let done = self.run(client, work).await;
        done.map_err(io::Error::other).and_then(|done| done)
    }
}

/// Work on a thread, abandoned when this is dropped.
pub(crate) struct Running<T> {
    thread: JoinHandle<T>,
    _waiting: Waiting,
}

impl<T: Send + 'static> Running<T> {
    /// The thread gives the permit back, whoever waits for it.
    fn begin(permit: Permit<Client>, work: impl FnOnce(&Abandoned) -> T + Send + 'static) -> Self {
        let abandoned = Arc::new(Abandoned::default());
        let waiting = Waiting(abandoned.clone());
        let thread = spawn_blocking(move || {
            priority::of_disk_thread();
            let _permit = permit;
            work(&abandoned)
        });
        Self {
            thread,
            _waiting: waiting,
        }
    }

    /// Waits for it.
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

    /// Work that is abandoned hears of it; work whose turn never came is not begun.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn abandoned_work_stops_and_waiting_work_never_begins() {
        let disk = Arc::new(Disk::default());
        let (begun, has_begun) = channel();
        let (over, is_over) = channel();
        let running: Vec<_> = (0..SHARE)
            .map(|_| {
                let (disk, begun, over) = (disk.clone(), begun.clone(), over.clone());
                tokio::spawn(async move {
                    let work = move |abandoned: &Abandoned| {
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
