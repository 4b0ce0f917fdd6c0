//! A thread that writes files, so that no connection waits for a disk.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Maximum number of chunks queued for the thread; each is at most what a writer gathers.
const QUEUE: usize = 256;

enum SpoolCommand {
    /// Write these bytes to the file with this number.
    Write(u64, Vec<u8>),
    Open(u64, Box<dyn Write + Send>),
    Close(u64),
}

/// A thread that owns outputs. It ends when the last handle is dropped, which waits until
/// everything handed over is written.
pub struct Spool(Arc<SpoolState>);

/// One output of a [`Spool`]: writing to it never blocks but returns `WouldBlock`.
pub struct SpoolOutput {
    core: Arc<SpoolState>,
    id: u64,
}

struct SpoolState {
    orders: Option<SyncSender<SpoolCommand>>,
    thread: Option<JoinHandle<()>>,
    next: AtomicU64,
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
        })))
    }

    /// Hands an output over to the thread; `None` while its queue is full.
    #[must_use]
    pub fn open(&self, output: Box<dyn Write + Send>) -> Option<SpoolOutput> {
        let core = Arc::clone(&self.0);
        let id = core.next.fetch_add(1, Ordering::Relaxed);
        core.order(SpoolCommand::Open(id, output)).ok()?;
        Some(SpoolOutput { core, id })
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
    }
}

fn serve(queue: &Receiver<SpoolCommand>) {
    let mut outputs = std::collections::BTreeMap::new();
    for order in queue {
        match order {
            SpoolCommand::Open(id, output) => {
                outputs.insert(id, output);
            }
            SpoolCommand::Write(id, bytes) => {
                let failed = match outputs.get_mut(&id) {
                    Some(output) => output.write_all(&bytes).is_err(),
                    None => false,
                };
                if failed {
                    outputs.remove(&id);
                }
            }
            SpoolCommand::Close(id) => {
                if let Some(mut output) = outputs.remove(&id) {
                    let _ = output.flush();
                }
            }
        }
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
}
