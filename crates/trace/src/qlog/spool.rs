//! A thread that writes files, so that no connection waits for a disk.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Chunks on their way to the thread; each is at most what a writer gathers.
const QUEUE: usize = 256;

enum Order {
    /// Write these bytes to the file with this number.
    Write(u64, Vec<u8>),
    Open(u64, Box<dyn Write + Send>),
    Close(u64),
}

/// A thread that owns outputs. It ends with the last handle to it, which waits
/// until what was handed over is written.
pub struct Spool(Arc<Core>);

/// One output of a [`Spool`]: writing to it never waits, it says `WouldBlock`.
pub struct Spooled {
    core: Arc<Core>,
    id: u64,
}

struct Core {
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
    next: AtomicU64,
}

impl core::fmt::Debug for Spool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Spool").finish_non_exhaustive()
    }
}

impl core::fmt::Debug for Spooled {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Spooled")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Spool {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start() -> io::Result<Self> {
        let (orders, queue) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("clearway-qlog".into())
            .spawn(move || serve(&queue))?;
        Ok(Self(Arc::new(Core {
            orders: Some(orders),
            thread: Some(thread),
            next: AtomicU64::new(0),
        })))
    }

    /// Puts an output in the thread's care; `None` while it is too busy.
    #[must_use]
    pub fn open(&self, output: Box<dyn Write + Send>) -> Option<Spooled> {
        let core = Arc::clone(&self.0);
        let id = core.next.fetch_add(1, Ordering::Relaxed);
        core.order(Order::Open(id, output)).ok()?;
        Some(Spooled { core, id })
    }
}

impl Core {
    fn order(&self, order: Order) -> io::Result<()> {
        let orders = self.orders.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        orders.try_send(order).map_err(|error| match error {
            TrySendError::Full(_) => io::ErrorKind::WouldBlock.into(),
            TrySendError::Disconnected(_) => io::ErrorKind::BrokenPipe.into(),
        })
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Write for Spooled {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.core.order(Order::Write(self.id, bytes.to_vec()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Spooled {
    fn drop(&mut self) {
        // A full queue leaves the output open until the thread ends.
        let _ = self.core.order(Order::Close(self.id));
    }
}

fn serve(queue: &Receiver<Order>) {
    let mut outputs = std::collections::BTreeMap::new();
    for order in queue {
        match order {
            Order::Open(id, output) => {
                outputs.insert(id, output);
            }
            Order::Write(id, bytes) => {
                let failed = match outputs.get_mut(&id) {
                    Some(output) => output.write_all(&bytes).is_err(),
                    None => false,
                };
                if failed {
                    outputs.remove(&id);
                }
            }
            Order::Close(id) => {
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

    struct Telling(mpsc::Sender<Vec<u8>>);

    impl Write for Telling {
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
    fn what_is_written_arrives_in_order_and_closing_lets_go() {
        let spool = Spool::start().expect("a thread");
        let (tell, told) = mpsc::channel();
        let mut output = spool.open(Box::new(Telling(tell))).expect("room");
        output.write_all(b"one").expect("room");
        output.write_all(b"two").expect("room");
        drop(output);
        let all: Vec<u8> = told.iter().flatten().collect();
        assert_eq!(all, b"onetwo");
    }

    #[test]
    fn a_stuck_output_blocks_nobody() {
        struct Stuck(mpsc::Receiver<()>);
        impl Write for Stuck {
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
        let mut output = spool.open(Box::new(Stuck(wait))).expect("room");
        let refused = (0..QUEUE + 8).find_map(|_| output.write(b"x").err());
        assert_eq!(
            refused.map(|error| error.kind()),
            Some(io::ErrorKind::WouldBlock)
        );
        // Otherwise the end of the spool would wait for it.
        drop(release);
    }
}
