//! A thread that writes files, so that no connection waits for a disk.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum number of chunks queued for the thread; each is at most what a writer gathers.
const QUEUE: usize = 256;

/// How often [`Spool::finish`] looks whether the outputs are closed.
const POLL: Duration = Duration::from_millis(2);

/// Opens an output, on the thread.
type OpenOutput = Box<dyn FnOnce() -> io::Result<Box<dyn Write + Send>> + Send>;

/// Told of the error that ends an output, on the thread.
type OnError = Box<dyn FnOnce(&io::Error) + Send>;

enum SpoolCommand {
    /// Write these bytes to the file with this number.
    Write(u64, Vec<u8>),
    Open(u64, Box<NewOutput>),
    Close(u64),
    /// Close everything, and say so.
    Finish(Sender<()>),
}

struct NewOutput {
    open: OpenOutput,
    on_error: OnError,
    failed: Arc<AtomicBool>,
}

/// An output while it works.
struct OpenedOutput {
    output: Box<dyn Write + Send>,
    on_error: OnError,
    failed: Arc<AtomicBool>,
}

/// A thread that owns outputs. It ends when the last handle is dropped, which waits until
/// everything handed over is written.
pub struct Spool(Arc<SpoolState>);

/// One output of a [`Spool`]: writing to it never blocks but returns `WouldBlock`, or `BrokenPipe`
/// once the thread could not write to it.
pub struct SpoolOutput {
    core: Arc<SpoolState>,
    id: u64,
    failed: Arc<AtomicBool>,
}

struct SpoolState {
    orders: Option<SyncSender<SpoolCommand>>,
    thread: Option<JoinHandle<()>>,
    next: AtomicU64,
    /// Outputs that have not been dropped.
    open: AtomicUsize,
}

impl core::fmt::Debug for Spool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Spool").finish_non_exhaustive()
    }
}

impl core::fmt::Debug for SpoolOutput {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SpoolOutput")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Spool {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start() -> io::Result<Self> {
        let (orders, queue) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("clearway-qlog".into())
            .spawn(move || serve(&queue))?;
        Ok(Self(Arc::new(SpoolState {
            orders: Some(orders),
            thread: Some(thread),
            next: AtomicU64::new(0),
            open: AtomicUsize::new(0),
        })))
    }

    /// Hands an output over to the thread; `None` while its queue is full.
    #[must_use]
    pub fn open(&self, output: Box<dyn Write + Send>) -> Option<SpoolOutput> {
        self.open_with(move || Ok(output), |_| {})
    }

    /// Opens an output on the thread, since opening may block like writing does; `None` while the
    /// thread's queue is full. `on_error` is called there with the error that ends the output, at
    /// most once.
    #[must_use]
    pub fn open_with(
        &self,
        open: impl FnOnce() -> io::Result<Box<dyn Write + Send>> + Send + 'static,
        on_error: impl FnOnce(&io::Error) + Send + 'static,
    ) -> Option<SpoolOutput> {
        let core = Arc::clone(&self.0);
        let id = core.next.fetch_add(1, Ordering::Relaxed);
        let failed = Arc::<AtomicBool>::default();
        let new = NewOutput {
            open: Box::new(open),
            on_error: Box::new(on_error),
            failed: failed.clone(),
        };
        core.order(SpoolCommand::Open(id, Box::new(new))).ok()?;
        core.open.fetch_add(1, Ordering::Relaxed);
        Some(SpoolOutput { core, id, failed })
    }

    /// Waits for at most `timeout` until all outputs are dropped, and as long again until
    /// everything is written and closed; returns whether both are so. A process that ends without
    /// it loses what is still queued.
    #[must_use]
    pub fn finish(&self, timeout: Duration) -> bool {
        let in_use = || self.0.open.load(Ordering::Relaxed) > 0;
        let begun = Instant::now();
        while in_use() && begun.elapsed() < timeout {
            std::thread::sleep(POLL);
        }
        let complete = !in_use();
        let begun = Instant::now();
        let (tell, told) = channel();
        loop {
            let left = timeout.saturating_sub(begun.elapsed());
            match self.0.order(SpoolCommand::Finish(tell.clone())) {
                Ok(()) => return told.recv_timeout(left).is_ok() && complete,
                Err(_) if left.is_zero() => return false,
                Err(_) => std::thread::sleep(POLL),
            }
        }
    }
}

impl SpoolState {
    fn order(&self, order: SpoolCommand) -> io::Result<()> {
        let orders = self.orders.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        orders.try_send(order).map_err(|error| match error {
            TrySendError::Full(_) => io::ErrorKind::WouldBlock.into(),
            TrySendError::Disconnected(_) => io::ErrorKind::BrokenPipe.into(),
        })
    }
}

