//! Datagrams that reached the wrong shard, forwarded to the right one.
//!
//! The kernel steers a train by its first segment, and by a hint, so some datagrams reach a
//! shard that does not own them. They are rare; each is copied once.

use std::collections::VecDeque;

use clearway_quic::connection::RecvMeta;

/// Most strays that wait for a shard; more are dropped and counted.
const CAPACITY: usize = 1024;

/// A datagram that waits, with its addresses.
#[derive(Debug)]
pub(super) struct QueuedDatagram {
    pub(super) from: RecvMeta,
    pub(super) datagram: Vec<u8>,
}

/// The strays that wait for one shard.
#[derive(Debug, Default)]
pub(super) struct Strays {
    waiting: VecDeque<QueuedDatagram>,
}

impl Strays {
    /// Adds a datagram. Returns whether there was room.
    pub(super) fn push(&mut self, from: RecvMeta, datagram: &[u8]) -> bool {
        let room = self.waiting.len() < CAPACITY;
        if room {
            self.waiting.push_back(QueuedDatagram {
                from,
                datagram: datagram.to_vec(),
            });
        }
        room
    }

    pub(super) fn pop(&mut self) -> Option<QueuedDatagram> {
        self.waiting.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Swaps two queues, so that the memory of an empty one is used again.
    pub(super) fn swap(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.waiting, &mut other.waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_quic::ack::ReceivedEcn;

    #[test]
    fn stray_queue_is_bounded_and_first_in_first_out() {
        let from = RecvMeta {
            remote: ([127, 0, 0, 1], 1).into(),
            local_ip: None,
            ecn: ReceivedEcn::NotEct,
        };
        let mut strays = Strays::default();
        for n in 0..CAPACITY {
            assert!(strays.push(from, &n.to_be_bytes()));
        }
        assert!(!strays.push(from, b"one too many"));
        let mut taken = Strays::default();
        taken.swap(&mut strays);
        assert!(strays.is_empty());
        for n in 0..CAPACITY {
            assert_eq!(taken.pop().unwrap().datagram, n.to_be_bytes());
        }
        assert!(taken.pop().is_none());
    }
}
