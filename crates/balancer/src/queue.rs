//! A thread that only receives, and a bounded queue to the shard that forwards.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use clearway_udp::RecvBatch;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::control::Control;
use crate::receive::{SLEEP, discard_errors, receive};
use crate::sample::SampledSocket;

/// Batches of 32 messages in the queue. When all are waiting, what arrives is dropped.
const BATCHES: usize = 8;

/// The shard's end of a queue.
pub(crate) struct Queue {
    filled: Receiver<RecvBatch>,
    empty: SyncSender<RecvBatch>,
    ready: Arc<OwnedFd>,
    dropped: Arc<AtomicU64>,
}

/// The receiving thread's end.
pub(crate) struct QueueFiller {
    socket: Arc<SampledSocket>,
    /// The one that is received into.
    batch: RecvBatch,
    filled: SyncSender<RecvBatch>,
    empty: Receiver<RecvBatch>,
    ready: Arc<OwnedFd>,
    dropped: Arc<AtomicU64>,
}

/// Creates a queue of what arrives at `socket`, up to `slots` messages a batch.
///
/// # Errors
/// If there is no descriptor left.
pub(crate) fn queue(socket: Arc<SampledSocket>, slots: usize) -> io::Result<(QueueFiller, Queue)> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let ready = Arc::new(eventfd(0, flags)?);
    let dropped = Arc::new(AtomicU64::new(0));
    // As many places as there are batches, so that sending never waits.
    let (to_shard, filled) = sync_channel(BATCHES + 1);
    let (to_filler, empty) = sync_channel(BATCHES + 1);
    for _ in 0..BATCHES {
        let sent = to_filler.send(RecvBatch::for_socket(&*socket, slots));
        debug_assert!(sent.is_ok(), "both ends exist");
    }
    let filler = QueueFiller {
        batch: RecvBatch::for_socket(&*socket, slots),
        socket,
        filled: to_shard,
        empty,
        ready: ready.clone(),
        dropped: dropped.clone(),
    };
    let queue = Queue {
        filled,
        empty: to_filler,
        ready,
        dropped,
    };
    Ok((filler, queue))
}

impl Queue {
    /// Becomes readable when batches are waiting.
    pub(crate) fn ready(&self) -> &OwnedFd {
        &self.ready
    }

    /// Returns how many datagrams were dropped since the last call because the queue was full.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// Hands `take` the batches that are waiting, at most as many as the queue holds.
    pub(crate) fn drain(&self, mut take: impl FnMut(&mut RecvBatch)) {
        let mut count = [0; 8];
        // It may have been read already: then there is nothing to reset.
        let _ = rustix::io::read(&*self.ready, &mut count);
        for _ in 0..BATCHES {
            let Ok(mut batch) = self.filled.try_recv() else {
                return;
            };
            take(&mut batch);
            // If the other thread has ended, nobody needs it.
            let _ = self.empty.try_send(batch);
        }
        // More may be waiting that was announced before the reset.
        wake(&self.ready);
    }
}

impl QueueFiller {
    /// Receives until the balancer is stopped, or another process receives instead.
    ///
    /// # Errors
    /// If the socket breaks.
    pub(crate) fn run(mut self, control: &Control) -> io::Result<()> {
        let ends = || control.is_stopped() || control.is_released();
        while !ends() {
            let mut descriptors = [PollFd::new(&*self.socket, PollFlags::IN)];
            match poll(&mut descriptors, Some(&SLEEP)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let failed = descriptors
                .iter()
                .any(|descriptor| descriptor.revents().contains(PollFlags::ERR));
            if failed {
                discard_errors(&*self.socket)?;
            }
            while !ends() && receive(&self.socket, &mut self.batch)? {
                if !self.pass_on() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Queues the batch, or drops what it contains. Returns whether the shard still runs.
    fn pass_on(&mut self) -> bool {
        match self.empty.try_recv() {
            Ok(empty) => {
                let filled = std::mem::replace(&mut self.batch, empty);
                let sent = self.filled.try_send(filled).is_ok();
                wake(&self.ready);
                sent
            }
            Err(TryRecvError::Empty) => {
                let messages = self.batch.messages();
                let datagrams: usize = messages.map(|(meta, _)| meta.datagrams()).sum();
                self.dropped.fetch_add(datagrams as u64, Ordering::Relaxed);
                true
            }
            Err(TryRecvError::Disconnected) => false,
        }
    }
}

fn wake(ready: &OwnedFd) {
    // It fails if the counter is at its maximum, and then it is readable anyway.
    let _ = rustix::io::write(ready, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use clearway_udp::{Options, Socket, Transmit};

    #[test]
    fn full_queue_drops_and_counts_and_goes_on_when_it_is_drained() {
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
        let to = socket.local_addr().unwrap();
        let (mut filler, queue) = queue(Arc::new(socket.into()), 1).unwrap();
        let sender = Socket::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
        let mut pass = |count: usize| {
            for _ in 0..count {
                sender.send(&mut Transmit::new(to, b"datagram")).unwrap();
                while !receive(&filler.socket, &mut filler.batch).unwrap() {}
                assert!(filler.pass_on());
            }
        };
        pass(BATCHES + 3);
        assert_eq!(queue.take_dropped(), 3);
        assert_eq!(queue.take_dropped(), 0, "each is counted once");
        let mut drained = 0;
        queue.drain(|batch| drained += batch.len());
        assert_eq!(drained, BATCHES);
        pass(1);
        queue.drain(|batch| drained += batch.len());
        assert_eq!(drained, BATCHES + 1);
        assert_eq!(queue.take_dropped(), 0);
    }

    #[test]
    fn filler_ends_with_its_shard() {
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
        let (mut filler, queue) = queue(Arc::new(socket.into()), 1).unwrap();
        drop(queue);
        for _ in 0..BATCHES {
            if !filler.pass_on() {
                break;
            }
        }
        assert!(!filler.pass_on());
        let control = Control::new(Arc::new(Plan::new(Vec::new(), []).unwrap()));
        control.stop();
        filler.run(&control).unwrap();
    }
}