impl Drop for SpoolState {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Write for SpoolOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.core
            .order(SpoolCommand::Write(self.id, bytes.to_vec()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SpoolOutput {
    fn drop(&mut self) {
        // A full queue leaves the output open until the thread ends.
        let _ = self.core.order(SpoolCommand::Close(self.id));
        self.core.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpenedOutput {
    fn new(new: NewOutput) -> Option<Self> {
        let NewOutput {
            open,
            on_error,
            failed,
        } = new;
        match open() {
            Ok(output) => Some(Self {
                output,
                on_error,
                failed,
            }),
            Err(error) => {
                failed.store(true, Ordering::Relaxed);
                on_error(&error);
                None
            }
        }
    }

    fn fail(self, error: &io::Error) {
        self.failed.store(true, Ordering::Relaxed);
        (self.on_error)(error);
    }

    fn close(mut self) {
        if let Err(error) = self.output.flush() {
            self.fail(&error);
        }
    }
}

fn serve(queue: &Receiver<SpoolCommand>) {
    let mut outputs = std::collections::BTreeMap::new();
    for order in queue {
        match order {
            SpoolCommand::Open(id, new) => {
                if let Some(opened) = OpenedOutput::new(*new) {
                    outputs.insert(id, opened);
                }
            }
            SpoolCommand::Write(id, bytes) => {
                let written = match outputs.get_mut(&id) {
                    Some(opened) => opened.output.write_all(&bytes),
                    None => Ok(()),
                };
                if let Err(error) = written
                    && let Some(opened) = outputs.remove(&id)
                {
                    opened.fail(&error);
                }
            }
            SpoolCommand::Close(id) => {
                if let Some(opened) = outputs.remove(&id) {
                    opened.close();
                }
            }
            SpoolCommand::Finish(done) => {
                for (_, opened) in core::mem::take(&mut outputs) {
                    opened.close();
                }
                // Nobody waits any more after a timeout.
                let _ = done.send(());
            }
        }
    }
    for (_, opened) in outputs {
        opened.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct ChannelOutput(mpsc::Sender<Vec<u8>>);

    impl Write for ChannelOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0
                .send(bytes.to_vec())
                .map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn spool_preserves_order_and_close_releases_the_output() {
        let spool = Spool::start().expect("a thread");
        let (tell, told) = mpsc::channel();
        let mut output = spool.open(Box::new(ChannelOutput(tell))).expect("room");
        output.write_all(b"one").expect("room");
        output.write_all(b"two").expect("room");
        drop(output);
        let all: Vec<u8> = told.iter().flatten().collect();
        assert_eq!(all, b"onetwo");
    }

    #[test]
    fn blocked_output_does_not_block_others() {
        struct BlockedOutput(mpsc::Receiver<()>);
        impl Write for BlockedOutput {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let spool = Spool::start().expect("a thread");
        let (release, wait) = mpsc::channel();
        let mut output = spool.open(Box::new(BlockedOutput(wait))).expect("room");
        let refused = (0..QUEUE + 8).find_map(|_| output.write(b"x").err());
        assert_eq!(
            refused.map(|error| error.kind()),
            Some(io::ErrorKind::WouldBlock)
        );
        // Otherwise the end of the spool would wait for it.
        drop(release);
    }

    #[test]
    fn failing_output_reports_once_and_refuses_further_writes() {
        struct FullDisk;
        impl Write for FullDisk {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let spool = Spool::start().expect("a thread");
        let (tell, told) = mpsc::channel();
        let on_error = move |error: &io::Error| tell.send(error.kind()).expect("the test listens");
        let output = spool.open_with(|| Ok(Box::new(FullDisk)), on_error);
        let mut output = output.expect("room");
        output.write_all(b"one").expect("room");
        // Refused if the thread has come to the first one already.
        let _ = output.write_all(b"two");
        assert_eq!(told.recv(), Ok(io::ErrorKind::StorageFull));
        // The sender is gone with the output: there is no second report.
        assert!(told.recv().is_err());
        let refused = output.write(b"three").expect_err("it failed");
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn finish_waits_for_everything_written() {
        let spool = Spool::start().expect("a thread");
        let (tell, told) = mpsc::channel();
        let mut output = spool.open(Box::new(ChannelOutput(tell))).expect("room");
        output.write_all(b"tail").expect("room");
        drop(output);
        assert!(spool.finish(Duration::from_secs(600)));
        assert_eq!(told.try_iter().flatten().collect::<Vec<u8>>(), b"tail");
        let output = spool.open(Box::new(io::sink())).expect("room");
        assert!(!spool.finish(Duration::ZERO), "the output is still in use");
        drop(output);
    }
}
