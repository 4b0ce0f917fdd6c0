//! Received HTTP datagrams that the application has not read.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::Bytes;

/// Most datagrams of one tunnel that wait to be read.
const MAX_DATAGRAMS: usize = 512;

/// Most bytes of them: some 180 datagrams of the usual size, a burst that a task reads in a few
/// milliseconds.
const MAX_BYTES: usize = 256 << 10;

/// Most bytes of all tunnels of a connection, as the transport's own queue has.
const MAX_CONNECTION_BYTES: usize = 1 << 20;

/// The datagrams of one tunnel. When it is full the oldest are dropped and counted: to most
/// protocols a newer datagram is worth more.
#[derive(Debug, Default)]
pub(super) struct DatagramQueue {
    queue: VecDeque<Bytes>,
    bytes: usize,
    dropped: u64,
    pub(super) reader: Option<Waker>,
}

impl DatagramQueue {
    /// Adds a datagram; `total` are the bytes of all tunnels of the connection.
    pub(super) fn push(&mut self, datagram: Bytes, total: &mut usize) {
        while self.queue.len() >= MAX_DATAGRAMS
            || self.bytes.saturating_add(datagram.len()) > MAX_BYTES
            || total.saturating_add(datagram.len()) > MAX_CONNECTION_BYTES
        {
            self.dropped = self.dropped.saturating_add(1);
            if self.take(total).is_none() {
                // Others hold all that the connection may.
                return;
            }
        }
        self.bytes = self.bytes.saturating_add(datagram.len());
        *total = total.saturating_add(datagram.len());
        self.queue.push_back(datagram);
    }

    /// Takes the oldest datagram.
    pub(super) fn take(&mut self, total: &mut usize) -> Option<Bytes> {
        let datagram = self.queue.pop_front()?;
        self.bytes = self.bytes.saturating_sub(datagram.len());
        *total = total.saturating_sub(datagram.len());
        Some(datagram)
    }

    /// Returns how many datagrams were dropped because nobody read them in time.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory beside the datagrams, in bytes.
    pub(super) fn overhead(&self) -> usize {
        let slots = size_of::<Bytes>().saturating_mul(self.queue.capacity());
        size_of::<Self>().saturating_add(slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_datagrams_are_dropped_beyond_a_tunnels_limits() {
        let (mut queue, mut total) = (DatagramQueue::default(), 0);
        for n in 0..MAX_DATAGRAMS + 5 {
            queue.push(Bytes::from(n.to_string()), &mut total);
        }
        assert_eq!(queue.dropped(), 5);
        assert_eq!(queue.take(&mut total).unwrap(), "5");
        let mut queue = DatagramQueue::default();
        let datagram = Bytes::from(vec![0; MAX_BYTES / 4]);
        (0..6).for_each(|_| queue.push(datagram.clone(), &mut total));
        assert_eq!((queue.dropped(), queue.bytes()), (2, MAX_BYTES));
    }

    #[test]
    fn tunnels_share_the_limit_of_their_connection() {
        let mut total = 0;
        let datagram = Bytes::from(vec![0; MAX_BYTES]);
        let mut queues: [DatagramQueue; 5] = Default::default();
        for queue in &mut queues {
            queue.push(datagram.clone(), &mut total);
        }
        assert_eq!(total, MAX_CONNECTION_BYTES);
        assert_eq!(
            queues.each_ref().map(DatagramQueue::dropped),
            [0, 0, 0, 0, 1]
        );
        assert!(queues[0].take(&mut total).is_some());
        queues[4].push(datagram, &mut total);
        assert_eq!(
            (total, queues[4].bytes()),
            (MAX_CONNECTION_BYTES, MAX_BYTES)
        );
        for queue in &mut queues {
            while queue.take(&mut total).is_some() {}
        }
        assert_eq!(total, 0);
    }
}
